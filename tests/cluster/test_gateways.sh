#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Three gateways before one Ceph, all of one machine: one serves a unit, the others stand by. The
# unit is handed over; keeper and worker are killed, and the worker alone; a worker is replaced as
# planned; the owner is stopped, and woken. One initiator has all paths. A second one has the
# owner's alone: it would see stale reads.
#
# RBD=short does each once (make check); ROUNDS=N each N times, KILLS=N that of keeper and worker.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/integration/admin_lib.sh
. tests/cluster/ceph_lib.sh
. tests/cluster/gateways_lib.sh
test_end() { load_kill; }
gateways_test gateways
kills=${KILLS:-18}
[ "${RBD-}" != short ] || kills=1

group_start
is "one of them serves the unit" await 60 some_serves a b c
for g in $(others "$owner"); do is "... and $g stands by" await 60 stands_by "$g"; done
for g in a b c; do is "$g says who serves it" test "$(owner_at "$g")" = "$owner"; done

gw_admin a --dump
is "a dump has the gateways" grep -qx '	gateway c 13' <<<"$out"
gw_admin a -p -e
is "... as the file has them" test "$rc" = 0 -a -z "$(grep "is not what" <<<"$out")"
sed -i.was 's/gateway c 13/gateway c 14/' "$dir/targets.conf"
gw_admin a -p -e
is "what only a start changes is said" grep -q 'targets.conf:1: <cluster g> is not what' <<<"$out"
mv "$dir/targets.conf.was" "$dir/targets.conf"

echo "# hand-over"
load_start "$owner"
set -- $(others "$owner")
to=$1
gadm "$2" --op update --mode logicalunit --tid 1 --lun 1 --params owner="$to"
is "any gateway may be told to hand it over" test "$rc" = 0
is "... and the other one serves" await 60 serves "$to"
is "... the first one stands by" await 60 stands_by "$owner"
further 50
is "nothing is lost, nothing stale is read" load_stop
gadm "$to" --op update --mode logicalunit --tid 1 --lun 1 --params owner=nobody
is "a gateway that there is not" test "$rc" != 0
# An image that another client had open would not be fenced with the gateway.
gadm a --op new --mode logicalunit --tid 1 --lun 2 --bstype rbd -b rbd/u --bsopts group=h
is "a unit of another group" test "$rc" != 0
gadm a --op new --mode logicalunit --tid 1 --lun 2 --bstype rbd -b rbd/u \
	--bsopts "conf=/dev/null;group=g"
is "a unit of the group, and of another cluster" test "$rc" != 0

echo "# a unit whose image goes, and comes back"
set -- $(others "$to")
unit() { gadm "$1" --op update --mode logicalunit --tid 1 --lun 1 --params "$2"; }
for g in "$to" "$1"; do
	unit "$g" path=rbd/other
	is "at $g it is not given another image" test "$rc" != 0
	is "... and the log says why" grep -q 'a unit of a group of gateways keeps its image' "$dir/$g/log"
done
rbd rename rbd/u rbd/away
child=$(worker_of "${gpid[$1]}")
kill -9 "$child"
is "a worker that does not find it" await 120 worker_changed "$1" "$child"
is "... has a unit of nobody's" test -z "$(field "$1" Here)"
unit "$1" refresh=1
is "... and still" test "$rc" != 0
rbd rename rbd/away rbd/u
load_start "$to"
unit "$1" refresh=1
is "when it is there again" test "$rc" = 0
is "... the unit stands by" await 60 stands_by "$1"
is "... as before it is served elsewhere" test "$(owner_at "$1")" = "$to"
unit "$1" owner="$1"
is "... and may be handed over" await 60 serves "$1"
further 30
is "nothing is lost, nothing stale is read" load_stop

echo "# a reset that a standby gateway receives"
for g in a b c; do
	gadm $g --op update --mode target --tid 1 --name allow_target_reset --value Yes
done
await 60 some_serves a b c
set -- $(others "$owner")
for fn in 5 6; do
	for g; do
		out=$(timeout 120 python3 -B tests/cluster/resets.py $iqn "$(path_of "$owner")" \
			"$(path_of "$g")" $fn 2>&1)
		rc=$?
		is "function $fn at $g is done by $owner, who serves" test "$rc" = 0
	done
done

# More often than an object has room for fences.
echo "# keeper and worker are killed"
some_serves a b c
for round in $(seq "$kills"); do
	load_start "$owner"
	gw_kill "$owner"
	is "another one serves" await 60 some_serves $(others "$owner")
	further 50
	for g in a b c; do [ -n "${gpid[$g]-}" ] || gw_start "$g"; done
	is "the killed one comes back" test "$rc" = 0
	further 50
	is "nothing is lost, nothing stale is read ($round)" load_stop
	await 60 some_serves a b c
done
is "the next one asked the kernel whether the killed one is gone" \
	test -z "$(grep -h 'an earlier process of this gateway is silent' "$dir"/[abc]/log)"

# By turns: a keeper gives up when four workers in a row die within 10 s of serving.
has_served() { [ "$(ps -o etimes= -p "$(worker_of "${gpid[$1]}")")" -gt 11 ]; }
echo "# the worker alone is killed"
for round in $(seq "$rounds"); do
	set -- a b c
	shift $((round % 3))
	gadm "$1" --op update --mode logicalunit --tid 1 --lun 1 --params owner="$1"
	is "$1 serves" await 60 serves "$1"
	[ "$round" -le 3 ] || await 60 has_served "$1"
	owner=$1
	load_start "$owner"
	was=$owner
	child=$(worker_of "${gpid[$was]}")
	kill -9 "$child"
	is "another worker comes, as the same gateway" await 120 worker_changed "$was" "$child"
	is "the unit is served" await 60 some_serves a b c
	is "... and that gateway knows by whom" await 60 agrees "$was"
	further 50
	is "nothing is lost, nothing stale is read ($round)" load_stop
	await 60 some_serves a b c
done

# A lease is not handed on: the next worker claims its units anew.
echo "# the worker is replaced as planned"
for round in $(seq "$rounds"); do
	load_start "$owner"
	was=$owner
	child=$(worker_of "${gpid[$was]}")
	before=$(carried "$was")
	gadm "$was" --mode system --op update --name restart
	is "a restart is asked for" test "$rc" = 0
	is "another worker comes" await 120 worker_changed "$was" "$child"
	is "sessions go on" test "$(carried "$was")" -gt "$before"
	is "the unit is served" await 60 some_serves a b c
	further 50
	is "nothing is lost, nothing stale is read ($round)" load_stop
	await 60 some_serves a b c
done

echo "# two gateways are to take the unit at once"
load_start "$owner"
set -- $(others "$owner")
for round in $(seq $((rounds * 3))); do
	for to; do
		TGT_IPC_SOCKET=$dir/$to/socket "$bin/tgtadm" --op update --mode logicalunit \
			--tid 1 --lun 1 --params owner="$to" >"$dir/$to/told" 2>&1 &
		told=$!
		asked="${asked-} $told"
	done
	wait $asked
	asked=
	await 60 some_serves a b c || break
done
is "one of them serves" await 60 some_serves a b c
further 50
is "nothing is lost, nothing stale is read" load_stop

echo "# the owner is stopped, and woken"
await 60 some_serves a b c
for round in $(seq "$rounds"); do
	load_start "$owner"
	was=$owner
	child=$(worker_of "${gpid[$was]}")
	kill -STOP "${gpid[$was]}" "$child"
	is "another one serves" await 60 some_serves $(others "$was")
	further 50
	kill -CONT "$child" "${gpid[$was]}"
	is "the woken one stands by" await 60 stands_by "$was"
	further 100
	is "nothing is lost, nothing stale is read ($round)" load_stop
	gadm "$was" --op update --mode logicalunit --tid 1 --lun 1 --params owner="$was"
	is "... and it serves when it is told to" await 60 serves "$was"
	owner=$was
done

gadm a --mode cluster --op show --json
is "all of it as JSON" python3 -B -c '
import json, sys
d = json.loads(sys.argv[1])
assert d["name"] == "g" and [g["name"] for g in d["gateways"]] == ["a", "b", "c"], d
assert [g["self"] for g in d["gateways"]] == [True, False, False], d
assert len(d["units"]) == 1 and d["units"][0]["owner"] == sys.argv[2], d
assert d["units"][0]["epoch"] > 1 and d["lease_ns"] <= 1500000000, d' "$out" "$owner"
# Of each epoch there is one owner (which may have had several workers).
out=$(for g in a b c; do
	sed -n 's/.*owned here, epoch \([0-9]*\),.*/\1/p' "$dir/$g/log" | sort -nu
done | sort -n | uniq -d)
is "no epoch was owned twice" test -z "$out"
for g in a b c; do is "$g ends with 0" gw_stop "$g"; done
cat "$dir"/[abc]/log >"$dir/log"
is "nothing has been reported" no_report
finish 60
