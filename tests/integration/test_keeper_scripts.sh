#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Scripts that know tgtd as one process, now that it is two: init scripts with start-stop-daemon and
# a pid file; status by name; ends by name (killall, pkill, kill `pidof tgtd`), which reach both in
# any order, once or twice; SIGKILL by name, and the start after that. Signals are sent here by the
# numbers that such a program would find.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/integration/admin_lib.sh
. tests/integration/worker_lib.sh
iqn=iqn.2026-11.org.tgtd:scripts
truncate -s 16m "$dir/store"
on_store() { dd if="$dir/store" bs=512 skip=64 count=1 status=none | od -An -tu1 -N1 | tr -d ' '; }
serve() { # with something dirty, of a number of its own
	daemon_start ours --pid-file "$dir/pid"
	adm --mode target --op new --tid 1 --targetname $iqn
	adm --mode target --op bind --tid 1 -I ALL
	adm --mode logicalunit --op new --tid 1 --lun 1 -b "$dir/store"
	peer write "$port" $iqn 64 "$1"
	is "a write is acknowledged ($1)" test $? = 0
}
nothing_lost() { # NUMBER
	is "... nothing was given up for it" not logged 'told twice|LOST'
	is "... and the store has it" test "$(on_store)" = "$1"
}

# ---- what is found by name
serve 11
is "both are found by their name" test "$(cat "/proc/$pid/comm" "/proc/$worker/comm" | uniq -c | tr -s ' ')" = " 2 tgtd"
is "... and by their program" test "/proc/$worker/exe" -ef "/proc/$pid/exe"
is "... which has a path" test "$(readlink "/proc/$worker/exe")" = "$(readlink -f "$bin/tgtd")"
is "... and by the command line" test "$(tr '\0' ' ' <"/proc/$worker/cmdline")" = "$(tr '\0' ' ' <"/proc/$pid/cmdline")"
# tgt's own initd.sample: `ps -C tgtd | grep -c tgtd` is 2 when it runs
is "tgt's init script takes it for running" test "$(ps -C tgtd -o pid= | grep -cwE "$pid|$worker")" = 2
kill -HUP "$pid" "$worker"
is "SIGHUP to both: it goes on" alive

# ---- SIGTERM by name
kill -TERM "$pid"
kill -TERM "$worker"
is "SIGTERM to each, as killall: it ends with 0" ends_with 0
nothing_lost 11
serve 12
kill -TERM "$worker" "$pid"
is "SIGTERM in the order of pidof" ends_with 0
nothing_lost 12
serve 13
kill -TERM "$pid" "$worker"
kill -TERM "$pid" "$worker" 2>/dev/null
is "SIGTERM to both, twice at once" ends_with 0
nothing_lost 13
is "... without a trace" test ! -e "$dir/pid" -a ! -e "$dir/state/worker.pid"

# ---- SIGKILL by name
answers() { # tgtadm ends with $1, within 20 s
	for _ in $(seq 200); do
		adm --mode system --op show
		[ "$rc" = "$1" ] && return 0
		sleep 0.1
	done
	return 1
}
gone() { answers 107; } # nobody listens any more
serves() { answers 0; }
for order in 'keeper first' 'worker first'; do
	daemon_start ours --pid-file "$dir/pid"
	if [ "$order" = 'keeper first' ]; then kill -9 "$pid" "$worker"; else kill -9 "$worker" "$pid"; fi
	wait "$pid" 2>/dev/null
	pid=
	is "SIGKILL to both, $order: none is left" gone
done
serve 14
is "the next one starts, with the pid file that was left" test "$(cat "$dir/pid")" = "$pid"
adm --mode system --op delete
is "it does not end while there are targets" test "$rc" = 22
adm --mode target --op delete --tid 1 --force
adm --mode system --op delete
is "tgtadm ends it" done_silently
is "... both have gone when it returns" eval '! is_there "$worker" && ! is_there "$pid"'
is "... with 0" ends_with 0
nothing_lost 14

# ---- PID 1 of a container: what others leave is its own to wait for
no_dead() { # who has ended under $1 does not stay, within 10 s
	for _ in $(seq 100); do
		out=$(ps --ppid "$1" -o pid=,stat=,comm=)
		grep -q ' Z' <<<"$out" || return 0
		sleep 0.1
	done
	return 1
}
if unshare --pid --fork --mount-proc true 2>/dev/null; then
	unshare --pid --fork --mount-proc "$bin/tgtd" -f -C 0 --state-dir "$dir/state" --cache size=16m \
		--iscsi "portal=127.0.0.1:$port" >>"$dir/log" 2>&1 &
	pid=$!
	is "PID 1: it serves" serves
	is "... as that" has "    Keeper: 1"
	first=$(worker_of "$pid")
	adm --mode target --op new --tid 1 --targetname $iqn
	for _ in 1 2 3; do
		adm --mode logicalunit --op new --tid 1 --lun 1 -b "$dir/store"
		adm --mode logicalunit --op delete --tid 1 --lun 1
	done
	is "... who closes stores is waited for" no_dead "$first"
	worker=$(worker_of "$first")
	kill -9 "$worker"
	is "... another worker serves" eval 'ended "$worker" && serves'
	is "... it is waited for" no_dead "$first"
	kill -TERM "$first"
	is "... it ends" ended "$first"
	wait "$pid"
	pid=
else
	echo "ok PID 1 # SKIP no namespaces"
fi

# ---- an init script
if ! command -v start-stop-daemon >/dev/null; then
	echo "ok an init script # SKIP there is no start-stop-daemon"
	finish
fi
start() {
	out=$(start-stop-daemon --start --oknodo --pidfile "$dir/ssd" --make-pidfile --background \
		--exec "$bin/tgtd" -- -f -C 0 --state-dir "$dir/state" --cache size=16m \
		--iscsi "portal=127.0.0.1:$port" 2>&1)
	rc=$?
}
start
is "start-stop-daemon starts it" serves
first=$(cat "$dir/ssd")
worker=$(worker_of "$first")
is "... its pid file names the keeper" has "    Keeper: $first"
start
is "... once" test "$rc" = 0 -a "$(cat "$dir/ssd")" = "$first"
if [ -r /lib/lsb/init-functions ]; then
	status() { bash -c '. /lib/lsb/init-functions; status_of_proc -p "$1" "$2" tgtd' _ "$dir/ssd" "$bin/tgtd"; }
	out=$(status)
	is "status: it runs" has "tgtd is running"
	kill -9 "$worker"
	is "... another worker serves" serves
	out=$(status)
	is "... status: it runs still" has "tgtd is running"
	worker=$(worker_of "$first")
fi
out=$(start-stop-daemon --stop --pidfile "$dir/ssd" --exec "$bin/tgtd" --retry TERM/60/KILL/5 2>&1)
rc=$?
is "start-stop-daemon stops it" test "$rc" = 0
# (It goes by what the process runs, and an ending one has given that up a moment before it has gone.)
is "... and when it returns, the worker has gone" not is_there "$worker"
is "... and so has the keeper" ended "$first"
is "... a start right after it serves" eval 'start; serves'
first=$(cat "$dir/ssd")
out=$(start-stop-daemon --stop --pidfile "$dir/ssd" --retry TERM/60/KILL/5 2>&1)
is "... and ends" ended "$first"
finish
