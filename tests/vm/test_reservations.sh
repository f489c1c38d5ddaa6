#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Persistent reservations from two initiators, and over restarts; see guest/reservations.sh.
. "$(dirname "$0")/lib.sh"
vm_run reservations
