#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# What gateways do with a Ceph of one machine: objects, fences and messages
# (tgtd/cluster/live/rados_client.h), images that change hands (cache/backend/rbd_store.h).
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
osd_is_up
rbd create two --size 16M --image-feature layering,exclusive-lock
timeout 250 "$bin/../tests/cluster/images"
rc=$?
out="it ended with $rc"
is "... and the one for images" test "$rc" = 0
ceph_kill
finish
