#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# The stock kernel initiator runs file systems on our target over TCP; see guest/first_light.sh.
# TGT_TEST_CACHE (say size=1m) is the cache they go through.
. "$(dirname "$0")/lib.sh"
vm_run first_light ${TGT_TEST_CACHE:+"TGT_TEST_CACHE=$TGT_TEST_CACHE"}
