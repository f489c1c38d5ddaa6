#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# One tenant against another while workers are restarted and killed (tgtd/iscsi/README.md, "Tenants
# against each other"): see hostile_restart.py.
#
#   TGT_RESTARTS   how many planned ones (default 3)
set -u
cd "$(dirname "$0")/../.." || exit 1
bin=${TGT_BIN:-$PWD/build/bin}
dir=$(mktemp -d /var/tmp/tgtd-hostile-XXXXXX)
trap 'rm -rf "$dir"' EXIT
timeout 280 python3 -B tests/integration/hostile_restart.py "$bin" "$dir" "${TGT_RESTARTS:-3}"
