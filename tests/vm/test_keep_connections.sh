#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Kills of the worker with --keep-connections=all: how many connections the stock initiator loses,
# and how often it logs in; see guest/restart.sh.
. "$(dirname "$0")/lib.sh"
VM_AS=keep-connections vm_run restart RESTARTS=0 KILLS="${KILLS:-6}" LOSSES=0 \
	RATE="${RATE:-20m}" TGT_KEEP="${TGT_KEEP:-all}" ${SEED:+"SEED=$SEED"}
