#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Two tenants on one target of a live daemon: one tries all of SCSI's and iSCSI's means against the
# other (tgtd/iscsi/README.md, "Tenants against each other"). The initiators are hostile.py.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/integration/admin_lib.sh
iqn=iqn.2026-11.org.tgtd.test
must() {
	adm "$@"
	[ "$rc" = 0 ] || { echo "not ok $*: $out"; failures=$((failures + 1)); }
}
daemon_start ours
must --op new --mode target --tid 1 -T $iqn:shared
must --op new --mode target --tid 2 -T $iqn:private
must --op update --mode target --tid 1 --name default-mask --value none
must --op update --mode target --tid 1 --name data_out_timeout --value 600
for lun in 1 2 3; do
	must --op new --mode logicalunit --tid 1 --lun $lun --bstype ram --backing-store 8m
done
must --op new --mode logicalunit --tid 2 --lun 1 --bstype ram --backing-store 8m
for n in a b; do
	must --op new --mode account --user tenant-$n --password secret-of-tenant-$n
	must --op bind --mode target --tid 1 -Q $iqn:host-$n
	must --op bind --mode account --tid 1 --user tenant-$n --initiator-name $iqn:host-$n
done
must --op bind --mode target --tid 2 -Q $iqn:host-a
must --op update --mode target --tid 1 -Q $iqn:host-a --expose 1,3
must --op update --mode target --tid 1 -Q $iqn:host-b --expose 2,3
python3 tests/integration/hostile.py "$port" || failures=$((failures + 1))
is "it ends with 0" daemon_stop
is "no report" no_report
finish 60
