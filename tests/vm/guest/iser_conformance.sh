# SPDX-License-Identifier: GPL-2.0-or-later
#
# libiscsi's conformance tool over iSER, suite by suite: nothing fails, and where it skips something it
# skips no less over TCP.

T=iqn.2026-11.net.tgtd:cu
P=$RDMA_IP:3260
CU_LIMIT=60

configure() { target_new 1 $T && lun_new 1 1 ram 64m; }

# suite NAME: over iSER, and again over TCP if it skipped a test.
suite() {
	local skipped
	conformance iser://$P/$T/1 "$1" --dataloss || return 1
	skipped=$(grep -ci skipped /run/cu)
	[ "$skipped" -gt 0 ] || return 0
	conformance iscsi://$P/$T/1 "$1" --dataloss || return 1
	echo "skipped: $skipped over iSER, $(grep -ci skipped /run/cu) over TCP"
	[ "$skipped" -le "$(grep -ci skipped /run/cu)" ]
}

need 'soft-RoCE device' rdma_up
need 'tgtd starts' tgtd_start $P
need 'target and LUN' configure
if [ "$SUITES" = all ]; then
	SUITES=$(iscsi-test-cu --list | grep -E '^SCSI\.[^.]+$' | grep -vE 'Multipath|GetLBAStatus')
fi
# Those that move data in some way of their own; all of them take longer than a boot may.
DEFAULT='Read6 Read10 Read12 Read16 Write10 Write12 Write16 WriteSame10 WriteSame16 WriteVerify10 Verify10 OrWrite
	CompareAndWrite ExtendedCopy Inquiry ModeSense6 ReadCapacity16 ReportSupportedOpcodes Mandatory'
for s in ${SUITES:-$(printf 'SCSI.%s ' $DEFAULT)}; do
	step "$s" suite "$s"
done
step 'tgtd stops on SIGTERM' tgtd_stop
