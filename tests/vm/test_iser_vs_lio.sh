#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# iSER side by side with the kernel's target; see guest/iser_vs_lio.sh.
. "$(dirname "$0")/lib.sh"
vm_run iser_vs_lio ROUNDS="${ROUNDS:-2}" SECS="${SECS:-8}"
