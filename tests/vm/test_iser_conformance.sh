#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# libiscsi's conformance tool over iSER; see guest/iser_conformance.sh. SUITES="SCSI.Read6 ..." for some, SUITES=all
# (and VM_LIMIT_CU=3600) for all.
. "$(dirname "$0")/lib.sh"
VM_LIMIT=${VM_LIMIT_CU:-890}
vm_run iser_conformance SUITES="${SUITES:-}"
