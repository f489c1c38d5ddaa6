#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# iSER under load: many connections, counters, killed initiators; see guest/iser_load.sh. KILLS=100 READS=1000000
# for the long run.
. "$(dirname "$0")/lib.sh"
VM_LIMIT=${VM_LIMIT_LOAD:-890}
vm_run iser_load KILLS="${KILLS:-20}" READS="${READS:-20000}"
