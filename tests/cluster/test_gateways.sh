#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Three gateways before one Ceph, all of one machine: one serves a unit, the others stand by. One
# initiator has all paths. A second one has the owner's alone: it would see stale reads. A third one
# holds a persistent reservation, which all gateways show as before after each round.
#
#   handover  it is handed over, and goes home; what is refused
#   image     the image goes, and comes back
#   size      the image becomes larger
#   dead      a gateway that stands by is killed, then the unit is handed over, and again
#   reset     at a gateway that stands by
#   kill      the owner's keeper and worker are killed
#   worker    the worker alone
#   restart   the worker is replaced as planned
#   race      two gateways are told to take the unit at once
#   stop      the owner is stopped with 32 writes and 32 reads in its sessions, and woken
#
# Ceph has three OSDs (OSDS=N: so many): a fence has to reach each.
#
# PARTS="kill stop": these. RBD=short does each once (make check); ROUNDS=N each N times, KILLS=N
# all of kill and worker. Printed are the longest waits of the writer, and how long a takeover takes;
# with TGT_STRICT=1 they are judged by what is wanted of a quiet machine.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/integration/admin_lib.sh
OSDS=${OSDS:-3}
. tests/cluster/ceph_lib.sh
. tests/cluster/gateways_lib.sh
test_end() { load_kill; }
gateways_test gateways
kills=${KILLS:-18}
[ "${RBD-}" != short ] || kills=1
worker_kills=${KILLS:-$rounds}
parts=${PARTS:-handover image size dead reset kill worker restart race stop}

group_start
is "one of them serves the unit" await 60 some_serves a b c
for g in $(others "$owner"); do is "... and $g stands by" await 60 stands_by "$g"; done
for g in a b c; do is "$g says who serves it" test "$(owner_at "$g")" = "$owner"; done

hold wqr

part_handover() {
	gw_admin a --dump
	is "a dump has the gateways" grep -qx '	gateway c 13' <<<"$out"
	gw_admin a -p -e
	is "... as the file has them" test "$rc" = 0 -a -z "$(grep "is not what" <<<"$out")"
	sed -i.was 's/gateway c 13/gateway c 14/' "$dir/targets.conf"
	gw_admin a -p -e
	is "what only a start changes is said" grep -q 'targets.conf:1: <cluster g> is not what' <<<"$out"
	mv "$dir/targets.conf.was" "$dir/targets.conf"

	echo "# hand-over"
	some_serves a b c
	load_start "$owner"
	home=$(field a Home)
	for to in $(others "$owner"); do [ "$to" = "$home" ] || break; done
	unit "$(third "$owner" "$to")" owner="$to"
	is "any gateway may be told to hand it over" test "$rc" = 0
	is "... and the other one serves" await 60 serves "$to"
	is "... the first one stands by" await 60 stands_by "$owner"
	further 50
	unit "$owner" owner=home
	is "it may be told to go home" test "$rc" = 0
	is "... and $home serves" await 60 serves "$home"
	is "... $to stands by" await 60 stands_by "$to"
	further 50
	is "nothing is lost, nothing stale is read" load_stop
	is "... it is in RADOS" image_has_it
	is "... reservations are the same" holds
	gadm "$to" --op update --mode logicalunit --tid 1 --lun 1 --params owner=nobody
	is "a gateway that there is not" test "$rc" != 0
	# An image that another client had open would not be fenced with the gateway.
	gadm a --op new --mode logicalunit --tid 1 --lun 2 --bstype rbd -b rbd/u --bsopts group=h
	is "a unit of another group" test "$rc" != 0
	gadm a --op new --mode logicalunit --tid 1 --lun 2 --bstype rbd -b rbd/u \
		--bsopts "conf=/dev/null;group=g"
	is "a unit of the group, and of another cluster" test "$rc" != 0
}

part_image() {
	echo "# a unit whose image goes, and comes back"
	some_serves a b c
	to=$owner
	set -- $(others "$to")
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
}

size_at() { # GATEWAY: MB
	gadm "$1" --op show --mode target
	sed -n '/LUN: 1$/,$s/^ *Size: \([0-9]*\) MB,.*/\1/p' <<<"$out"
}
larger_at() { # GATEWAY
	local mb
	mb=$(size_at "$1")
	out="$1 says ${mb:-nothing}, after $size MB"
	[ "${mb:-0}" -gt "$size" ]
}
part_size() {
	echo "# the image becomes larger"
	was=$owner
	set -- $(others "$was")
	unit "$was" owner="$1"
	is "it is handed over" await 60 serves "$1"
	await 60 stands_by "$was"
	size=$(size_at "$1")
	rbd resize --no-progress --size 24M u >/dev/null 2>&1
	is "the owner says so" await 30 larger_at "$1"
	for g in "$was" "$2"; do is "... and $g, which stands by" await 30 larger_at "$g"; done
}

# Its watch of the image would stay for 30 s, and hold up whoever gives the lock back.
one_watches() {
	out=$(timeout 60 rados -p rbd listwatchers "rbd_header.$image_id" 2>&1)
	[ "$(wc -l <<<"$out")" = 1 ]
}
part_dead() {
	echo "# a gateway that stands by is killed, and the unit handed over"
	image_id=$(rbd info --format json rbd/u | sed -n 's/.*"id":"\([^"]*\)".*/\1/p')
	for round in $(seq "$rounds"); do
		await 60 some_serves a b c
		was=$owner
		for g in $(others "$was"); do # it has never had the unit
			gw_kill "$g"
			gw_start "$g"
			await 60 stands_by "$g"
		done
		is "the owner alone watches the image" await 20 one_watches
		load_start "$was"
		set -- $(others "$was")
		gw_kill "$2"
		unit "$was" owner="$1"
		is "$2 is dead; the unit is handed over to $1" await 60 serves "$1"
		began=$(day_ms)
		unit "$1" owner="$was"
		is "... and back" await 60 serves "$was"
		figure dead "$(since "$began" "$(day_ms)")"
		is "who has just got it ends with 0" gw_stop "$was"
		is "... and $1 serves" await 60 serves "$1"
		further 50
		is "nothing is lost, nothing stale is read ($round)" load_stop
		for g in "$was" "$2"; do gw_start "$g"; done
		is "... it is in RADOS" image_has_it
		is "... reservations are the same" holds
	done
	bar dead 3500 2000 "a hand-over while another gateway is dead"
}

part_reset() {
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
}

# More often than an object has room for fences.
part_kill() {
	echo "# keeper and worker are killed"
	for round in $(seq "$kills"); do
		some_serves a b c
		load_start "$owner"
		began=$(day_ms)
		gw_kill "$owner"
		is "another one serves" await 60 some_serves $(others "$owner")
		figure_takeover kill "$began"
		further 50
		for g in a b c; do [ -n "${gpid[$g]-}" ] || gw_start "$g"; done
		is "the killed one comes back" test "$rc" = 0
		further 50
		is "nothing is lost, nothing stale is read ($round)" load_stop
		stalls kill
		is "... it is in RADOS" image_has_it
		is "... reservations are the same" holds
	done
	is "the next one asked the kernel whether the killed one is gone" \
		test -z "$(grep -h 'an earlier process of this gateway is silent' "$dir"/[abc]/log)"
	figures detect.kill "from the kill to the deposition"
	bar serve.kill 30000 1000 "from there until the unit is served"
	bar kill 60000 5000 "the writer's longest wait, keeper and worker killed"
}

# By turns, see has_served.
part_worker() {
	echo "# the worker alone is killed"
	for round in $(seq "$worker_kills"); do
		set -- a b c
		shift $((round % 3))
		unit "$1" owner="$1"
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
		stalls worker
		is "... it is in RADOS" image_has_it
		is "... reservations are the same" holds
	done
	bar worker 60000 5000 "the writer's longest wait, worker killed"
}

# A lease is not handed on: the next worker claims its units anew.
part_restart() {
	echo "# the worker is replaced as planned"
	for round in $(seq "$rounds"); do
		some_serves a b c
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
		stalls restart
		is "... reservations are the same" holds
	done
	bar restart 60000 5000 "the writer's longest wait, worker replaced"
}

# Each is told that it is heard; whose wish comes last has the unit.
part_race() {
	local refused=0 t
	echo "# two gateways are to take the unit at once"
	some_serves a b c
	load_start "$owner"
	set -- $(others "$owner")
	for round in $(seq $((rounds * 3))); do
		asked=
		for to; do
			TGT_IPC_SOCKET=$dir/$to/socket "$bin/tgtadm" --op update --mode logicalunit \
				--tid 1 --lun 1 --params owner="$to" >>"$dir/told" 2>&1 &
			asked="$asked $!"
		done
		for t in $asked; do wait "$t" || refused=$((refused + 1)); done
		await 60 some_serves "$@" || break
	done
	out=$(cat "$dir/told")
	is "both are told that they are heard, $round times ($refused refused)" test "$refused" = 0
	is "one of the two serves" await 60 some_serves "$@"
	further 50
	is "nothing is lost, nothing stale is read" load_stop
	stalls race
	is "... it is in RADOS" image_has_it
	is "... reservations are the same" holds
	bar race 60000 5000 "the writer's longest wait, two told at once"
}

part_stop() {
	echo "# the owner is stopped, and woken"
	for round in $(seq "$rounds"); do
		await 60 some_serves a b c
		was=$owner
		load_start "$was"
		is "32 writes are at work, 32 blocks cached" queued_start "$was"
		stopped_and_fenced
		further 50
		woken "$round"
		further 100
		is "nothing is lost, nothing stale is read ($round)" load_stop
		stalls stop
		is "... it is in RADOS" image_has_it
		goes_on
	done
	figures detect.stop "from the stop to the deposition"
	bar serve.stop 30000 1000 "from there until the unit is served"
	bar stop 60000 5000 "the writer's longest wait, owner stopped"

	# A fence is for ten years. What if it were for 5 s, and over when the owner wakes? Then Ceph
	# keeps nobody out. What waits in sockets is kept out by the lease, which is looked at before
	# each command. What librados had taken before the stop would land: so nothing is at work here.
	echo "# it is woken when its fence is over"
	await 60 some_serves a b c
	was=$owner
	is "32 blocks are cached" queued_start "$was"
	is "... and nothing is at work" queued_says still
	stopped_and_fenced
	ceph osd blocklist rm "${fence%% *}" >/dev/null 2>&1
	ceph osd blocklist add "${fence%% *}" 5 >/dev/null 2>&1
	is "it is fenced for 5 s" await 60 fences_of
	is "... and then is not" await 60 not_fenced "${fence%% *}"
	is "... as each OSD knows" await 60 osds_know "$(map_now)"
	woken "no fence"
	goes_on
}

for part in $parts; do
	await 60 some_serves a b c
	part_$part
done

some_serves a b c
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
