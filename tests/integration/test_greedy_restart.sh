#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# A tenant whose sessions do not come to rest holds up no others in a planned restart
# (tgtd/iscsi/README.md, "Tenants against each other"): see greedy_restart.py.
set -u
cd "$(dirname "$0")/../.." || exit 1
bin=${TGT_BIN:-$PWD/build/bin}
dir=$(mktemp -d /var/tmp/tgtd-greedy-XXXXXX)
trap 'rm -rf "$dir"' EXIT
failed=0
for mode in silent slow flood late; do
	timeout 120 python3 -B tests/integration/greedy_restart.py $mode "$bin" "$dir/$mode" || failed=1
done
exit $failed
