#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Keeper and worker (issue 17): a worker that dies is replaced, and its portals go on to listen; what ends whom, and with
# which status; the watchdog, which takes nobody for stalled who is stopped or starved; crash loops; what systemd is told;
# a new program; and a successor that waits until the memory of the one before has gone.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/integration/admin_lib.sh
. tests/integration/worker_lib.sh
iqn=iqn.2026-11.org.tgtd:keeper
ulimit -c 0
field() { tr ' ' '\n' <"/proc/$1/stat" | sed -n "$2p"; }

# ---- a parent that has closed 0 to 2: what is said must not go to what has these numbers then
mkdir "$dir/state"
"$bin/tgtd" -f -C 0 --state-dir "$dir/state" --cache size=16m --pid-file "$dir/pid" \
	--iscsi "portal=127.0.0.1:$port" <&- >&- 2>&- &
pid=$!
kind=ours
is "it is started without 0 to 2" another
nothing() {
	local n
	for n in 0 1 2; do
		out="$1 $n $(readlink "/proc/$1/fd/$n")"
		[ "$(readlink "/proc/$1/fd/$n")" = /dev/null ] || return 1
	done
}
is "... its keeper says what it says to nobody" nothing "$pid"
is "... so does its worker" nothing "$worker"
kill -9 "$worker"
is "... that dies" another
is "... and the next one" nothing "$worker"
: >"$dir/log"
is "... and it ends with 0" daemon_stop

# ---- two processes
daemon_start ours --pid-file "$dir/pid"
is "the pid file names the keeper" test "$(cat "$dir/pid")" = "$pid"
is "worker.pid names the worker" test "$(cat "$dir/state/worker.pid")" = "$worker"
is "which is another process" test "$worker" != "$pid"
is "... in a process group of its own" test "$(field "$worker" 5)" = "$worker"
is "... called tgtd" grep -qx tgtd "/proc/$worker/comm"
is "show has both" has "    Keeper: $pid"
is "... and no restart" has "    Restarts: 0"
is "the keeper has one thread" test "$(ls "/proc/$pid/task")" = "$pid"
anon=$(awk '/^RssAnon/ { print $2 }' "/proc/$pid/status")
is "... and made no cache: $anon KiB" test "$anon" -lt $([ "${bin##*san}" = "$bin" ] && echo 4096 || echo 1048576)
if [ -w /proc/self/oom_score_adj ] && (echo -1000 >/proc/self/oom_score_adj) 2>/dev/null; then
	is "the kernel spares the keeper" grep -qx -- -1000 "/proc/$pid/oom_score_adj"
	is "... and not the worker" grep -qx -- "$(cat /proc/self/oom_score_adj)" "/proc/$worker/oom_score_adj"
fi
rights() { grep -E '^(CapBnd|NoNewPrivs|Seccomp):' "/proc/$worker/status" | tr -d '\n\t '; }
before=$(rights)

# ---- a worker dies
event() { # within 20 s, of who watches
	for _ in $(seq 200); do
		out=$(cat "$dir/events")
		grep -qE -- "$1" "$dir/events" && return 0
		sleep 0.1
	done
	return 1
}
"$bin/tgtadm" --mode system --op watch >"$dir/events" 2>&1 &
watcher=$!
"$bin/tgtadm" --mode system --op watch --name login,restart --json >"$dir/events.json" 2>&1 &
watchers="$watcher $!"
is "somebody watches" event 'Z watching$'
peer waits "$port" "$pid" "$worker"
printf '%s\n' "$out" | grep '^#'
is "who connects while there is no worker waits in the queue" has connected
is "... and is served by the next one" has "logged in"
is "another worker serves" another
is "worker.pid names it" test "$(cat "$dir/state/worker.pid")" = "$worker"
is "its pid file is the keeper's still" test "$(cat "$dir/pid")" = "$pid"
is "show counts it" has "    Restarts: 1"
is "... and says why" has "(killed by signal 9 (Killed))"
took="[0-9]+ ms: until its memory had gone [0-9]+, the next one's start [0-9]+"
is "... and what it took" grep -qE "^    It took: $took\$" <<<"$out"
is "the log does" logged "keeper: another worker serves: $took\$"
is "... and what the start took" logged \
	'the start took [0-9.]+ ms \([0-9.]+ of a processor\): program .*, cache [0-9.]+ \([0-9.]+\), .* sessions'
is "the log does" logged 'keeper: worker [0-9]+ killed by signal 9 \(Killed\); starting another'
is "its rights are those of the first ($before)" test "$(rights)" = "$before"
adm --json --mode system --op show
is "as JSON" test "$(printf '%s' "$out" | python3 -c 'import json, sys
p = json.load(sys.stdin)["processes"]
print(p["keeper"], p["worker"], p["restarts"], p["last_restart"] > 1e9, p["last_restart_reason"])')" = \
	"$pid $worker 1 True killed by signal 9 (Killed)"
adm --mode system --op stat --name worker_restarts
is "as a counter" has "worker_restarts 1"
is "who watched goes on, and is told" event "Z restart what=died text=killed by signal 9 \(Killed\); worker $worker is number 2\$"
adm --mode target --op new --tid 9 --targetname $iqn.watched
is "... and of what happens then" event "change what=target_new tid=9 text=$iqn.watched"
adm --mode target --op delete --tid 9
is "as JSON, of the kinds that were asked for" python3 -c '
import json, sys
lines = [json.loads(line) for line in open(sys.argv[1])]
events = [line["event"] for line in lines if line["event"] != "login"]
sys.exit(events != ["watching", "watching", "restart"] or lines[-1]["what"] != "died")' "$dir/events.json"
"$bin/tgtadm" --mode system --op watch --name restart >"$dir/fresh" 2>&1 &
watchers="$watchers $!"
sleep 11 # none of the following is quick
python3 -B tests/integration/keeper.py refused "$port" 8 >"$dir/refused" &
connects=$!
for _ in 1 2 3 4; do
	sleep 1
	kill -ABRT "$worker"
	is "a worker that fails is replaced" another
done
wait $connects
out=$(cat "$dir/refused")
is "nobody was refused meanwhile ($out)" test "${out%% *}" = 0
is "a signal that it has raised is named" logged 'killed by signal 6 \(Aborted\)'
kill -9 "$worker"
is "a fourth quick death" log_says 'giving up'
is "ends the keeper, with 1" ends_with 1
is "... and the log says why" logged '4 workers in a row have died within 10 s of serving, or before'
is "... and no worker is left" ended "$worker"
for watcher in $watchers; do
	is "... and nobody watches any more" ended "$watcher"
	wait "$watcher" 2>/dev/null
done
out=$(cat "$dir/events")
is "who watched all the time was told of five" test "$(grep -c ' restart what=died ' "$dir/events")" = 5
is "... and of the end" has "the daemon has ended"
is "who began after the first, of four" test "$(grep -c ' restart what=died ' "$dir/fresh")" = 4

# ---- a portal that was no option's is there again, too
daemon_start ours
adm --mode portal --op new --params "portal=127.0.0.2:$port"
is "a portal more" done_silently
kill -9 "$worker"
is "another worker" another
peer refused "$port" 0.1
is "the first is served" test "${out%% *}" = 0
is "... and so is the other one" python3 -c 'import socket, sys
socket.create_connection(("127.0.0.2", int(sys.argv[1])), 5)' "$port"

# ---- ends that were asked for
kill -TERM "$worker"
is "SIGTERM to the worker ends both, with 0" ends_with 0
is "... without a trace" test -z "$(cat "$dir/state/worker.pid" 2>/dev/null)"
daemon_start ours --pid-file "$dir/pid"
kill -INT "$worker"
sleep 0.3
is "SIGINT to the worker does nothing" alive
kill -INT "$pid"
is "SIGINT to the keeper ends both, with 0" ends_with 0
is "... and the pid file is gone" test ! -e "$dir/pid"
is "... and the worker" ended "$worker"
daemon_start ours
kill -TERM "$pid" "$worker" 2>/dev/null
is "SIGTERM to both at once is one" ends_with 0
is "... and nothing was given up for it" not logged 'told twice|LOST'
daemon_start ours
adm --mode system --op delete
is "tgtadm ends it" done_silently
is "... and when it returns, the keeper has gone" eval '! kill -0 $pid 2>/dev/null || ended $pid'
is "... with 0" ends_with 0

# ---- starts that fail
for bad in "--no-such-option" "--cache=size=1" "--watchdog=x"; do
	out=$("$bin/tgtd" -f "$bad" 2>&1)
	rc=$?
	is "tgtd $bad: 1" test $rc = 1
done
python3 -c 'import socket, sys, time
s = socket.socket(); s.bind(("127.0.0.1", 0)); s.listen(); print(s.getsockname()[1], flush=True); time.sleep(300)' >"$dir/taken" &
holder=$!
while [ ! -s "$dir/taken" ]; do sleep 0.05; done
out=$(timeout 30 "$bin/tgtd" -f -C 1 --state-dir "$dir/state" --cache size=16m --iscsi "portal=127.0.0.1:$(cat "$dir/taken")" 2>&1)
rc=$?
is "a port that is taken: 1" test $rc = 1
is "... said once" test "$(printf '%s\n' "$out" | grep -c 'tgtd cannot start: Address already in use')" = 1
is "... and not tried again" not has "starting another"
out=$(timeout 30 "$bin/tgtd" -C 1 --state-dir "$dir/state" --cache size=16m --iscsi "portal=127.0.0.1:$(cat "$dir/taken")" 2>&1)
rc=$?
is "in the background: 1" test $rc = 1
is "... and said where it was started" has "Address already in use"
kill $holder
wait $holder 2>/dev/null
for _ in 1 2 3 4 5; do # ports that somebody has taken
	port=$(pick_port)
	out=$(cd "$dir" && timeout 30 "$bin/tgtd" -C 0 --pid-file "bg" --state-dir state --cache size=16m --iscsi "portal=127.0.0.1:$port" 2>&1)
	rc=$?
	has "Address already in use" || break
done
is "in the background: it returns with 0 when it serves" test $rc = 0
adm --mode system --op show
is "... and does" test "$rc" = 0
keeper=$(printf '%s\n' "$out" | sed -n 's/^    Keeper: //p')
worker=$(printf '%s\n' "$out" | sed -n 's/^    Worker: //p')
is "... its keeper has the pid file" test "$(cat "$dir/bg")" = "$keeper"
is "... and a relative state directory is where it was started" test "$(cat "$dir/state/worker.pid")" = "$worker"
kill -9 "$worker"
is "... its worker is replaced" another
is "... and finds the state directory" test "$(cat "$dir/state/worker.pid")" = "$worker"
kill "$keeper"
is "... and ends" ended "$keeper"

# ---- the keeper dies
truncate -s 16m "$dir/store"
daemon_start ours
adm --mode target --op new --tid 1 --targetname $iqn
adm --mode target --op bind --tid 1 -I ALL
adm --mode logicalunit --op new --tid 1 --lun 1 -b "$dir/store"
peer write "$port" $iqn 64 77
is "a write is acknowledged" test "$?" = 0
kill -9 "$pid"
wait "$pid" 2>/dev/null
pid=
is "without its keeper the worker ends" ended "$worker"
is "... and says so" logged 'the keeper has died: ending'
is "... and has written back" test "$(dd if="$dir/store" bs=512 skip=64 count=1 status=none | od -An -tu1 -N1 | tr -d ' ')" = 77
daemon_start ours
adm --mode target --op new --tid 1 --targetname $iqn
adm --mode logicalunit --op new --tid 1 --lun 1 -b "$dir/store"
adm --mode target --op show
is "... the next one finds nothing lost" not has "In doubt"
is "it ends with 0" daemon_stop

# ---- nobody is to serve any more, and something is left
stored() { dd if="$dir/store" bs=512 skip=64 count=1 status=none | od -An -tu1 -N1 | tr -d ' '; }
# One sector is written, and the worker dies before it has written it back ("$2" times).
leave() {
	daemon_start ours
	adm --mode target --op new --tid 1 --targetname $iqn
	adm --mode target --op bind --tid 1 -I ALL
	adm --mode logicalunit --op new --tid 1 --lun 1 -b "$dir/store"
	peer write "$port" $iqn 64 "$1"
	is "a write is acknowledged" test "$?" = 0
	for _ in $(seq 2 "$2"); do
		kill -9 "$worker"
		is "... and a worker dies" another
	done
}
leave 78 1
kill -STOP "$pid" # so that it hears of both at once
kill -9 "$worker"
kill -TERM "$pid"
kill -CONT "$pid"
is "SIGTERM when the worker has died: the end, with 0" ends_with 0
is "... after another one has written back" test "$(stored)" = 78
is "... which the log says" logged 'while it was to end: another one writes back what it has left'
is "... and which did not listen" test "$(grep -c 'iscsi: portal 127.0.0.1' "$dir/log")" = 1
leave 79 1
kill -9 "$worker"
while now=$(worker_of "$pid"); [ "$now" = "$worker" ] || [ "$now" = "$pid" ]; do :; done
kill -TERM "$pid"
is "SIGTERM when the next one has just started: the end, with 0" ends_with 0
is "... after it has written back" test "$(stored)" = 79
leave 80 3
held() { # what the worker before has left, in KiB
	adm --json --mode cache --op show
	printf '%s' "$out" | python3 -c 'import json, sys
f = json.load(sys.stdin)["found"]
print(f["given_back_bytes"] >> 10, f["dirty_bytes"] >> 10, f["damaged"])'
}
peer read "$port" $iqn 2048
is "something clean is in the cache" test "$out" = 0
is "... of which nobody has died yet" not logged 'processes before have died soon'
kill -9 "$worker"
is "a third quick death: another one" another
is "... with what is dirty, and nothing that is clean: $(held)" eval '[[ $(held) =~ ^[1-9][0-9]*\ [0-9]+\ 0$ ]]'
is "... which the log says" logged 'cache: processes before have died soon: [0-9]+ KiB that were clean are given back'
is "... and no session" logged 'the sessions of the process before end: workers die soon'
peer read "$port" $iqn 64
is "... and serves" test "$out" = 80
kill -9 "$worker"
is "a fourth quick death: the end, with 1" ends_with 1
is "... after one more has written back" test "$(stored)" = 80
is "... which the log says" logged 'one more writes back what they have left'
is "... and nothing is lost" not logged LOST
leave 81 1
daemon_kill
sync=$(stored)
daemon_start ours
is "(what nobody has written back is not there: $sync)" test "$sync" = 80
adm --mode target --op new --tid 1 --targetname $iqn
adm --mode logicalunit --op new --tid 1 --lun 1 -b "$dir/store"
adm --mode logicalunit --op update --tid 1 --lun 1 --params refresh=1
is "it ends with 0" daemon_stop

# ---- systemd
python3 -B tests/integration/keeper.py notify "$dir/notify" >"$dir/told" &
listener=$!
while [ ! -S "$dir/notify" ]; do sleep 0.05; done
NOTIFY_SOCKET=$dir/notify daemon_start ours
keeper=$pid
told() { for _ in $(seq 100); do grep -qx "$1" "$dir/told" && return 0; sleep 0.05; done; out=$(cat "$dir/told"); return 1; }
is "systemd hears from the keeper that it serves" told "$keeper READY=1"
kill -9 "$worker"
is "a worker is replaced" another
is "... which is no end" not grep -q STOPPING "$dir/told"
is "it ends with 0" daemon_stop
is "systemd hears that the end has begun" told "$keeper STOPPING=1"
is "... and how long it may take" told "$keeper EXTEND_TIMEOUT_USEC=[0-9]*"
is "... and nothing from anybody else" not grep -v "^$keeper " "$dir/told"
kill $listener
wait $listener 2>/dev/null

# ---- without a keeper
daemon_start ours --no-keeper
is "--no-keeper: one process" test "$worker" = "$pid"
is "... which is not shown as two" not has "Processes:"
adm --mode system --op update --name restart
is "... cannot be restarted" test "$rc" = 22
kill -9 "$pid"
is "... and nothing takes its place" ends_with 137

# ---- a planned restart, and another program
mkdir "$dir/bin"
cp "$bin/tgtd" "$dir/bin/tgtd"
real=$bin
run_copy() { bin=$dir/bin daemon_start ours "$@"; }
ln -s "$real/tgtadm" "$dir/bin/tgtadm"
run_copy
"$real/tgtadm" --mode system --op watch --name restart >"$dir/events" 2>&1 &
watcher=$!
is "somebody watches" event watching
adm --mode system --op update --name restart --value if-new
is "restart if-new: there is none" done_silently
is "... and nothing happens" alive
adm --mode system --op update --name restart --value soon
is "restart soon: no" test "$rc" = 22
adm --mode system --op update --name restart
is "restart" said 0 "worker $worker is replaced"
old=$worker
is "... and when it returns, another one serves" another
is "... the one before has ended" ended "$old"
is "... as was wanted" has "(asked for by tgtadm)"
is "... and counted as that" has "    Restarts: 1 (1 planned, 0 stalled)"
is "... and told" event 'Z restart what=planned text=asked for by tgtadm'
cp "$real/tgtd" "$dir/bin/tgtd.new"
mv "$dir/bin/tgtd.new" "$dir/bin/tgtd"
kill -9 "$worker"
is "after a crash" another
is "... it is the program that ran" not test "/proc/$worker/exe" -ef "$dir/bin/tgtd"
adm --mode system --op update --name restart --value if-new
is "restart if-new: there is" said 0 "worker $worker is replaced"
is "... another one" another
is "... of the new program" test "/proc/$worker/exe" -ef "$dir/bin/tgtd"
sleep 11
cp /bin/false "$dir/bin/tgtd.new"
mv "$dir/bin/tgtd.new" "$dir/bin/tgtd"
adm --mode system --op update --name restart
is "a new program that does not serve" another
is "... is given up for the one before" logged 'keeper: the new program does not serve \(it ended with status 1\): going back'
adm --mode target --op new --tid 1 --targetname $iqn
adm --mode logicalunit --op new --tid 1 --lun 1 --bstype ram -b 8m
adm --debug --mode system --op update --name restart
is "with memory that would be lost, there is no restart" has "target 1, LUN 1 is memory"
adm --mode logicalunit --op delete --tid 1 --lun 1
adm --mode system --op update --name restart
is "... and without there is" another
adm --mode target --op show
is "the target is there again" has "Target 1: $iqn"
adm --json --mode system --op show
is "restarts by their kind" test "$(printf '%s' "$out" | python3 -c 'import json, sys
p = json.load(sys.stdin)["processes"]
print(p["restarts"], p["planned_restarts"], p["stalled_restarts"], p["last_restart_kind"])')" = "7 4 0 died"
adm --mode system --op stat --name worker_
is "... as counters" has "worker_restarts_planned 4"
is "it ends with 0" daemon_stop
is "... and so does who watched" ended $watcher
wait $watcher 2>/dev/null

# ---- the watchdog
export STALL=$dir/stall
case $real in
*/asan | *san/bin) echo "ok watchdog # SKIP sanitizers want to be the first library" ;;
*)
	start_watched() { LD_PRELOAD=$real/../tests/preload/stall.so daemon_start ours --watchdog 2; }
	start_watched
	(sleep 0.2; kill -STOP "$worker"; sleep 7; kill -CONT "$worker") &
	wait $!
	sleep 3
	is "a worker that was stopped is not stalled" alive
	is "... nor taken for it" not logged 'stands still|no sign of life'
	for how in sleeps circles; do
		echo $how >"$STALL"
		peer refused "$port" 0.05
		is "a main loop that $how is seen" log_says "watchdog: thread tgtd stands still for 2 s"
		rm "$STALL"
		is "... and its worker replaced" another
		is "... after an abort" has "(watchdog: thread tgtd stands still for 2 s"
		: >"$dir/log"
		sleep 1
	done
	adm --mode system --op show
	is "they are counted as that" has "(0 planned, 2 stalled)"
	is "it ends with 0" daemon_stop ;;
esac

# ---- memory that does not go
if [ "$(id -u)" = 0 ]; then
	daemon_start ours
	python3 -B tests/integration/keeper.py hold "$pid" 120 >"$dir/held" &
	holder=$!
	while [ ! -s "$dir/held" ] && kill -0 $holder 2>/dev/null; do sleep 0.02; done
	kill -9 "$worker"
	is "memory of the dead worker is in use: another one serves beside it" another
	is "... and the log says why" log_says 'what worker [0-9]+, which has died, had asked of a store is under way'
	{ kill $holder && wait $holder; } 2>/dev/null
	is "... and when it has gone" log_says 'keeper: worker [0-9]+ has gone'
	rm "$dir/held"
	python3 -B tests/integration/keeper.py hold "$pid" 60 >"$dir/held" &
	holder=$!
	while [ ! -s "$dir/held" ] && kill -0 $holder 2>/dev/null; do sleep 0.02; done
	: >"$dir/log"
	kill -STOP "$pid" # it hears of both at once
	kill -9 "$worker"
	kill -TERM "$pid"
	kill -CONT "$pid"
	is "the memory of a second one is in use" log_says "the memory of worker $worker, which has died, is in use"
	is "... and no other one has started" test "$(worker_of "$pid")" = "$pid"
	is "SIGTERM waits for it: the next one is to write back" kill -0 "$pid"
	kill -TERM "$pid"
	is "... and a second one does not" ends_with 137
	kill $holder
	wait $holder 2>/dev/null
else
	echo "ok memory that does not go # SKIP needs root"
fi
finish
