# SPDX-License-Identifier: GPL-2.0-or-later
#
# How what the kernel's ib_iser writes arrives: with unsolicited Data-Out (InitialR2T=No), without immediate data,
# on a lean connection (its receives hold 512 bytes, everything is RDMA read); and what a `ram' LU costs, of which
# the adapter is given only what is used. Every byte verified.

T=iqn.2026-11.net.tgtd:writes
P=$RDMA_IP:3260
HW=/sys/class/infiniband/rxe0/ports/1/hw_counters

configure() { target_new 1 $T && lun_new 1 1 aio /dev/ram0 && lun_new 1 2 ram 4g; }
counter() { adm --mode system --op stat --name "$1" | awk -v n="$1" '$1 == n {print $2}'; }
figures() { adm --mode system --op stat --name iser_; }
agreed() { iscsiadm -m session -P 2 | tee /dev/stderr | grep -q "$1"; }
no_rnr() { figures; [ "$(counter iser_rnr)" = 0 ] && [ "$(cat $HW/rcvd_rnr_err)" = 0 ] && [ "$(cat $HW/send_rnr_err)" = 0 ]; }

up() { # OPTIONS: a daemon with these, the target, a session, both disks
	rm -rf /etc/iscsi/nodes/*
	tgtd_start $P -- --iser "$1" && configure &&
		node_new $T $P iser node.session.iscsi.InitialR2T=No node.session.iscsi.ImmediateData=Yes \
			node.session.iscsi.FirstBurstLength=262144 &&
		login $T $P iser && wait_sd SD $T 1 iser && wait_sd RAM $T 2 iser
}
down() { logout $T && tgtd_stop; }

written() { fio_verify aio "$SD" 12m && fio_verify ram "$RAM" 12m; }

# 64 KiB of each larger write came in PDUs, 8 KiB a receive, the rest was fetched.
unsolicited_counts() {
	figures
	[ "$(counter iser_immediate_bytes)" -gt $((8 << 20)) ] && [ "$(counter iser_read_bytes)" -gt 0 ]
}
no_copies() {
	figures
	[ "$(counter iser_immediate_bytes)" = 0 ]
}
# 12 MiB were written to a LU of 4 GiB.
small_cost() {
	figures
	local bytes
	bytes=$(counter iser_grown_bytes)
	[ "$bytes" -gt 0 ] && [ "$bytes" -lt $((160 << 20)) ]
}

need 'memory disk' brd_up 1 65536
need 'soft-RoCE device' rdma_up
need 'initiator' iscsid_up
need 'session with unsolicited data' up unsolicited_kb=64
step 'InitialR2T=No, 64 KiB at most' eval 'agreed "InitialR2T: No" && agreed "FirstBurstLength: 65536"'
step 'fio verify' written
step 'its data came unasked' unsolicited_counts
step 'never a receiver that was not ready' no_rnr
step 'the ram LU costs what is used of it' small_cost
step 'logout, stop' down
need 'session without immediate data' up immediate=off
step 'ImmediateData=No, InitialR2T=Yes' eval 'agreed "ImmediateData: No" && agreed "InitialR2T: Yes"'
step 'fio verify, all by RDMA read' eval 'written && no_copies'
step 'logout, stop again' down
need 'lean session' up pool_sz_mb=3
step 'ImmediateData=No on a lean connection' agreed 'ImmediateData: No'
step 'fio verify, lean' eval 'written && no_copies && no_rnr'
step 'logout, stop at last' down
step 'kernel log' kernel_clean 'detected conn error|Login/Text in progress. Cannot start new task'
