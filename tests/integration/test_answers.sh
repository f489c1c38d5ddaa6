#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# W13: what a target answers to what well-behaved initiators do not send: reserved power conditions,
# the attribute ACA, a NOP-Out that takes a number, ABORT TASK by another LUN; FORMAT UNIT; and
# thresholds of thin provisioning. The initiator is answers.py.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/integration/admin_lib.sh
iqn=iqn.2026-11.org.tgtd.test

daemon_start ours
truncate -s 64m "$dir/store"
adm --op new --mode target --tid 1 -T $iqn:answers
adm --op bind --mode target --tid 1 -I ALL
adm --op new --mode logicalunit --tid 1 --lun 1 --bstype ram --backing-store 8m
adm --op new --mode logicalunit --tid 1 --lun 2 --backing-store "$dir/store"
adm --op update --mode logicalunit --tid 1 --lun 2 --params sanitize_rate=64
truncate -s 64m "$dir/thin"
adm --op new --mode logicalunit --tid 1 --lun 3 --backing-store "$dir/thin"
adm --op update --mode logicalunit --tid 1 --lun 3 --params thin_provisioning=1
for scene in ${*:-power aca reserved_tag abort_by_lun format_unit thresholds}; do
	python3 tests/integration/answers.py "$port" $scene || failures=$((failures + 1))
done
is "no report" no_report
finish
