#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# What a killed worker has left is damaged (issue 17, show 8): the state journal, a superblock, its version, and headers. The
# next worker refuses it with a sentence or takes the rest; it serves; and what may be lost is in doubt, until somebody has
# looked. In no case it is the fourth one that serves. Where the memory is another version's, which alone can write it back, it
# is kept, and the unit is not served (there and back: test_other_version.sh).
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/integration/admin_lib.sh
. tests/integration/worker_lib.sh
iqn=iqn.2026-11.org.tgtd:damaged
# The worker's memory by the name $1.
memory() {
	for fd in "/proc/$worker/fd/"*; do
		[[ $(readlink "$fd") == */memfd:$1* ]] && echo "$fd" && return
	done
}
configure() {
	adm --mode target --op new --tid 1 --targetname $iqn
	adm --mode target --op bind --tid 1 -I ALL
	adm --mode logicalunit --op new --tid 1 --lun 1 -b "$dir/disk"
}
# One sector of @2 is acknowledged; then a byte of memory $1 at $3 becomes $4, and the worker dies.
damage() {
	rm -f "$dir/disk"
	truncate -s 16m "$dir/disk"
	daemon_start ours --cache size=4m
	configure
	peer write "$port" $iqn 64 "$2"
	is "a write is acknowledged" test "$?" = 0
	rest
	kill -STOP "$worker"
	printf '%b' "$4" | dd of="$(memory "$1")" bs=1 seek="$3" conv=notrunc status=none
	kill -9 "$worker"
	is "... and another worker serves" another
	rested
}
# A session that does nothing meanwhile; "$rested" says what has become of it.
rest() {
	python3 -B tests/integration/keeper.py rests "$port" $iqn "$dir/rests" >"$dir/rested" 2>&1 &
	for _ in $(seq 1000); do
		[ -e "$dir/rests" ] && return
		sleep 0.02
	done
}
rested() {
	rm -f "$dir/rests"
	wait $!
	rested=$(cat "$dir/rested")
}
# Nobody is told that what is lost is safe.
in_doubt() {
	peer sync "$port" $iqn
	is "SYNCHRONIZE CACHE fails" test "$?" = 2
	is "... and who was there has not gone on as if nothing had been lost" test "$rested" = "has ended"
	adm --mode target --op show
	is "... the store is in doubt" has "In doubt"
	adm --mode logicalunit --op update --tid 1 --lun 1 --params refresh=1
	peer sync "$port" $iqn
	is "... until refresh=1" test "$?" = 0
	peer write "$port" $iqn 64 99
	is "... and it takes writes" test "$?" = 0
}

damage tgtd-state 7 0 X
is "a journal that is none is refused" logged 'state journal: .*: it is not taken over'
adm --mode target --op show
is "... so nothing is configured" test -z "$out"
adm --mode cache --op show
waits_or_stored() { # (on a busy machine it may be written back before the worker dies)
	has "Waiting: 4 KiB of 1 stores that are not open yet" || [ "$(stored disk 64)" = 7 ]
}
is "... what is dirty waits for its store" waits_or_stored
configure
peer read "$port" $iqn 64
is "... and is there when that is opened again" test "$out" = 7
is "it ends with 0" daemon_stop
is "... and the store has it" test "$(stored disk 64)" = 7

damage tgtd-state 8 4170 XXXX
is "a journal with a damaged record is refused" logged 'state journal: .*: it is not taken over'
configure
peer read "$port" $iqn 64
is "... and what was acknowledged is there" test "$out" = 8
is "it ends with 0" daemon_stop

damage cache-0 9 100 '\0377'
is "a superblock with a wrong checksum is refused" logged 'what an earlier process has left is not taken over: node 0: wrong checksum'
is "... by the first one, and the next begins empty, and says so" logged 'begins empty: what was not written back is lost'
in_doubt
is "it ends with 0" daemon_stop

damage cache-0 10 8 '\0143'
is "one of another version is kept, and said" logged 'is of another version of tgtd \(99\), which alone can write it back'
is "... nor given up" not logged 'begins empty'
is "... who was there has not gone on as if nothing had been lost" test "$rested" = "has ended"
adm --mode target --op show
is "... the unit is apart" has "Apart: what is dirty of it is in memory of another version"
adm --mode cache --op show
is "... and the memory is shown" has " MiB, of version 99"
peer read "$port" $iqn 64
is "... nobody reads what is older than what was acknowledged" test "$?" != 0
peer write "$port" $iqn 64 99
is "... nor writes what would be overwritten" test "$?" != 0
adm --mode logicalunit --op update --tid 1 --lun 1 --params refresh=1
is "... until refresh=1" test "$rc" = 0
peer sync "$port" $iqn
is "SYNCHRONIZE CACHE succeeds" test "$?" = 0
peer write "$port" $iqn 64 99
is "... and it takes writes" test "$?" = 0
adm --mode cache --op show
is "... nothing is kept any more" not has "Apart:"
is "it ends with 0" daemon_stop

# The first word of the second header's key: it is none of any store's.
daemon_start ours --cache size=4m
configure
for lba in 64 72 80 88; do
	peer write "$port" $iqn $lba 11
done
rest
kill -STOP "$worker"
python3 -c 'import sys
f = open(sys.argv[1], "r+b", buffering=0)
done = 0
for i in range(1024):
    f.seek(4096 + 64 * i + 24)
    if int.from_bytes(f.read(8), "little") == 10 and not done:
        f.seek(4096 + 64 * i + 16)
        f.write(b"\xff" * 8)
        done = 1
print(done)' "$(memory cache-0)" >"$dir/done"
is "one header is damaged" grep -qx 1 "$dir/done"
kill -9 "$worker"
is "another worker serves" another
rested
is "... who was there has not gone on as if nothing had been lost" test "$rested" = "has ended"
is "... and says what it has forgotten" logged '1 things in what the earlier process left cannot be true'
for lba in 64 72 88; do
	peer read "$port" $iqn $lba
	is "... but not what is beside it ($lba)" test "$out" = 11
done
is "it ends with 0" daemon_stop
finish
