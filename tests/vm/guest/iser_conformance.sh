# SPDX-License-Identifier: GPL-2.0-or-later
#
# libiscsi's conformance tool over iSER and over TCP: nothing fails over iSER, and nothing is skipped
# there that runs over TCP.

T=iqn.2026-11.net.tgtd:cu
P=$RDMA_IP:3260
CU_LIMIT=1200

configure() { target_new 1 $T && lun_new 1 1 ram 64m; }

# family SCHEME FAMILY: what the tool said about it is kept for skips().
family() {
	conformance "$1://$P/$T/1" "$2" --dataloss
	local rc=$?
	cp /run/cu "/out/cu-$1-$2.log"
	return $rc
}

skips() { grep -ci skipped "/out/cu-$1-$2.log"; }

# The tests left out over iSER are never skipped over TCP.
no_more_skips() {
	echo "iSER: $(skips iser "$1"), TCP: $(skips iscsi "$1")"
	[ "$(skips iser "$1")" -le "$(skips iscsi "$1")" ]
}

need 'soft-RoCE device' rdma_up
need 'tgtd starts' tgtd_start $P -- $TGTD_EXTRA
need 'target and LUN' configure
for f in ${SUITES:-SCSI iSCSI}; do
	step "$f over iSER" family iser "$f"
	step "$f over TCP" family iscsi "$f"
	step "$f: no more skipped over iSER than over TCP" no_more_skips "$f"
done
step 'tgtd stops on SIGTERM' tgtd_stop
