#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# tgt-probe, which `make run` proves a target with: a discovery, a login, a write and a read back; and
# what it says of a target that is not there, a unit that cannot be written, and no target at all.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/integration/admin_lib.sh
iqn=iqn.2026-11.org.tgtd.test:probe
probe() {
	out=$("$bin/tgt-probe" "$@" 2>&1)
	rc=$?
}
ends() { [ "$rc" = "$1" ] && has "$2"; }

probe 127.0.0.1:1
is "nobody listens" ends 1 "tgt-probe:"
daemon_start ours
truncate -s 8m "$dir/store"
adm --op new --mode target --tid 1 -T $iqn
adm --op bind --mode target --tid 1 -I ALL
adm --op new --mode logicalunit --tid 1 --lun 1 --bstype ram -b 64m
adm --op new --mode logicalunit --tid 1 --lun 2 -b "$dir/store"
adm --op update --mode logicalunit --tid 1 --lun 2 --params readonly=1
probe "127.0.0.1:$port"
is "a discovery" ends 0 $iqn
probe --target $iqn "127.0.0.1:$port"
is "a login, INQUIRY and READ CAPACITY" ends 0 64
probe --target $iqn:other "127.0.0.1:$port"
is "a target that is not there" ends 1 "tgt-probe:"
probe --write --lun 1 --target $iqn "127.0.0.1:$port"
is "a write, and a read back" test "$rc" = 0
probe --write --lun 2 --target $iqn "127.0.0.1:$port"
is "a unit that cannot be written" ends 1 "tgt-probe:"
is "... and was not" cmp -s -n 8388608 "$dir/store" /dev/zero
probe --lun 7 --target $iqn "127.0.0.1:$port"
is "a unit that is not there" ends 1 "tgt-probe:"
is "it ends with 0" daemon_stop
finish 20
