#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Connections go on when the worker is killed amid reads and writes (issue 17, item 7): see keep_connections.py.
#
#   TGT_KEEP_KILLS   how many under load (default 10)
#   TGT_KEEP_SPEED   how many daemons are killed once, under a load as fast as it goes (default 8)
set -u
cd "$(dirname "$0")/../.." || exit 1
bin=${TGT_BIN:-$PWD/build/bin}
dir=$(mktemp -d /var/tmp/tgtd-keep-XXXXXX)
trap 'rm -rf "$dir"' EXIT
case $bin in */asan/* | */tsan/*) : "${TGT_KEEP_KILLS:=4}" "${TGT_KEEP_SPEED:=3}" ;; esac
failed=0
run() {
	mkdir "$dir/$1${3:-}"
	timeout 900 python3 -B tests/integration/keep_connections.py "$1" "$bin" "$dir/$1${3:-}" "${@:2}" || failed=1
}
run cut
run load "${TGT_KEEP_KILLS:-10}"
run owed "${TGT_KEEP_KILLS:-10}"
run speed "${TGT_KEEP_SPEED:-8}"
run speed "$((${TGT_KEEP_SPEED:-8} / 2 + 1))" 256k
run ended
run told
run skipped
case $bin in
*san/bin) echo "ok a late main thread # SKIP sanitizers want to be the first library" ;;
*)
	late=$(realpath "$bin/../tests/preload/late_quiet.so")
	[ -e "$late" ] || late=$PWD/build/tests/preload/late_quiet.so
	run late "$late"
	;;
esac
run hostile
exit $failed
