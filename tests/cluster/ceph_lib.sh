# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
# Sourced by the tests of this folder, after admin_lib.sh: a Ceph cluster of one machine, a monitor
# and an OSD, on free ports of 127.0.0.1, all below $ceph. No systemd; no mgr
# unless asked for.
#
#   ceph_missing     says which programs are missing, if any
#   ceph_start       brings it up; sets $CEPH_CONF, $mon and $osd (process ids), $osds of the others
#   osd_start        the OSD again, after it was killed
#   osd_is_up        waits until the monitor says so
#   osd_wake         SIGCONT for the OSD that was stopped. One that does not serve again soon is told
#                    to look at its placement groups anew, is described after a minute, and another
#                    takes its place: that is Ceph's matter
#   mgr_start        a manager, without modules: it tells the monitor how full pools are
#   filled none|full the OSD is full, or not. full: the pool is, as the monitor says
#   ceph_kill        ends it; its files go with $ceph
#
# Objects are in $ceph_pgs placement groups, 8 unless set. OSDS=3: on three OSDs, each object on
# one of them. A client that has heard of a new map by one then speaks to others that have not.
# At $ceph_addr, 127.0.0.1 unless set. No authentication; with auth=cephx before ceph_start everybody
# needs a key, client.NAME's is in $ceph/client.NAME.keyring.
#
# Debian's packages, once: tools/install-deps --cluster

ceph=$dir/ceph
mon=
osd=
osds=
ceph_osds=${OSDS:-1}
mgr=

ceph_missing() {
	local p none=
	for p in ceph-mon ceph-osd ceph rbd rados monmaptool; do
		command -v $p >/dev/null || none="$none $p"
	done
	ldconfig -p | grep -q 'librbd\.so\.1 ' || none="$none librbd.so.1"
	echo $none
}

ceph_kill() {
	[ -z "$osd" ] || { kill -CONT "$osd"; kill -9 "$osd"; } 2>/dev/null
	[ -z "$osds" ] || kill -9 $osds 2>/dev/null
	[ -z "$mon" ] || kill -9 "$mon" 2>/dev/null
	[ -z "$mgr" ] || kill -9 "$mgr" 2>/dev/null
	wait $osd $osds $mon $mgr 2>/dev/null
	osd=
	osds=
	mon=
	mgr=
}

# Two ports that nobody listens on now; the second is the older protocol's.
ceph_conf() {
	local a b at=${ceph_addr:-127.0.0.1}
	a=$(pick_port "$at")
	b=$(pick_port "$at")
	fsid=$(cat /proc/sys/kernel/random/uuid)
	mon_addr="[v2:$at:$a,v1:$at:$b]"
	cat >"$ceph/ceph.conf" <<END
[global]
fsid = $fsid
mon host = $mon_addr
public addr = $at
auth cluster required = ${auth:-none}
auth service required = ${auth:-none}
auth client required = ${auth:-none}
osd pool default size = 1
osd pool default min size = 1
osd crush chooseleaf type = 0
mon allow pool size one = true
mon warn on pool no redundancy = false
mon initial members = a
mon data = $ceph/mon
mon data avail crit = 1
mon osd down out interval = 0
osd data = $ceph/osd\$id
osd memory target = 939524096
osd heartbeat grace = 6
mgr data = $ceph/mgr
mgr module path = $ceph/mgr
mgr initial modules =
mgr stats period = 1
mgr tick period = 1
bluestore block create = true
bluestore block size = 4294967296
run dir = $ceph/out
log file = $ceph/out/\$name.log
pid file = $ceph/out/\$name.pid
admin socket = $ceph/out/\$name.asok
mon cluster log file = $ceph/out/cluster.log
[client]
keyring = $ceph/\$name.keyring
log file =
admin socket =
END
}

# Of the monitor, and of client.admin.
ceph_keys() {
	[ -n "${auth-}" ] || return 0
	ceph-authtool --create-keyring "$ceph/mon.keyring" --gen-key -n mon. --cap mon 'allow *' &&
		ceph-authtool --create-keyring "$ceph/client.admin.keyring" --gen-key -n client.admin \
			--cap mon 'allow *' --cap osd 'allow *' &&
		ceph-authtool "$ceph/mon.keyring" --import-keyring "$ceph/client.admin.keyring"
}
ceph_osd_key() { # NUMBER
	[ -z "${auth-}" ] || timeout 30 ceph auth get-or-create "osd.$1" mon 'allow profile osd' \
		osd 'allow *' -o "$ceph/osd$1/keyring"
}
osd_make() { # NUMBER
	local uuid
	uuid=$(cat /proc/sys/kernel/random/uuid)
	mkdir -p "$ceph/osd$1"
	timeout 30 ceph osd new "$uuid" "$1" </dev/null && ceph_osd_key "$1" &&
		ceph-osd -i "$1" --mkfs --osd-uuid "$uuid" --no-mon-config
}

osd_start() {
	ceph-osd -i 0 -f >>"$ceph/out/osd.out" 2>&1 &
	osd=$!
}

osd_is_up() {
	for _ in $(seq 150); do
		timeout 20 ceph osd stat 2>/dev/null | grep -q " $ceph_osds up" && return 0
		sleep 0.2
	done
	return 1
}

osd_wake() {
	local deadline=$((SECONDS + 60)) tries
	kill -CONT "$osd"
	for ((tries = 1; SECONDS < deadline; tries++)); do
		timeout 10 rados -p rbd ls >/dev/null 2>&1 && return
		[ $tries != 2 ] || timeout 10 ceph osd down 0
		sleep 0.2
	done
	timeout 10 ceph pg ls 2>&1 | awk '{ print "#   " $1, $11, $12 }' | head -n 10
	echo "# the OSD does not go on: $(grep -s State "/proc/$osd/status" || echo gone)," \
		"$(df -h --output=avail "$ceph" | tail -1) of disk and" \
		"$(awk '/^MemAvailable/ { print $2 $3 }' /proc/meminfo) of memory are free"
	tail -n 15 "$ceph/out/osd.0.log" "$ceph/out/osd.out" | cut -c 1-200 | sed 's/^/#   /'
	kill -9 "$osd"
	wait "$osd" 2>/dev/null
	osd_start
	osd_is_up
}

filled() { ceph daemon "$ceph/out/osd.0.asok" injectfull "$1" >/dev/null 2>&1; }
full() { ceph osd dump 2>/dev/null | grep -q "^pool.*'rbd'.*[ ,]full[ ,]"; }

mgr_start() {
	mkdir -p "$ceph/mgr"
	ceph-mgr -i x -f >"$ceph/out/mgr.out" 2>&1 &
	mgr=$!
}

ceph_start() {
	local n
	mkdir -p "$ceph/mon" "$ceph/out"
	ceph_conf
	export CEPH_CONF=$ceph/ceph.conf
	unset CEPH_ARGS
	{
		monmaptool --create --addv a "$mon_addr" --fsid "$fsid" "$ceph/monmap" &&
			ceph_keys && touch "$ceph/mon.keyring" &&
			ceph-mon -i a --mkfs --monmap "$ceph/monmap" --keyring "$ceph/mon.keyring" &&
			touch "$ceph/mon/keyring"
	} >"$ceph/out/mkfs.out" 2>&1 || return 1
	ceph-mon -i a -f >"$ceph/out/mon.out" 2>&1 &
	mon=$!
	for n in $(seq 0 $((ceph_osds - 1))); do
		osd_make "$n" >>"$ceph/out/mkfs.out" 2>&1 || return 1
	done
	osd_start
	for n in $(seq 1 $((ceph_osds - 1))); do
		ceph-osd -i "$n" -f >>"$ceph/out/osd.out" 2>&1 &
		osds="$osds $!"
	done
	{
		osd_is_up && timeout 60 ceph osd pool create rbd "${ceph_pgs:-8}" "${ceph_pgs:-8}" &&
			timeout 60 rbd pool init rbd
	} >>"$ceph/out/mkfs.out" 2>&1
}
