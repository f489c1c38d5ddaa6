#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# A store hangs when the worker is killed, and wakes later: what was asked of it is done then, from and to the memory of the
# dead one (issue 17, show 7; tests/preload/late_store.c). The other units are served at once, whatever happens meanwhile: more
# kills, a planned restart. Nothing stale gets to the store after what is newer, and nothing that is loaded gets into blocks
# that others have by then.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/integration/admin_lib.sh
. tests/integration/worker_lib.sh
. tests/integration/late_lib.sh
iqn=iqn.2026-11.org.tgtd:late
preload=$(preloaded late_store)
if sanitized; then
	echo "ok late_store # SKIP sanitizers want to be the first library"
	finish
fi

export LATE=$dir/hangs
truncate -s 16m "$dir/late-disk" "$dir/disk"
printf '\11' | dd of="$dir/late-disk" bs=512 seek=2048 conv=notrunc status=none
LD_PRELOAD=$preload daemon_start ours --seccomp off --cache size=4m
n=0
for disk in late-disk disk; do
	n=$((n + 1))
	adm --mode target --op new --tid $n --targetname $iqn-$n
	adm --mode target --op bind --tid $n -I ALL
	adm --mode logicalunit --op new --tid $n --lun 1 -b "$dir/$disk"
done
peer write "$port" $iqn-1 64 1
is "a write to the store that is about to hang" test "$?" = 0
touch "$LATE"
python3 -B tests/integration/keeper.py asks "$port" $iqn-1 2048 >"$dir/asks" 2>&1 &
asks=$!
is "one block is being written back, and one loaded, when it hangs" under_way 1 1
peer write "$port" $iqn-1 64 2
is "what is written back is written to" test "$?" = 0
peer write "$port" $iqn-2 64 3
is "and so is the other store" test "$?" = 0
rm "$LATE"
dead=$worker
began=$(date +%s%N)
kill -9 "$worker"
is "another worker serves" another
took=$((($(date +%s%N) - began) / 1000000))
echo "# $took ms from the kill to an answer"
is "the other store's unit is read" reads $iqn-2 64 3
is "... while the store hangs" hangs_still
is "... and the log says what is there still" logged 'had asked of a store is under way'
is "its own unit is becoming ready" not_ready $iqn-1
peer fill "$port" $iqn-2 32768 1
is "the other unit is written to, more than the cache holds" test "$?" = 0
kill -9 "$worker"
is "a second kill: another one serves" another
peer filled "$port" $iqn-2 32768 1
is "what was acknowledged is read" test "$?" = 0
is "the unit of the store that hangs is not ready still" not_ready $iqn-1
adm --mode system --op update --name restart
is "a planned restart" another
peer fill "$port" $iqn-2 8192 2
is "and the next one serves as well" test "$?" = 0
is "... all of that while the store hangs" hangs_still
is "it has not gone" not gone
touch "$LATE.wake"
is "it wakes" await test -e "$LATE.done"
is "what it had in hand was done" test "$(cat "$LATE.done")" = 2
is "the dead one goes" await gone
is "what was acknowledged is read then" await reads $iqn-1 64 2
is "what was being loaded is" reads $iqn-1 2048 9
peer filled "$port" $iqn-2 8192 2
is "nothing of that is in the other store's blocks" test "$?" = 0
peer sync "$port" $iqn-1
is "SYNCHRONIZE CACHE" test "$?" = 0
is "the store has what was acknowledged" test "$(stored late-disk 64)" = 2
{ kill $asks && wait $asks; } 2>/dev/null
is "it ends with 0" daemon_stop
is "and the store has it all" test "$(stored late-disk 64)" = 2

# ---- the daemon is stopped meanwhile: what was acknowledged waits for the store
# stopped VALUE SECONDS: LUN 1's block 64 is VALUE, written and not at the store when the store hangs, the worker is killed and
# the next one is told to end. It may wait so long.
stopped() {
	export LATE=$dir/hangs-$1
	LD_PRELOAD=$preload daemon_start ours --seccomp off --cache size=4m --stop-timeout "$2"
	adm --mode target --op new --tid 1 --targetname $iqn-1
	adm --mode target --op bind --tid 1 -I ALL
	adm --mode logicalunit --op new --tid 1 --lun 1 -b "$dir/late-disk"
	peer write "$port" $iqn-1 64 $(($1 - 1))
	touch "$LATE"
	is "it is being written back when it hangs" under_way 1 0
	peer write "$port" $iqn-1 64 "$1"
	is "what is written back is written to" test "$?" = 0
	rm "$LATE"
	kill -9 "$worker"
	is "another worker serves" another
	is "the unit is becoming ready" not_ready $iqn-1
	kill -TERM "$pid"
	is "it is told to end" await logged 'shutting down'
}
ended() {
	wait "$pid"
	status=$?
	pid=
}
stopped 32 60
sleep 3
is "it waits for the store" kill -0 "$pid"
touch "$LATE.wake"
ended
is "then it ends with 0" test $status = 0
is "and the store has what was acknowledged" test "$(stored late-disk 64)" = 32
stopped 34 3
ended
is "one that hangs for ever: it ends with 1" test $status = 1
is "and says what is lost" logged 'KiB that an earlier process left were not written back: LOST'
touch "$LATE.wake"
is "the dead one ends" await test -e "$LATE.done"

# ---- one that really hangs: in the kernel, and the worker cannot even end
mkdir "$dir/mnt"
python3 -B tests/support/hanging_fs.py "$dir/mnt" 16 "$dir/kernel" >"$dir/fs" 2>&1 &
fs=$!
while kill -0 $fs 2>/dev/null && ! grep -q mounted "$dir/fs"; do sleep 0.05; done
if ! grep -q mounted "$dir/fs"; then
	echo "ok a store that hangs in the kernel # SKIP this machine does not let us mount"
	finish
fi
trap 'rm -f "$dir/kernel"; daemon_kill; umount -l "$dir/mnt"; rm -rf "$dir"' EXIT
daemon_start ours --watchdog 2
n=0
for disk in mnt/disk disk; do
	n=$((n + 1))
	adm --mode target --op new --tid $n --targetname $iqn-$n
	adm --mode target --op bind --tid $n -I ALL
	adm --mode logicalunit --op new --tid $n --lun 1 -b "$dir/$disk"
done
peer write "$port" $iqn-1 64 21
is "a write to the store that is about to hang" test "$?" = 0
peer write "$port" $iqn-2 64 22
is "... and to the other store" test "$?" = 0
touch "$dir/kernel"
peer write "$port" $iqn-1 64 21
is "it is written to once more: that the store has not got" test "$?" = 0
python3 -B tests/integration/keeper.py asks "$port" $iqn-1 64 >"$dir/asks" 2>&1 &
asks=$!
is "it is being written back when it hangs" under_way 1 0
peer write "$port" $iqn-2 64 23
is "a write to the other store" test "$?" = 0
began=$(date +%s%N)
kill -9 "$worker"
dead=$worker
is "another worker serves" another
took=$((($(date +%s%N) - began) / 1000000))
echo "# $took ms from the kill to an answer"
is "... though the one before cannot even be reaped" test -d "/proc/$dead/task"
is "the other store's unit is read" reads $iqn-2 64 23
peer write "$port" $iqn-2 64 24
is "... and written to" test "$?" = 0
peer sync "$port" $iqn-2
is "... to its store" test "$? $(stored disk 64)" = "0 24"
is "the unit of the store that hangs is becoming ready" not_ready $iqn-1
kill -9 "$worker"
is "a second kill: another one serves" another
is "the other store's unit is read" reads $iqn-2 64 24
is "its own unit is not ready still" not_ready $iqn-1
is "the dead one has not gone" not gone
rm "$dir/kernel"
is "the store wakes: what was acknowledged is read" await reads $iqn-1 64 21
is "the dead one has gone" await gone
is "the other store's unit, too" reads $iqn-2 64 24
{ kill $asks && wait $asks; } 2>/dev/null
is "it ends with 0" daemon_stop
is "and the stores have all" test "$(stored mnt/disk 64) $(stored disk 64)" = "21 24"
umount "$dir/mnt"
wait $fs 2>/dev/null
trap 'daemon_kill; rm -rf "$dir"' EXIT
finish
