#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Sessions that do nothing go on when the worker is killed (issue 17, item 6): see quiet_sessions.py.
#
#   TGT_QUIET_KILLS   how many beside a load (default 20)
#   TGT_QUIET_ROUNDS  how many beside who does something odd (default 4)
set -u
cd "$(dirname "$0")/../.." || exit 1
bin=${TGT_BIN:-$PWD/build/bin}
dir=$(mktemp -d /var/tmp/tgtd-quiet-XXXXXX)
trap 'rm -rf "$dir"' EXIT
case $bin in */asan/* | */tsan/*) : "${TGT_QUIET_KILLS:=4}" "${TGT_QUIET_ROUNDS:=2}" ;; esac
failed=0
run() {
	mkdir "$dir/$1"
	timeout 900 python3 -B tests/integration/quiet_sessions.py "$1" "$bin" "$dir/$1" "${@:2}" || failed=1
}
run kinds
run kills "${TGT_QUIET_KILLS:-20}"
case $bin in
*san/bin) echo "ok a late main thread # SKIP sanitizers want to be the first library" ;;
*)
	late=$(realpath "$bin/../tests/preload/late_quiet.so")
	[ -e "$late" ] || late=$PWD/build/tests/preload/late_quiet.so
	run late "$late"
	;;
esac
run hostile "${TGT_QUIET_ROUNDS:-4}"
exit $failed
