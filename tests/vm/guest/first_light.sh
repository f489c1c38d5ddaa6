# SPDX-License-Identifier: GPL-2.0-or-later
#
# First light: the kernel's initiator runs ext4 and xfs on our target over TCP, and the daemon is
# stopped and started again under them without the application noticing more than a pause.

P=127.0.0.1:3260
RAM=iqn.2026-11.net.tgtd:ram
AIO=iqn.2026-11.net.tgtd:aio

configure() {
	# As an init script does it: no logins before everything is in its place.
	adm --op update --mode sys --name State -v offline &&
		target_new 1 $RAM && lun_new 1 1 ram 400m &&
		target_new 2 $AIO && lun_new 2 1 aio /dev/ram0 && lun_new 2 2 aio /store/lun &&
		adm --op update --mode sys --name State -v ready
}

stores() { # a block device, and a file on a file system, both with O_DIRECT
	brd_up 2 409600 && modules ext4 && mkfs.ext4 -q -F /dev/ram1 && mkdir /store && mount /dev/ram1 /store &&
		truncate -s 300m /store/lun
}

shown() {
	adm --op show --mode target >/run/show && cat /run/show &&
		grep -q "^Target 1: $RAM\$" /run/show && grep -q "^Target 2: $AIO\$" /run/show &&
		[ "$(grep -c 'Type: disk' /run/show)" = 3 ]
}

mount_again() { # TYPE DEVICE DIR
	umount "$3" && check_fs "$1" "$2" && mount -t "$1" "$2" "$3"
}

verified() { # PID LOG: the fio job ended well
	wait "$1"
	local rc=$?
	cat "$2"
	[ $rc -eq 0 ]
}

restart_under_load() {
	# About 12 s of writing, then verification of all that was written.
	fio_verify xfs /mnt/aio/under-load 12m --rate=1m >/run/fio1 2>&1 &
	FIO1=$!
	fio_verify ext4 /mnt/file/under-load 12m --rate=1m >/run/fio2 2>&1 &
	FIO2=$!
	sleep 4
	written=$(awk '{print $7}' "/sys/block/${AIO_SD#/dev/}/stat")
	[ "$written" -gt 0 ] || { echo "no write before the stop"; return 1; }
	tgtd_stop || return 1
	sleep 2
	kill -0 $FIO1 && kill -0 $FIO2 || { echo "load ended before the restart"; cat /run/fio1 /run/fio2; return 1; }
}

start_again() {
	tgtd_start $P && configure || return 1
	kill -0 $FIO1 && kill -0 $FIO2 || { echo "load ended before the restart"; return 1; }
	until_true 60 eval '[ "$(awk "{print \$7}" /sys/block/${AIO_SD#/dev/}/stat)" -gt $((written + 2048)) ]'
}

# An event thread for each LU, named for it and kept on one node (a node is one CPU here).
lu_threads() {
	tgtd_threads | tee /run/threads
	[ "$(grep -cE '^lu-(1:1|2:1|2:2) [0-3]$' /run/threads)" = 3 ]
}

both_logged_in() { [ "$(cat /sys/class/iscsi_session/*/state | grep -c LOGGED_IN)" = 2 ]; }

need 'backing stores' stores
need 'tgtd starts' tgtd_start $P
need 'targets and LUNs configured' configure
step 'target list shows them' shown
if [ $TGT_SUBJECT = ours ]; then
	step 'a pinned thread for each LU' lu_threads
else
	skip 'a pinned thread for each LU' "Debian's tgt has one event loop for all"
fi
need 'initiator starts' iscsid_up
need 'discovery' discover $P $RAM $AIO
need 'login to the ram target' login $RAM $P
need 'login to the aio target' login $AIO $P
need 'ram disk appears' wait_sd RAM_SD $RAM 1
need 'aio disk appears' wait_sd AIO_SD $AIO 1
need 'aio disk on a file appears' wait_sd FILE_SD $AIO 2

need 'mkfs.ext4 and mount on ram' make_fs ext4 "$RAM_SD" /mnt/ram
step 'fio verify, 512 B to 1 MiB, on ext4 on ram' fio_verify ram /mnt/ram/v 24m
step 'tree of files on ext4 on ram, read back' copy_tree /mnt/ram
step 'fsck of ext4 on ram' mount_again ext4 "$RAM_SD" /mnt/ram
step 'the tree after a remount' same_tree /mnt/ram
step 'umount ram' umount /mnt/ram
step 'logout from ram' logout $RAM
step 'no kernel error so far' kernel_clean

need 'login to ram again' login $RAM $P
need 'mkfs.xfs and mount on aio' make_fs xfs "$AIO_SD" /mnt/aio
need 'mkfs.ext4 and mount on aio on a file' make_fs ext4 "$FILE_SD" /mnt/file
step 'fio verify, 512 B to 1 MiB, on xfs on aio' fio_verify xfs /mnt/aio/v 24m
step 'tree of files on xfs on aio, read back' copy_tree /mnt/aio
need 'tgtd stops on SIGTERM under load' restart_under_load
need 'tgtd starts again and the load goes on' start_again
step 'fio on xfs saw no error and verified' verified $FIO1 /run/fio1
step 'fio on ext4 saw no error and verified' verified $FIO2 /run/fio2
step 'both sessions recovered' until_true 20 both_logged_in
step 'files from before the restart' same_tree /mnt/aio
step 'umount aio' umount /mnt/aio /mnt/file
step 'xfs_repair of aio' check_fs xfs "$AIO_SD"
step 'fsck of ext4 on aio on a file' check_fs ext4 "$FILE_SD"
step 'logout from aio' logout $AIO
step 'logout from ram at the end' logout $RAM
step 'no kernel error but the lost connections' kernel_clean 'detected conn error \((1011|1019|1020|1022)\)|session recovery|connection.*closed'
step 'tgtd stops on SIGTERM' tgtd_stop
