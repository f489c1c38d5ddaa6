#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Another size of the cache under load over iSER and TCP; see guest/iser_resize.sh.
. "$(dirname "$0")/lib.sh"
vm_run iser_resize
