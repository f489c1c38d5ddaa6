#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# tgtimg: images for disks, tgt's texts and exit codes; nothing is overwritten. And --arena: what the memory of a daemon's
# cache holds, of the daemon that serves, of a copy, and of files that are none.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/integration/admin_lib.sh
img() { out=$(cd "$bin" && exec -a tgtimg ./tgtimg "$@" 2>&1); rc=$?; }
usage() { said 22 "tgtimg: $1"$'\n'"Try \`tgtimg --help' for more information."; }
size() { stat -c %s "$1"; }

img --op new --device-type disk --type disk --size 16 --file "$dir/a"
is "new" said 0 "Created blank DISK image file : $dir/a"
is "its size" test "$(size "$dir/a")" = $((16 << 20))
is "it is allocated" test "$(stat -c %b "$dir/a")" -ge $((16 << 11))
echo data | dd of="$dir/a" conv=notrunc 2>/dev/null
img --op new --device-type disk --type disk --size 1 --file "$dir/a"
is "what exists is not overwritten" test "$rc" = 2 -a "$(size "$dir/a")" = $((16 << 20))
img -o new -Y disk -t DISK -s 16 -f "$dir/b" -T
is "thin" test "$rc" = 0 -a "$(stat -c %b "$dir/b")" -lt 100
img -o show -Y disk -f "$dir/b"
is "show" said 0 "Type: disk
Size: 16777216
Allocated: $(($(stat -c %b "$dir/b") * 512))
Thin-provisioning: Yes"
img -o show -Y disk -f "$dir/none"
is "show of nothing" test "$rc" = 2
img -o new -Y disk -t disk -s 999999999999 -f "$dir/c"
is "more than there is" test "$rc" = 3 -a ! -e "$dir/c"
img -o new -Y disk -t disk -s x -f "$dir/c"
is "a size that is none" said 3 "Capacity must be > 0"
img -o new -Y disk -t disk -s 0 -f "$dir/c"
is "size 0" said 3 "Capacity must be > 0"
img -o foo
is "an unknown operation" said 1 "tgtimg: unknown operation: foo"
img
is "no operation" usage "specify the operation type"
img -o new
is "no file" usage "specify a newly created file"
img -o new -Y disk -f "$dir/c"
is "no type" usage "Missing media type: DISK"
img -o new -Y disk -f "$dir/c" -t dvd
is "another type" usage "Media type must be DISK for disk devices"
img -o new -Y disk -f "$dir/c" -t disk
is "no size" usage "Missing the capacity param"
img -Y foo
is "an unknown device" usage "unknown target type: foo"
img -Y tape
is "a tape" usage "tapes and DVDs are not emulated"
img x
is "a stray word" usage "unrecognized option 'x'"
img --help
is "help" test "$rc" = 0

# ---- what the memory of a cache holds
iqn=iqn.2026-11.org.tgtd:arena
truncate -s 16m "$dir/slow-disk"
export SLOW_MS=$dir/slow_ms
daemon_start_slow
adm --mode target --op new --tid 1 --targetname $iqn
adm --mode target --op bind --tid 1 -I ALL
adm --mode logicalunit --op new --tid 1 --lun 1 -b "$dir/slow-disk"
echo 600000 w >"$dir/slow_ms" # what is dirty stays so
python3 -B tests/integration/keeper.py write "$port" $iqn 64 77
is "a write is acknowledged" test "$?" = 0
for arena in "/proc/$worker/fd/"*; do
	[[ $(readlink "$arena") == */memfd:cache-0* ]] && break
done
looks() {
	[ "$rc" = 0 ] && has "Arena: 1 of 1" && has "Block size: 4096" && has "Blocks: 8192" && has "Store: file:" &&
		has "    Dirty bytes: 512" && has "    Dirty extents: 1" && has_line "        32768 512" && has "    In doubt: No" &&
		has "Cannot be true: 0"
}
img --arena "$arena"
is "the arena of a daemon that serves" looks
cp --sparse=always "$arena" "$dir/arena"
img --arena "$dir/arena" --extents
is "a copy of it" looks
cp --sparse=always "$dir/arena" "$dir/short"
truncate -s 1m "$dir/short"
img --arena "$dir/short"
is "a copy that is too short" said 4 "tgtimg: $dir/short: parts that overlap or are not there"
printf '\377' | dd of="$dir/arena" bs=1 seek=8 conv=notrunc status=none
img --arena "$dir/arena"
is "one of another version" said 4 "tgtimg: $dir/arena: an arena of another version"
img --arena "$dir/a"
is "an image is none" said 4 "tgtimg: $dir/a: not an arena"
img --arena "$dir/none"
is "nor is nothing" test "$rc" = 2
img --arena "$dir"
is "nor a directory" said 2 "tgtimg: $dir is not a file"
img --arena "$dir/a" --op show
is "with another operation" usage "--arena goes with --extents alone"
img --extents
is "extents of nothing" usage "--extents goes with --arena"
kill -9 "$pid"
kill -9 "$worker"
wait "$pid" 2>/dev/null
pid=
exit $((failures > 0))
