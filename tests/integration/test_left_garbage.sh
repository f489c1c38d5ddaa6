#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# A worker that has gone wrong may leave anything to the next one, by any key (issue 15): that does
# not take it for a portal, the admin socket, the journal or the cache, and serves.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/integration/admin_lib.sh
iqn=iqn.2026-11.org.tgtd:left
kind=ours
elsewhere=$(pick_port)
discovers() { # a login at PORT that is answered
	out=$(timeout 60 python3 -B - "$1" 2>&1 <<'PYTHON'
import sys
sys.path.insert(0, 'tests/support')
from iscsi_peer import Peer
Peer.address, Peer.target = ('127.0.0.1', int(sys.argv[1])), None
Peer(timeout=20).login(session='Discovery')
print('logged in')
PYTHON
	)
	has "logged in"
}
closed() { ! discovers "$elsewhere"; }
up() {
	for _ in $(seq 300); do
		adm --mode system --op show
		[ "$rc" = 0 ] && return 0
		kill -0 "$pid" 2>/dev/null || return 1
		sleep 0.1
	done
	return 1
}
for what in ${KINDS:-pipe zero directory memfd elsewhere queue version}; do
	mkdir -p "$dir/state"
	python3 -B tests/integration/left_garbage.py $what "$port" "$elsewhere" "$bin/tgtd" -f \
		--state-dir "$dir/state" --cache size=8m --iscsi "portal=127.0.0.1:$port" \
		>"$dir/log" 2>&1 &
	pid=$!
	is "$what: it serves" up
	adm --mode target --op new --tid 1 --targetname $iqn
	is "... the administrator" done_silently
	is "... at its own portal" discovers "$port"
	[ $what != elsewhere ] || is "... not where the one before listened" closed
	adm --mode system --op show
	is "... after it" test "$rc" = 0
	is "... and says what it has not taken" grep -q 'no such socket' "$dir/log"
	if [ $what = version ]; then # (of which no unit has anything, as the records say)
		is "... which another version alone can write back" grep -q 'of another version of tgtd (1000001), which alone' "$dir/log"
		is "... and does not take it for its own" not grep -q 'begins empty' "$dir/log"
	fi
	is "no report" no_report
	kill "$pid"
	rc=0
	wait "$pid" || rc=$?
	is "it ends with 0" test $rc = 0
	pid=
	out=$(cat "$dir/log")
done
finish 20
