#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# A file that becomes smaller while it is a unit's store, and larger again: what was cached behind its end, written back or
# not, is gone, and nothing fails for its sake.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/integration/admin_lib.sh
iqn=iqn.2026-11.org.tgtd.test:shrunk
trap 'daemon_kill; rm -rf "$dir"' EXIT
peer() { out=$(timeout 60 python3 tests/integration/nbd.py "$port" $iqn "$@" 2>&1); rc=$?; }
prints() { said 0 "$1"; }
log_has() { grep -qF -- "$1" "$dir/log"; }
ends_at() { # BYTES: the file does, and the unit is told so
	truncate -s "$1" "$dir/disk"
	adm --op update --mode logicalunit --tid 1 --lun 1 --params resize=1
}
becomes() { # BYTES: the unit has them, within 5 s
	for _ in $(seq 50); do
		peer capacity 1
		prints "$1" && return 0
		sleep 0.1
	done
	return 1
}

truncate -s 64M "$dir/disk"
daemon_start ours
adm --op new --mode target --tid 1 -T $iqn
adm --op bind --mode target --tid 1 -I ALL
adm --op new --mode logicalunit --tid 1 --lun 1 -b "$dir/disk"
is "a unit of 64 MiB" done_silently
for lba in 0 65528 65536 100000; do
	peer caw 1 $lba 0 7 8
	is "block $lba is written" prints 0
done
# behind the new end: one that is written back, and one that is not
peer sync 1
is "... and synchronized" prints 0
peer caw 1 100008 0 7 8
is "one behind the end to be is dirty" prints 0
ends_at 33556480 # amid a block of the cache
is "it becomes smaller" has "the store has shrunk from 67108864 to 33556480 bytes"
is "... and its unit does" becomes 33556480
peer sense 1 read 100000
is "what is behind is out of range" prints 5/21/00
peer sync 1
is "SYNCHRONIZE CACHE is well" prints 0
sleep 4 # write-back by age
is "the file ends where it did" test "$(stat -c %s "$dir/disk")" = 33556480
ends_at 64M
is "it becomes larger" done_silently
is "... and its unit does" becomes 67108864
for lba in 0 65528 65536; do
	peer bytes 1 $lba "$([ $lba = 65536 ] && echo 4 || echo 8)"
	is "block $lba is as it was" prints 7
done
for lba in 65540 100000 100008; do
	peer bytes 1 $lba "$([ $lba = 65540 ] && echo 4 || echo 8)"
	is "block $lba is zeros" prints 0
done
peer caw 1 100000 0 9 8
is "it is written again" prints 0
peer sync 1
is "... and synchronized" prints 0
is "it ends with 0" daemon_stop
is "nothing was lost" not log_has LOST
is "... nor could not be written" not log_has "kept dirty"
is "no reports" no_report
finish
