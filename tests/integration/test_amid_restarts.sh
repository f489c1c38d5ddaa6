#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Workers die amid planned restarts, resizes, another program for the keeper, and the end (issue 17): see amid_restarts.py. All
# at once, since the next worker is waited for most of the time.
#
#   TGT_AMID_ROUNDS  how many under load (default 5)
#   TGT_AMID_SEED    which ones (default: by the date)
set -u
cd "$(dirname "$0")/../.." || exit 1
bin=${TGT_BIN:-$PWD/build/bin}
seed=${TGT_AMID_SEED:-$(date +%j)}
dir=$(mktemp -d /var/tmp/tgtd-amid-XXXXXX)
trap 'rm -rf "$dir"' EXIT
ulimit -c 0
failed=0
for what in stopped random; do
	args=("$bin" "$dir/$what")
	[ $what = random ] && args+=("${TGT_AMID_ROUNDS:-5}" "$seed")
	timeout 900 python3 -B tests/integration/amid_restarts.py $what "${args[@]}" >"$dir/$what.tap" 2>&1 &
	echo $! >"$dir/$what.pid"
done
for what in ends few; do
	timeout 900 python3 -B tests/integration/amid_restarts.py $what "$bin" "$dir/$what" || failed=1
done
for what in stopped random; do
	wait "$(cat "$dir/$what.pid")" || failed=1
	cat "$dir/$what.tap"
done
echo "# seed $seed"
exit $failed
