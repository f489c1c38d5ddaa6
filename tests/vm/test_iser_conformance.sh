#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# libiscsi's conformance tool over iSER; see guest/iser_conformance.sh. SUITES="SCSI.Read6 ..." for some.
. "$(dirname "$0")/lib.sh"
VM_LIMIT=890
vm_run iser_conformance SUITES="${SUITES:-}"
