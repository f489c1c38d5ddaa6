#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# --json on everything that shows: each answer parses strictly and has the figures of the text; names that are not
# UTF-8, control of who may ask, secrets in none of it, the texts as they were; and an answer while all of it changes.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/integration/admin_lib.sh
daemon_start ours --cache size=16m
python3 tests/integration/json_answers.py "$(tool tgtadm)" "$(tool tgt-admin)" "$port" "$dir" ||
	failures=$((failures + 1))
is "no report" no_report
is "the daemon ends well" daemon_stop
finish
