#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# A few suites of libiscsi's conformance tool over iSER; see guest/iser_conformance.sh. All of them are in
# test_iser_conformance.sh.
. "$(dirname "$0")/lib.sh"
VM_AS=iser_cu
vm_run iser_conformance SUITES='SCSI.Read10 SCSI.Write10 SCSI.CompareAndWrite'
