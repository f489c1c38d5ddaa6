/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What a session that does nothing is, in memory that outlives the process: its *slot*. If that
 * dies, the next one goes on with the session from there (quiet.h).
 *
 *   version | changes | recorded, len, crc | sn | a connection's numbers ... | record
 *
 * The record is what carry_form.h has of a session: itself, its connections, and its logical units,
 * of which each has twelve bytes and its unit attentions. It is made anew when something of that
 * changes: `changes` counts, `recorded` says which of them the record knows. Numbers that move with
 * each command are beside it, and are those of the moment when the connection last had nothing
 * under way. They hold as long as the kernel has counted the same bytes: so nothing marks a session
 * that has something to do.
 *
 * A process may die between any two stores, of which the kernel has all up to there. So the sums
 * are stored behind what they vouch for. The check is for memory that was overwritten.
 *
 * The reader trusts nothing. Pure computation, any thread that owns the memory.
 */
#ifndef TGTD_ISCSI_QUIET_FORM_H
#define TGTD_ISCSI_QUIET_FORM_H

#include "tgtd/iscsi/carry_form.h"

#define QUIET_VERSION 0x51543032u /* another one's slots are not read */
#define QUIET_SLOT KiB(64)	  /* of addresses: a page or two of it is used */

struct quiet_conn {
	uint64_t received, sent; /* through the socket, up to a PDU's border */
	uint32_t stat_sn, cid;
	uint64_t check; /* quiet_conn_check() */
};

struct quiet_slot {
	uint32_t version; /* 0: nobody has it */
	uint32_t changes; /* any thread, atomic */
	uint32_t recorded, len, crc; /* of the record; len 0: there is none */
	uint32_t reserved;
	uint64_t sn, not_sn; /* ExpCmdSN and, below it, MaxCmdSN; all its bits turned */
	struct quiet_conn conn[CARRY_CONNS_MAX];
	uint8_t record[];
};
#define QUIET_RECORD_MAX (QUIET_SLOT - sizeof(struct quiet_slot))
/* A session as carry_form.h has it. */
#define QUIET_OUT_MAX                                                                              \
	(sizeof(struct carry_session) + (SCSI_MAX_LUN + 1) * sizeof(struct carry_lun) +            \
	 CARRY_CONNS_MAX * sizeof(struct carry_conn))

static inline uint64_t quiet_conn_check(uint64_t received, uint64_t sent, uint32_t stat_sn,
					uint32_t cid)
{
	/* Not 0 for zeroes; one bit that has changed changes one bit. */
	return 0x7175696574636f6eull ^ received ^ (sent << 32 | sent >> 32) ^ stat_sn ^
	       (uint64_t)cid << 40;
}

/* The checksum of @len bytes of record, which knows of @recorded changes. */
uint32_t quiet_crc(const void *record, uint32_t len, uint32_t recorded);

/* Writes a logical unit to @at, where there are @room bytes. How many it took; 0: too few. */
size_t quiet_put_lun(uint8_t *at, size_t room, const struct scsi_carried_lun *l);

/* The numbers of a session that was not at rest, from elsewhere (flight.h), to @s and its only
 * connection @c. False: there are none. */
typedef bool quiet_numbers_fn(struct carry_session *s, struct carry_conn *c);
/*
 * Of @len bytes of a slot, which nobody writes any more, the session as carry_form.h has it, to
 * @out (QUIET_OUT_MAX bytes): *@n bytes; *@tsih. The sums that its sockets must have are in it.
 * NULL; or why there is none: "" nobody has the slot. @numbers, which may be NULL, is asked first.
 */
const char *quiet_slot_read(const void *slot, size_t len, quiet_numbers_fn *numbers, void *out,
			    size_t *n, uint32_t *tsih) must_check;

#endif
