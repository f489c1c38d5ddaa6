#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Three gateways are told to end at once: when all is well, and when their Ceph does not answer.
# Each of them ends, and says by its status whether something is lost: nothing is, as all that was
# written is in Ceph. ROUNDS=N: the first part N times.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/integration/admin_lib.sh
. tests/cluster/ceph_lib.sh
. tests/cluster/gateways_lib.sh
test_end() { load_kill; }
gateways_test "gateways end"

# All at once; then how each has ended.
ended() { ! is_there "${gpid[$1]}"; }
stop_all() { # NAME
	local g status began=$SECONDS
	kill -TERM "${gpid[a]}" "${gpid[b]}" "${gpid[c]}"
	for g in a b c; do
		await 120 ended $g || kill -QUIT "${gpid[$g]}"
		status=0
		wait "${gpid[$g]}" || status=$?
		out="status $status; $(tail -n 6 "$dir/$g/log")"
		unset "gpid[$g]"
		is "$1: $g ends with 0" test $status = 0
	done
	echo "# within $((SECONDS - began)) s"
}

group_start
for round in $(seq "$rounds"); do
	await 60 some_serves a b c
	load_start "$owner"
	stop_all "under load ($round)"
	kill -9 $writer $reader
	wait $writer $reader 2>/dev/null
	writer= reader=
	for g in a b c; do gw_start $g; done
	is "they come back" test "$rc" = 0
done
for who in osd mon; do
	is "one of them serves" await 120 some_serves a b c
	kill -STOP "${!who}"
	stop_all "its $who stands still"
	kill -CONT "${!who}"
	osd_wake
	for g in a b c; do gw_start $g; done
done
is "one of them serves" await 120 some_serves a b c
stop_all "at last"
cat "$dir"/[abc]/log >"$dir/log"
is "nothing has been reported" no_report
finish 60
