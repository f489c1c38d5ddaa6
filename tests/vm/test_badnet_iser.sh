#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# iSER over bad networks; see guest/badnet_iser.sh. PEER=lio: with the kernel's target, to compare.
. "$(dirname "$0")/lib.sh"
vm_run badnet_iser PEER="${PEER:-ours}"
