# SPDX-License-Identifier: GPL-2.0-or-later
#
# iSER under load, in three parts (PARTS; each with a tgtd of its own):
#   conns   32 connections to 8 LUs, each with a completion channel of its own on the thread of its LU
#   reads   READS reads that hit: what the target's and the adapter's counters say about them
#   kills   an initiator process killed KILLS times under load beside a session whose data is verified

IQN=iqn.2026-11.net.tgtd:l
P=$RDMA_IP:3260
SESSIONS=4 # each of 8 targets
KILLS=${KILLS:-5}
READS=${READS:-10000}
PARTS=${PARTS:-conns reads kills}
# Under a sanitizer: its word in files, time for it at the end, the tools without it.
if [[ $TGT_BIN == */asan/* ]]; then
	mkdir -p /out/sanitizer
	export ASAN_OPTIONS=log_path=/out/sanitizer/asan UBSAN_OPTIONS=log_path=/out/sanitizer/ubsan:print_stacktrace=1
	TGTD_STOP_S=120
	[ ! -x "$REPO/build/bin/tgtadm" ] || TGTADM=$REPO/build/bin/tgtadm
fi
HW=/sys/class/infiniband/rxe0/ports/1/hw_counters

# Cached LUs, so that blocks can be pinned, and found pinned.
configure() { # LUS
	local t
	for t in $(seq "$1"); do
		target_new "$t" $IQN"$t" && lun_new "$t" 1 aio /dev/ram$((t - 1)) || return 1
	done
}

counter() { adm --mode system --op stat --name "$1" | awk -v n="$1" '$1 == n {print $2}'; }

# ---- connections -------------------------------------------------------------------------------------

logins() {
	local t
	for t in 1 2 3 4 5 6 7 8; do
		node_new $IQN$t $P iser node.session.nr_sessions=$SESSIONS || return 1
	done
	timeout 200 iscsiadm -m node --login || return 1
	[ "$(iscsiadm -m session | grep -c ^iser)" = $((8 * SESSIONS)) ]
}

# The listing names thread and channel of each: the channels are all different, the threads those of the LUs.
channels() {
	adm --mode session --op show | awk '
		/Target:/ {target = $2}
		/Thread:/ {thread = $2}
		/Completion channel:/ {sub(/.*Completion channel: /, ""); print target, thread, $0}' >/run/channels
	cat /run/channels
	[ "$(wc -l </run/channels)" = $((8 * SESSIONS)) ] || { echo "not as many as connections"; return 1; }
	[ "$(awk '{print $4}' /run/channels | sort -u | wc -l)" = $((8 * SESSIONS)) ] || { echo "shared"; return 1; }
	awk '$2 != "lu-" $1 ":1" {bad = 1} END {exit bad}' /run/channels || { echo "not all on their LU's thread"; return 1; }
	[ "$(counter iser_conns)" = $((8 * SESSIONS)) ]
}

all_at_once() {
	local t pids= rc=0
	for t in 1 2 3 4 5 6 7 8; do
		fio_verify "l$t" "$(sd_of $IQN$t 1)" 1m >"/run/fio.$t" 2>&1 &
		pids="$pids $!"
	done
	for t in $pids; do wait "$t" || rc=1; done
	[ $rc -eq 0 ] || cat /run/fio.*
	return $rc
}

# Nothing of any connection is left: none exists, none holds buffers, no block of an LU is pinned.
given_back() { # LUS
	local t pinned
	until_true 10 eval '[ "$(counter iser_conns)" = 0 ] && [ "$(counter iser_held_bytes)" = 0 ]' ||
		{ adm --mode system --op stat --name iser_; return 1; }
	for t in $(seq "$1"); do
		pinned=$(adm --mode cache --op stat --tid "$t" --lun 1 | awk '/^Pinned:/ {print $2}')
		[ "$pinned" = 0 ] || { echo "LU $t: $pinned bytes pinned"; return 1; }
	done
	adm --mode system --op stat --name iser_
}

# ---- counters of reads --------------------------------------------------------------------------------

# In pieces and out of order, so that a large read finds its data in many fragments.
filled() {
	fio --name=fill --filename="$SD" --size=8m --rw=randwrite --bs=4k --direct=1 --ioengine=libaio --iodepth=16 --aux-path=/run
}

figures() { adm --mode system --op stat --name iser_ && for c in "$HW"/*; do echo "hw_${c##*/} $(cat "$c")"; done; }

# reads NAME BS COUNT FRAGMENTS: random reads of what is in the cache. FRAGMENTS: how many pieces one may lie in.
reads() {
	echo 2 >"/sys/block/${SD#/dev/}/queue/nomerges"
	figures >/run/before || return 1
	awk '{print $1}' "/sys/block/${SD#/dev/}/stat" >/run/ios
	fio --name="$1" --filename="$SD" --size=8m --rw=randread --bs="$2" --direct=1 --ioengine=libaio --iodepth=32 \
		--number_ios="$3" --io_size=10000g --aux-path=/run || return 1
	figures >/run/after || return 1
	# What reached the target.
	awk -v before="$(cat /run/ios)" -v want="$3" -v frags="$4" -v max_sge=32 '
		FILENAME ~ /stat$/ {ios = $1 - before; next}
		FILENAME ~ /before$/ {was[$1] = $2; next}
		{d[$1] = $2 - was[$1]; printf "%s %.0f\n", $1, d[$1]}
		function must(what, ok) {if (!ok) {print "NOT SO: " what; bad = 1}}
		END {
			few = 20 # TEST UNIT READY and the like
			per = int((frags + max_sge - 1) / max_sge)
			printf "reads %d\n", ios
			must("as many reads as asked for", ios >= want)
			must("no payload copied", d["iser_copied_bytes"] == 0)
			must("no registration", d["iser_registrations"] == 0)
			must("all by RDMA write", d["iser_wr_write"] >= ios)
			must("at most " per " RDMA writes a read", d["iser_wr_write"] <= ios * per + few)
			must("one send a read", d["iser_wr_send"] <= ios + few)
			must("no more elements than fragments", d["iser_sges"] <= ios * frags + few)
			must("at most one completion a read beside the receive", d["iser_completions"] - ios <= ios + few)
			must("at most one signalled request a read", d["iser_signalled"] <= ios + few)
			must("no receiver not ready", d["iser_rnr"] == 0)
			must("the adapter saw no receiver not ready", d["hw_rcvd_rnr_err"] == 0 && d["hw_send_rnr_err"] == 0)
			must("the adapter counts them", "hw_rcvd_rnr_err" in d)
			exit bad
		}' "/sys/block/${SD#/dev/}/stat" /run/before /run/after
}

# ---- kills ----------------------------------------------------------------------------------------------

victim() {
	MALLOC_PERTURB_=255 LD_PRELOAD=$VM_CACHE/libiscsi_iser_fix.so exec iscsi-perf -m 16 -b 16 -r -t 60 iser://$P/${IQN}2/1
}

# Writes and verifies, again and again, until /run/enough is there: one line a pass.
verified_beside() {
	local sd
	sd=$(sd_of ${IQN}1 1)
	while [ ! -e /run/enough ]; do
		fio_verify beside "$sd" 4m >/run/fio.beside 2>&1 || return 1
		echo pass
	done >/run/passes
}

killing() {
	local n pid
	rm -f /run/enough
	verified_beside &
	local beside=$!
	for n in $(seq "$KILLS"); do
		victim >/run/victim 2>&1 &
		pid=$!
		until_true 90 eval "adm --mode conn --op show --tid 2 | grep -q Connection" || { cat /run/victim; return 1; }
		sleep "0.$((RANDOM % 9))"
		kill -0 $pid || { echo "ended by itself"; cat /run/victim; return 1; }
		kill -9 $pid
		wait $pid 2>/dev/null
		until_true 90 eval "! adm --mode conn --op show --tid 2 | grep -q Connection" || { echo "still there after kill $n"; return 1; }
	done
	touch /run/enough
	wait $beside || { cat /run/fio.beside; return 1; }
	echo "$(wc -l </run/passes) passes of 4 MiB written and verified beside $KILLS kills"
	[ -s /run/passes ]
}

part() { [[ " $PARTS " == *" $1 "* ]]; }

need 'memory disks' brd_up 8 16384
need 'soft-RoCE device' rdma_up
need 'initiator' iscsid_up

if part conns; then
	need 'tgtd starts' tgtd_start $P
	need '8 targets and LUs' configure 8
	need "$((8 * SESSIONS)) sessions over iSER" logins
	step 'one channel a connection, on the thread of its LU' channels
	step 'fio verify on all LUs at once' all_at_once
	step 'logout from all' iscsiadm -m node -u
	step 'nothing pinned, no buffer held' given_back 8
	step 'tgtd stops' tgtd_stop
fi
if part reads; then
	rm -rf /etc/iscsi/nodes/*
	need 'tgtd starts for the reads' tgtd_start $P
	need 'target and LU' configure 1
	need 'login' login ${IQN}1 $P iser
	need 'its disk' wait_sd SD ${IQN}1 1
	need 'filled' filled
	step "$READS reads of 4 KiB: no copy, no registration, one write, one send, one completion" reads small 4k "$READS" 1
	step "$((READS / 100)) reads of 256 KiB: work requests by their fragments" reads large 256k $((READS / 100)) 64
	step 'logout' logout ${IQN}1
	step 'nothing pinned, no buffer held after the reads' given_back 1
	step 'tgtd stops after the reads' tgtd_stop
fi
if part kills; then
	rm -rf /etc/iscsi/nodes/*
	need 'tgtd starts for the kills' tgtd_start $P
	need 'targets and LUs for the kills' configure 2
	need 'login to the one beside' login ${IQN}1 $P iser
	need 'its disk again' wait_sd SD ${IQN}1 1
	step "an initiator killed $KILLS times under load, the one beside verified" killing
	step 'logout from the one beside' logout ${IQN}1
	step 'nothing pinned, no buffer held after the kills' given_back 2
	step 'tgtd stops with everything given back' tgtd_stop
	[ ! -e /out/sanitizer ] || step 'the sanitizer has nothing to say' eval '! grep -H . /out/sanitizer/*'
fi
step 'kernel log' kernel_clean 'detected conn error'
