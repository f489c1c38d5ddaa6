#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# C2, C3, C6, C7, C8 and C9 as initiators see them (defects.py): each fails at commit b8780b1. C1 and
# W1 have tests of their own. What remains is a matter of time, C4 and the idle ticks of C9: a busy
# machine would fail them, and unit tests hold them, as they do C5.
set -u
cd "$(dirname "$0")/../.." || exit 1
bin=${TGT_BIN:-$PWD/build/bin}
command -v cc >/dev/null || { echo "ok defects # SKIP no compiler"; exit 0; }
dir=$(mktemp -d /var/tmp/tgtd-defects-XXXXXX)
trap 'rm -rf "$dir"' EXIT
failures=0 k=0
askers=()
# They wait most of the time: beside each other.
for some in "C2 C6" "C3 C9-abort C9-forwarded" "C7 C8" C9-small; do
	# shellcheck disable=SC2086
	python3 -B tests/integration/defects.py "$bin" $some >"$dir/$k" 2>&1 &
	askers+=($!)
	k=$((k + 1))
done
for k in "${!askers[@]}"; do
	wait "${askers[k]}" || failures=$((failures + 1))
	cat "$dir/$k"
done
exit $((failures > 0))
