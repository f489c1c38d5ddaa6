#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# The kernel's initiator over bad networks; see guest/badnet.sh.
. "$(dirname "$0")/lib.sh"
vm_run badnet
