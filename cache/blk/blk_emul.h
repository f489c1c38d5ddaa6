/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Between blk.c and blk_emul.c: what the choke point does for devices that cannot. */
#ifndef CACHE_BLK_BLK_EMUL_H
#define CACHE_BLK_BLK_EMUL_H

#include "cache/blk/blk.h"

/* READ without INTO, and write_prepare, on a device without memory of its own: fragments from the
 * bounce arena of its node (bounce.h). Result as blk_submit(). */
bool blk_bounce_read(struct blk *blk, struct blk_req *req);
bool blk_bounce_prepare(struct blk *blk, struct blk_req *req);
/* COMPARE_AND_WRITE by reading, comparing and writing under an exclusive extent. */
bool blk_emulate_caw(struct blk *blk, struct blk_req *req);
/* True: @req waited here and will be completed with -ECANCELED. */
bool blk_emul_abort(struct blk *blk, struct blk_req *req);

#endif
