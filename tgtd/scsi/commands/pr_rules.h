/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Persistent reservations of a unit as a value (SPC-4 5.12): who is registered, who holds it, and
 * what each service action makes of that. No lock, no nexus, no I/O: pr_out.c has the command.
 *
 * A registration belongs to an I_T nexus by name: (initiator port, relative target port). What
 * becomes of nexuses that are here is for pr.c, which looks at what has changed.
 */
#ifndef TGTD_SCSI_COMMANDS_PR_RULES_H
#define TGTD_SCSI_COMMANDS_PR_RULES_H

#include "events/list.h"
#include "tgtd/scsi/gate.h"

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

/* SPC-4 6.16.2 */
enum pr_action {
	PR_REGISTER,
	PR_RESERVE,
	PR_RELEASE,
	PR_CLEAR,
	PR_PREEMPT,
	PR_PREEMPT_AND_ABORT,
	PR_REGISTER_AND_IGNORE,
	PR_REGISTER_AND_MOVE
};

/* Of a unit; and of them, those that one initiator has made, for itself or for others. So nobody
 * leaves the others of a unit without. */
#define PR_REGISTRATIONS_MAX 4096
#define PR_INITIATOR_MAX 1024
#define PR_BUCKETS 32
#define PR_ID_MAX INT64_MAX /* of registrations' numbers, which are never given twice */

struct pr_reg {
	struct list link;   /* scsi_pr.regs, newest last; or scsi_pr.gone */
	struct list bucket; /* scsi_pr.by_device */
	uint64_t key;
	uint64_t id; /* ascending in scsi_pr.regs, from 1: tells it from a later one of its nexus */
	uint64_t maker_hash;
	char *maker; /* initiator device that made it for this one (SPEC_I_PT, MOVE), or NULL */
	char initiator[SCSI_PORT_NAME_MAX]; /* port name, or device name when @device */
	bool device;	/* registered by a TransportID without ISID: any port of the device */
	bool all_ports; /* ALL_TG_PT */
	bool is_gone;	/* in scsi_pr.gone: */
	bool abort;	/* the commands of its nexuses are to be aborted */
	uint16_t ua;	/* what these are told, or 0 */
	uint16_t rtpi;
	uint32_t released; /* counts RESERVATIONS RELEASED: who sees it move is told */
};

struct scsi_pr {
	struct list regs;
	struct list gone; /* registrations that an action has taken away: pr_forget_gone() */
	struct list by_device[PR_BUCKETS]; /* by the hash of the initiator device's name */
	unsigned nregs;
	uint32_t generation;
	uint64_t last_id;
	uint8_t type;	       /* enum pr_type */
	struct pr_reg *holder; /* NULL for the all-registrants types */
	bool aptpl;	       /* survives power loss */
	uint64_t changes;      /* counts states; what the file has is below */
	uint64_t saved;	       /* helper thread */
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
/* PR_NONE, or a type that there is. */
static inline bool pr_type_known(unsigned type)
{
	return type <= PR_EXCLUSIVE_ACCESS_AR && type != 2 && type != 4;
}

/* ---- registrations (pr_reg.c) ---------------------------------------------------------------- */
void pr_init(struct scsi_pr *pr);
void pr_fini(struct scsi_pr *pr); /* frees all registrations */
bool pr_matches(const struct pr_reg *reg, const char *initiator, uint16_t rtpi);
/* iSCSI TransportID (SPC-4 7.6.4.6). Parse: bytes used, or 0 when malformed. */
size_t pr_transport_id_parse(const uint8_t *p, size_t len, char *initiator, bool *device);
size_t pr_transport_id_put(uint8_t *p, const struct pr_reg *reg);
/* By name; NULL: none. */
struct pr_reg *pr_find(const struct scsi_pr *pr, const char *initiator, uint16_t rtpi);
/* Did the initiator device @iqn make @reg, for itself or for another one? */
bool pr_made_by(const struct pr_reg *reg, const char *iqn);
/* A new registration, made by the initiator device @maker (NULL: the one that it names); NULL: no
 * memory, more than PR_REGISTRATIONS_MAX, or PR_ID_MAX has been given. */
struct pr_reg *pr_add(struct scsi_pr *pr, const char *initiator, uint16_t rtpi, uint64_t key,
		      const char *maker);
/* Takes @reg away, to pr->gone. @ua: told to its nexuses (0: nothing). @abort: their commands are
 * to be aborted. */
void pr_remove(struct scsi_pr *pr, struct pr_reg *reg, uint16_t ua, bool abort);
void pr_forget_gone(struct scsi_pr *pr);

/* ---- PERSISTENT RESERVE OUT (pr_rules.c) ----------------------------------------------------- */
struct pr_request {
	uint8_t action, type;	     /* enum pr_action, enum pr_type */
	uint16_t rtpi;		     /* the port by which it came */
	const char *initiator, *iqn; /* who asks: its port, its device */
	const uint8_t *data;	     /* the parameter list, 24 bytes at least */
	size_t len;
	bool lasts; /* APTPL can be had */
	/* Registrations of the unit, and of one initiator, at most. */
	unsigned unit_max, initiator_max;
	/* Is there room for @more registrations? NULL: always. */
	bool (*has_room)(const struct scsi_pr *pr, size_t more);
};
struct pr_outcome {
	uint8_t status; /* CHECK CONDITION: asc, and the field's byte, say more */
	uint16_t asc, field;
	bool changed;
};
/* Carries it out. Whoever was registered and is no more is in pr->gone then. If it is not GOOD,
 * nothing has changed. */
struct pr_outcome pr_do(struct scsi_pr *pr, const struct pr_request *q);
/* What the nexus of @reg (NULL: it is not registered) may not do: GATE_DENY_* (SPC-4 table 43). */
uint32_t pr_denied(const struct scsi_pr *pr, const struct pr_reg *reg);

#endif
