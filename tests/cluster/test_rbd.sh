#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Stores of bstype rbd, of a Ceph that is brought up here: data, FUA, SYNC, UNMAP, zeros, COMPARE
# AND WRITE, sizes, snapshots, clones, namespaces; an OSD that is killed under load, or stopped; a
# full cluster, a quota, a fence, an image that goes. RBD=short leaves out what takes minutes.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/integration/admin_lib.sh
. tests/cluster/ceph_lib.sh
has_word() { grep -qw -- "$1" <<<"$2"; }
missing=$(ceph_missing)
if has_word librbd.so.1 "$missing"; then
	daemon_start ours
	adm --op new --mode target --tid 1 -T iqn.x:a
	adm --op new --mode logicalunit --tid 1 --lun 1 --bstype rbd -b rbd/a
	is "without librbd an image is refused" refused "invalid request"
	out=$(cat "$dir/log")
	is "... with a reason" has "Ceph's library is not here (package librbd1)"
	is "it ends with 0" daemon_stop
fi
[ -z "$missing" ] || {
	echo "ok rbd # SKIP no $missing (tools/install-deps --cluster)"
	finish
}
iqn=iqn.2026-11.org.tgtd.test:rbd
reader=
trap '[ -z "$reader" ] || kill -9 $reader 2>/dev/null; daemon_kill; ceph_kill; rm -rf "$dir"' EXIT

lu() { # LUN IMAGE [OPTIONS...]
	local lun=$1 image=$2
	shift 2
	adm --op new --mode logicalunit --tid 1 --lun "$lun" --bstype rbd -b "$image" "$@"
}
gone() { adm --op delete --mode logicalunit --tid 1 --lun "$1"; }
peer() { out=$(timeout 150 python3 tests/integration/nbd.py "$port" $iqn "$@" 2>&1); rc=$?; }
prints() { said 0 "$1"; }
log_has() { out=$(cat "$dir/log"); has "$1"; }
opts="conf=$ceph/ceph.conf;id=admin;cluster=ceph"
other_answers() { # the unit of memory, and the administrator, at once
	local began
	began=$(date +%s%N)
	peer write 9 other
	prints 0 || return 1
	adm --op show --mode target
	[ "$rc" = 0 ] && [ $((($(date +%s%N) - began) / 1000000000)) -lt 10 ]
}
load() { # SEED: verified, until stop_load
	rm -f "$dir/enough"*
	python3 tests/integration/nbd.py "$port" $iqn through 1 "$1" "$dir/enough" \
		>"$dir/through" 2>&1 &
	reader=$!
}
so_far() {
	local n
	n=$(cat "$dir/enough.n" 2>/dev/null)
	echo "${n:-0}"
}
further() { # N: until the reader has done that many more
	local from
	from=$(so_far)
	for _ in $(seq 1200); do
		[ "$(so_far)" -ge $((from + $1)) ] && return
		kill -0 $reader 2>/dev/null || return
		sleep 0.05
	done
}
stop_load() {
	: >"$dir/enough"
	wait $reader
	rc=$?
	reader=
	out=$(cat "$dir/through")
	return $rc
}

ceph_start || { echo "not ok a Ceph of one machine"; tail -5 "$ceph"/out/*.out; exit 1; }
echo "# Ceph is in $ceph"
rbd create a --size 64M
rbd create b --size 64M --image-feature layering
daemon_start ours
adm --op new --mode target --tid 1 -T $iqn
adm --op bind --mode target --tid 1 -I ALL
adm --op new --mode logicalunit --tid 1 --lun 9 --bstype ram -b 64m

echo "# what is refused"
lu 1 rbd/nothing --bsopts "$opts"
is "an image that is not there" refused "invalid request"
is "... with a reason" log_has "no such image"
lu 1 nothing/a --bsopts "$opts"
is "a pool that is not there" refused "invalid request"
lu 1 rbd/a/b/c --bsopts "$opts"
is "a path that names no image" refused "invalid request"
lu 1 rbd/a --bsopts "conf=$dir/none;id=admin"
is "a configuration that is not there" refused "invalid request"
is "... with a reason" log_has "the cluster's configuration"
lu 1 rbd/a --bsopts "conf="
is "a word without a value" refused "invalid request"

echo "# an image, behind the cache"
lu 1 rbd/a --bsopts "$opts"
is "a unit" done_silently
lu 2 a --bsopts "$opts"
is "the same image by another name is not served twice" refused "invalid request"
is "... and who has it is said" log_has "target 1, LUN 1 has it open for writing"
adm --op show --mode target
is "its type is shown" has "Backing store type: rbd"
is "... and its path" has "Backing store path: rbd/a"
adm --op update --mode logicalunit --tid 1 --lun 1 --params thin_provisioning=1
peer extents 1
is "an image that is new has nothing" prints "131072 1"
peer sense 1 write
peer sync 1
peer extents 1
is "... and then what is written" prints $'8 0\n131064 1'
peer write 1 first
is "blocks are written, then synced" prints 0
peer fua 1
is "... with FUA, too" prints 0
peer unmap 1
is "a range is unmapped" prints 0
peer bytes 1 0 8
is "... and is zeros then" prints 0
began=$(date +%s%N)
peer scatter 1
is "256 ranges are unmapped at once, and nothing else" prints right
echo "# in $((($(date +%s%N) - began) / 1000000)) ms"
peer unmap 1
is "... then all of it" prints 0
peer offers 1
is "WRITE ATOMIC of 16 KiB is offered" prints "32 3"
peer atomic 1 64 32 85
is "... and done" prints good
peer bytes 1 64 32
is "... and read back" prints 85
peer atomic 1 48 32 85
is "... of one that is not aligned it is refused" prints 5/24/00
peer atomic 1 64 32 0
is "... and zeros are written by it" prints good
gone 1
is "the unit goes" done_silently
want() { # what test_rbd's peer has written: FILE SEED ZEROS-BELOW-LBA
	python3 - "$@" <<'PYTHON'
import random, sys
r = random.Random(sys.argv[2])
with open(sys.argv[1], 'wb') as f:
    f.truncate(64 << 20)
    for lba in r.sample(range(0, 64 << 10, 8), 256):
        data = r.randbytes(4096)
        if lba >= int(sys.argv[3]):
            f.seek(lba * 512)
            f.write(data)
PYTHON
}
same_as_image() { # FILE IMAGE
	rm -f "$dir/export"
	rbd export --no-progress "$2" "$dir/export" && out=$(cmp "$1" "$dir/export" 2>&1)
}
want "$dir/want" first 2048
is "what the image has is what was written" same_as_image "$dir/want" a

echo "# without the cache"
lu 1 rbd/b --bsopts "$opts;cache=none"
is "a unit" done_silently
peer offers 1
is "WRITE ATOMIC is not offered" prints "0 1"
peer atomic 1 64 32 85
is "... nor done" prints 5/20/00
adm --op update --mode logicalunit --tid 1 --lun 1 --params thin_provisioning=1
peer write 1 second
is "blocks are written" prints 0
peer fua 1
is "... with FUA, too" prints 0
peer check 1 second
is "... and read back, but for what FUA wrote" test -n "$out"
caw() { # LBA BLOCKS
	peer sense 1 write "$1"
	peer caw 1 "$1" 85 7 "$2"
	is "COMPARE AND WRITE of $2 at $1 writes what compares" prints 0
	peer bytes 1 "$1" "$2"
	is "... all of it" prints 7
	peer caw 1 "$1" 85 8 "$2"
	is "... and nothing else" prints 2
	peer bytes 1 "$1" "$2"
	is "... none of it" prints 7
}
caw 16 1
caw 32 8
caw 8188 8 # across the border of two objects
peer zeros 1 0
is "WRITE SAME of zeros over two objects" prints 0
peer bytes 1 8188 8
is "... gives zeros" prints 0
peer extents 1
is "... that are not there" test "$(head -1 <<<"$out" | tr ' ' '\n' | sed -n '2p')" = 1
is "... all of them" test "$(head -1 <<<"$out" | sed 's/ .*//')" -ge 16384
peer sync 1
is "SYNC" prints 0
gone 1
id_of() { rbd info "$1" | sed -n 's/.*rbd_data\.//p'; }
out=$(rados -p rbd ls | grep -c "^rbd_data\.$(id_of b)\.000000000000000[01]$")
is "... and deallocates the objects" test "$out" = 0

echo "# snapshots, clones, namespaces, sizes"
rbd snap create --no-progress a@s1 && rbd snap protect a@s1 && rbd clone a@s1 child
lu 1 rbd/a@s1 --bsopts "$opts"
is "a snapshot" done_silently
adm --op show --mode target
is "... is a read-only unit" has "Readonly: Yes"
peer sense 1 write
is "... that refuses writes" prints 7/27/00
lu 2 rbd/child --bsopts "$opts"
is "a clone" done_silently
lu 3 rbd/a --bsopts "$opts"
is "the image beside its snapshot" done_silently
peer write 2 clone
peer write 3 third
peer check 3 third
is "the image is written" prints same
peer check 2 clone
is "... and the clone" prints same
peer unsynced 3 beside
rbd snap create --no-progress a@s2
is "a snapshot by somebody else, beside dirty blocks" test $? = 0
lu 4 rbd/a@s2 --bsopts "$opts"
peer check 4 beside
is "... has what was acknowledged before" prints same
for lun in 1 2 3 4; do gone $lun; done
is "the snapshot is what it was" same_as_image "$dir/want" a@s1

# The image is slow; so what is dirty is being written while the unit loses it.
asked() { grep -c "rbd/a: a snapshot is about to be made" "$dir/log"; }
snapshot_begins() { # NAME: by somebody else, who waits for us
	local was
	was=$(asked)
	rbd snap create --no-progress "a@$1" >"$dir/snap" 2>&1 &
	snap=$!
	for _ in $(seq 300); do
		[ "$(asked)" -gt "$was" ] && return
		sleep 0.1
	done
	return 1
}
snapshot_ends() { # it is made, or refused; nobody waits for ever
	for _ in $(seq 600); do
		kill -0 $snap 2>/dev/null || break
		sleep 0.1
	done
	! kill -0 $snap 2>/dev/null || return 1
	wait $snap
	echo "# the snapshot: $? $(tail -n 1 "$dir/snap")"
}
# Who makes it takes the lock, which writing what is dirty would need.
lu 1 rbd/a --bsopts "$opts"
peer unsynced 1 unlocked
began=$SECONDS
snapshot_begins unlocked
wait $snap
rc=$?
is "a snapshot that needs what its maker does not allow is refused" test $rc != 0
is "... soon" test $((SECONDS - began)) -lt 20
is "... the log says why" log_has "no snapshot is made: another client has the image's lock"
peer sync 1
is "... what is dirty is written then" prints 0
rbd snap create --no-progress a@unlocked
is "... and it is made when that is tried again" test $? = 0
lu 2 rbd/a@unlocked --bsopts "$opts"
peer check 2 unlocked
is "... with what was acknowledged" prints same
gone 2
gone 1

rbd config image set a rbd_qos_write_iops_limit 60
for what in deleted "given another image"; do
	lu 1 rbd/a --bsopts "$opts"
	peer fua 1 # the lock is ours
	peer unsynced 1 "$what"
	is "a snapshot begins" snapshot_begins "${what%% *}"
	if [ "$what" = deleted ]; then
		gone 1
	else
		adm --op update --mode logicalunit --tid 1 --lun 1 --params path=rbd/child
	fi
	is "... and meanwhile the unit is $what" test "$rc" = 0
	is "... which ends both" snapshot_ends
	is "... others are served" other_answers
	[ "$what" = deleted ] || gone 1
	lu 1 rbd/a --bsopts "$opts"
	peer check 1 "$what"
	is "... nothing is lost" prints same
	gone 1
done
rbd config image rm a rbd_qos_write_iops_limit
rbd namespace create rbd/ns && rbd create rbd/ns/a --size 64M
lu 1 rbd/ns/a --bsopts "$opts"
is "an image of a namespace" done_silently
lu 2 rbd/a --bsopts "$opts"
is "... is not that of the pool" done_silently
peer write 1 space
peer check 1 space
is "... written and read" prints same
gone 1
rbd resize --no-progress a --size 96M
for _ in $(seq 100); do
	grep -q 'the image has 100663296 bytes now' "$dir/log" && break
	sleep 0.1
done
is "an image that grows is noticed" log_has "the image has 100663296 bytes now"
becomes() { # BYTES: the unit has them, within 10 s
	for _ in $(seq 50); do
		peer capacity 2
		prints "$1" && return 0
		sleep 0.2
	done
	return 1
}
is "... and its unit has the size" becomes 100663296
peer caw 2 150000 0 7 8
peer sync 2
is "something is cached behind the end to be" prints 0
peer caw 2 160000 0 7 8
is "... and something dirty" prints 0
rbd resize --no-progress a --size 16M --allow-shrink
is "one that shrinks, too" becomes 16777216
peer sync 2
is "... SYNCHRONIZE CACHE is well" prints 0
rbd resize --no-progress a --size 96M
is "... and grows again" becomes 100663296
for lba in 150000 160000; do
	peer bytes 2 $lba 8
	is "... with zeros at block $lba" prints 0
done
peer caw 2 160000 0 8 8
peer sync 2
is "... which are written again" prints 0
rbd resize --no-progress a --size 16M --allow-shrink
is "... and shrinks again" becomes 16777216
adm --op update --mode logicalunit --tid 1 --lun 2 --params refresh=1
is "... and refresh=1 finds the same" done_silently
is "... still" becomes 16777216

gone 2
is "... and it goes, with nothing lost" done_silently
is "... at all" not log_has LOST

echo "# an OSD that is killed and comes back, under load"
rbd resize --no-progress a --size 64M
for how in "" ";cache=none"; do
	lu 1 rbd/a --bsopts "$opts$how"
	load "kill$how"
	for _ in $([ "${RBD-}" = short ] && echo 1 || echo 1 2 3); do
		further 30
		kill -9 "$osd"
		wait "$osd" 2>/dev/null
		osd_start
		osd_is_up
	done
	further 10
	is "nothing wrong is read${how:+ (cache=none)}" stop_load
	peer sync 1
	is "... and nothing was lost" prints 0
	gone 1
	is "... the unit goes" done_silently
done

echo "# a full cluster"
lu 1 rbd/b --bsopts "$opts;cache=none"
peer sense 1 write
is "a unit of a pool with room" prints good
await() { # COMMAND...: until it is so
	for _ in $(seq 120); do
		"$@" && return
		sleep 0.5
	done
}
filled full
await full
peer sense 1 write 98304
is "an OSD is full: DATA PROTECT, SPACE ALLOCATION FAILED" prints 7/27/07
peer sense 1 write
is "... what is there can be written over" prints good
peer sense 1 read
is "... and read" prints good
is "... others are served" other_answers
filled none
await not full
peer sense 1 write 98304
is "... and there is room again" prints good
gone 1

echo "# what is dirty: a cluster that is full, one that does not answer"
# A client that waits for 5 s instead of 30.
sed 's/^\[client\]/&\nrados osd op timeout = 5/' "$ceph/ceph.conf" >"$ceph/soon.conf"
dirty_begins() { # IMAGE SEED: acknowledged, and not in the image
	rbd create "$1" --size 64M
	lu 1 "rbd/$1" --bsopts "conf=$ceph/soon.conf;id=admin"
	is "a unit behind the cache" done_silently
	peer sense 1 write 122880 # the lock is ours
	peer sync 1
}
sync_fails() { # SENSE NAME
	local began=$SECONDS
	peer syncsense 1
	is "$2: SYNC says so" prints "$1"
	is "... soon" test $((SECONDS - began)) -lt 30
	is "... others are served" other_answers
}
dirty_ends() { # IMAGE SEED
	for _ in $(seq 60); do
		peer syncsense 1
		prints good && break
		adm --op update --mode logicalunit --tid 1 --lun 1 --params refresh=1
		sleep 0.5
	done
	is "... then SYNC is GOOD" prints good
	peer check 1 "$2"
	is "... nothing is lost" prints same
	gone 1
	is "... the unit goes" done_silently
	lu 1 "rbd/$1" --bsopts "$opts;cache=none"
	peer check 1 "$2"
	is "... the image has it" prints same
	gone 1
}
dirty_begins full room
filled full
await full
peer unsynced 1 room
is "full: what the cache has room for is acknowledged" prints 0
sync_fails 7/27/07 "the cluster is full"
peer check 1 room
is "... what was acknowledged is read" prints same
filled none
await not full
dirty_ends full room
dirty_begins still time
kill -STOP "$osd"
peer unsynced 1 time
is "an OSD stands still: what the cache has room for is acknowledged" prints 0
sync_fails b/08/01 "the cluster does not answer"
osd_wake
dirty_ends still time

echo "# a quota"
quota() { ceph osd pool set-quota rbd max_bytes "$1" >/dev/null 2>&1; }
over_quota() { ceph osd dump | grep -q "^pool.*'rbd'.*[ ,]full_quota[ ,]"; }
if command -v ceph-mgr >/dev/null; then
	mgr_start
	lu 1 rbd/b --bsopts "$opts;cache=none"
	lu 2 rbd/a --bsopts "$opts"
	peer write 2 within
	quota 1048576
	await over_quota
	is "a pool is over its quota" over_quota
	peer sense 1 write 114688
	is "... DATA PROTECT, SPACE ALLOCATION FAILED" prints 7/27/07
	peer sense 1 read
	is "... what is there is read" prints good
	peer check 2 within
	is "... by a unit behind the cache, too" prints same
	is "... others are served" other_answers
	quota 0
	await not over_quota
	peer sense 1 write 114688
	is "... and without it there is room" prints good
	peer write 2 after
	peer check 2 after
	is "... for both" prints same
	gone 1
	gone 2
else
	echo "ok quota # SKIP no ceph-mgr (tools/install-deps --cluster)"
fi

echo "# a client that is fenced"
lu 1 rbd/b --bsopts "$opts;cache=none"
peer sense 1 write
for address in $(rbd status b | sed -n 's/.*watcher=\([^ ]*\) .*/\1/p'); do
	ceph osd blocklist add "$address" >/dev/null 2>&1
done
fenced() {
	for _ in $(seq 60); do
		peer sense 1 write
		prints 2/04/03 && return 0
		sleep 0.5
	done
	return 1
}
is "its unit is NOT READY" fenced
is "... the log says why" log_has "has fenced this client"
is "... others are served" other_answers
lu 2 rbd/a --bsopts "$opts"
is "a unit that is opened then has another client" done_silently
peer write 2 after
peer check 2 after
is "... that may write" prints same
gone 1
is "the unit can be deleted" test "$rc" = 0
lu 1 rbd/b --bsopts "$opts"
peer sense 1 write
is "... and be made anew" prints good
gone 1

if [ "${RBD-}" != short ]; then
	echo "# an OSD that answers no more"
	lu 1 rbd/b --bsopts "$opts;cache=none"
	peer write 1 fourth
	peer write 2 fifth
	kill -STOP "$osd"
	python3 tests/integration/nbd.py "$port" $iqn sense 1 write >"$dir/through" 2>&1 &
	reader=$!
	sleep 0.3
	is "others are served" other_answers
	began=$(date +%s)
	lu 3 rbd/a@s1 --bsopts "$opts"
	is "another unit of it is refused after a time" refused "invalid request"
	wait $reader
	reader=
	out=$(cat "$dir/through")
	is "a write fails: LOGICAL UNIT COMMUNICATION TIME-OUT" test "$out" = b/08/01
	out=$(($(date +%s) - began))
	is "... within 60 s" test "$out" -lt 60
	gone 1
	is "a unit without the cache can be deleted" test "$rc" = 0
	osd_wake
	answers() {
		for _ in $(seq 100); do
			peer check 2 fifth
			prints same && return 0
			sleep 0.5
		done
		return 1
	}
	is "when it goes on, so does the other unit" answers
	echo "# an image that goes"
	rbd create c --size 16M
	lu 1 rbd/c --bsopts "$opts;cache=none"
	peer sense 1 write
	out=$(rbd rm --no-progress c 2>&1)
	is "it cannot be removed while it is served" has "still has watchers"
	rados -p rbd rm "rbd_header.$(id_of c)"
	await log_has "rbd/c: the image has been removed"
	peer sense 1 write 8
	is "when it is removed by force, its unit is NOT READY" prints 2/04/03
	is "... others are served" other_answers
	gone 1
	is "... and it can be deleted" test "$rc" = 0
fi
gone 2

echo "# targets.conf"
cat >"$dir/t.conf" <<END
<target $iqn.conf>
	<backing-store rbd/a>
		bs-type rbd
		bsopts "$opts"
		lun 3
	</backing-store>
</target>
END
out=$("$bin/tgt-admin" -c "$dir/t.conf" -e 2>&1)
rc=$?
is "a file names an image" done_silently
out=$("$bin/tgt-admin" --dump 2>&1)
is "... a dump, too" has "<backing-store rbd/a>"
is "... with what names its cluster" has "$opts"
out=$("$bin/tgt-admin" -c "$dir/t.conf" --update ALL -v 2>&1)
rc=$?
is "... and nothing is left to do" test "$rc" = 0
adm --op stat --mode system --name guard_refused
is "no thread has asked for what it may not" has "guard_refused 0"
is "it ends with 0" daemon_stop
is "nothing has been reported" no_report
finish 40
