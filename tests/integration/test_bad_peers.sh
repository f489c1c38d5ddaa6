#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Initiators that break every rule, see bad_peers.py; afterwards nothing of them is left in the daemon.
#
#   TGT_BAD_ROUNDS   how often (default 2)
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/integration/admin_lib.sh
# A small quarantine: otherwise AddressSanitizer's is what grows.
export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}quarantine_size_mb=4"
growth=2048
case $bin in
*/asan/* | */tsan/*) growth=16384 ;;
esac
daemon_start ours --iscsi login_timeout=2
iqn=iqn.2026-11.org.tgtd.test:bad
adm --op new --mode target --tid 1 -T $iqn
adm --op bind --mode target --tid 1 -I ALL
adm --op new --mode logicalunit --tid 1 --lun 1 --bstype ram --backing-store 16m
python3 tests/integration/bad_peers.py "$port" $iqn "${TGT_BAD_ROUNDS:-2}" "$worker" $growth || failures=$((failures + 1))
is "no session is left" no_connection 1
is "it ends with 0" daemon_stop
is "no report" no_report
finish 300
