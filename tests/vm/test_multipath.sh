#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Two paths to one LUN, and two initiators; see guest/multipath.sh.
. "$(dirname "$0")/lib.sh"
vm_run multipath
