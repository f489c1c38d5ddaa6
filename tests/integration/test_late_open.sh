#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# A store hangs when the next worker opens it (issue 17, show 7; tests/preload/late_open.c): the other units are served, and it
# holds up its own alone, which says that it is becoming ready, keeps what was acknowledged, and is ready when the store is open.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/integration/admin_lib.sh
. tests/integration/worker_lib.sh
iqn=iqn.2026-11.org.tgtd:late
preload=$(preloaded late_open)
if sanitized; then
	echo "ok late_open # SKIP sanitizers want to be the first library"
	finish
fi
# Sense key, ASC and ASCQ of TEST UNIT READY, in hexadecimal; 0: it is ready.
readiness() { peer readiness "$port" "$1" && echo "$out"; }
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
restored() { sed -n 's/.*restored what was configured: .* in \([0-9]*\) ms.*/\1/p' "$dir/log" | tail -1; }
is "... and has not waited long for two that hang: $(restored) ms" test "$(restored)" -lt 1500
peer read "$port" $iqn-2 64
is "... the other store" test "$out" = 2
peer write "$port" $iqn-2 72 4
is "... which takes writes" test "$?" = 0
is "one whose store hangs is becoming ready" becomes $iqn-1 2/04/01
adm --mode target --op show
is "... as tgtadm shows" has "Late: its store is being opened, and does not answer"
late_units() { # TID.LUN of each, as JSON says
	adm --json --mode target --op show
	printf '%s' "$out" | python3 -c 'import json, sys
print(*["%d.%d" % (t["tid"], l["lun"]) for t in json.load(sys.stdin)["targets"] for l in t["luns"] if l["late"]])'
}
is "... as JSON, too: $(late_units)" test "$(late_units)" = "1.1 3.1"
is "... and the log says" logged 'target 1 LUN 1 is NOT READY: .*late-disk: does not answer'
adm --mode logicalunit --op delete --tid 3 --lun 1
is "one of them is deleted meanwhile" test "$rc" = 0
adm --mode logicalunit --op update --tid 1 --lun 1 --params refresh=1
is "refresh=1 of the other is refused at once" refused "invalid request"
is "... since it is ready by itself" logged 'late-disk: it is being opened for this unit, and does not answer'
adm --mode logicalunit --op new --tid 3 --lun 1 -b "$dir/late-other"
is "a new unit of the deleted one's store is, too" refused "invalid request"
is "... since that hangs still" logged 'late-other: it is being opened still for a unit that has been deleted'
adm --mode logicalunit --op update --tid 2 --lun 1 --params path="$dir/late-other"
is "... nor does another unit get it" refused "invalid request"
peer read "$port" $iqn-2 64
is "... which is served as before" test "$out" = 2
rm "$LATE_OPEN"
is "it is ready when its store is open" becomes $iqn-1 0
peer read "$port" $iqn-1 64
is "... with what was acknowledged" test "$out" = 1
peer write "$port" $iqn-1 72 5
is "... and takes writes" test "$?" = 0
adm --mode logicalunit --op new --tid 3 --lun 1 -b "$dir/late-other"
is "the deleted one's store can be had again" test "$rc" = 0
adm --mode logicalunit --op delete --tid 3 --lun 1
adm --mode target --op show
not_late() { ! has "Late:"; }
is "... and nothing is shown of it" not_late
is "... nor as JSON" test -z "$(late_units)"
is "... one worker has died" test "$(grep -c 'starting another' "$dir/log")" = 1
is "it ends with 0" daemon_stop
is "and the stores have all" test "$(stored late-disk 64) $(stored late-disk 72) $(stored disk 64) $(stored disk 72)" = "1 5 2 4"
finish
