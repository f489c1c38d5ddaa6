#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# A store hangs when the next worker opens it (issue 17, show 7; tests/preload/late_open.c): the other units are served, and it
# holds up its own alone, which says that it is becoming ready, keeps what was acknowledged, and is ready when the store is open.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/integration/admin_lib.sh
may_restart=1
iqn=iqn.2026-11.org.tgtd:late
preload=$(realpath "$bin/../tests/preload/late_open.so" 2>/dev/null)
[ -e "$preload" ] || preload=$PWD/build/tests/preload/late_open.so
case $bin in
*san/bin) echo "ok late_open # SKIP sanitizers want to be the first library" && exit 0 ;;
esac
peer() { out=$(timeout 60 python3 -B tests/integration/keeper.py "$@" 2>&1); }
logged() { grep -qE -- "$1" "$dir/log"; }
stored() { dd if="$dir/$1" bs=512 skip="$2" count=1 status=none | od -An -tu1 -N1 | tr -d ' '; }
another() {
	for _ in $(seq 1000); do
		adm --mode system --op show
		now=$(printf '%s\n' "$out" | sed -n 's/^    Worker: //p')
		[ -n "$now" ] && [ "$now" != "$worker" ] && worker=$now && return 0
		sleep 0.02
	done
	return 1
}
# Sense key, ASC and ASCQ of TEST UNIT READY, in hexadecimal; 0: it is ready.
readiness() {
	timeout 60 python3 -B - "$port" "$1" <<'PYTHON'
import sys
sys.path.insert(0, 'tests/support')
from iscsi_peer import Peer
Peer.address, Peer.target = ('127.0.0.1', int(sys.argv[1])), sys.argv[2]
p = Peer().login()
for _ in range(4):  # unit attentions
    p.out(p.command(b'\0', 0x80))
    head, data = p.recv()
    while head[0] != 0x21:
        head, data = p.recv()
    status, sense = head[3], data[2:]
    if not status or sense[2] & 15 != 6:
        break
print('%x/%02x/%02x' % (sense[2] & 15, sense[12], sense[13]) if status else '0')
PYTHON
}
becomes() {
	for _ in $(seq 200); do
		[ "$(readiness "$1")" = "$2" ] && return 0
		sleep 0.05
	done
	echo "# it is $(readiness "$1")"
	return 1
}

export LATE_OPEN=$dir/hangs
truncate -s 16m "$dir/late-disk" "$dir/late-other" "$dir/disk"
LD_PRELOAD=$preload daemon_start ours --seccomp off --cache size=4m
n=0
for disk in late-disk disk late-other; do
	n=$((n + 1))
	adm --mode target --op new --tid $n --targetname $iqn-$n
	adm --mode target --op bind --tid $n -I ALL
	adm --mode logicalunit --op new --tid $n --lun 1 -b "$dir/$disk"
	peer write "$port" $iqn-$n 64 $n
	is "a write to $disk" test "$?" = 0
done
touch "$LATE_OPEN"
kill -9 "$worker"
is "another worker serves" another
peer read "$port" $iqn-2 64
is "... the other store" test "$out" = 2
peer write "$port" $iqn-2 72 4
is "... which takes writes" test "$?" = 0
is "one whose store hangs is becoming ready" becomes $iqn-1 2/04/01
adm --mode target --op show
is "... as tgtadm shows" has "Late: its store is being opened, and does not answer"
is "... and the log says" logged 'target 1 LUN 1 is NOT READY: .*late-disk: does not answer'
adm --mode logicalunit --op delete --tid 3 --lun 1
is "one of them is deleted meanwhile" test "$rc" = 0
rm "$LATE_OPEN"
is "it is ready when its store is open" becomes $iqn-1 0
peer read "$port" $iqn-1 64
is "... with what was acknowledged" test "$out" = 1
peer write "$port" $iqn-1 72 5
is "... and takes writes" test "$?" = 0
adm --mode target --op show
not_late() { ! has "Late:"; }
is "... and nothing is shown of it" not_late
is "... one worker has died" test "$(grep -c 'starting another' "$dir/log")" = 1
is "it ends with 0" daemon_stop
is "and the stores have all" test "$(stored late-disk 64) $(stored late-disk 72) $(stored disk 64) $(stored disk 72)" = "1 5 2 4"
finish
