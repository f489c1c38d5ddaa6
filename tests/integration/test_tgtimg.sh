#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# tgtimg: images for disks, tgt's texts and exit codes; nothing is overwritten.
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
exit $((failures > 0))
