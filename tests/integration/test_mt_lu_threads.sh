#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# An LU with several event threads: sessions spread over them and each serves its own, what one writes the others read,
# more or fewer of them while sessions are there, the LU and its target go under load; what is not a number of
# threads is refused and makes nothing; tgt-admin dumps, compares and changes it.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/integration/admin_lib.sh
refused_because() { [ "$rc" = 22 ] && has "$1"; }
iqn=iqn.2026-11.org.tgtd.test:threads
# The tools are not what is tested: the plain build's are faster when they are there.
[ -x build/bin/tgt-load ] && [ -x build/bin/tgtadm ] && tools=$PWD/build/bin
load=${tools:-$bin}/tgt-load
loaders=()
trap 'kill "${loaders[@]}" 2>/dev/null; wait "${loaders[@]}" 2>/dev/null; daemon_kill; rm -rf "$dir"' EXIT
export TSAN_OPTIONS="${TSAN_OPTIONS:-} exitcode=66"
truncate -s 64m "$dir/disk1" "$dir/disk2"

threads() { cat /proc/"$worker"/task/*/comm 2>/dev/null | grep "^lu-" | sort | tr '\n' ' '; }
threads_are() { # the names, within 20 s
	for _ in $(seq 200); do
		out=$(threads)
		[ "$out" = "${1:+$1 }" ] && return 0
		sleep 0.1
	done
	return 1
}
cpu() { # nanoseconds of the thread $1
	for task in /proc/"$worker"/task/*; do
		[ "$(cat "$task/comm")" = "$1" ] && cut -d' ' -f1 "$task/schedstat"
	done
}
lu_new() { # tid lun params
	adm --op new --mode logicalunit --tid "$1" --lun "$2" --bstype aio --backing-store "$dir/disk$2" --params "$3"
}
target_new() {
	adm --op new --mode target --tid "$1" -T "$iqn$1"
	adm --op bind --mode target --tid "$1" -I ALL
}
sessions_on() { # how many sessions of target 1 live on each of the threads $1...
	local name n=
	adm --op show --mode session --tid 1
	for name in "$@"; do n="$n $(printf '%s\n' "$out" | grep -cE "(^|[^0-9a-z])$name( |,|\$)")"; done
	[ "$n" = " $counts" ]
}
soon() { # CONDITION...: within 20 s
	for _ in $(seq 200); do
		"$@" && return 0
		sleep 0.1
	done
	return 1
}
begin_load() { # seconds connections options...
	"$load" --portal "127.0.0.1:$port" --target "${iqn}1" --lun 1 --read 50 --time "$1" --connections "$2" --depth 8 \
		--bs 512:10,4k:50,64k:10 --warmup 0 --wait block --quiet "${@:3}" >"$dir/load" 2>&1 &
	loaders=($!)
}
load_ended_well() { wait "${loaders[@]}"; }
# A write whose data does not come: from now on the LUN works, however seldom the load has its turn.
hold_a_write() {
	python3 - "$port" "${iqn}1" "$dir/held" 2>&1 <<'PYTHON' &
import sys, time
sys.path.insert(0, 'tests/support')
sys.dont_write_bytecode = True
from iscsi_peer import Peer
Peer.address, Peer.target = ('127.0.0.1', int(sys.argv[1])), sys.argv[2]
p = Peer(timeout=60).login('InitialR2T=Yes').ready()
p.out(p.write(0, 8))
while p.recv()[0][0] != 0x31:  # R2T
    pass
open(sys.argv[3], 'w').close()
time.sleep(60)
PYTHON
	loaders+=($!)
}

daemon_start ours
target_new 1
for bad in 0 65 two 2x -1; do
	adm -d --op new --mode logicalunit --tid 1 --lun 1 --bstype ram --backing-store 1m --params threads=$bad
	is "threads=$bad is refused" refused_because "threads cannot be '$bad'"
done
lu_new 1 1 nonsense=1
is "so is a parameter that there is not" test "$rc" = 22
adm --op delete --mode logicalunit --tid 1 --lun 1
is "and nothing was made" refused "can't find the logical unit"
lu_new 1 1 threads=2,vendor_id=THREADS
is "a LUN with two threads" done_silently
is "they are named for it" threads_are "lu-1:1 lu-1:1.1"

# ---- who serves whom
begin_load 4 4 --verify
counts="2 2"
is "four sessions: two on each" soon sessions_on lu-1:1 lu-1:1.1
a=$(cpu lu-1:1) b=$(cpu lu-1:1.1)
is "what they wrote is what they read" load_ended_well
a=$(($(cpu lu-1:1) - a)) b=$(($(cpu lu-1:1.1) - b))
echo "# lu-1:1 $((a / 1000000)) ms, lu-1:1.1 $((b / 1000000)) ms"
both_worked() { [ $a -gt $((b / 8)) ] && [ $b -gt $((a / 8)) ]; }
is "both threads worked" both_worked

# ---- more, and fewer, with sessions there
begin_load 8 3 --verify
counts="2 1"
is "three sessions" soon sessions_on lu-1:1 lu-1:1.1
adm --op update --mode logicalunit --tid 1 --lun 1 --params threads=4
is "two more threads" threads_are "lu-1:1 lu-1:1.1 lu-1:1.2 lu-1:1.3"
adm --op update --mode logicalunit --tid 1 --lun 1 --params threads=1
is "only one is wanted: that with a session stays" threads_are "lu-1:1 lu-1:1.1"
counts="2 1"
is "and its session" soon sessions_on lu-1:1 lu-1:1.1
adm -d --op update --mode logicalunit --tid 1 --lun 1 --params threads=70
is "more than 64 are refused" refused_because "threads are 1 to 64, not '70'"
is "its data is right" load_ended_well
is "without sessions it goes" threads_are "lu-1:1"

# ---- tgt-admin
conf=$dir/targets.conf
"$bin/tgt-admin" --dump >"$conf"
out=$(cat "$conf")
is "the dump says what was set" has "threads 1"
sed -i 's/threads 1/threads 3/' "$conf"
begin_load 6 1 --verify
counts="1"
is "a session" soon sessions_on lu-1:1
out=$("$bin/tgt-admin" -c "$conf" --update ALL 2>&1)
is "an update to three threads" threads_are "lu-1:1 lu-1:1.1 lu-1:1.2"
out=$("$bin/tgt-admin" --dump)
is "is what is dumped then" has "threads 3"
sed -i '/threads 3/d' "$conf"
out=$("$bin/tgt-admin" -c "$conf" --update ALL 2>&1)
is "not said: one again" threads_are "lu-1:1"
is "the session has not noticed" load_ended_well
sed -i 's/backing-store .*disk1>/&\n\t\tthreads 65/' "$conf"
out=$("$bin/tgt-admin" -c "$conf" --update ALL 2>&1)
is "a file that asks for 65 is refused" has "threads is 1 to 64, not '65'"

# ---- the end under load
adm --op update --mode logicalunit --tid 1 --lun 1 --params threads=2
begin_load 20 4
counts="2 2"
is "four sessions at work" soon sessions_on lu-1:1 lu-1:1.1
hold_a_write
is "... one of its commands for sure" soon test -e "$dir/held"
lu_new 1 2 threads=2
gone() { adm --op delete --mode logicalunit --tid 1 --lun 1; [ "$rc" = 0 ] || [ "$out" = "tgtadm: can't find the logical unit" ]; }
adm --op delete --mode logicalunit --tid 1 --lun 1
is "a LUN that works is not deleted" refused "this logical unit is still active"
adm --op delete --mode target --tid 1 --force
is "its target is, by force" done_silently
kill "${loaders[@]}" 2>/dev/null
wait "${loaders[@]}" 2>/dev/null
target_new 1
lu_new 1 1 threads=3
begin_load 3 4 --verify
counts="2 1 1"
is "made again, with three threads" soon sessions_on lu-1:1 lu-1:1.1 lu-1:1.2
is "which do their work" load_ended_well
no_connection 1
is "the LUN goes when nobody works" soon gone
is "and its threads" threads_are ""
begin_load 20 4
lu_new 1 1 threads=2
counts="2 2"
out=
kill "${loaders[@]}" 2>/dev/null
wait "${loaders[@]}" 2>/dev/null
no_connection 1 # where new sessions go is a matter of those that are there
begin_load 20 4
is "four sessions again" soon sessions_on lu-1:1 lu-1:1.1
out=
is "SIGTERM under load: ends with 0" daemon_stop
kill "${loaders[@]}" 2>/dev/null
wait "${loaders[@]}" 2>/dev/null
is "no report" no_report

# ---- one thread for all
daemon_start ours --central-events
target_new 1
lu_new 1 1 threads=2
is "with central events it is taken" done_silently
is "and remembered" test -z "$(threads)"
out=$("$bin/tgt-admin" --dump)
is "for the dump" has "threads 2"
begin_load 1 2 --verify
is "two sessions work" load_ended_well
out=
is "and it ends with 0" daemon_stop
is "no report then either" no_report
finish
