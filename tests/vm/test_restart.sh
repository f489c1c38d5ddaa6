#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Planned restarts, kills of the worker, a kill of keeper and worker; see guest/restart.sh.
. "$(dirname "$0")/lib.sh"
vm_run restart RESTARTS="${RESTARTS:-3}" KILLS="${KILLS:-3}" LOSSES="${LOSSES:-1}" \
	TGT_SESSIONS_KEPT="${TGT_SESSIONS_KEPT:-0}" ${SEED:+"SEED=$SEED"}
