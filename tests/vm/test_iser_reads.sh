#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# A million reads over iSER that hit, and what the counters say about them; see guest/iser_load.sh.
. "$(dirname "$0")/lib.sh"
VM_LIMIT=${VM_LIMIT_READS:-3000}
VM_AS=iser_reads
vm_run iser_load PARTS=reads READS="${READS:-1000000}"
