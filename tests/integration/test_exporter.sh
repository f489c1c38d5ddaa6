#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# tgt-exporter: /metrics as Prometheus' own parser reads it, its figures beside tgtadm's; a daemon that is not there,
# that goes and comes; what clients may not do; the page in headless Chromium; 1,000 LUs and 1,000 sessions.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/integration/admin_lib.sh
if [ ! -x "$bin/tgt-exporter" ]; then
	echo "ok tgt-exporter # SKIP it is not built: libmicrohttpd-dev is missing"
	exit 0
fi
daemon_start ours --cache size=32m
python3 tests/integration/exporter.py "$bin" "$port" "$worker" "$dir" || failures=$((failures + 1))
is "no report" no_report
is "the daemon ends well" daemon_stop
finish
