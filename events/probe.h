/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Static probes (USDT), which bpftrace, perf and SystemTap can stop at while the daemon runs. One
 * that nobody looks at is one instruction that does nothing. Where <sys/sdt.h> (Debian:
 * systemtap-sdt-dev) was missing when it was built, there are none.
 *
 *     tgtd:cmd_start     scsi_cmd *, CDB *, LUN field        a command begins; again if it was held
 *     tgtd:cmd_answer    scsi_cmd *, CDB *, SCSI status      its answer has been handed to the wire
 *     tgtd:cache_miss    store's name, offset, bytes         a read has to load something
 *     tgtd:store_start   blk_req *, enum blk_op, offset, bytes   a file, device or server is asked
 *     tgtd:store_done    blk_req *, enum blk_op, 0 or -errno     it has answered
 *
 * Arguments are numbers or addresses, and are there already: a probe works nothing out.
 */
#ifndef EVENTS_PROBE_H
#define EVENTS_PROBE_H

#if defined(__has_include)
#if __has_include(<sys/sdt.h>)
#include <sys/sdt.h>
#define PROBE3(name, a, b, c) STAP_PROBE3(tgtd, name, a, b, c)
#define PROBE4(name, a, b, c, d) STAP_PROBE4(tgtd, name, a, b, c, d)
#endif
#endif
#ifndef PROBE3
#define PROBE3(name, a, b, c) ((void)0)
#define PROBE4(name, a, b, c, d) ((void)0)
#endif

#endif
