#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# The ways that written data takes over iSER, by the kernel initiator; see guest/iser_writes.sh.
. "$(dirname "$0")/lib.sh"
vm_run iser_writes
