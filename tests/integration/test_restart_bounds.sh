#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# A worker that stands still amid a restart is not waited for beyond its time (issue 17): see restart_bounds.py. All at once,
# since most of the time is spent waiting.
#
#   TGT_BOUNDS_ROUNDS  how many at random (default 2)
#   TGT_BOUNDS_SEED    which ones (default: by the date)
set -u
cd "$(dirname "$0")/../.." || exit 1
bin=${TGT_BIN:-$PWD/build/bin}
seed=${TGT_BOUNDS_SEED:-$(date +%j)}
dir=$(mktemp -d /var/tmp/tgtd-bounds-XXXXXX)
trap 'rm -rf "$dir"' EXIT
ulimit -c 0
failed=0
cases='death prepared old-stops old-deaf random'
if [ "$(id -u)" = 0 ]; then cases="forked closing $cases"; else echo "ok a child that is stopped # SKIP needs root"; fi
still=$(realpath "$bin/../tests/preload/still.so" 2>/dev/null)
[ -e "$still" ] || still=$PWD/build/tests/preload/still.so
case $bin in
*san/bin)
	echo "ok a worker that stands still as it begins # SKIP sanitizers want to be the first library"
	cases=${cases/death /}
	still=
	;;
*) cases="stops sleeps renewed ended $cases" ;;
esac
for what in $cases; do
	args=()
	[ "$what" = random ] && args+=("${TGT_BOUNDS_ROUNDS:-2}" "$seed")
	STILL_SO=$still timeout 900 python3 -B tests/integration/restart_bounds.py "$what" "$bin" "$dir/$what" "${args[@]}" \
		>"$dir/$what.tap" 2>&1 &
	echo $! >"$dir/$what.pid"
done
for what in $cases; do
	wait "$(cat "$dir/$what.pid")" || failed=1
	cat "$dir/$what.tap"
done
echo "# seed $seed"
exit $failed
