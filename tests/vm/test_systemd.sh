#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# tgtd.service under systemd: main process, deaths, reload, stop; see guest/systemd.sh.
. "$(dirname "$0")/lib.sh"
vm_run systemd
