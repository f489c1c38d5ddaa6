# SPDX-License-Identifier: GPL-2.0-or-later
#
# iSER under load: 32 connections to 8 LUs, each with a completion channel of its own on the thread of its
# LU; counters of reads that hit; an initiator process killed again and again under load beside a session
# whose data is verified.

IQN=iqn.2026-11.net.tgtd:l
P=$RDMA_IP:3260
SESSIONS=4 # each of 8 targets
KILLS=${KILLS:-20}
READS=${READS:-20000}

configure() {
	local t
	for t in 1 2 3 4 5 6 7 8; do
		target_new $t $IQN$t && lun_new $t 1 ram 16m || return 1
	done
}

logins() {
	local t
	for t in 1 2 3 4 5 6 7 8; do
		node_new $IQN$t $P iser node.session.nr_sessions=$SESSIONS && login $IQN$t $P iser || return 1
	done
	[ "$(iscsiadm -m session | grep -c ^iser)" = $((8 * SESSIONS)) ]
}

# One line of the log for each connection: its channel's descriptor and its thread.
channels() {
	grep -o 'completion channel fd [0-9]* on [^,]*' /out/tgtd.log | sort | uniq -c >/run/channels
	cat /run/channels
	[ "$(wc -l </run/channels)" = $((8 * SESSIONS)) ] || { echo "not as many as connections"; return 1; }
	! awk '$1 != 1' /run/channels | grep . || { echo "shared"; return 1; }
	local t
	for t in 1 2 3 4 5 6 7 8; do
		[ "$(grep -c "on lu-$t:1$" /run/channels)" = $SESSIONS ] || { echo "LU $t's are not on its thread"; return 1; }
	done
}

all_at_once() {
	local t pids= rc=0
	for t in 1 2 3 4 5 6 7 8; do
		fio_verify "l$t" "$(sd_of $IQN$t 1)" 2m >"/run/fio.$t" 2>&1 &
		pids="$pids $!"
	done
	for t in $pids; do wait "$t" || rc=1; done
	[ $rc -eq 0 ] || cat /run/fio.*
	return $rc
}

figure() { awk -v f="$1" '$(NF - 1) == f {v = $NF} END {print v + 0}' /out/tgtd.log; }

# 4 KiB reads of what is in memory: what the target's counters say about them.
reads() {
	fio --name=r --filename="$SD" --size=8m --rw=randread --bs=4k --direct=1 --ioengine=libaio --iodepth=32 \
		--number_ios="$READS" --io_size=100g --aux-path=/run || return 1
	# What reached the target: adjacent ones may have been merged on the way.
	IOS=$(awk '{print $1}' "/sys/block/${SD#/dev/}/stat")
	[ "$IOS" -gt $((READS * 9 / 10)) ]
}

counted() {
	grep 'iser: ' /out/tgtd.log | tail -30
	[ "$(figure copied_bytes)" = 0 ] || { echo "payload was copied"; return 1; }
	[ "$(figure rnr)" = 0 ] || { echo "receiver not ready"; return 1; }
	# a few more are not reads: INQUIRY and the like
	[ "$(figure wr_write)" -ge "$IOS" ] && [ "$(figure wr_write)" -lt $((IOS + 200)) ] || { echo "RDMA writes for $IOS reads"; return 1; }
	[ "$(figure wr_send)" -lt $((IOS + 200)) ] || { echo "sends for $IOS reads"; return 1; }
	[ "$(figure signalled)" -le "$(figure wr_send)" ] || { echo "more completions than I/Os"; return 1; }
	# the cache's arena on each of 4 nodes, those of 8 LUs, and two regions of the connection: none for an I/O
	[ "$(figure registrations)" -le 14 ] || { echo "registrations"; return 1; }
}

victim() {
	MALLOC_PERTURB_=255 LD_PRELOAD=$VM_CACHE/libiscsi_iser_fix.so exec iscsi-perf -m 16 -b 16 -r -t 60 iser://$P/${IQN}2/1
}

killing() {
	local n pid
	fio_verify beside "$(sd_of ${IQN}1 1)" 12m --rate=400k >/run/fio.beside 2>&1 &
	local fio=$!
	for n in $(seq "$KILLS"); do
		victim >/run/victim 2>&1 &
		pid=$!
		until_true 20 eval "adm --mode conn --op show --tid 2 | grep -q Connection" || { cat /run/victim; return 1; }
		sleep "0.$((RANDOM % 9))"
		kill -0 $pid || { echo "ended by itself"; cat /run/victim; return 1; }
		kill -9 $pid
		wait $pid 2>/dev/null
		until_true 20 eval "! adm --mode conn --op show --tid 2 | grep -q Connection" || { echo "still there after kill $n"; return 1; }
	done
	wait $fio
	local rc=$?
	cat /run/fio.beside
	return $rc
}

need 'soft-RoCE device' rdma_up
need 'tgtd starts' tgtd_start $P
need 'targets and LUs' configure
need 'initiator' iscsid_up
need '32 sessions over iSER' logins
step 'one channel a connection, on the thread of its LU' channels
step 'fio verify on all LUs at once' all_at_once
step 'logout from all' iscsiadm -m node -u
step 'tgtd stops' tgtd_stop

rm -rf /etc/iscsi/nodes/* /out/tgtd.log
need 'tgtd starts again' tgtd_start $P
need 'targets and LUs again' configure
need 'login to one' login ${IQN}1 $P iser
need 'its disk' wait_sd SD ${IQN}1 1
step 'random reads of 4 KiB' reads
step 'logout' logout ${IQN}1
step 'tgtd stops after the reads' tgtd_stop
step 'no copy, no registration, one write and one send a read, at most one completion' counted

need 'tgtd starts for the kills' tgtd_start $P
need 'targets and LUs for the kills' configure
need 'login to the one beside' login ${IQN}1 $P iser
need 'its disk again' wait_sd SD ${IQN}1 1
step "an initiator killed $KILLS times under load, the one beside verified" killing
step 'logout from the one beside' logout ${IQN}1
step 'tgtd stops with everything given back' tgtd_stop
step 'kernel log' kernel_clean 'detected conn error'
