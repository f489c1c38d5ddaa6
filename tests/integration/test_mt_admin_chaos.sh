#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Four administrators do anything to any target, LUN, account, rule, portal at once, some of it by files, while initiators
# log in, work, verify, break off: see admin_chaos.py. Afterwards everything can be deleted. Runs under
# AddressSanitizer (leaks too) and ThreadSanitizer.
#
#   TGT_CHAOS_SECONDS   how long (default 6)
#   TGT_CHAOS_SEED      which one (default 1)
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/integration/admin_lib.sh
# The tools are not what is tested: the plain build's are faster when they are there.
[ -x build/bin/tgt-load ] && [ -x build/bin/tgtadm ] && [ -x build/bin/tgt-admin ] && tools=$PWD/build/bin
export TSAN_OPTIONS="${TSAN_OPTIONS:-} exitcode=66"
iqn=iqn.2026-11.org.tgtd.test:chaos
for i in 1 2 3 4 5 6 7 8; do truncate -s $((4 + i % 3 * 6))m "$dir/disk-$i"; done
truncate -s 16m "$dir/disk"
daemon_start ours --cache size=4m
adm --op new --mode target --tid 1 -T ${iqn}1
adm --op bind --mode target --tid 1 -I ALL
adm --op new --mode logicalunit --tid 1 --lun 1 --bstype ram --backing-store 16m
adm --op new --mode logicalunit --tid 1 --lun 2 --bstype aio --backing-store "$dir/disk"
python3 tests/integration/admin_chaos.py "${tools:-$bin}" "$dir" "$port" "${TGT_CHAOS_SECONDS:-6}" "${TGT_CHAOS_SEED:-1}" ||
	failures=$((failures + 1))
is "the daemon is alive" alive
all_deleted() {
	local tid
	for tid in 1 2 3 4 5 6; do
		adm --op delete --mode target --tid $tid --force
		[ "$rc" = 0 ] || [ "$out" = "tgtadm: can't find the target" ] || return 1
	done
}
is "all targets can be deleted" all_deleted
out=
is "it ends with 0" daemon_stop
is "no report" no_report
finish
