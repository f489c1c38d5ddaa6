#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The worker is killed again and again under a mixed load, and nothing acknowledged is lost: see
# worker_kills.py.
#
#   TGT_KILLS         how many times (default 12; 1000 take some 90 minutes)
#   TGT_KILL_SEED     which ones (default 1)
#   TGT_KILL_SECONDS  no more of them after so long (default: however long they take)
set -u
cd "$(dirname "$0")/../.." || exit 1
# What ends by SIGSEGV here was sent it: no report.
export ASAN_OPTIONS=handle_segv=0:${ASAN_OPTIONS:-}
dir=$(mktemp -d /var/tmp/tgtd-kills-XXXXXX)
trap 'rm -rf "$dir"' EXIT
python3 -B tests/integration/worker_kills.py "${TGT_BIN:-$PWD/build/bin}" "$dir/d" "${TGT_KILLS:-12}" "${TGT_KILL_SEED:-1}"
