#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Objects, fences and messages of a gateway group (tgtd/cluster/live/rados_client.h), with a Ceph of one machine.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/integration/admin_lib.sh
. tests/cluster/ceph_lib.sh
missing=$(ceph_missing)
[ -z "$missing" ] || {
	echo "ok objects # SKIP no $missing (tools/install-deps --cluster)"
	finish
}
trap 'ceph_kill; rm -rf "$dir"' EXIT
ceph_start || { echo "not ok a Ceph of one machine"; tail -5 "$ceph"/out/*.out; exit 1; }
echo "# Ceph is in $ceph"
OSD=$osd timeout 250 "$bin/../tests/cluster/objects"
rc=$?
out="it ended with $rc"
is "the program has ended well" test "$rc" = 0
ceph_kill
finish
