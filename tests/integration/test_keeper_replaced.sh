#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The keeper's own program is replaced by execve (issue 17, restart.md): twenty times under load, with the same process and the
# same worker; by none that refuses, crashes or hangs; and a worker that dies afterwards is followed by one that has it all.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/integration/admin_lib.sh
. tests/integration/worker_lib.sh
iqn=iqn.2026-11.org.tgtd:replaced
ulimit -c 0
log_counts() { # so many times, within 40 s
	for _ in $(seq 400); do
		[ "$(grep -cE -- "$1" "$dir/log")" -ge "${2:-1}" ] && return 0
		sleep 0.1
	done
	return 1
}
keeper_again() { adm --mode system --op update --name restart --value keeper; }
put_program() { # what lies at the daemon's path from now on
	cp "$1" "$dir/bin/tgtd.new" && chmod 755 "$dir/bin/tgtd.new" && mv "$dir/bin/tgtd.new" "$dir/bin/tgtd"
}
script() { printf '#!/bin/bash\n%s\n' "$1" >"$dir/script" && put_program "$dir/script"; }
# As the daemon has them: descriptors of the keeper. (Counters of stores come as these are busy.)
fds() { find "/proc/$pid/fd" -mindepth 1 ! -lname 'anon_inode:\[eventfd\]' | wc -l; }

mkdir "$dir/bin"
real=$bin
cp "$real/tgtd" "$dir/bin/tgtd"
ln -s "$real/tgtadm" "$dir/bin/tgtadm"
tools=$real
bin=$dir/bin
truncate -s 16m "$dir/store"
daemon_start ours --pid-file "$dir/pid"
adm --mode target --op new --tid 1 --targetname $iqn
adm --mode target --op bind --tid 1 -I ALL
adm --mode logicalunit --op new --tid 1 --lun 1 -b "$dir/store"
peer write "$port" $iqn 20000 55
rights() { grep -E '^(Cap...|NoNewPrivs|Seccomp|Seccomp_filters):' "/proc/$1/status" | tr -d '\n\t '; }
as_many() { # descriptors as before: sockets of sessions may just be going
	for _ in $(seq 100); do
		out="$(fds), not $before"
		[ "$(fds)" = "$before" ] && return 0
		sleep 0.1
	done
	return 1
}
before=
for _ in $(seq 100); do # the session of the write has gone from the keeper
	now=$(fds)
	[ "$now" = "$before" ] && break
	before=$now
	sleep 0.5
done
for n in 1 2; do
	python3 -B tests/integration/keeper.py load "$port" $iqn $((n * 4096)) "$dir/over" >"$dir/load.$n" 2>&1 &
	loads="${loads-} $!"
done
keeper=$(rights "$pid") worker_rights=$(rights "$worker") served=$worker
for n in $(seq 20); do
	[ $((n % 2)) = 0 ] && put_program "$real/tgtd"
	keeper_again
	log_counts 'keeper: this program has taken over' "$n" || break
done
is "the keeper is replaced, twenty times" log_counts "this program has taken over \(number 21\); worker $served has gone on"
is "... in the same process" kill -0 "$pid"
is "... with the pid file" test "$(cat "$dir/pid")" = "$pid"
is "... which it has locked" not python3 -c 'import fcntl, sys
fcntl.lockf(open(sys.argv[1], "r+"), fcntl.LOCK_EX | fcntl.LOCK_NB)' "$dir/pid" 2>/dev/null
is "... which runs the new program" test "/proc/$pid/exe" -ef "$dir/bin/tgtd"
is "... is called tgtd" grep -qx tgtd "/proc/$pid/comm"
is "... and the same rights ($keeper)" test "$(rights "$pid")" = "$keeper"
is "the worker is the same" alive
adm --mode system --op show
is "show counts them" has "    Keeper replaced: 20 times"
is "... and no restart" has "    Restarts: 0"
touch "$dir/over"
for load in $loads; do
	is "a session has noticed nothing" wait "$load"
done
is "the keeper has as many descriptors as before" as_many
out=$(cat "$dir"/load.*)
printf '%s\n' "$out" | sed 's/^/# /'

# ---- a worker that dies then
kill -9 "$worker"
is "a worker that is killed then is replaced" another
is "... by one with the same rights" test "$(rights "$worker")" = "$worker_rights"
is "... by the same process" kill -0 "$pid"
peer read "$port" $iqn 20000
is "... it has the cache and the configuration" test "$out" = 55
adm --mode cache --op show
is "... as it was found" has "    Found: "
adm --mode system --op show
is "... and show counts both" eval 'has "    Restarts: 1" && has "    Keeper replaced: 20 times"'

# ---- programs that refuse
taken=20
refuses() { # NAME WHAT
	adm --mode system --op show
	for _ in $(seq 300); do
		adm --mode system --op show
		has "    Keeper not replaced: the new program does not $1" && break
		sleep 0.1
	done
	is "... which show says" has "    Keeper not replaced: the new program does not $1"
	is "... and the log" log_counts "keeper: the new program does not $1; the one that runs goes on"
	is "... the keeper and the worker are as before" eval 'alive && kill -0 "$pid"'
	is "... and nobody has taken over" test "$(grep -c 'this program has taken over' "$dir/log")" = $taken
}
put_program /bin/false
is "a program that ends with 1" keeper_again
refuses "take over: status 1"
script 'kill -SEGV $$'
is "one that crashes" keeper_again
refuses "take over: Segmentation fault"
script 'exec sleep 100'
is "one that hangs" keeper_again
refuses "say whether it takes over"
kill -9 "$worker"
is "a worker that dies then is replaced, too" another
peer read "$port" $iqn 20000
is "... with all of it" test "$out" = 55
sleep 10.5

# ---- a planned restart takes both
put_program "$real/tgtd"
adm --mode system --op update --name restart --value if-new
is "a new program: the worker first" another
is "... then the keeper" log_counts 'keeper: this program has taken over' 21
is "... of that program" test "/proc/$pid/exe" -ef "$dir/bin/tgtd"
peer sync "$port" $iqn
is "SYNCHRONIZE CACHE succeeds" test "$?" = 0
is "it ends with 0" daemon_stop
is "... and the pid file is gone" test ! -e "$dir/pid"
is "no report" no_report
finish
