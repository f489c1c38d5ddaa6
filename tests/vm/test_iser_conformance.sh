#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# libiscsi's conformance tool over iSER, its whole SCSI family; see guest/iser_conformance.sh. SUITES="SCSI.Read6 ..."
# for some, PART=1/3 for a third.
. "$(dirname "$0")/lib.sh"
VM_LIMIT=${VM_LIMIT_CU:-3400}
vm_run iser_conformance SUITES="${SUITES:-all}" PART="${PART:-1/1}"
