#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# tgt-exporter and tgt-top beside what may hurt them: a daemon that takes nobody in, hangs, trickles,
# says nonsense or goes in the middle of an answer; two threads of one name; many scrapers at once,
# and clients that take an answer byte by byte.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/integration/admin_lib.sh
if [ ! -x "$bin/tgt-exporter" ]; then
	echo "ok tgt-exporter # SKIP it is not built: libmicrohttpd-dev is missing"
	exit 0
fi
daemon_start ours --cache size=16m
python3 tests/integration/exporter_hurt.py "$bin" "$dir" || failures=$((failures + 1))
is "no report" no_report
is "the daemon ends well" daemon_stop
finish
