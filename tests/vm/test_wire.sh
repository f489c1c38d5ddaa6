#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# CHAP with each algorithm, digests, and what administration changes online; see guest/wire.sh.
. "$(dirname "$0")/lib.sh"
vm_run wire
