# SPDX-License-Identifier: GPL-2.0-or-later
#
# One LUN by two portals under dm-multipath: each path is lost once under load and comes back, and the
# application sees neither, nor both at once but as a pause. Then persistent reservations from two initiators.

T=iqn.2026-11.net.tgtd:mp
A=$RDMA_IP
B=192.168.78.1
LUN_STORE=/dev/ram0

configure() {
	adm --op update --mode sys --name State -v offline && target_new 1 $T && lun_new 1 1 aio $LUN_STORE &&
		adm --op update --mode sys --name State -v ready
}

both_discovered() {
	iscsiadm -m discovery -t st -p $A:3260 >/run/disc
	cat /run/disc
	grep -q "^$A:3260,[0-9]* $T\$" /run/disc && grep -q "^$B:3260,[0-9]* $T\$" /run/disc
}

# Both ends of the path's connections are in this machine: no address, no way back.
lose() { # ADDRESS
	ip addr del "$1/24" dev eth9
	ss -K src "$1" >/dev/null
	ss -K dst "$1" >/dev/null
}

# The load is not hurt by the loss of these, and all paths come back after it. With none left I/O waits.
lose_and_return() { # ADDRESS...
	fio_verify mp /mnt/mp/load 12m --rate=1m >/run/fio.mp 2>&1 &
	local fio=$! rc left=$((2 - $#)) address written
	sleep 2
	for address; do
		lose "$address"
	done
	until_true 40 multipath_has "$SD1" $left || until_true 1 multipath_has "$SD2" $left || { multipathd show paths; return 1; }
	kill -0 $fio || { echo "load ended before the path was lost"; cat /run/fio.mp; return 1; }
	if [ $left -eq 0 ]; then
		written=$(awk '{print $7}' "/sys/block/${DM#/dev/}/stat")
		sleep 1
		[ "$written" = "$(awk '{print $7}' "/sys/block/${DM#/dev/}/stat")" ] || { echo "writes without a path"; return 1; }
	fi
	for address; do
		ip addr add "$address/24" dev eth9
	done
	wait $fio
	rc=$?
	cat /run/fio.mp
	[ $rc -eq 0 ] && until_true 60 multipath_has "$SD1" 2 || { multipathd show paths; return 1; }
}

reservation() { # two initiators, one registered and reserving: the other cannot write, until preempted
	local a=$1 b=$2
	sg_persist --out --register --param-sark=0xa "$a" && sg_persist --out --register --param-sark=0xb "$b" &&
		sg_persist --out --reserve --param-rk=0xa --prout-type=5 "$a" || return 1
	sg_persist --in --read-keys "$b" | tee /run/keys
	grep -q 0xa /run/keys && grep -q 0xb /run/keys || return 1
	sg_persist --out --register --param-rk=0xb --param-sark=0 "$b" || return 1
	dd if=/dev/zero of="$b" bs=4k count=1 oflag=direct && { echo "a write passed the reservation"; return 1; }
	dd if=/dev/zero of="$a" bs=4k count=1 oflag=direct || { echo "its holder cannot write"; return 1; }
	sg_persist --out --register --param-sark=0xb "$b" &&
		sg_persist --out --preempt --param-rk=0xb --param-sark=0xa --prout-type=5 "$b" &&
		dd if=/dev/zero of="$b" bs=4k count=1 oflag=direct || return 1
	dd if=/dev/zero of="$a" bs=4k count=1 oflag=direct && { echo "a write passed after the preemption"; return 1; }
	sg_persist --out --clear --param-rk=0xb "$b" && dd if=/dev/zero of="$a" bs=4k count=1 oflag=direct
}

need 'memory disk' brd_up 1 131072
need 'network' net_up
need 'tgtd starts' tgtd_start $A:3260 $B:3260
need 'target and LUN' configure
need 'initiator' iscsid_up
if [ $TGT_SUBJECT = ours ]; then
	step 'discovery shows both portals' both_discovered
else
	skip 'discovery shows both portals' "Debian's tgt tells only the portal that it was asked by"
fi
need 'multipathd' multipath_up
need 'login by both' eval "login $T $A:3260 && login $T $B:3260"
need 'two disks' eval "wait_sd SD1 $T 1 && wait_sd SD2 $T 1 1"
need 'one multipath device' multipath_of DM "$SD1" 2
need 'mkfs.ext4 and mount' make_fs ext4 "$DM" /mnt/mp
step 'first path lost and back under load' lose_and_return $A
step 'second path lost and back under load' lose_and_return $B
step 'both paths lost and back under load' lose_and_return $A $B
step 'umount' umount /mnt/mp
step 'fsck' check_fs ext4 "$DM"
step 'multipath down' multipath_down
step 'logout' logout $T
step 'kernel log: nothing but the lost paths' kernel_clean 'detected conn error|session recovery|offline device|I/O error, dev sd|cannot continue recovery|rtpg retry'

need 'a second initiator' second_initiator two iqn.2026-11.net.tgtd:vm-two
need 'login of both initiators' eval "login $T $A:3260 && login $T $A:3260 two"
need 'a disk each' eval "wait_sd SD1 $T 1 tcp && wait_sd SD2 $T 1 two"
step 'persistent reservation between two initiators' reservation "$SD1" "$SD2"
step 'logout of both' logout $T
step 'kernel log: nothing but refused writes' kernel_clean 'reservation conflict|Reservation Conflict|critical nexus error|Buffer I/O error|I/O error, dev sd.*WRITE|rtpg retry'
step 'tgtd stops on SIGTERM' tgtd_stop
