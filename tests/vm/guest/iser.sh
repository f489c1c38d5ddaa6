# SPDX-License-Identifier: GPL-2.0-or-later
#
# iSER over soft-RoCE with the kernel's ib_iser: discovery, CHAP, ext4, fio up to 4 MiB, the same LU over
# TCP at the same time, both sides verifying what the other wrote. (libiscsi over iSER has a scenario of
# its own; 1.19 cannot do CHAP there.)

T=iqn.2026-11.net.tgtd:iser
P=$RDMA_IP:3260

configure() { target_new 1 $T && lun_new 1 1 aio /dev/ram0 && lun_new 1 2 aio /dev/ram1; }

accounts() {
	adm --lld iscsi --op new --mode account --user vm --password verysecret12 &&
		adm --lld iscsi --op new --mode account --user target --password othersecret12 &&
		adm --lld iscsi --op bind --mode account --tid 1 --user vm &&
		adm --lld iscsi --op bind --mode account --tid 1 --user target --outgoing
}

chap_records() { # both ways, on both transports
	local chap
	mapfile -t chap < <(node_chap vm verysecret12 target othersecret12)
	[ ${#chap[@]} -eq 5 ] && node_new $T $P iser "${chap[@]}" && node_new $T $P tcp "${chap[@]}"
}

refused_without_chap() {
	node_new $T $P iser || return 1
	login $T $P iser && { echo "logged in without CHAP"; return 1; }
	iscsiadm -m node -o delete -T $T -p $P -I iser
}

# What one side wrote with O_DIRECT the other reads and verifies: one half of the LU each way.
both_sides() {
	fio_verify a "$RDMA_SD" 6m --offset=0 --do_verify=0 &&
		fio_verify b "$TCP_SD" 6m --offset=8m --do_verify=0 &&
		fio_verify a "$TCP_SD" 6m --offset=0 --verify_only &&
		fio_verify b "$RDMA_SD" 6m --offset=8m --verify_only
}

need 'memory disks' brd_up 2 131072
need 'soft-RoCE device' rdma_up
need 'tgtd starts' tgtd_start $P
if ! adm --op show --mode system | grep -q 'iser: ready' || [ $TGT_SUBJECT = debian ]; then
	# Debian's tgt wants huge pages, and then answers ib_iser "target not found".
	skip 'all else' 'this tgtd serves no iSER'
	exit 0
fi
need 'target and LUNs' configure
need 'initiator' iscsid_up
step 'discovery over TCP' discover $P $T
step 'discovery over iSER' discover $P -I iser $T
rm -rf /etc/iscsi/nodes/*
need 'accounts for CHAP both ways' accounts
step 'login over iSER without CHAP is refused' refused_without_chap
need 'node records with CHAP' chap_records
need 'login over iSER' login $T $P iser
need 'its disk' wait_sd RDMA_SD $T 1 iser
step 'the session is an iSER one' eval 'iscsiadm -m session | grep ^iser:'
need 'mkfs.ext4 and mount over iSER' make_fs ext4 "$RDMA_SD" /mnt/iser
step 'fio verify, 512 B to 4 MiB' fio_verify iser /mnt/iser/v 32m \
	--bssplit=512/10:4k/30:32k/20:256k/20:1m/10:4m/10
step 'tree of files, read back' copy_tree /mnt/iser
step 'umount' umount /mnt/iser
step 'fsck' check_fs ext4 "$RDMA_SD"
need 'login over TCP beside it' login $T $P
need 'LUN 2 over iSER' wait_sd RDMA_SD $T 2 iser
need 'LUN 2 over TCP' wait_sd TCP_SD $T 2 tcp
step 'each side verifies what the other wrote' both_sides
# Verbs, from the main thread and from the units' threads, are within what threads may call.
step 'no thread asked for what it may not' eval \
	'adm --op stat --mode system --name guard_refused | grep -qx "guard_refused 0"'
step 'logout from iSER' logout $T $P iser
step 'logout from TCP' logout $T $P
# The initiator's own two halves meet: README.md, "Login/Text in progress".
step 'kernel log' kernel_clean 'detected conn error|Login/Text in progress. Cannot start new task'
step 'tgtd stops on SIGTERM' tgtd_stop
