/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The gate: reasons to stop a command. The fast path asks one question, (itl->gate | nexus->gate) &
 * op->gate. Whoever creates a reason sets its bit under lu->lock on all the I_T_L nexuses it
 * concerns (attention.c). gate.c answers or holds a command that a bit stops.
 */
#ifndef TGTD_SCSI_GATE_H
#define TGTD_SCSI_GATE_H

#include "tgtd/scsi/cmd.h"

enum {
	GATE_UA = 1 << 0,	  /* a unit attention pends on this I_T_L nexus */
	GATE_LUNS = 1 << 1,	  /* REPORTED LUNS DATA HAS CHANGED (of the whole nexus) */
	GATE_DENY_WRITE = 1 << 2, /* a persistent reservation keeps this nexus from writing */
	GATE_DENY_READ = 1 << 3,  /* ... and from reading */
	GATE_RESERVED = 1 << 4,	  /* RESERVE(6/10) by another nexus */
	GATE_OFFLINE = 1 << 5,	  /* tgtadm: online=No */
	GATE_NO_MEDIUM = 1 << 6,  /* ejected */
	GATE_ORDER = 1 << 7,	  /* an ORDERED command waits or runs: later ones wait */
	GATE_SANITIZE = 1 << 8,	  /* running, or failed */
	GATE_READONLY = 1 << 9,	  /* read-only device, or SWP */
	GATE_FROZEN = 1 << 10,	  /* the store is being replaced: commands are held back */
	GATE_ALUA = 1 << 11,	  /* this port's group is not active */
	GATE_TOKENS = 1 << 12,	  /* a write must look whether it invalidates a ROD token */
	GATE_CLOCK = 1 << 13,	  /* no command of this I_T_L nexus has begun or ended in this
				   * iteration of its loop (lu_perf.h); stops nothing, but makes the
				   * first one look */
	GATE_RCD = 1 << 14,	  /* what is read comes from the medium (caching mode page) */
	GATE_ALUA_OFF = 1 << 15,  /* nor in standby: unavailable, or transitioning */
	GATE_GENERAL = 1 << 16,	  /* tests, of a nexus: stops nothing, but each command begins by
				   * the general form (start.c) */
	GATE_LIMIT = 1 << 17,	  /* the unit, or the initiator, has a limit (limit.h) */
	GATE_LEASE = 1 << 18,	  /* of a gateway group: what is known here may be old */
	GATE_STILL = 1 << 19,	  /* somebody waits until this I_T_L nexus has nothing at work;
				   * stops nothing */
	GATE_SETTLE = 1 << 20,	  /* ... and holds back what comes: it has lost rights (shared.h) */
	GATE_LATE = 1 << 21,	  /* the store is expected in a moment: commands are held back
				   * (scsi_lu_await_store()) */
};
/* While any of these is set nothing begins. */
#define GATE_STOP (GATE_FROZEN | GATE_SETTLE | GATE_LATE)
/* What concerns every command that is not explicitly excepted. */
#define GATE_HOLD (GATE_STOP | GATE_ORDER)
#define GATE_NEXUS \
	(GATE_UA | GATE_LUNS | GATE_RESERVED | GATE_HOLD | GATE_SANITIZE | GATE_ALUA_OFF | \
	 GATE_LEASE)
#define GATE_READY (GATE_NEXUS | GATE_OFFLINE | GATE_NO_MEDIUM | GATE_ALUA)
#define GATE_MEDIUM (GATE_READY | GATE_DENY_READ | GATE_LIMIT)
#define GATE_READ (GATE_MEDIUM | GATE_RCD)
#define GATE_WRITE (GATE_MEDIUM | GATE_DENY_WRITE | GATE_READONLY | GATE_TOKENS)

/* ---- unit attentions (SAM-5 5.14) ------------------------------------------------------------ */
#define UA_ANY_RESET 0x2900 /* POWER ON, RESET, OR BUS DEVICE RESET OCCURRED */
#define UA_POWER_ON 0x2901
#define UA_BUS_RESET 0x2902
#define UA_DEVICE_RESET 0x2903
#define UA_NEXUS_LOSS 0x2907
#define UA_MODE_CHANGED 0x2a01
#define UA_RES_PREEMPTED 0x2a03
#define UA_RES_RELEASED 0x2a04
#define UA_REG_PREEMPTED 0x2a05
#define UA_ALUA_CHANGED 0x2a06
#define UA_CAPACITY 0x2a09
#define UA_TIMESTAMP 0x2a10
#define UA_CLEARED_BY_OTHER 0x2f00
#define UA_THRESHOLD 0x3807 /* thin provisioning soft threshold reached */
#define UA_INQUIRY 0x3f03
#define UA_IDENTIFIER 0x3f05
#define UA_LUNS 0x3f0e
#define UA_MEDIUM 0x2800

/* ---- setting and clearing; all take lu->lock unless named _locked ---------------------------- */
void scsi_ua_add_locked(struct scsi_itl *itl, uint16_t asc);
void scsi_ua_add(struct scsi_itl *itl, uint16_t asc);
/* On every I_T_L nexus of the LU except one. */
void scsi_ua_raise_locked(struct scsi_lu *lu, const struct scsi_itl *except, uint16_t asc);
void scsi_ua_raise(struct scsi_lu *lu, const struct scsi_itl *except, uint16_t asc);
/* Takes the oldest; 0: none. */
uint16_t scsi_ua_pop(struct scsi_itl *itl);
/* LU-wide bits on or off, on the LU and all its I_T_L nexuses. */
void scsi_lu_gate_locked(struct scsi_lu *lu, uint32_t bits, bool on);
/* REPORTED LUNS DATA HAS CHANGED for all nexuses of the target. */
void scsi_luns_changed(struct scsi_target *t);
/* @bits are set that may stop @cmd. True: it goes on. False: it was answered or held. */
bool scsi_gate_pass(struct scsi_cmd *cmd, uint32_t bits);

#endif
