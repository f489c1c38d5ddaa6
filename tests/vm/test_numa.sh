#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Where memory and threads of the cache are on a machine with four nodes; see guest/numa.sh.
. "$(dirname "$0")/lib.sh"
vm_run numa
