#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The cache's replacement code over the four trace families and cache sizes of 1 to 50 % of the
# footprint: never more than half a point below LRU, nor two below the best of LRU, 2Q, ARC, LIRS, S3-FIFO.
set -u
sim=${TGT_BIN:-build/bin}/tgt-cachesim
for trace in zipf loop scan postmark; do
	if out=$("$sim" -c -t "$trace" 2>&1); then
		echo "ok cachesim: $trace"
	else
		echo "not ok cachesim: $trace"
		sed 's/^/# /' <<<"$out"
	fi
done
