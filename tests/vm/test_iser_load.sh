#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# iSER under load: many connections, counters, killed initiators; see guest/iser_load.sh. The long runs are
# test_iser_reads.sh and test_iser_kills.sh.
. "$(dirname "$0")/lib.sh"
vm_run iser_load PARTS="${PARTS:-conns reads kills}" KILLS="${KILLS:-5}" READS="${READS:-10000}"
