#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The measuring programs: tgt-load against the bare loop (and that its checks can fail), tgt-bench from
# end to end on one short case.
set -u
bin=${TGT_BIN:-build/bin}
tmp=$(mktemp -d)
pids=
trap 'kill $pids 2>/dev/null; rm -rf "$tmp"' EXIT

# start_bare ARGS...: sets bare, port and load
start_bare() {
	for try in 1 2 3 4 5; do
		port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
		"$bin/tgt-bareloop" --portal 127.0.0.1:$port --wait block "$@" >"$tmp/bare.log" 2>&1 &
		bare=$!
		for _ in $(seq 300); do
			kill -0 $bare 2>/dev/null || break
			(exec 3<>/dev/tcp/127.0.0.1/$port) 2>/dev/null && break 2
			sleep 0.1
		done
	done
	pids=$bare
	load=("$bin/tgt-load" --portal 127.0.0.1:$port --target iqn.2026-11.test:bare --wait block)
}

stop_bare() {
	kill $bare 2>/dev/null
	wait $bare 2>/dev/null
	pids=
}

start_bare
# expect NAME STATUS COMMAND...
expect() {
	local name=$1 want=$2 got
	shift 2
	timeout 120 "$@" >"$tmp/out" 2>&1
	got=$?
	if [ $got -eq "$want" ]; then
		echo "ok $name"
	else
		echo "not ok $name: exit status $got, expected $want"
		sed 's/^/# /' "$tmp/out" | tail -5
	fi
}

# holds NAME PYTHON-EXPRESSION over the JSON in out.json, as r
holds() {
	if python3 -c "import json,sys; r=json.load(open('$tmp/out.json')); sys.exit(0 if ($2) else 1)"; then
		echo "ok $1"
	else
		echo "not ok $1: $2"
	fi
}

json=(--quiet --json "$tmp/out.json")
expect load_reads 0 "${load[@]}" --count 2000 --depth 16 --target-pid $bare "${json[@]}"
holds load_counts_exactly "r['ios'] == 2000 and r['bytes'] == 2000 * 4096 and r['latency_us']['read']['count'] == 2000"
holds load_reports_cpu_of_the_target "r['target_cpu']['us_per_io'] > 0 and r['target_cpu']['threads'][0]['name'] == 'tgt-bareloop'"
expect load_writes_with_r2t 0 "${load[@]}" --read 0 --bs 1m --count 40 --depth 4 --immediate-data No --initial-r2t Yes "${json[@]}"
holds load_agreed_keys "r['agreed']['initial_r2t'] and not r['agreed']['immediate_data']"
expect load_writes_unsolicited 0 "${load[@]}" --read 0 --bs 512k --count 40 --max-burst 128k --first-burst 64k
expect load_mixed_sizes_and_digests 0 "${load[@]}" --bs 512:5,4k:5,1m:1 --read 50 --count 500 \
	--connections 3 --header-digest CRC32C --data-digest CRC32C --max-recv-segment 9000
expect load_zipf_two_luns 0 "${load[@]}" --lun 1-2 --lun-mode io --pattern zipf --count 1000
expect load_discards 0 "${load[@]}" --bs 256k --discard --count 200
expect load_beside_idle_sessions 0 "${load[@]}" --idle 40 --count 500 "${json[@]}"
expect load_open_loop 0 "${load[@]}" --rate 500 --time 1 --warmup 0.1 --depth 64 "${json[@]}"
holds load_keeps_its_rate "350 < r['iops'] < 650"
# It sleeps between arrivals: spinning, it took a processor of two from the target that it measures.
before=$(awk '{print $16 + $17}' "/proc/$$/stat")
expect load_open_loop_may_sleep 0 "${load[@]}" --rate 500 --time 2 --warmup 0.1 --depth 64 "${json[@]}"
ticks=$(($(awk '{print $16 + $17}' "/proc/$$/stat") - before))
holds load_sleeps_between_arrivals "$ticks * 1.0 / $(getconf CLK_TCK) < 1"
holds load_has_rates_over_time "30 < len(r['rates']['iops']) <= 40 and 0.5 < sum(r['rates']['iops']) / \
	len(r['rates']['iops']) / r['iops'] < 2"
holds load_has_a_distribution "[p for p, _ in r['distribution_us']][-1] == 99.99 and \
	[v for _, v in r['distribution_us']] == sorted(v for _, v in r['distribution_us']) and \
	dict(map(tuple, r['distribution_us']))[50] == r['latency_us']['all']['p50']"
# Before and behind the rate: a fill and, for verification, a whole read-back.
expect load_fills_then_keeps_a_rate 0 timeout 60 "${load[@]}" --fill --range 8m --rate 400 --time 1 --warmup 0.1 --depth 64 "${json[@]}"
holds load_keeps_its_rate_behind_a_fill "280 < r['iops'] < 520"
expect load_verifies_at_a_rate 1 timeout 60 "${load[@]}" --verify --fill --range 1m --rate 400 --time 0.5 --warmup 0.1 --depth 8 "${json[@]}"
holds load_reads_back_at_the_end "r['errors']['miscompared'] >= 2048 and r['verified'] == 0"
# The bare loop stores nothing, so verification must see it.
expect load_verification_can_fail 1 "${load[@]}" --verify --fill --range 1m --count 100 "${json[@]}"
holds load_counts_what_is_wrong "r['errors']['miscompared'] > 0 and r['verified'] == 0"
# One of four connections is lost: in the run, in the fill, with answers that never come. It ends with what the others have.
cut() { # NAME WAY BYTES ARGS...: by a relay that resets the second connection, or falls silent there
	local relay at
	: >"$tmp/cutter" # else the port of the one before is read, on a busy machine
	python3 -B tests/integration/cutter.py "$port" "$2" "$3" >"$tmp/cutter" &
	relay=$!
	pids="$bare $relay"
	for _ in $(seq 100); do
		at=$(cat "$tmp/cutter") && [ -n "$at" ] && break
		sleep 0.1
	done
	expect "$1" 1 timeout 60 "$bin/tgt-load" --portal "127.0.0.1:$at" --target iqn.2026-11.test:bare --wait block \
		--connections 4 --depth 8 "${json[@]}" "${@:4}"
	holds "$1_says_so" "r['errors']['lost_connections'] == 1 and r['ios'] > 0 and r['errors']['failed'] > 0"
	{ kill $relay && wait $relay; } 2>/dev/null
	pids=$bare
}
cut load_loses_one reset 1m --time 1 --warmup 0
cut load_loses_one_and_counts reset 1m --count 2000
cut load_loses_one_and_verifies reset 1m --verify --range 1m --read 50 --time 1 --warmup 0
cut load_loses_one_and_fills reset 1m --verify --fill --range 16m --time 1 --warmup 0
cut load_hears_no_more_of_one silence 1m --verify --range 1m --time 1 --warmup 0
expect load_wrong_usage 2 "$bin/tgt-load" --target a --bs 7
expect load_nobody_there 3 "$bin/tgt-load" --portal 127.0.0.1:1 --target a
stop_bare

# The bare loop's other ways to the socket serve the same.
engine() {
	local name=$1
	shift
	start_bare "$@"
	if grep -q 'io_uring: .*\(not permitted\|not implemented\|Permission\)' "$tmp/bare.log"; then
		echo "ok bare_$name # SKIP $(tail -1 "$tmp/bare.log")"
		return
	fi
	expect bare_${name}_mixed 0 "${load[@]}" --bs 512:5,4k:5,1m:1 --read 50 --count 2000 --connections 3 --depth 16 \
		--header-digest CRC32C --data-digest CRC32C --max-recv-segment 9000
	expect bare_${name}_r2t 0 "${load[@]}" --read 0 --bs 1m --count 40 --depth 4 --immediate-data No --initial-r2t Yes
	expect bare_${name}_large_reads 0 "${load[@]}" --bs 1m --count 500 --depth 32
	stop_bare
}
engine uring --engine uring
engine zerocopy --zerocopy 4k
if grep -q '[1-9][0-9]* sends with MSG_ZEROCOPY' "$tmp/bare.log"; then
	echo 'ok bare_zerocopy_is_used'
else
	echo 'not ok bare_zerocopy_is_used'
fi
engine uring_zerocopy --engine uring --zerocopy 4k

case $bin in
*/asan/* | */tsan/*)
	echo 'ok bench_end_to_end # SKIP a sanitized build has no speed to measure'
	exit 0
	;;
esac
TGT_BIN=$bin expect bench_end_to_end 0 "$bin/tgt-bench" --only bare --case r4k-d32 --case r4k-half --rounds 2 \
	--time 0.5 --warmup 0.05 --range 16m --out "$tmp/bench"
cp "$tmp/bench/report.json" "$tmp/out.json" 2>/dev/null || echo '{}' >"$tmp/out.json"
holds bench_medians "len(r['cases']['r4k-d32']['subjects']['bare']['iops_rounds']) == 2 and r['cases']['r4k-half']['subjects']['bare']['iops'] > 0"
if python3 -c "import xml.dom.minidom,sys; xml.dom.minidom.parse('$tmp/bench/report.svg')" && grep -q '^bare' "$tmp/bench/report.txt"; then
	echo 'ok bench_writes_table_and_plot'
else
	echo 'not ok bench_writes_table_and_plot'
fi

# U10: what a picture has, and what a bad file gets
drawn() {
	if grep -q "$2" "$tmp/bench/report.svg"; then
		echo "ok report_$1"
	else
		echo "not ok report_$1: no $2 in the picture"
	fi
}
drawn spread 'black marks are the rounds'
drawn notes 'note: bare: 2 rounds only'
drawn distribution 'share of commands done within so many us'
drawn rates 'K IOPS over time, rounds of'
bad() { # NAME TEXT WORDS: of a report like this
	printf '%s' "$2" >"$tmp/bad.json"
	expect "report_$1" 1 "$bin/tgt-bench-report" "$tmp/bad.json"
	if grep -q 'Traceback' "$tmp/out" || ! grep -q "^tgt-bench-report: $tmp/bad.json: $3" "$tmp/out"; then
		echo "not ok report_$1_says_so"
		sed 's/^/# /' "$tmp/out"
	else
		echo "ok report_$1_says_so"
	fi
}
bad empty '' 'not JSON'
bad other '[1, 2]' 'no report of tgt-bench: it has no meta and cases'
bad kind '{"meta": 3, "cases": {}}' 'no report of tgt-bench: meta is no dict'
bad older '{"meta": {}, "cases": {"a": {"subjects": {"x": 1}}}}' 'no report of this tgt-bench'
expect report_no_file 1 "$bin/tgt-bench-report" "$tmp/nothing.json"
expect report_usage 2 "$bin/tgt-bench-report"

if python3 -c "import json,sys; f=json.load(open('$tmp/out.json'))['cases']['r4k-half']['floor']; sys.exit(not 0 <= f['p99'] <= f['p999'])"; then
	echo 'ok bench_says_what_pauses_cost'
else
	echo 'not ok bench_says_what_pauses_cost'
fi
TGT_BIN=$bin expect bench_scaling 0 "$bin/tgt-bench" --set scaling --case 'cores-*' --case lus-1 --rounds 1 --time 0.1 --warmup 0.05 \
	--range 16m --out "$tmp/bench"
cp "$tmp/bench/scaling.json" "$tmp/out.json" 2>/dev/null || echo '{}' >"$tmp/out.json"
holds bench_scaling_counts_both "all(s['total_cpu_us'] > s['cpu_us'] > 0 for s in r['cases']['lus-1']['subjects'].values())"
holds bench_scaling_has_both_models "{n[:4] for n in r['cases']['lus-1']['subjects']} == {'ours', 'cent'}"
if python3 -c "import xml.dom.minidom,sys; xml.dom.minidom.parse('$tmp/bench/scaling.svg')" && grep -q 'against LUs' "$tmp/bench/scaling.txt"; then
	echo 'ok bench_scaling_table_and_plot'
else
	echo 'not ok bench_scaling_table_and_plot'
fi

# The cache by itself. What it counts does not depend on how busy the machine is.
expect cachebench_counts_locks 0 "$bin/tgt-cachebench" -b 512k -a 4k -s 8m -n 200 -j
cp "$tmp/out" "$tmp/out.json"
holds long_reads_take_two_locks_at_most "r['most_locks'] == 2 and 1.5 < r['locks'] <= 2"
expect cachebench_writes 0 "$bin/tgt-cachebench" -w -b 64k -s 4m -n 200 -d 4 -j
expect cachebench_alternates 0 "$bin/tgt-cachebench" -t 2 -1 -r 1 -n 100 -s 2m -j
cp "$tmp/out" "$tmp/out.json"
holds cachebench_scaling "r['same'] and r['cache']['cpu_ns_all'] > 0 and r['machine']['by_cpu'] > 0"
expect cachebench_misses 0 "$bin/tgt-cachebench" -m -s 8m -n 5000 -j -c block=16k
cp "$tmp/out" "$tmp/out.json"
holds large_blocks_waste_memory "r['block'] == 16384 and r['filled'] < 0.9"
# Each way sends the right bytes in order (the tool ends with 1 if not), some requests being the owner's own.
expect cachebench_sends 0 "$bin/tgt-cachebench" --send -b 64k -s 8m -r 1 -l 30 -j
cp "$tmp/out" "$tmp/out.json"
# (Other threads have messages too, and on a busy machine few requests stand beside them.)
holds forwards_are_two_messages "[x['way'] for x in r] == ['inline', 'back', 'worker'] and r[0]['messages'] < 0.7 < 1 < r[1]['messages'] < 2"
expect cachebench_send_wrong_usage 2 "$bin/tgt-cachebench" --send -w
# What was measured stands beside what the model makes of this machine's lines, bytes and hop.
expect cachebench_model 0 "$bin/tgt-cachebench" --model --numa-nodes 2 -j
cp "$tmp/out" "$tmp/out.json"
holds model_has_this_machine "r[-1]['machine'].startswith('this machine') and \
	r[-1]['hop_ns'] > 0 and [w['bytes'] >> 10 for w in r[-1]['ways']] == [4, 16, 64, 256, 1024]"
holds model_has_what_was_measured "all(w[way] > 1000 for w in r[-1]['ways'] \
	for way in ('inline_ns', 'back_ns', 'send_ns'))"
holds model_goes_by_what_was_measured "all(abs(w['back_model_ns'] - w['inline_ns'] - \
	r[-1]['hop_ns'] + (w['bytes'] / 4096 * 1.1 + 1.8) * \
	(r[-1]['line_ns'][1] - r[-1]['line_ns'][0])) < 60 for w in r[-1]['ways'])"
holds model_counts_who_copies "all(abs(w['send_model_ns'] - w['back_model_ns'] - \
	w['bytes'] * 1000 * (1 / r[-1]['mbps'][0] - 1 / r[-1]['mbps'][1])) < 60 \
	for w in r[-1]['ways'])"
# What could not be measured is not a machine of one node.
expect cachebench_model_without_memory 1 \
	bash -c 'ulimit -v 400000; exec "$0" --model --numa-nodes 2' "$bin/tgt-cachebench"
if grep -q '2 nodes, but they could not be measured' "$tmp/out" &&
	! grep -q 'one node' "$tmp/out"; then
	echo 'ok model_says_what_failed'
else
	echo 'not ok model_says_what_failed'
fi
expect cachebench_model_wrong_usage 2 "$bin/tgt-cachebench" --model --numa-nodes 1

# bench-real on a small file system for a moment: that it runs at all. What it needs, other tests do not.
out=$(TGT_BIN=$bin timeout 100 tests/bench/run-real --only ours --fs ext4 --rounds 1 --records 2000 --time 0.1 \
	--files-n 100 --transactions 100 --lun-gb 1 --out "$tmp/real" 2>&1)
case $out in
*'ext4 round 1 ours'*'ycsb F'*) echo 'ok bench_real_runs' ;;
*'bench-real: missing: '* | *'bench-real: needs root'*) echo "ok bench_real_runs # SKIP ${out##*bench-real: }" ;;
*) echo 'not ok bench_real_runs'; printf '%s\n' "$out" | sed 's/^/# /' ;;
esac
