#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# A store hangs when the worker is killed, and wakes three seconds later: what was asked of it is done then, from and to the
# memory of the dead one (issue 17, show 7; tests/preload/late_store.c). Nothing stale gets to the store after what is newer,
# nothing that is loaded gets into blocks that others have by then, and nobody is started to be killed once more.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/integration/admin_lib.sh
may_restart=1
iqn=iqn.2026-11.org.tgtd:late
preload=$(realpath "$bin/../tests/preload/late_store.so" 2>/dev/null)
[ -e "$preload" ] || preload=$PWD/build/tests/preload/late_store.so
case $bin in
*san/bin) echo "ok late_store # SKIP sanitizers want to be the first library" && exit 0 ;;
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
arena() {
	for fd in "/proc/$worker/fd/"*; do
		[[ $(readlink "$fd") == */memfd:cache-0* ]] && echo "$fd" && return
	done
}
# So many blocks of the cache are being written back, and loaded, within 20 s.
under_way() {
	for _ in $(seq 400); do
		out=$("$bin/tgtimg" --arena "$(arena)" 2>&1)
		has_line "    Being written back: $1" && has_line "    Being loaded: $2" && return 0
		sleep 0.05
	done
	return 1
}

export LATE=$dir/hangs LATE_MS=3000
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
kill -9 "$worker"
began=$(date +%s%N)
is "another worker serves" another
took=$((($(date +%s%N) - began) / 1000000))
echo "# $took ms from the kill to an answer"
is "... after the store has woken" test $took -ge 2900
is "... one, and no more" test "$(grep -c 'starting another' "$dir/log")" = 1
is "... and the log says what it was waiting for" logged 'the memory of worker [0-9]+, which has died, is in use'
is "what it had in hand was done" test "$(cat "$LATE.done")" = 2
peer read "$port" $iqn-1 64
is "what was acknowledged is read" test "$out" = 2
peer read "$port" $iqn-1 2048
is "what was being loaded is" test "$out" = 9
peer read "$port" $iqn-2 64
is "the other store's, too" test "$out" = 3
peer sync "$port" $iqn-1
is "SYNCHRONIZE CACHE" test "$?" = 0
is "the store has what was acknowledged" test "$(stored late-disk 64)" = 2
{ kill $asks && wait $asks; } 2>/dev/null
is "it ends with 0" daemon_stop
is "and the stores have all" test "$(stored late-disk 64) $(stored disk 64)" = "2 3"

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
touch "$dir/kernel"
python3 -B tests/integration/keeper.py asks "$port" $iqn-1 64 >"$dir/asks" 2>&1 &
asks=$!
is "it is being written back when it hangs" under_way 1 0
peer write "$port" $iqn-2 64 23
is "a write to the other store" test "$?" = 0
kill -9 "$worker"
for _ in $(seq 200); do
	logged 'has died, but the kernel waits for I/O of it' && break
	sleep 0.05
done
is "the log says that the worker is dead and cannot end" logged 'has died, but the kernel waits for I/O of it: a store hangs'
is "... and no other one has started" test "$(worker_of "$pid")" = "$worker"
rm "$dir/kernel"
is "... until the store wakes" another
peer read "$port" $iqn-1 64
is "what was acknowledged is read" test "$out" = 21
peer read "$port" $iqn-2 64
is "the other store's, too" test "$out" = 23
{ kill $asks && wait $asks; } 2>/dev/null
is "it ends with 0" daemon_stop
is "and the stores have all" test "$(stored mnt/disk 64) $(stored disk 64)" = "21 23"
umount "$dir/mnt"
wait $fs 2>/dev/null
trap 'daemon_kill; rm -rf "$dir"' EXIT
finish
