#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Another size of the cache under load over iSER and TCP; see guest/iser_resize.sh. SIZES: in MiB, one after the
# other; SIZES='256 4096 128' VM_NODE_MB=3072 for what the cache promises.
. "$(dirname "$0")/lib.sh"
vm_run iser_resize SIZES="${SIZES:-320 64 128}"
