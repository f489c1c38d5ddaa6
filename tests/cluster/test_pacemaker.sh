#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The active/passive pair of those who have no Ceph: two nodes with real corosync, pacemaker and
# Debian's resource agents (iSCSITarget, iSCSILogicalUnit, IPaddr2) drive tgtd by tgtadm. They share
# a disk, the initiator has one virtual address. Each node is a set of namespaces with a network of
# its own, so a node dies whole. Under verified load:
#
#   move      an administrator moves the group to the other node, and back
#   worker    the active node's worker is killed: nothing moves
#   node      the active node dies: the other one fences it, and takes over; it comes back
#   cut       the two do not hear each other any more: one is fenced, the other one serves
#
# Printed: the writer's longest wait in each. ROUNDS=N does each N times; RBD=short once (make check).
set -u
cd "$(dirname "$0")/../.." || exit 1
skip() {
	echo "ok a pair under pacemaker # SKIP $*"
	exit 0
}
agents=/usr/lib/ocf/resource.d/heartbeat
for program in corosync pacemakerd crm_mon crm; do
	command -v $program >/dev/null || skip "no $program (tools/install-deps --cluster)"
done
[ -e $agents/iSCSITarget ] || skip "no resource-agents (tools/install-deps --cluster)"
[ "$(id -u)" = 0 ] || skip "only root makes namespaces"
if [ -z "${IN_NAMESPACE:-}" ]; then
	unshare -n -m -p -u -i --fork true 2>/dev/null || skip "no namespaces here"
	IN_NAMESPACE=1 exec unshare -n -m "$0" "$@"
fi
ip link set lo up
{ ip link add pair type bridge && ip link add tried type veth peer name tried2 && ip link del tried; } \
	2>/dev/null || skip "no bridges or pairs of Ethernet devices here"
. tests/integration/admin_lib.sh
. tests/cluster/gateways_lib.sh
rounds=${ROUNDS:-3}
[ "${RBD-}" != short ] || rounds=1
iqn=iqn.2026-11.org.tgtd.test:pair
vip=10.9.0.100
declare -A node_pid
node_kill() { # NODE: all of it at once
	[ -n "${node_pid[$1]-}" ] || return 0
	kill -9 "${node_pid[$1]}" 2>/dev/null
	await_end "${node_pid[$1]}"
	unset "node_pid[$1]"
}
switch=
switch_off() {
	[ -n "$switch" ] || return 0
	kill "$switch"
	wait "$switch"
	switch=
} 2>/dev/null
trap 'load_kill; node_kill n1; node_kill n2; switch_off; rm -rf "$dir"' EXIT

mkdir "$dir/power"
mkdir -p "$dir/overlay" && mount -t tmpfs none "$dir/overlay" 2>/dev/null || skip "no mounts here"
mkdir "$dir"/overlay/{a,b}
mount -t overlay none -o "lowerdir=$dir/overlay/a:$dir/overlay/b" "$dir/overlay/b" 2>/dev/null ||
	skip "no overlays here"
umount "$dir/overlay/b" "$dir/overlay"

truncate -s 16M "$dir/disk" # what both see
ip link set pair up
ip addr add 10.9.0.1/24 dev pair
conf() { # what both are told
	cat <<END
totem {
	version: 2
	cluster_name: pair
	transport: udpu
	crypto_cipher: none
	crypto_hash: none
	token: 3000
}
nodelist {
	node {
		ring0_addr: 10.9.0.11
		name: n1
		nodeid: 1
	}
	node {
		ring0_addr: 10.9.0.12
		name: n2
		nodeid: 2
	}
}
quorum {
	provider: corosync_votequorum
	two_node: 1
	wait_for_all: 0
}
system {
	sched_rr: no
	move_to_root_cgroup: no
}
logging {
	to_stderr: yes
	to_syslog: no
	to_logfile: no
}
END
}
node_start() { # NODE
	local n=$1 link=veth-$1
	mkdir -p "$dir/$n"
	conf >"$dir/$n/corosync.conf"
	env -u IN_NAMESPACE -u TGT_IPC_SOCKET unshare -n -m -p -u -i --fork --mount-proc --kill-child \
		tests/cluster/pacemaker_node.sh "$n" "10.9.0.1${n#n}" "$dir/$n" "$bin" \
		>>"$dir/$n/out" 2>&1 &
	await 20 node_began $! "$n" || return 1
	ip link add "$link" type veth peer name front netns "${node_pid[$n]}" &&
		ip link set "$link" master pair up
}
node_began() { # UNSHARE NODE: its first process, in namespaces of its own
	local p
	p=$(worker_of "$1")
	[ "$p" != "$1" ] && ! [ "/proc/$p/ns/net" -ef /proc/self/ns/net ] && node_pid[$2]=$p
}
on() { # NODE COMMAND...
	local n=$1
	shift
	[ -n "${node_pid[$n]-}" ] || return 1
	env -u TGT_IPC_SOCKET nsenter -t "${node_pid[$n]}" -n -m -p -u -i -- "$@" 2>&1
}
other() { [ "$1" = n1 ] && echo n2 || echo n1; }

# The power switch: a node that has asked for another's death hears when it is dead. What a node has
# asked for that is dead itself by now is not done: else both may die.
power_switch() {
	local n p by
	trap 'exit 0' TERM
	while :; do
		for n in n1 n2; do
			by=$(cat "$dir/power/$n.off" 2>/dev/null) || continue
			if is_there "$(cat "$dir/power/$by.pid")"; then
				p=$(cat "$dir/power/$n.pid")
				kill -9 "$p" 2>/dev/null
				await_end "$p"
				echo "$n" >>"$dir/power/fenced"
			fi
			rm -f "$dir/power/$n.off"
		done
		sleep 0.1
	done
}
plug_in() { # NODE
	node_start "$1" && echo "${node_pid[$1]}" >"$dir/power/$1.pid"
}
fenced() { grep -c "$1" "$dir/power/fenced" 2>/dev/null; } # NODE

# ---- the cluster's configuration: the page's, with names of the test ------------------------------
page=tgtd/cluster/live/README.md
configuration() {
	cat <<END
property stonith-enabled=true stonith-timeout=120s have-watchdog=false
rsc_defaults resource-stickiness=100 migration-threshold=5
primitive power stonith:fence_node \\
	params dir="$dir/power" pcmk_host_list="n1 n2" pcmk_delay_max=2s
END
	sed -n '/^    primitive target /,/^    group iscsi /s/^    //p' $page | sed \
		"s|iqn.2026-11.com.example:pair|$iqn|; s|/dev/shared|$dir/disk|; s|192.0.2.100|$vip|"
}
active_on() { # where the unit and the address are: $active
	local n
	for n in n1 n2; do
		on $n crm_resource -W -r address | grep -q "running on: $n" &&
			on $n tgtadm --op show --mode target | grep -q "$dir/disk" && active=$n && return
	done
	return 1
}
active_is() { active_on && [ "$active" = "$1" ]; }
both_online() { on "$1" crm_mon -1 | grep -q 'Online: \[ n1 n2 \]'; }
no_failures() { ! on "$1" crm_mon -1 | grep -q 'Failed Resource Actions'; }
idle() { on "$1" crm_mon -1 >/dev/null && on "$1" crm_resource --wait --timeout 60 >/dev/null; }

# ---- the initiator ------------------------------------------------------------------------------
begins() {
	await 60 active_on || return 1
	rm -f "$dir/enough" "$dir/shared.n"
	python3 -B tests/cluster/paths.py $iqn "$dir/shared" "$dir/enough" write $vip:3260 \
		>"$dir/writer" 2>&1 &
	writer=$!
	further 50
}
ends() { # NAME
	further 50
	: >"$dir/enough"
	wait $writer
	rc=$?
	writer=
	out=$(cat "$dir/writer")
	echo "# $1: $out"
	is "$1: nothing is lost" test "$rc" = 0
}

power_switch &
switch=$!
for n in n1 n2; do is "node $n begins" plug_in $n; done
is "they are a cluster" await 120 both_online n1
configuration >"$dir/crm"
is "the page says what to serve" test "$(grep -c ^primitive "$dir/crm")" = 4
out=$(on n1 crm -F configure load update "$dir/crm")
is "it is told so" test $? = 0
is "one of them serves the unit" await 120 active_on
is "no agent has failed" no_failures "$active"
[ $failures = 0 ] || { on n1 crm_mon -1 -r; tail -n 20 "$dir"/n?/log/pacemaker.log; exit 1; }

for round in $(seq "$rounds"); do
	echo "# it is moved"
	for way in there back; do
		[ $way = there ] || [ "${RBD-}" != short ] || break
		begins
		to=$(other "$active")
		on "$active" crm_resource --move -r iscsi --node "$to" >/dev/null
		is "$to serves" await 120 active_is "$to"
		ends "moved to $to"
		on "$to" crm_resource --clear -r iscsi >/dev/null
	done
	is "no agent has failed" no_failures "$active"

	echo "# the worker is killed"
	begins
	was=$active
	on "$was" sh -c 'kill -9 "$(cat "$1/worker.pid")"' sh "$dir/$was/state"
	is "the unit is served" further 50
	is "... by the same node" active_is "$was"
	ends "worker killed"
	is "... and no agent has failed" no_failures "$was"

	echo "# the node dies"
	begins
	was=$active to=$(other "$active") n=$(fenced "$active")
	node_kill "$was"
	is "$to serves" await 180 active_is "$to"
	is "... when $was had been fenced" test "$(fenced "$was")" -gt "${n:-0}"
	ends "$was killed"
	is "$was comes back" plug_in "$was"
	is "... to the cluster" await 120 both_online "$to"
	is "... and $to serves on" active_is "$to"

	echo "# they do not hear each other"
	begins
	was=$active to=$(other "$active") n=$(cat "$dir/power/fenced" | wc -l)
	ip link set "veth-$to" nomaster
	one_fenced() { [ "$(cat "$dir/power/fenced" | wc -l)" -gt "$n" ]; }
	is "one is fenced" await 180 one_fenced
	gone=$(tail -1 "$dir/power/fenced")
	node_kill "$gone"
	left=$(other "$gone")
	[ "$left" != "$to" ] || ip link set "veth-$to" master pair
	is "$left serves" await 180 active_is "$left"
	ends "cut, $gone fenced"
	is "$gone comes back" plug_in "$gone"
	is "... to the cluster" await 120 both_online "$left"
done
for n in n1 n2; do node_kill $n; done
switch_off
is "no daemon has said that it is broken" not grep -hE 'BUG:|ERROR: AddressSanitizer' "$dir"/n{1,2}/tgtd.out
finish
