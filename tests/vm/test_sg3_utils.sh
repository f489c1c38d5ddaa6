#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Every tool of sg3-utils that has a command for disks; see guest/sg3_utils.sh.
. "$(dirname "$0")/lib.sh"
vm_run sg3_utils
