#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Keeper and worker are killed, and a service manager has their descriptors (issue 17, restart.md): nothing acknowledged is
# lost, and what is not theirs is not taken: see fdstore.py, which plays systemd.
set -u
cd "$(dirname "$0")/../.." || exit 1
dir=$(mktemp -d /var/tmp/tgtd-fdstore-XXXXXX)
trap 'rm -rf "$dir"' EXIT
ulimit -c 0
python3 -B tests/integration/fdstore.py "${TGT_BIN:-$PWD/build/bin}" "$dir"
