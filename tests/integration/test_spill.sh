#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Spill memory: write data that waits because its command must. Sessions of one target take all that
# they can get, and keep it: another target's session, and another session of the same target, find
# some. What they had is given back. The initiators are spill.py.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/integration/admin_lib.sh
iqn=iqn.2026-11.org.tgtd.test
daemon_start ours
for tid in 1 2; do
	adm --op new --mode target --tid $tid -T $iqn:spill$tid
	adm --op bind --mode target --tid $tid -I ALL
	adm --op new --mode logicalunit --tid $tid --lun 1 --bstype ram --backing-store 8m
	is "target $tid" done_silently
done
figure() { # leaves what $1 is in $n
	adm --op stat --mode system --name "$1"
	n=$(printf '%s\n' "$out" | awk -v f="$1" '$1 == f {print $2}')
}
coproc PEER { python3 tests/integration/spill.py "$port"; }
peer=$PEER_PID
exec {lines}<&"${PEER[0]}" {go}>&"${PEER[1]}"
said_by_peer() { read -r -t 120 out <&"$lines"; [ "$out" = "$1" ]; }
is "sessions of target 1 have taken what they could get" said_by_peer taken
figure iscsi_spill_bytes
echo "# $n bytes in spill memory"
is "... that is half of the pool at most, and the least that each session has" \
	test "$n" -gt $((64 << 20)) -a "$n" -le $(((128 << 20) + 12 * (256 << 10)))
echo go >&"$go"
is "a session of target 2 finds some" said_by_peer "other target: 00"
is "... and as much as a session mostly needs" said_by_peer "other target, 16 MiB: 00"
is "so does another session of target 1" said_by_peer "same target: 00"
is "the others go on: each is answered, the last ones by TASK SET FULL" \
	said_by_peer "first session: all good; last session: some full"
wait "$peer" 2>/dev/null
no_connection 1
figure iscsi_spill_bytes
is "all of it is given back" test "$n" = 0
is "it ends with 0" daemon_stop
is "no report" no_report
finish 60
