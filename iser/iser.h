/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * iSER (RFC 7145): the second transport of the iSCSI core, over rdma-core's verbs and connection
 * manager. tgtd/serve.c sees only this. Built when the headers of libibverbs and librdmacm are
 * there (HAVE_RDMA); whether there is an adapter is found out at run time.
 */
#ifndef ISER_ISER_H
#define ISER_ISER_H

#include "events/base.h"

struct loop;
struct topology;

/*
 * Registers the transport with the iSCSI core, opens every RDMA device and has arenas, those that
 * exist and those to come, registered on each. Main, before iscsi_start() and before privileges are
 * dropped (it opens /dev/infiniband/...). @topo must stay; NULL: no placement.
 *
 * @options: KEY=VALUE,... ("" or NULL: defaults), documented in tgtd(8):
 *   port=N           listen there instead of at each portal's own port
 *   nop=on|off       NOP-In pings on iSER connections (adapters notice a
 *                    dead peer only when we send)
 *   pool_sz_mb=N     registered memory of all connections of one device at most (receive rings,
 *                    bounce slots); when half of it is used, further connections get less of it
 *   buf_sz_kb=N      one bounce slot, 64..4096
 *   immediate=on|off agrees to immediate data; off: all that is written is RDMA read, and nothing
 *                    is copied
 *   unsolicited_kb=N agrees to unsolicited Data-Out PDUs (InitialR2T=No), up to so many KiB a
 *                    command, 64..1024; without it all that is not immediate is RDMA read
 *   cq_vector=N      completion vector of every connection; default: in turn
 *   completion=adaptive|event|poll
 *   gather=auto|gather|multi|pack, path=zerocopy|copy    for comparison
 *
 * 0 also when there is no RDMA device or none can be used: one line says so, and TCP serves.
 * -EINVAL: an option is unknown or out of range (logged).
 */
int iser_register(struct loop *main, const struct topology *topo, const char *options) must_check;
/* Can connections come in by iSER, i.e. is the transport registered with the core? Main. */
bool iser_running(void);
/* Gives devices and registrations back: after iscsi_stop() is through, before arenas go. Main. */
void iser_stop(void);

#endif
