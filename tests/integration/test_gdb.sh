#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# tools/gdb/tgtd.py on a core of a loaded daemon: what it says of loops, sessions, tasks and blocks is there and true.
set -u
. "$(dirname "$0")/admin_lib.sh"
command -v gdb >/dev/null || { echo "ok gdb # SKIP gdb is not installed (tools/install-deps)"; exit 0; }
case $bin in */asan/* | */tsan/*)
	echo "ok gdb # SKIP a core of a sanitized build has terabytes of shadow"
	exit 0 ;;
esac
iqn=iqn.2026-11.org.tgtd:gdb

daemon_start ours
adm --mode target --op new --tid 1 -T $iqn
truncate -s 64m "$dir/store"
adm --mode logicalunit --op new --tid 1 --lun 1 -b "$dir/store"
adm --mode target --op bind --tid 1 -I ALL
"$bin/tgt-load" --portal "127.0.0.1:$port" --target $iqn --lun 1 --depth 32 --read 50 --bs 64k --warmup 0 --time 60 \
	--wait block --quiet >/dev/null 2>&1 &
load=$!

# There is a command under way in nearly every core of it, but a core may catch the moment between two batches.
for try in 1 2 3 4 5; do
	for _ in $(seq 300); do
		adm --mode logicalunit --op stat --tid 1 --lun 1
		[ "$(echo "$out" | awk 'END {print $3 + 0}')" -gt 0 ] && break
		sleep 0.1
	done
	gdb -q -batch -p "$worker" -ex "generate-core-file $dir/core" >"$dir/gcore" 2>&1
	gdb -q -batch -x tools/gdb/tgtd.py "$bin/tgtd" "$dir/core" -ex tgtd >"$dir/said" 2>&1
	rm -f "$dir/core"
	grep -q '^session .* ITT ' "$dir/said" && break
	echo "# try $try caught no command"
done
kill $load 2>/dev/null
wait $load 2>/dev/null
said() { grep -qE "$1" "$dir/said"; }
is "a core was made and read" said '^== tgtd-blocks'
is "loops: the unit's event thread, and what it is at" said '^loop lu-1:1: '
is "loops: threads with their functions" said '^  thread [0-9]+ \(LWP [0-9]+\): .* <- '
is "sessions: the initiator's, at its target" said "^session 1 of iqn\..* at $iqn: Q3_LOGGED_IN, loop lu-1:1\$"
is "connections and their state" said '^  connection 0 from 127\.0\.0\.1: S5_LOGGED_IN'
is "tasks by name and CDB" said '^session 1 ITT 0x[0-9a-f]+ CmdSN [0-9]+ LUN 1: (READ|WRITE)\(10\) \[2[8a] 00 '
is "and whom they wait for" said '^  TASK_[A-Z]+; waits for '
is "blocks by state" said '^  .*[0-9]+ (free|clean|dirty)'
is "stores" said "^store $dir/store: [0-9]+ blocks dirty"
is "no command failed" eval '! said "^(tgtd-[a-z]*: |Python Exception)"'
[ "$failures" = 0 ] || sed 's/^/# /' "$dir/said"
finish
