# SPDX-License-Identifier: GPL-2.0-or-later
#
# The machine itself, without our target: four nodes, soft-RoCE, the kernel's initiators over TCP and
# iSER against the kernel's own target, libiscsi over iSER, multipath. When one of these fails, what
# other scenarios say about tgtd means nothing.

LIO=iqn.2026-11.net.tgtd:lio
OTHER=iqn.2026-11.net.tgtd:lio-mp

four_nodes() {
	numactl -H || return 1
	[ "$(cat /sys/devices/system/node/online)" = 0-3 ] &&
		[ "$(cat /sys/devices/system/node/node0/distance)" = '10 16 22 28' ] &&
		[ "$(cat /sys/devices/system/node/node3/cpulist)" = 3 ]
}

# Memory bound to a node is allocated there and nowhere else.
node_memory() {
	numactl -m 2 python3 -c 'x = bytearray(b"x") * (32 << 20); print(open("/proc/self/numa_maps").read())' >/run/maps
	grep -E 'anon=[0-9]{4,} ' /run/maps | tee /run/big
	grep -q ' N2=' /run/big && ! grep -q ' N[013]=' /run/big
}

one_path_lost() {
	fio_verify mp "$DM" 8m --rate=1m >/run/fio.mp 2>&1 &
	local fio=$!
	sleep 2
	ip addr del 192.168.78.1/24 dev eth9 && ss -K src 192.168.78.1 >/dev/null
	ss -K dst 192.168.78.1 >/dev/null
	until_true 40 multipath_has "$SD1" 1 || { multipathd show paths; return 1; }
	wait $fio
	local rc=$?
	cat /run/fio.mp
	[ $rc -eq 0 ]
}

step 'four nodes with unequal distances' four_nodes
step 'memory is allocated on the node asked for' node_memory
need 'memory disks' brd_up 2 65536
need 'soft-RoCE device' rdma_up
need 'rping through rdma_cm' rdma_ping
need 'initiator' iscsid_up

need 'LIO target on TCP' lio_target $LIO /dev/ram0 $RDMA_IP:3270
step 'discovery of LIO' discover $RDMA_IP:3270 $LIO
need 'login to LIO over TCP' login $LIO $RDMA_IP:3270
need 'its disk' wait_sd SD $LIO 0
step 'fio verify over TCP' fio_verify raw "$SD" 8m
step 'logout' logout $LIO

need 'LIO target on iSER' lio_target $LIO /dev/ram0 $RDMA_IP:3271 iser
need 'login to LIO over iSER' login $LIO $RDMA_IP:3271 iser
need 'its disk over iSER' wait_sd SD $LIO 0
step 'the session is an iSER one' eval 'iscsiadm -m session | grep ^iser:'
step 'fio verify over iSER' fio_verify raw "$SD" 8m
step 'logout from iSER' logout $LIO
step 'libiscsi over TCP' conformance iscsi://$RDMA_IP:3270/$LIO/0 SCSI.Read6
step 'libiscsi over iSER' conformance iser://$RDMA_IP:3271/$LIO/0 SCSI.Read6

step 'kernel log so far' kernel_clean 'cmd exceeds last lba|detected conn error'

need 'LIO target on two portals' eval "lio_target $OTHER /dev/ram1 $RDMA_IP:3272 && lio_target $OTHER /dev/ram1 192.168.78.1:3272"
need 'multipathd' multipath_up
need 'login on both' eval "login $OTHER $RDMA_IP:3272 && login $OTHER 192.168.78.1:3272"
need 'two disks' eval "wait_sd SD1 $OTHER 0 && wait_sd SD2 $OTHER 0 1"
need 'one multipath device' multipath_of DM "$SD1" 2
step 'one path lost under load, no error' one_path_lost
step 'kernel log: nothing but the lost path' kernel_clean 'detected conn error|session recovery|offline device|I/O error, dev sd|cannot continue recovery'
