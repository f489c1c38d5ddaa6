#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# A store hangs when the worker is killed, as in test_late_store.sh, and the other stores are busy at that moment: what was
# asked of them is over soon, but nobody is there any more to see it. Their units do not wait for the store that hangs
# (issue 17, show 7; cache/backend/store_counter.h).
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/integration/admin_lib.sh
. tests/integration/worker_lib.sh
. tests/integration/late_lib.sh
iqn=iqn.2026-11.org.tgtd:late
preload=$(preloaded late_store)
if sanitized; then
	echo "ok late_load # SKIP sanitizers want to be the first library"
	finish
fi

export LATE=$dir/hangs
disks=(late-disk unseen-disk busy-1 busy-2)
truncate -s 32m "${disks[@]/#/$dir/}"
printf '\11' | dd of="$dir/late-disk" bs=512 seek=2048 conv=notrunc status=none
printf '\12' | dd of="$dir/unseen-disk" bs=512 seek=2048 conv=notrunc status=none
LD_PRELOAD=$preload daemon_start ours --seccomp off --cache size=4m
n=0
for disk in "${disks[@]}"; do
	n=$((n + 1))
	adm --mode target --op new --tid $n --targetname $iqn-$n
	adm --mode target --op bind --tid $n -I ALL
	adm --mode logicalunit --op new --tid $n --lun 1 -b "$dir/$disk"
done
for n in 1 2; do
	is "a read of store $n" reads $iqn-$n 0 0
done

# ---- an answer of a store that is well, which nobody sees
touch "$LATE" "$LATE.unseen"
python3 -B tests/integration/keeper.py asks "$port" $iqn-1 2048 >"$dir/asks-1" 2>&1 &
asks=$!
is "a store is asked, and hangs" under_way 0 1
python3 -B tests/integration/keeper.py asks "$port" $iqn-2 2048 >"$dir/asks-2" 2>&1 &
asks="$asks $!"
is "another one is asked, and answers" await test -e "$LATE.asked"
rm "$LATE" "$LATE.unseen"
dead=$worker
kill -9 "$worker"
is "another worker serves" another
is "the store that had answered is read at once" await reads $iqn-2 2048 10
is "... while the other one hangs" hangs_still
is "whose unit is becoming ready" not_ready $iqn-1
is "and the first one has not gone" not gone

# ---- stores at work, kill after kill
for n in 3 4; do
	is "a write to store $n" peer write "$port" $iqn-$n 0 $n
done
for round in 1 2; do
	loads=
	for n in 3 4; do
		python3 -B tests/integration/keeper.py busy "$port" $iqn-$n 65536 "$dir/busy-$round-$n" >"$dir/load-$n" 2>&1 &
		loads="$loads $!"
	done
	for n in 3 4; do
		is "round $round: store $n is busy" await test -e "$dir/busy-$round-$n"
	done
	kill -9 "$worker"
	is "round $round: another worker serves" another
	for n in 3 4; do
		is "round $round: store $n has what was acknowledged" await reads $iqn-$n 0 $n
	done
	is "round $round: ... while the first one hangs" hangs_still
	is "round $round: its unit is becoming ready" not_ready $iqn-1
	{ kill $loads && wait $loads; } 2>/dev/null
done
is "the first one has not gone" not gone
touch "$LATE.wake"
is "it wakes: all go" await gone
is "its unit is read" await reads $iqn-1 2048 9
is "a write to it" peer write "$port" $iqn-1 64 7
is "... is written back" peer sync "$port" $iqn-1
is "... and is there" test "$(stored late-disk 64)" = 7
{ kill $asks && wait $asks; } 2>/dev/null
is "it ends with 0" daemon_stop
finish
