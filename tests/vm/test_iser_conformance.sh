#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# libiscsi's conformance tool over iSER; see guest/iser_conformance.sh.
. "$(dirname "$0")/lib.sh"
VM_LIMIT=${VM_LIMIT_CU:-890}
vm_run iser_conformance SUITES="${SUITES:-}" TGTD_EXTRA="${TGTD_EXTRA:-}"
