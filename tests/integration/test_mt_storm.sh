#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Aborts, resets, lost connections and reinstated sessions under load, see storm.py, on a LU in memory, one behind a
# small cache, and one on a file without a cache, where commands stay in flight, each on a thread of its own;
# afterwards nothing of it is left in the daemon. Runs under AddressSanitizer (leaks too) and ThreadSanitizer.
#
#   TGT_STORM_SECONDS   how long (default 6)
#   TGT_STORM_SEED      which one (default 1)
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/integration/admin_lib.sh
export TSAN_OPTIONS="${TSAN_OPTIONS:-} exitcode=66"
iqn=iqn.2026-11.org.tgtd.test:storm
daemon_start ours --cache size=4m
adm --op new --mode target --tid 1 -T $iqn
adm --op bind --mode target --tid 1 -I ALL
adm --op update --mode target --tid 1 --name allow_target_reset --value Yes
adm --op new --mode logicalunit --tid 1 --lun 1 --bstype ram --backing-store 16m
truncate -s 16m "$dir/disk-2" "$dir/disk-3"
adm --op new --mode logicalunit --tid 1 --lun 2 --bstype aio --backing-store "$dir/disk-2"
adm --op new --mode logicalunit --tid 1 --lun 3 --bstype aio --backing-store "$dir/disk-3" --bsopts cache=none
python3 tests/integration/storm.py "$port" $iqn "${TGT_STORM_SECONDS:-6}" "${TGT_STORM_SEED:-1}" || failures=$((failures + 1))
is "the daemon is alive" alive
is "no session is left" no_connection 1
adm --op delete --mode target --tid 1
is "the target can be deleted: nothing holds it" test "$rc" = 0
is "it ends with 0" daemon_stop
is "no report" no_report
finish
