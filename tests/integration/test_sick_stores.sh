#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# C2: of eight stores three hang and two fail every third write, and four sessions write to each as
# fast as they may. Whoever uses the three that are well does not wait for the others: writers, and
# sessions that log in, read, write, have all made stable (SYNCHRONIZE CACHE), and log out again.
# TGT_SICK_SECONDS: for how long; TGT_SICK_WAIT_MS: nobody may wait longer. TGT_SICK_RATIO: the
# same is done without the others first, and p99 may be so many times that (tests/bench/cache-shows).
# TGT_SICK_NEIGHBOURS=1: not without those that fail, but while they are well and as busy: so the
# disk and the processors have as much to do. SICK_MBPS: each store has a bandwidth of its own.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/integration/admin_lib.sh
iqn=iqn.2026-11.org.tgtd.test:sick
seconds=${TGT_SICK_SECONDS:-8}
wait_ms=${TGT_SICK_WAIT_MS:-5000}
command -v cc >/dev/null || { echo "ok sick_stores # SKIP no compiler"; exit 0; }
tools=$PWD/build/bin

# As long as there is a file $SICK: see tests/preload/sick_stores.c.
cc -shared -fPIC -O1 -o "$dir/sick.so" tests/preload/sick_stores.c -ldl
export SICK=$dir/sick
export ASAN_OPTIONS=verify_asan_link_order=0:${ASAN_OPTIONS:-}
# It asks for files where it should not: in a daemon that refuses that all stores were well.
LD_PRELOAD=$dir/sick.so daemon_start ours --cache size=64m --seccomp off

names=(hung-1 hung-2 hung-3 bad-1 bad-2 well-1 well-2 well-3)
load() { # NAME CONNECTIONS DEPTH SIZES REPORT OPTIONS...
	local name=$1 connections=$2 depth=$3 bs=$4 report=$5
	shift 5
	exec "$tools/tgt-load" --portal "127.0.0.1:$port" --target "$iqn-$name" --quiet \
		--initiator "iqn.2026-11.org.tgtd.test:$name" --read 0 --connections "$connections" \
		--depth "$depth" --bs "$bs" --json "$report" --warmup 0 --wait block --threads 1 "$@"
}
for k in "${!names[@]}"; do
	truncate -s 128M "$dir/${names[k]}"
	adm -m target -o new -t $((k + 1)) -T "$iqn-${names[k]}"
	adm -m target -o bind -t $((k + 1)) -I ALL
	adm -m lu -o new -t $((k + 1)) -l 1 -b "$dir/${names[k]}"
	is "${names[k]} is there" done_silently
	is "and takes writes" eval "(load ${names[k]} 1 4 64k '$dir/first' --count 200) \
		>'$dir/first.out' 2>&1"
done

# Sessions that come and go; each thing that they do is timed.
cat >"$dir/guests.py" <<'END'
import json, os, random, struct, sys, time
sys.path.insert(0, 'tests/support')
from iscsi_peer import Peer

port, target, seconds, report = int(sys.argv[1]), sys.argv[2], float(sys.argv[3]), sys.argv[4]
Peer.address, Peer.target = ('127.0.0.1', port), target
blocks, data = 128 << 11, random.randbytes(4096)
times = {what: [] for what in ('login', 'read', 'write', 'sync')}
Peer.count = os.getpid() * 1000  # names of its own


def timed(what, do):
    began = time.monotonic()
    done = do()
    times[what].append((time.monotonic() - began) * 1e3)
    return done


def command(p, pdu):
    p.out(pdu)
    assert p.wait_status(p.itt - 1)[1] == 0, 'a command failed'


end = time.monotonic() + seconds
while time.monotonic() < end:
    p = timed('login', lambda: Peer(timeout=120).login())
    p.ready()
    for n in (8, 8, 8, 128):
        timed('read', lambda: command(p, p.read(random.randrange(blocks // n) * n, n)))
    timed('write', lambda: command(p, p.write(random.randrange(blocks // 8) * 8, 8, data)))
    timed('sync', lambda: command(p, p.command(struct.pack('>B', 0x35), 0x80)))
    p.logout()
    time.sleep(0.1)
with open(report, 'w') as f:
    json.dump({what: {'count': len(t), 'max': max(t)} for what, t in times.items()}, f)
END

# Those that are well, into reports of this kind.
well_load() { # KIND
	local left p
	well=()
	for name in "${names[@]:5}"; do
		(load "$name" 4 2 "4k:3,512k:1" "$dir/$1-$name" --time "$seconds") \
			>"$dir/out-$name" 2>&1 &
		well+=($!)
		python3 -B "$dir/guests.py" "$port" "$iqn-$name" "$seconds" "$dir/$1-guests-$name" \
			>"$dir/guests-$name" 2>&1 &
		well+=($!)
	done
	# Much more than it should take: who is stopped does not end at all.
	for _ in $(seq $((seconds + 60))); do
		left=0
		for p in "${well[@]}"; do
			kill -0 "$p" 2>/dev/null && left=1
		done
		[ $left = 0 ] && break
		sleep 1
	done
}
greedy_loads() { # NAME...
	greedy=()
	for name; do
		(load "$name" 4 32 256k "$dir/greedy-$name" --time 600) >/dev/null 2>&1 &
		greedy+=($!)
	done
	sleep 3
}
# What the daemon has used so far: jiffies of user and system time.
used() { awk '{ print $14 + $15 }' "/proc/$worker/stat"; }
say_used() { # WHEN BEFORE
	echo "# the daemon's processors $1: $(($(used) - $2)) jiffies in $seconds s"
}
before=$(used)
if [ -n "${TGT_SICK_NEIGHBOURS-}" ]; then
	greedy_loads bad-1 bad-2
	well_load alone
	kill "${greedy[@]}" 2>/dev/null
	wait "${greedy[@]}" 2>/dev/null
elif [ -n "${TGT_SICK_RATIO-}" ]; then
	well_load alone
fi
say_used "without the sick ones" "$before"
touch "$SICK"
greedy_loads "${names[@]:0:5}"
before=$(used)
well_load beside
say_used "beside them" "$before"
if [ -n "${TGT_SICK_RATIO-}" ]; then
	for k in 6 7 8; do # what of that is the cache's, and what the store's
		adm --mode logicalunit --op latency --tid $k --lun 1
		printf '%s\n' "$out" | grep -E ' (total|waiting|cache|store|wire) |class' |
			grep -E 'class|write' | sed 's/^/# /'
	done
fi
for name in "${names[@]:5}"; do
	is "$name: all its writes are served, and none waits too long" python3 - \
		"$dir/beside-$name" "$wait_ms" "$dir/alone-$name" "${TGT_SICK_RATIO:-0}" <<'END'
import json, sys
try:
    r = json.load(open(sys.argv[1]))
except (OSError, ValueError):
    sys.exit('it has not ended: writes wait')
w = r['latency_us']['write']
print('# %u writes, p99 %.1f ms, longest %.1f ms' % (w['count'], w['p99'] / 1e3, w['max'] / 1e3))
ratio = float(sys.argv[4])
slow = False
if ratio:
    a = json.load(open(sys.argv[3]))['latency_us']['write']
    print('# without the others %u writes, p99 %.1f ms, longest %.1f ms: %.2f times the p99'
          % (a['count'], a['p99'] / 1e3, a['max'] / 1e3, w['p99'] / a['p99']))
    slow = w['p99'] > ratio * a['p99']
sys.exit(slow or not (w['count'] and w['max'] < int(sys.argv[2]) * 1e3))
END
	is "$name: who logs in, reads, and has it made stable does not wait too long" python3 - \
		"$dir/beside-guests-$name" "$wait_ms" "$dir/guests-$name" <<'END'
import json, sys
try:
    r = json.load(open(sys.argv[1]))
except (OSError, ValueError):
    sys.exit('they have not ended: ' + open(sys.argv[3]).read())
for what, t in r.items():
    print('# %u of %s, longest %.1f ms' % (t['count'], what, t['max']))
sys.exit(any(t['max'] >= int(sys.argv[2]) for t in r.values()))
END
done
is "the sick ones were sick" grep -q "/bad-1: write-back of .* failed" "$dir/log"
kill "${greedy[@]}" "${well[@]}" 2>/dev/null
wait "${greedy[@]}" "${well[@]}" 2>/dev/null
adm -m system -o show
is "the daemon answers" test "$rc" = 0
is "no report" no_report
daemon_kill
finish 5
