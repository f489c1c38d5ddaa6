#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The daemon is told to end while a store has no space for what is dirty. It tries again for as long
# as --stop-timeout says: when there is space again, all is written and it ends with 0. Else it says
# what is lost, and ends with 1.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/integration/admin_lib.sh
iqn=iqn.2026-11.org.tgtd.test:stop
command -v cc >/dev/null || { echo "ok stop_failing # SKIP no compiler"; exit 0; }
cc -shared -fPIC -O1 -o "$dir/hostile.so" tests/preload/hostile_store.c -ldl -lpthread
export HOSTILE=$dir/hostile
export ASAN_OPTIONS=verify_asan_link_order=0:${ASAN_OPTIONS:-}
mkdir "$HOSTILE"
truncate -s 16M "$dir/full" "$dir/well"
begin() {
	rm -f "$HOSTILE"/* "$dir"/state/dirty-*
	# (What stands in for a sick disk makes calls that event threads may not make.)
	LD_PRELOAD=$dir/hostile.so daemon_start ours --seccomp off --stop-timeout "$1"
	adm -m target -o new -t 1 -T "$iqn"
	adm -m target -o bind -t 1 -I ALL
	adm -m lu -o new -t 1 -l 1 -b "$dir/full"
	adm -m lu -o new -t 1 -l 2 -b "$dir/well"
	echo full=1 >"$HOSTILE/full"
	is "both are written to" python3 -B - "$port" "$iqn" "$2" <<'END_PY'
import sys
sys.path.insert(0, 'tests/support')
from iscsi_peer import Peer
Peer.address, Peer.target = ('127.0.0.1', int(sys.argv[1])), sys.argv[2]
p = Peer().login()
for lun in (1, 2):
    while p.run(bytes(6), lun=lun)[0] != 'good':
        pass
    p.out(p.write(2048, 8, sys.argv[3].encode() * 4096, lun=lun))
    assert p.wait_status(p.itt - 1)[1] == 0
p.logout()
END_PY
}
in_file() { [ "$(dd if="$dir/$1" bs=4096 skip=256 count=1 status=none)" = "$(printf "%4096s" | tr ' ' "$2")" ]; }
begin 120 A
kill -TERM "$pid"
for _ in $(seq 300); do
	grep -q "shutting down" "$dir/log" && grep -q "/full: write of .*No space left" "$dir/log" && break
	sleep 0.1
done
sleep 2
is "it goes on while the store has no space" kill -0 "$pid"
rm "$HOSTILE/full"
wait "$pid"
status=$?
pid=
is "when it has, it ends with 0" test $status = 0
is "and all is written" in_file full A
is "... on the other store, too" in_file well A
is "nothing is lost" not grep -q LOST "$dir/log"

begin 3 B
kill -TERM "$pid"
wait "$pid"
status=$?
pid=
is "a store that stays full: it ends with 1" test $status = 1
is "and says what of which store is lost" grep -qE "/full: .*LOST" "$dir/log"
is "and only that" not grep -q "/well.*LOST" "$dir/log"
is "the other store has all" in_file well B
rm -f "$HOSTILE/full"
daemon_start ours
adm -m target -o new -t 1 -T "$iqn"
adm -m lu -o new -t 1 -l 1 -b "$dir/full"
adm -m cache -o stat -t 1 -l 1
is "the next one knows of the loss" has "In doubt"
is "it ends with 0" daemon_stop
is "no report" no_report
finish 30
