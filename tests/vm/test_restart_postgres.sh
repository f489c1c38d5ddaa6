#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# PostgreSQL over 20 kills of the worker; see guest/restart_postgres.sh.
. "$(dirname "$0")/lib.sh"
VM_LIMIT=${VM_LIMIT_RESTART:-1800}
vm_run restart_postgres PG_KILLS="${PG_KILLS:-20}" ${SEED:+"SEED=$SEED"}
