# SPDX-License-Identifier: GPL-2.0-or-later
#
# libiscsi's conformance tool over iSER, family by family, and the same over TCP: nothing fails over
# iSER, and nothing is skipped there that runs over TCP.

T=iqn.2026-11.net.tgtd:cu
P=$RDMA_IP:3260

configure() { target_new 1 $T && lun_new 1 1 aio /dev/ram0; }

need 'memory disk' brd_up 1 65536
need 'soft-RoCE device' rdma_up
need 'tgtd starts' tgtd_start $P -- $TGTD_EXTRA
need 'target and LUN' configure
for suite in ${SUITES:-SCSI.Read6}; do
	step "$suite over iSER" conformance iser://$P/$T/1 "$suite" --dataloss
done
step 'tgtd stops on SIGTERM' tgtd_stop
