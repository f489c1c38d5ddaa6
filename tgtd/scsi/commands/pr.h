/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Persistent reservations (SPC-4 5.12). Private to tgtd/scsi.
 *
 * A registration belongs to an I_T nexus by name: (initiator port, relative target port). It
 * outlives the session; when the nexus comes back it finds its registration again. All of it is
 * guarded by lu->lock. What the fast path needs of it are the GATE_DENY_* bits of each I_T_L nexus,
 * recomputed by scsi_lu_reservations_changed_locked() on every change.
 */
#ifndef TGTD_SCSI_COMMANDS_PR_H
#define TGTD_SCSI_COMMANDS_PR_H

#include "tgtd/scsi/commands/commands.h"

/* SPC-4 table 48 */
enum pr_type {
	PR_NONE = 0,
	PR_WRITE_EXCLUSIVE = 1,
	PR_EXCLUSIVE_ACCESS = 3,
	PR_WRITE_EXCLUSIVE_RO = 5, /* registrants only */
	PR_EXCLUSIVE_ACCESS_RO = 6,
	PR_WRITE_EXCLUSIVE_AR = 7, /* all registrants */
	PR_EXCLUSIVE_ACCESS_AR = 8,
};

/* Of a unit; and of them, those that one initiator has made, for itself or for others. So nobody
 * leaves the others of a unit without. */
#define PR_REGISTRATIONS_MAX 4096
#define PR_INITIATOR_MAX 1024
#define PR_FEW 64 /* of a unit: there is room for so many whatever other units have (journal.h) */
#define PR_BUCKETS 32

struct pr_reg {
	struct list link;   /* scsi_pr.regs, newest last */
	struct list bucket; /* scsi_pr.by_device */
	uint64_t key;
	uint64_t maker_hash;
	char *maker; /* initiator device that made it for this one (SPEC_I_PT, MOVE), or NULL */
	char initiator[SCSI_PORT_NAME_MAX]; /* port name, or device name when @device */
	bool device;	/* registered by a TransportID without ISID: any port of the device */
	bool all_ports; /* ALL_TG_PT */
	uint16_t rtpi;
};

struct scsi_pr {
	struct list regs;
	struct list by_device[PR_BUCKETS]; /* by the hash of the initiator device's name */
	unsigned nregs;
	uint32_t generation;
	uint8_t type;		/* enum pr_type */
	struct pr_reg *holder;	/* NULL for the all-registrants types */
	bool aptpl;		/* survives power loss */
	uint64_t changes;	/* counts states; what the file has is below */
	uint64_t saved;		/* helper thread */
};

static inline bool pr_all_registrants(uint8_t type)
{
	return type == PR_WRITE_EXCLUSIVE_AR || type == PR_EXCLUSIVE_ACCESS_AR;
}
static inline bool pr_registrants(uint8_t type)
{
	return type >= PR_WRITE_EXCLUSIVE_RO;
}
static inline bool pr_holds(const struct scsi_pr *pr, const struct pr_reg *reg)
{
	return reg && pr->type && (pr_all_registrants(pr->type) || pr->holder == reg);
}

/* All of these: lu->lock held. */
void pr_lists_init(struct scsi_pr *pr);
bool pr_matches(const struct pr_reg *reg, const char *initiator, uint16_t rtpi);
/* iSCSI TransportID (SPC-4 7.6.4.6). Parse: bytes used, or 0 when malformed. */
size_t pr_transport_id_parse(const uint8_t *p, size_t len, char *initiator, bool *device);
size_t pr_transport_id_put(uint8_t *p, const struct pr_reg *reg);
/* The registration of an I_T_L nexus, or NULL. */
struct pr_reg *pr_reg_of(const struct scsi_itl *itl);
/* By name; NULL: none. */
struct pr_reg *pr_find(const struct scsi_pr *pr, const char *initiator, uint16_t rtpi);
/* How many more the initiator device @iqn may make. */
unsigned pr_room(const struct scsi_pr *pr, const char *iqn);
/* A new registration, made by the initiator device @maker (NULL: the one that it names); NULL: too
 * many of the unit, or no memory. pr_bind_all() connects it with nexuses that are here. */
struct pr_reg *pr_add(struct scsi_pr *pr, const char *initiator, uint16_t rtpi, uint64_t key,
		      const char *maker);
void pr_bind_all(struct scsi_lu *lu);
/* Takes @reg away and frees it. @ua: told to its nexuses (0: nothing). @abort: their
 * commands are to be aborted. */
void pr_remove(struct scsi_lu *lu, struct pr_reg *reg, uint16_t ua, bool abort);
/* Tells all registrants but @except. */
void pr_ua_registrants(struct scsi_lu *lu, const struct pr_reg *except, uint16_t asc);

/* The state file (pr_file.c): what to write is put into text under lu->lock, written elsewhere. */
bool pr_file_possible(void);
char *pr_file_text(const struct scsi_lu *lu, size_t *len);
/* Helper thread. Replaces the file as a whole; 0 or -errno. */
int pr_file_write(const struct scsi_lu *lu, const char *text, size_t len);
/* Main thread, when the LU is made: what the file says, if there is one. 0, or -errno (-EBADMSG: it
 * is damaged). With an error it is not known whether there are reservations, such as a cluster's
 * fence. So the unit must not be served. */
int pr_file_load(struct scsi_lu *lu);

#endif
