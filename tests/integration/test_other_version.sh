#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Keeper and worker are killed, and the program that is started then does not know the cache's memory (issue 17, show 5): units
# whose data is in it are not served, all others are, and the version that knows it goes on with it. See other_version.py.
set -u
cd "$(dirname "$0")/../.." || exit 1
dir=$(mktemp -d /var/tmp/tgtd-other-XXXXXX)
trap 'rm -rf "$dir"' EXIT
ulimit -c 0
python3 -B tests/integration/other_version.py "${TGT_BIN:-$PWD/build/bin}" "$dir"
