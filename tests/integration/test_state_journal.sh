#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# What administrators and initiators have set comes back after `kill -9` of the process that serves: see
# state_journal.py.
#
#   TGT_STATE_SECONDS   how long administrators change things (default 15)
#   TGT_STATE_SEED      which one (default 1)
set -u
cd "$(dirname "$0")/../.." || exit 1
dir=$(mktemp -d /var/tmp/tgtd-state-XXXXXX)
trap 'rm -rf "$dir"' EXIT
python3 tests/integration/state_journal.py "${TGT_BIN:-$PWD/build/bin}" "$dir" "${TGT_STATE_SECONDS:-15}" "${TGT_STATE_SEED:-1}"
