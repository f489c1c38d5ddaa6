#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Links of gateways that lose all packets, both ways, and say nothing: each gateway is in a network
# namespace of its own, with a link to the initiators and one to Ceph. Under verified load by all
# paths, and a reader that has the owner's alone:
#
#   Ceph's link of the owner     it is deposed, another one serves; it stands by when the link is back
#   Ceph's link of a standby     nobody waits
#   initiators' link of the owner    it serves on: whom it cannot reach waits until the link is back
#
# Ceph has three OSDs (OSDS=N: so many): a fence has to reach each.
#
# In the first, 32 writes are at work and 32 more are queued at the owner, whose Ceph client sends
# them again when the link is back: none of them lands, and its cached reads are refused.
#
# Printed: from the cut until a gateway calls the owner deposed, from there until the unit is served,
# and the longest wait of the writer; with TGT_STRICT=1 judged by what is wanted of a quiet machine.
# ROUNDS=N cuts each N times; RBD=short once (make check). PARTS="back standby front": these.
set -u
cd "$(dirname "$0")/../.." || exit 1
skip() {
	echo "ok links of gateways # SKIP $*"
	exit 0
}
[ "$(id -u)" = 0 ] || skip "only root makes network namespaces"
if [ -z "${IN_NAMESPACE:-}" ]; then
	unshare -n true 2>/dev/null || skip "no network namespaces here"
	IN_NAMESPACE=1 exec unshare -n "$0" "$@"
fi
ip link set lo up
{ ip link add front type bridge && ip link add back type bridge &&
	ip link add tried type veth peer name tried2 && ip link del tried; } 2>/dev/null ||
	skip "no bridges or pairs of Ethernet devices here"
. tests/integration/admin_lib.sh
OSDS=${OSDS:-3}
. tests/cluster/ceph_lib.sh
. tests/cluster/gateways_lib.sh
spaces=
test_end() {
	load_kill
	[ -z "$spaces" ] || kill -9 $spaces 2>/dev/null
}
gateways_test links
# A bridge has the address of one of its ports unless it is given one: whoever sends to that would
# reach this machine by a port that is cut off, one way.
ip link set front address 02:00:00:00:09:01
ip link set back address 02:00:00:00:08:01
for net in front back; do ip link set $net up; done
ip addr add 10.9.0.1/24 dev front
ip addr add 10.8.0.1/24 dev back
ceph_addr=10.8.0.1
addr=([a]=10.9.0.11 [b]=10.9.0.12 [c]=10.9.0.13)
space_of() { # GATEWAY LAST-BYTE
	local net n=9
	unshare -n sleep 100000 &
	spaces="$spaces $!"
	await 20 test ! "/proc/$!/ns/net" -ef /proc/self/ns/net
	for net in front back; do
		ip link add "$net-$1" type veth peer name far netns $!
		nsenter -t $! -n ip link set far name $net
		nsenter -t $! -n ip addr add 10.$n.0."$2/24" dev $net
		nsenter -t $! -n ip link set $net up
		ip link set "$net-$1" master $net up
		n=8
	done
	nsenter -t $! -n ip link set lo up
	within[$1]="nsenter -t $! -n"
	gport[$1]=3260
}
for g in a b c; do space_of $g ${tag[$g]}; done

cut() { ip link set "$1-$2" nomaster; } # front|back GATEWAY
mend() { ip link set "$1-$2" master "$1"; }
group_start
hold wqr
is "one of them serves the unit" await 60 some_serves a b c
for g in $(others "$owner"); do is "... and $g stands by" await 60 stands_by "$g"; done

part_back() {
	echo "# Ceph's link of the owner"
	for round in $(seq "$rounds"); do
		await 60 some_serves a b c
		was=$owner
		load_start "$was"
		is "32 writes are at work, 32 blocks cached" queued_start "$was"
		began=$(day_ms)
		cut back "$was"
		is "32 writes, 32 reads are queued" queued_says queue
		is "another one serves" await 120 some_serves $(others "$was")
		figure_takeover back "$began"
		is "blocks are written elsewhere" queued_says elsewhere
		further 50
		is "32 reads more of the one that is cut off" queued_says reads
		mend back "$was"
		is "the other one stands by when its link is back" await 120 stands_by "$was"
		is "nothing old was read there, nothing queued is GOOD" queued_says answers
		echo "# ${out#good }"
		image_export
		is "RADOS has what was acknowledged" queued_says same "$dir/export"
		further 100
		is "nothing is lost, nothing stale is read ($round)" load_stop
		is "... it is in RADOS" image_has_it
		stalls back
		gadm "$owner" --op update --mode logicalunit --tid 1 --lun 1 --params owner="$was"
		is "... and it serves when it is told to" await 120 serves "$was"
		is "the session that was there goes on" queued_says usable
		is "... reservations are the same" holds
		queued_stop
	done
	bar detect.back 30000 3000 "from the cut of Ceph's link to the deposition"
	bar serve.back 30000 1000 "from there until the unit is served"
	figures back "the writer's longest wait, Ceph's link of the owner"
}

part_standby() {
	echo "# Ceph's link of a standby"
	for round in $(seq "$rounds"); do
		await 60 some_serves a b c
		set -- $(others "$owner")
		load_start "$owner"
		cut back "$1"
		is "its lease lapses" await 120 not stands_by "$1"
		further 50
		is "the owner serves" serves "$owner"
		mend back "$1"
		is "it stands by again" await 120 stands_by "$1"
		is "nothing is lost, nothing stale is read ($round)" load_stop
		stalls standby
		is "... reservations are the same" holds
	done
	figures standby "the writer's longest wait, Ceph's link of a standby"
}

part_front() {
	echo "# the initiators' link of the owner"
	for round in $(seq "$rounds"); do
		await 60 some_serves a b c
		load_start "$owner"
		cut front "$owner"
		sleep 4
		is "the owner serves on" serves "$owner"
		mend front "$owner"
		further 100
		is "nothing is lost, nothing stale is read ($round)" load_stop
		stalls front
		is "... reservations are the same" holds
	done
	figures front "the writer's longest wait, the initiators' link of the owner, cut for 4 s"
}

for part in ${PARTS:-back standby front}; do part_$part; done

out=$(for g in a b c; do
	sed -n 's/.*owned here, epoch \([0-9]*\),.*/\1/p' "$dir/$g/log" | sort -nu
done | sort -n | uniq -d)
is "no epoch was owned twice" test -z "$out"
for g in a b c; do is "$g ends with 0" gw_stop "$g"; done
cat "$dir"/[abc]/log >"$dir/log"
is "nothing has been reported" no_report
finish 60
