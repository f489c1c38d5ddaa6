#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# A store is late when a worker was killed, and sessions that went on ask for it: see late_sessions.py.
set -u
cd "$(dirname "$0")/../.." || exit 1
bin=${TGT_BIN:-$PWD/build/bin}
dir=$(mktemp -d /var/tmp/tgtd-late-XXXXXX)
trap 'rm -rf "$dir"' EXIT
# (It replaces one call that sanitizers leave alone, so it may come before them.)
so=$(realpath "$bin/../tests/preload/late_open.so" 2>/dev/null)
[ -e "$so" ] || so=$PWD/build/tests/preload/late_open.so
timeout 600 python3 -B tests/integration/late_sessions.py "$bin" "$dir" "$so"
