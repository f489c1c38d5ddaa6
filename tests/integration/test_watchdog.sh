#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The watchdog on a machine that is overloaded: a worker that gets no processor is not taken for one
# that stands still; one that does stand still is found there, too; one that is stopped is said.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/integration/admin_lib.sh
. tests/integration/worker_lib.sh
if sanitized; then
	echo "ok 1 # SKIP sanitizers want to be the first library"
	finish
fi
ulimit -c 0
export STALL=$dir/stall
loops=
trap 'kill $loops 2>/dev/null; daemon_kill; rm -rf "$dir"' EXIT
# The last processor that we may use; others keep away from it if they can.
cpu=$(python3 -c 'import os; print(max(os.sched_getaffinity(0)))')
crowd() { # @1 processes that want it all the time, as important as they may be made (@2)
	for _ in $(seq "$1"); do
		nice -n "$2" taskset -c "$cpu" bash -c 'while :; do :; done' 2>/dev/null &
		loops="$loops $!"
	done
}
disperse() {
	kill $loops
	wait $loops 2>/dev/null
	loops=
}
ran() { # nanoseconds, of all threads of the worker
	cat /proc/"$worker"/task/*/schedstat | awk '{ n += $1 } END { printf "%d\n", n }'
}
start() { LD_PRELOAD=$(preloaded stall) daemon_start ours --watchdog 2; }

# ---- no processor at all
start
all=$(taskset -p "$worker" | sed 's/.*: //')
crowd 20 -20
chrt -a -i -p 0 "$worker" >/dev/null 2>&1
taskset -a -p -c "$cpu" "$worker" >/dev/null 2>&1
before=$(ran)
sleep 15
# (Else this says nothing: the machine has given it enough.)
had=$((($(ran) - before) / 1000000))
is "it has got hardly any processor: $had ms in 15 s" test $had -lt 100
is "a worker that gets no processor is not ended" alive
is "... nor taken for one that stands still" not logged 'stands still|no sign of life|starting another'
disperse
taskset -a -p "$all" "$worker" >/dev/null 2>&1
chrt -a -o -p 0 "$worker" >/dev/null 2>&1
adm --mode system --op show
is "... and goes on" test "$rc" = 0
is "... as the same" alive

# ---- stopped
kill -STOP "$worker"
is "a worker that is stopped is said to be" log_says "worker $worker is stopped, by SIGSTOP or a debugger" 60
kill -CONT "$worker"
adm --mode system --op show
is "... and goes on" alive

# ---- one that stands still among many that want the processor
for how in sleeps circles; do
	crowd 4 0
	taskset -a -p -c "$cpu" "$worker" >/dev/null 2>&1
	echo $how >"$STALL"
	timeout 60 python3 -B tests/integration/keeper.py refused "$port" 0.05 >/dev/null 2>&1
	is "overloaded: a main loop that $how is seen" log_says "watchdog: thread tgtd stands still for 2 s" 240
	rm "$STALL"
	disperse
	is "... and its worker replaced" another
	: >"$dir/log"
done

is "it ends with 0" daemon_stop
is "no report" no_report
finish 40
