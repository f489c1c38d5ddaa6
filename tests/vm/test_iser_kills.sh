#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# An initiator process killed 100 times under load over iSER, a verified session beside it; see
# guest/iser_load.sh. With TGT_BIN=$PWD/build/asan/bin tgtd runs under AddressSanitizer (make check-vm-long does both).
. "$(dirname "$0")/lib.sh"
VM_LIMIT=${VM_LIMIT_KILLS:-1500}
VM_AS=iser_kills
vm_run iser_load PARTS=kills KILLS="${KILLS:-100}"
