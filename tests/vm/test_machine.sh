#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# The test machine itself: nodes, verbs, initiators, peers; see guest/machine.sh.
. "$(dirname "$0")/lib.sh"
vm_run machine
