#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# The stock kernel initiator over iSER, beside TCP; see guest/iser.sh.
. "$(dirname "$0")/lib.sh"
vm_run iser
