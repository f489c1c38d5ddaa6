#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Bad networks (N7): tgtd in a network namespace of its own, behind a link (badlink.c) that delays,
# loses, reorders, doubles and damages packets, or is dead; with and without digests. What is read is
# compared with what was written, every command ends, no connection is lost.
#
#   MATRIX=long    all combinations, beside what plain TCP and a target that does nothing
#                  (tgt-bareloop) get over the same link; twelve minutes. check-shows runs it.
set -u
cd "$(dirname "$0")/../.." || exit 1
skip() {
	echo "ok a bad network # SKIP $*"
	exit 0
}
[ "$(id -u)" = 0 ] || skip "only root makes network namespaces"
[ -c /dev/net/tun ] || skip "there is no /dev/net/tun"
if [ -z "${IN_NAMESPACE:-}" ]; then
	unshare -n true 2>/dev/null || skip "no network namespaces here"
	IN_NAMESPACE=1 exec unshare -n "$0" "$@"
fi
ip link set lo up
. tests/integration/admin_lib.sh
iqn=iqn.2026-11.org.tgtd.test:far
near=10.9.0.2 address=10.9.0.1
matrix=${MATRIX:-short}
others=
trap 'kill -9 $others 2>/dev/null; daemon_kill; rm -rf "$dir"' EXIT
${CC:-cc} -std=gnu17 -D_GNU_SOURCE -O2 -Wall -Wextra -o "$dir/badlink" tests/integration/badlink.c ||
	skip "no compiler"
coproc LINK { exec "$dir/badlink" $near $address; }
read -r -t 30 far_pid <&"${LINK[0]}" || skip "no tun device is to be had"
far() { nsenter -t "$far_pid" -n "$@"; }
link() { echo "$*" >&"${LINK[1]}"; } # badlink.c says what
link delay 50

start_far() {
	kind=ours
	mkdir -p "$dir/state"
	nsenter -t "$far_pid" -n "$bin/tgtd" -f -C 0 --state-dir "$dir/state" \
		--cache "${TGT_TEST_CACHE:-size=32m}" --iscsi "portal=$address:3260" >"$dir/log" 2>&1 &
	pid=$!
	for _ in $(seq 300); do
		adm --mode system --op show
		[ "$rc" = 0 ] && return
		sleep 0.1
	done
	echo "not ok tgtd does not come up"
	exit 1
}
lun_1() { # a file behind the cache
	adm --op new --mode logicalunit --tid 1 --lun 1 --backing-store "$dir/disk"
	[ "$rc" = 0 ]
}
# Nobody is logged in, and nothing of them is left: commands in flight hold their LUN.
at_rest() {
	for _ in $(seq 1200); do
		adm --op show --mode conn --tid 1
		[ -z "$out" ] && break
		sleep 0.1
	done
	[ -z "$out" ] && adm --op delete --mode logicalunit --tid 1 --lun 1 && [ "$rc" = 0 ] && lun_1
}
says() { # of the last tgt-load
	python3 -c "import json; r = json.load(open('$dir/load.json')); print($1)" 2>/dev/null
}
# RANGE BS SECONDS [TGT-LOAD OPTIONS]: reads and writes with stamps in each block. 0: each read had
# what was written last, no command failed, no connection was lost, and all of it has ended.
verified() {
	local range=$1 bs=$2 seconds=$3
	shift 3
	out=$(timeout 300 "$bin/tgt-load" --portal $address --target $iqn --verify --read 50 --bs "$bs" \
		--range "$range" --depth 8 --connections 2 --threads 1 --warmup 0 --time "$seconds" \
		--wait block --json "$dir/load.json" "$@" 2>&1) || return 1
	[ "$(says 'r["verified"] > 0')" = True ] && at_rest
}
digests="--header-digest CRC32C --data-digest CRC32C"

# Dead for 3 s in the middle of a load, then as before. No command waits much longer than TCP does.
dead_for_3_s() {
	local longest='max(v["max"] for v in r["latency_us"].values()) / 1e6' load rc=0
	link delay 5000
	verified 4m 4k:3,64k:1 12 "$@" &
	load=$!
	for _ in $(seq 300); do
		adm --op show --mode conn --tid 1
		[ -n "$out" ] && break
		sleep 0.1
	done
	sleep 2
	link loss 1
	sleep 3
	link delay 5000
	wait $load || rc=1
	echo "# dead for 3 s: the longest command took $(says "'%.1f s' % ($longest)")"
	out=$(cat "$dir/load.json")
	[ $rc = 0 ] && [ "$(says "3 <= $longest <= 60")" = True ]
}
# Sessions end when pings stay without an answer, and their commands with them.
dead_for_good() {
	local load rc=0
	adm --op update --mode target --tid 1 --name nop_interval --value 2
	adm --op update --mode target --tid 1 --name nop_count --value 2
	link delay 5000
	timeout -k 1 120 "$bin/tgt-load" --portal $address --target $iqn --read 50 --bs 64k --depth 16 \
		--range 16m --time 100 --wait block --quiet >/dev/null 2>&1 &
	load=$!
	for _ in $(seq 300); do
		adm --op show --mode conn --tid 1
		[ -n "$out" ] && break
		sleep 0.1
	done
	sleep 1
	link loss 1
	at_rest || rc=1
	kill $load
	wait $load
	link delay 50
	adm --op update --mode target --tid 1 --name nop_interval --value 30
	adm --op update --mode target --tid 1 --name nop_count --value 5
	return $rc
}

start_far
truncate -s 64m "$dir/disk"
adm --op new --mode target --tid 1 -T $iqn
adm --op bind --mode target --tid 1 -I ALL
is "a target behind the link" lun_1

if [ "$matrix" = short ]; then
	link delay 50 loss 0.001
	is "0.1 ms, loss 0.1 %" verified 4m 4k:3,64k:1 3
	link delay 5000 loss 0.01
	# shellcheck disable=SC2086
	is "10 ms, loss 1 %, digests" verified 1m 4k:3,64k:1 4 $digests
	link delay 47500 loss 0.001
	is "95 ms, loss 0.1 %" verified 512k 4k:3,16k:1 4
	link delay 5000 reorder 0.25 duplicate 0.05 damage 0.001
	# shellcheck disable=SC2086
	is "10 ms, reordered, doubled, damaged, digests" verified 1m 4k:3,64k:1 4 $digests
	# shellcheck disable=SC2086
	is "dead for 3 s, digests" dead_for_3_s $digests
	is "dead for good: its sessions end, and their commands" dead_for_good
fi

# read|write PORT: MB/s of a sequential load without stamps, on a ram unit.
speed() {
	timeout 200 "$bin/tgt-load" --portal $address:"$2" --target $iqn --lun 2 --bs 256k --depth 32 \
		--range 64m --pattern sequential --read "$([ "$1" = read ] && echo 100 || echo 0)" \
		--wait block --warmup 2 --time 5 --quiet --json "$dir/load.json" >/dev/null 2>&1
	says '"%.1f" % r["mbps"]'
}
figures() {
	local way a b c
	for way in read write; do
		a=$(speed $way 3260) b=$(speed $way 3290)
		c=$(python3 tests/integration/tcp_stream.py $way $address 3299 7)
		printf '# %-32s %-5s  tgtd %7s  bare loop %7s  TCP %7s MB/s\n' "$1" $way "$a" "$b" "$c"
		[ -n "$a" ] && [ -n "$b" ] && [ -n "$c" ] || return 1
	done
}
setting() { # NAME RANGE BS LINK
	local name=$1 range=$2 bs=$3
	shift 3
	link "$@"
	is "$name" verified "$range" "$bs" 5
	# shellcheck disable=SC2086
	is "$name, digests" verified "$range" "$bs" 5 $digests
	is "$name, figures" figures "$name"
}
if [ "$matrix" = long ]; then
	adm --op new --mode logicalunit --tid 1 --lun 2 --bstype ram --backing-store 64m
	nsenter -t "$far_pid" -n "$bin/tgt-bareloop" --portal $address:3290 --wait block >/dev/null 2>&1 &
	others=$!
	nsenter -t "$far_pid" -n python3 tests/integration/tcp_stream.py serve 3299 >/dev/null 2>&1 &
	others="$others $!"
	sleep 1
	echo "# congestion control: $(cat /proc/sys/net/ipv4/tcp_congestion_control)"
	for rtt in 0.1 10 95; do
		for loss in 0 0.1 1; do
			range=4m bs=4k:3,64k:1
			[ $rtt != 95 ] || range=512k bs=4k:3,16k:1
			setting "$rtt ms, loss $loss %" $range $bs \
				delay "$(awk "BEGIN { print $rtt * 500 }")" loss "$(awk "BEGIN { print $loss / 100 }")"
		done
	done
	setting "10 ms, reordered" 4m 4k:3,64k:1 delay 5000 reorder 0.25
	setting "10 ms, doubled" 4m 4k:3,64k:1 delay 5000 duplicate 0.05
	setting "10 ms, 0.1 % damaged" 4m 4k:3,64k:1 delay 5000 damage 0.001
	setting "10 +- 4 ms, all of it" 1m 4k:3,16k:1 delay 5000 jitter 2000 reorder 0.1 loss 0.001 \
		duplicate 0.01 damage 0.0005
	is "dead for 3 s" dead_for_3_s
	# shellcheck disable=SC2086
	is "dead for 3 s, digests" dead_for_3_s $digests
	is "dead for good: its sessions end, and their commands" dead_for_good
fi
is "it ends with 0" daemon_stop
is "no report" no_report
finish 60
