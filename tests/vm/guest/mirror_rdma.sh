# SPDX-License-Identifier: GPL-2.0-or-later
#
# Links of mirrors by real verbs (soft-RoCE) beside TCP, in one process with itself: a frame and its
# answer, and a block that a live peer keeps, one at a time and 32. By RDMA nothing is copied where
# blocks are kept, and each is one write.

pings() { # tcp|rdma
	timeout 100 "$BENCH" 1 $RDMA_IP "$1" >"/out/mirror.$1" 2>&1
	local rc=$?
	cat "/out/mirror.$1"
	sed -n "s/^/# $1: /; /p50/p" "/out/mirror.$1" >>/run/figures
	return $rc
}

# Blocks, writes and copied bytes, as the last line says.
counts() { sed -nE 's/^([0-9]+) blocks, ([0-9]+) RDMA writes, ([0-9]+) bytes copied.*/\1 \2 \3/p' "/out/mirror.$1"; }

all_by_rdma() {
	local blocks writes copied
	read -r blocks writes copied <<<"$(counts rdma)"
	grep -q '^by rdma:' /out/mirror.rdma && [ "$blocks" -gt 0 ] && [ "$writes" -ge "$blocks" ] && [ "$copied" -eq 0 ]
}

all_by_tcp() {
	local blocks writes copied
	read -r blocks writes copied <<<"$(counts tcp)"
	grep -q '^by tcp:' /out/mirror.tcp && [ "$writes" -eq 0 ] && [ "$copied" -ge $((blocks * 4096)) ]
}

# An owner, and a peer in a process that is killed under load: what was acknowledged is there.
killed() {
	TGT_MIRROR_ADDRESS=$RDMA_IP TGT_MIRROR_KILLS=4 timeout 250 "$PAIR" >/out/pair 2>&1
	local rc=$?
	cat /out/pair
	[ $rc -eq 0 ] && grep -q '^# [1-9][0-9]* rounds by RDMA' /out/pair
}

nothing_left() {
	rdma resource show
	[ "$(rdma resource show qp 2>/dev/null | grep -c 'type RC')" -eq 0 ]
}

step 'without a device there is no link by RDMA' eval '! pings rdma >/run/none 2>&1; cat /run/none; grep -q "no device\|ended" /run/none'
: >/run/figures
need 'soft-RoCE device' rdma_up
step 'blocks are kept over TCP' pings tcp
step '... and copied' all_by_tcp
step 'blocks are kept over RDMA' pings rdma
step '... and nothing is copied, each is one write' all_by_rdma
for _ in 1 2; do
	step 'again over TCP' pings tcp
	step 'again over RDMA' pings rdma
done
step 'a peer that is killed again and again, and taken over' killed
step 'no queue pair is left' nothing_left
sort /run/figures >/run/sorted; mv /run/sorted /run/figures
cat /run/figures
step 'kernel log is clean' kernel_clean
