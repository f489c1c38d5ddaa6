#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# A Ceph with authentication (cephx): who has a key is let in, alone and as a gateway; who has none,
# a wrong one, or one for less, is told so, and keeps nobody else waiting.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/integration/admin_lib.sh
. tests/cluster/ceph_lib.sh
missing=$(ceph_missing)
[ -z "$missing" ] || {
	echo "ok auth # SKIP no $missing (tools/install-deps --cluster)"
	finish
}
iqn=iqn.2026-11.org.tgtd.test:auth
trap 'daemon_kill; ceph_kill; rm -rf "$dir"' EXIT
lu() { # LUN IMAGE [OPTIONS...]
	local lun=$1 image=$2
	shift 2
	adm --op new --mode logicalunit --tid 1 --lun "$lun" --bstype rbd -b "$image" "$@"
}
gone() { adm --op delete --mode logicalunit --tid 1 --lun "$1"; }
peer() { out=$(timeout 150 python3 tests/integration/nbd.py "$port" $iqn "$@" 2>&1); rc=$?; }
prints() { said 0 "$1"; }
log_has() { out=$(tail -20 "$dir/log"); has "$1"; }
key() { # NAME CAPS...
	local name=$1
	shift
	ceph auth get-or-create "client.$name" "$@" -o "$ceph/client.$name.keyring"
}
await_good() { # the unit is served
	for _ in $(seq 240); do
		peer sense 1 write
		prints good && return 0
		sleep 0.25
	done
	return 1
}

auth=cephx
ceph_start || { echo "not ok a Ceph of one machine"; tail -5 "$ceph"/out/*.out; exit 1; }
echo "# Ceph is in $ceph"
rbd create a --size 64M --image-feature layering,exclusive-lock
key tgt mon 'profile rbd' osd 'profile rbd pool=rbd'
key reader mon 'profile rbd-read-only' osd 'profile rbd-read-only pool=rbd'
key nothing mon 'allow r'
ceph-authtool --create-keyring "$ceph/client.wrong.keyring" --gen-key -n client.wrong >/dev/null
opts="conf=$ceph/ceph.conf"

daemon_start ours
adm --op new --mode target --tid 1 -T $iqn
adm --op bind --mode target --tid 1 -I ALL
adm --op new --mode logicalunit --tid 1 --lun 9 --bstype ram -b 64m
lu 1 rbd/a --bsopts "$opts;id=tgt"
is "who has a key is let in" done_silently
peer write 1 seed
peer check 1 seed
is "... reads and writes" prints same
gone 1
for who in wrong nobody nothing; do
	lu 1 rbd/a --bsopts "$opts;id=$who"
	is "$who is not" test "$rc" != 0
	case $who in
	wrong) why="the cluster does not let this user in" ;;
	nobody) why="no monitors or no key are known by the configuration" ;;
	*) why="the cluster does not let this user do that" ;;
	esac
	is "... and the log says why" log_has "$why"
	peer write 9 other
	is "... others are served" prints 0
done
lu 1 rbd/a --bsopts "$opts;id=reader"
echo "# who may only read: $rc $out"
if [ "$rc" = 0 ]; then
	peer sense 1 read
	is "who may only read does" prints good
	peer sense 1 write
	echo "# a write: $out"
	is "... and does not write" test "$out" != good -a "$rc" = 0
	gone 1
fi
is "it ends with 0" daemon_stop

echo "# a gateway"
daemon_start ours --group "name=g,gateways=a:11,self=a,conf=$ceph/ceph.conf,id=tgt"
adm --op new --mode target --tid 1 -T $iqn
adm --op bind --mode target --tid 1 -I ALL
lu 1 rbd/a --bsopts group=g
is "a unit of a gateway that has a key" done_silently
is "... is served" await_good
peer check 1 seed
is "... with what is there" prints same
before=$(ceph osd blocklist ls 2>/dev/null | grep -c /)
worker=$(worker_of "$pid")
may_restart=yes
kill -9 "$worker"
await_end "$worker"
is "a profile rbd may fence: the next worker serves" await_good
after=$(ceph osd blocklist ls 2>/dev/null | grep -c /)
is "... and has fenced the one before" test "$after" -gt "$before"
is "it ends with 0" daemon_stop
daemon_start ours --group "name=g,gateways=a:11,self=a,conf=$ceph/ceph.conf,id=wrong"
adm --op show --mode system
is "a gateway with a wrong key answers its administrator" test "$rc" = 0
said_why() {
	for _ in $(seq 120); do
		log_has "the cluster does not let this user in" && return 0
		sleep 0.25
	done
	return 1
}
is "... and says what is wrong" said_why
is "it ends with 0" daemon_stop
finish 20
