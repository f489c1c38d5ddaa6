#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# U9: `--op explain` says what limits a unit: in six staged cases, and when nothing comes. Each is
# asked until it says so, since a busy machine may limit it otherwise for a while.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/integration/admin_lib.sh
iqn=iqn.2026-11.org.tgtd.test:explain
truncate -s 64m "$dir/slow"
daemon_start_slow --cache size=16m
for tid in 1 2; do
	adm --op new --mode target --tid $tid -T $iqn.$tid
	adm --op bind --mode target --tid $tid -I ALL
done
adm --op update --mode target --tid 2 --name MaxQueueCmd --value 2
adm --op new --mode logicalunit --tid 1 --lun 1 --bstype ram --backing-store 64m
adm --op new --mode logicalunit --tid 1 --lun 2 --backing-store "$dir/slow"
adm --op new --mode logicalunit --tid 2 --lun 1 --bstype ram --backing-store 16m
is "three LUNs" test "$rc" = 0
loads=()

# load TID ARGS...: in the background, until no_load.
load() {
	local tid=$1
	shift
	"$bin/tgt-load" --portal "127.0.0.1:$port" --target $iqn.$tid --time 600 --warmup 0 --quiet \
		"$@" >"$dir/load.${#loads[@]}" 2>&1 &
	loads+=($!)
}

no_load() {
	kill "${loads[@]}" 2>/dev/null
	wait "${loads[@]}" 2>/dev/null
	loads=()
}
trap 'no_load; daemon_kill; rm -rf "$dir"' EXIT

# says TID LUN WORD: within two minutes.
says() {
	local end=$((SECONDS + ${TGT_EXPLAIN_SECONDS:-120}))
	while [ $SECONDS -lt $end ]; do
		adm --op explain --mode logicalunit --tid "$1" --lun "$2"
		has_line "Limited by: $3" && return 0
	done
	return 1
}

is "no commands" says 1 1 nothing
echo 20 r >"$SLOW_MS"
load 1 --lun 2 --depth 8
is "a slow store" says 1 2 store
is "... with figures" has "was store"
no_load
echo 300 w >"$SLOW_MS"
load 1 --lun 2 --depth 16 --bs 64k --read 0
is "a full dirty limit" says 1 2 dirty
no_load
rm "$SLOW_MS"
load 1 --lun 1 --depth 64 --bs 64k --discard --initiator iqn.2026-11.org.tgtd.test:greedy
load 1 --lun 1 --depth 1 --initiator iqn.2026-11.org.tgtd.test:modest
is "one greedy session" says 1 1 session
is "... and which" has iqn.2026-11.org.tgtd.test:greedy
no_load
for i in 1 2 3; do
	load 1 --lun 1 --depth 32 --bs 32k --discard --initiator iqn.2026-11.org.tgtd.test:$i
done
is "a busy core" says 1 1 core
no_load
load 2 --lun 1 --depth 32
is "a small window" says 2 1 window
is "... and its name" has "MaxQueueCmd=2"
no_load
python3 -B - "$port" $iqn.1 >"$dir/reader" 2>&1 <<'PY' &
import sys, time
sys.path.insert(0, 'tests/support')
from iscsi_peer import Peer

Peer.address, Peer.target = ('127.0.0.1', int(sys.argv[1])), sys.argv[2]
p = Peer(rcvbuf=4096).login().ready()
for i in range(64):  # more than sockets hold
    p.out(p.read(i * 512, 512))
while True:
    head, _ = p.recv()
    time.sleep(0.005)
    if head[0] == 0x25 and head[1] & 1 or head[0] == 0x21:
        p.out(p.read(0, 512))
PY
loads+=($!)
is "a slow reader" says 1 1 reader
no_load
adm --op explain --mode logicalunit --tid 1 --lun 9
is "no such LUN" test "$rc" != 0
# Who asks while it ends gets an answer, or none; nothing is left behind.
"$bin/tgtadm" --op explain --mode logicalunit --tid 1 --lun 1 >/dev/null 2>&1 &
asker=$!
is "it ends with 0" daemon_stop
wait $asker
is "no report of a checker" no_report
finish
