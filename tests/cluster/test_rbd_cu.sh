#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# libiscsi's conformance suite on an image of a Ceph that is brought up here: behind the cache, and
# without it. tests/conformance/test_iscsi_cu.sh has the suite, and what is judged how.
#
# RBD=short: behind the cache alone, and what reads and changes blocks (make check).
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/integration/admin_lib.sh
. tests/cluster/ceph_lib.sh
missing=$(ceph_missing)
cu=${ISCSI_TEST_CU:-iscsi-test-cu}
command -v "$cu" >/dev/null || missing="$missing $cu"
[ -z "$missing" ] || {
	echo "ok conformance of rbd units # SKIP no $missing (tools/install-deps --cluster)"
	finish
}
trap 'ceph_kill; rm -rf "$dir"' EXIT
ceph_start || { echo "not ok a Ceph of one machine"; tail -5 "$ceph"/out/*.out; exit 1; }
echo "# Ceph is in $ceph"
: >"$dir/log"
names="rbd rbd-none" least=600
[ "${RBD-}" != short ] || {
	names=rbd least=70
	export CU_TESTS="CompareAndWrite OrWrite Read10 Read16 ReadCapacity16 Sanitize.BlockErase
		Unmap.VPD Unmap.ZeroBlocks Verify16 Write10 Write16 WriteAtomic16 WriteSame16
		WriteVerify16 iSCSIResiduals"
}
for name in $names; do
	for image in cu:256M cu2:64M; do
		rbd create "${image%:*}" --size "${image#*:}" --image-feature layering,exclusive-lock
	done
	began=$SECONDS
	tests/conformance/test_iscsi_cu.sh $name >"$dir/out" 2>&1
	rc=$?
	cat "$dir/out"
	out=$(grep '^not ok' "$dir/out")
	is "$name: the suite ends, after $((SECONDS - began)) s" test $rc = 0
	is "$name: nothing of it has failed" test -z "$out"
	# What did not run has not failed.
	excused=$(sed -n "s/^# $name: \([0-9]*\) of the failed tests count as passed.*/\1/p" "$dir/out")
	out=$(sed -n "s/^# $name: [0-9]* tests, \([0-9]*\) run, .* ${excused:-0} failed$/\1/p" "$dir/out")
	is "$name: ${out:-not all} have passed, of $least at least" test "${out:-0}" -ge $least
	is "$name: tgtd has ended cleanly" grep -qx "ok $name: tgtd ended cleanly" "$dir/out"
	for image in cu cu2; do rbd rm --no-progress $image; done
done
finish
