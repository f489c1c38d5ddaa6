#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# test_restart.sh at length: 50 planned restarts, 50 kills of the worker, 10 of keeper and worker.
. "$(dirname "$0")/lib.sh"
VM_LIMIT=${VM_LIMIT_RESTART:-3000}
VM_AS=restart_long
vm_run restart RESTARTS="${RESTARTS:-50}" KILLS="${KILLS:-50}" LOSSES="${LOSSES:-10}" \
	ISER="${ISER:-1}" TGT_KEEP="${TGT_KEEP:-}" TGT_SESSIONS_KEPT="${TGT_SESSIONS_KEPT:-0}" ${SEED:+"SEED=$SEED"}
