#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# One tenant of a live daemon takes all that it can get of what tenants and the administrator share
# (tgtd/iscsi/README.md, "Tenants against each other"). The initiators are hostile_room.py.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/integration/admin_lib.sh
iqn=iqn.2026-11.org.tgtd.test
luns=30 # of the hostile one: 4,096 registrations of each would be more than the journal has
must() {
	adm "$@"
	[ "$rc" = 0 ] || { echo "not ok $*: $out"; failures=$((failures + 1)); }
}
daemon_start ours
must --op new --mode target --tid 1 -T $iqn:shared
must --op update --mode target --tid 1 --name default-mask --value none
for lun in 1 3 $(seq 10 $((9 + luns))); do
	size=1m
	[ "$lun" != 12 ] || size=16m
	must --op new --mode logicalunit --tid 1 --lun "$lun" --bstype ram --backing-store $size
done
for n in a b; do
	must --op new --mode account --user tenant-$n --password secret-of-tenant-$n
	must --op bind --mode target --tid 1 -Q $iqn:host-$n
	must --op bind --mode account --tid 1 --user tenant-$n --initiator-name $iqn:host-$n
done
must --op update --mode target --tid 1 -Q $iqn:host-a --expose 1,3
must --op update --mode target --tid 1 -Q $iqn:host-b --expose "3,$(seq -s, 10 $((9 + luns)))"
coproc PEER { python3 tests/integration/hostile_room.py "$port" $luns; }
exec {lines}<&"${PEER[0]}" {go}>&"${PEER[1]}"
peer=$PEER_PID
while IFS= read -r line <&"$lines"; do
	echo "$line"
	if [ "$line" = "# the administrator tries" ]; then
		adm --op new --mode target --tid 2 -T $iqn:another
		is "the administrator makes a target meanwhile" done_silently
		adm --op new --mode account --user tenant-c --password secret-of-tenant-c
		is "... and an account" done_silently
		adm --op bind --mode account --tid 2 --user tenant-c
		is "... and binds it" done_silently
		echo >&"$go"
	fi
done
wait "$peer" || failures=$((failures + 1))
is "it ends with 0" daemon_stop
is "no report" no_report
finish 60
