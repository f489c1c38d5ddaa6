/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the device server knows: targets and logical units. Private to tgtd/scsi. Headers that this
 * one includes have the rest: the gate (gate.h), rows of the command table (op.h), I_T_L nexuses
 * (itl.h), commands at work (run.h), hooks of features (feature.h).
 *
 *     scsi_target --(tid list, main thread)
 *        | lu[]                    by LUN; target->lock
 *        | nexuses                 target->lock
 *     scsi_lu ---- itls ---------- lu->lock
 *                    |
 *     scsi_itl  one per (nexus, LU) that has been addressed; made on first use on the nexus' loop,
 *               found there without a lock through nexus->itl[lun]
 *
 * Lock order: targets_lock, target->lock, lu->lock, target->tpg_lock. Nothing else is taken, and
 * nobody is called, while lu->lock is held.
 */
#ifndef TGTD_SCSI_LU_H
#define TGTD_SCSI_LU_H

#include <pthread.h>
#include <stdatomic.h>
#include "events/bytes.h"
#include "events/clock.h"
#include "events/log.h"
#include "tgtd/scsi/cmd.h"
#include "tgtd/scsi/feature.h"
#include "tgtd/scsi/itl.h"
#include "tgtd/scsi/op.h"
#include "tgtd/scsi/run.h"

/* ---- mode pages ------------------------------------------------------------------------------ */
struct scsi_mode {
	bool wce, rcd;			  /* caching 08h */
	bool d_sense, swp, tas, gltsd;	  /* control 0Ah */
	uint8_t mrie, ie_flags;		  /* informational exceptions 1Ch */
	uint32_t ie_interval, ie_count;
	/* logical block provisioning 1Ch/02h: by SCSI_THRESHOLD_* */
	bool situa, threshold_on[2];
	uint32_t threshold[2];
};
/* What a threshold is of. */
enum { SCSI_THRESHOLD_LEFT, SCSI_THRESHOLD_USED, SCSI_THRESHOLDS };

enum {
	LU_FUA_ALL = 1 << 0,	 /* WCE = 0, and the store has no write
				  * policy of its own to switch */
	LU_READONLY = 1 << 1,	 /* not by SWP */
	LU_REMOVABLE = 1 << 2,
	LU_THIN = 1 << 3,
	LU_D_SENSE = 1 << 4,
	LU_TAS = 1 << 5,
};

struct scsi_wait;
struct scsi_pr;
struct scsi_sanitize;
struct scsi_tokens;
struct scsi_thin;

struct scsi_lu {
	/* read-mostly: what every command reads */
	struct blk *blk; /* changes only while frozen */
	uint32_t lun;
	uint32_t block_size;
	uint8_t block_shift;
	uint8_t type;	 /* peripheral device type */
	_Atomic uint32_t flags; /* LU_*: what commands ask of conf and mode without the lock */
	struct scsi_op *const *ops;
	/* Of blk, or one that does nothing. */
	void (*hint)(struct blk *blk, const uint64_t *offset, unsigned n, enum blk_hint what);
	uint32_t seg_max;     /* bytes a segment carries at most */
	uint32_t fast_max;    /* bytes of a READ or WRITE by its fast form: seg_max; 0 in tests */
	_Atomic uint32_t atomic_max; /* bytes of a WRITE ATOMIC; 0: not offered */
	struct scsi_target *target;
	struct loop *loop; /* the first of its threads: what is serial in an LU
			    * runs there; NULL: it has none */
	struct scsi_home **homes; /* [nhomes], all its threads (home.c); main loop
				   * writes, under target->lock */
	unsigned nhomes;
	/* below: lu->lock */
	pthread_mutex_t lock;
	struct list itls;
	uint32_t ngone;		    /* of them, those that their nexus knows no more: they
				     * end their commands, then go; and flushes */
	struct list gone_waits;	    /* scsi_gone_wait.link: posted when ngone comes to 0 */
	uint32_t gate; /* LU-wide bits, for new I_T_L nexuses */
	struct scsi_lu_conf conf;
	struct scsi_mode mode, mode_saved, mode_default; /* now; after a reset; as configured */
	struct scsi_lu_stats gone_stats; /* of nexuses that left */
	struct list loads;		 /* lu_perf.link, one a loop */
	struct lu_perf_times gone_perf;	 /* of loops where no nexus is left */
	struct lat_shard *gone_lat;	 /* the same; NULL: nothing */
	uint64_t made_ns, idle_ns;	 /* clock_now_ns(); as reported last */
	uint32_t prevents;
	bool deleting, ejected;
	bool lost;		    /* its medium is not the one that it had (scsi_lu_set_lost()) */
	bool late;		    /* ... yet (scsi_lu_set_late()) */
	struct scsi_nexus_walk *release; /* of who waits (GATE_LATE); NULL: nobody; main loop */
	struct {
		uint8_t state, status; /* enum scsi_alua; who brought it about */
	} alua[SCSI_TPG_MAX];	       /* by group, as in target->tpgs */
	/* Of a gateway group (gateways.c); NULL: of none. Set once, before GATE_LEASE. */
	const struct scsi_gateways *gateways;
	uint8_t gateway_state[SCSI_GATEWAYS_MAX]; /* enum scsi_alua, by gateway */
	uint8_t gateway_home;		 /* index of the preferred one */
	bool mirrored;			 /* scsi_lu_set_mirrored() */
	struct scsi_wait *drains, *settles; /* under way (shared.c); main loop */
	struct scsi_itl *reserved_by;	 /* RESERVE(6/10) */
	uint32_t generation;		 /* of mode pages and INQUIRY data */
	struct scsi_pr *pr;
	struct scsi_sanitize *sanitize;
	struct scsi_tokens *tokens;
	struct scsi_thin *thin;
	struct scsi_limit limit;
	struct list copies; /* what became of copies (copy_results.c) */
	int64_t timestamp_offset_ms; /* SET TIMESTAMP */
	bool timestamp_set;
	uint8_t *extra_pages; /* tgtadm --params mode_page=...: whole pages, one behind the other */
	uint32_t extra_pages_len;
};

struct scsi_target {
	struct list link; /* targets; targets_lock */
	uint32_t tid;
	char *name;
	pthread_mutex_t lock;
	struct list nexuses;
	unsigned nnexus;
	struct list limits; /* scsi_initiator_limit.link; lock, main loop writes */
	unsigned nlimits;
	unsigned visits; /* on their way, and holds; lock */
	struct scsi_lu **lu; /* by LUN */
	uint32_t nlu;
	bool offline, dying;
	struct scsi_nexus_walk *drops; /* from scsi_target_close() to scsi_target_delete() */
	bool (*visible)(struct scsi_target *t, uint32_t lun, const char *iqn, const char *address,
			void *arg);
	void *visible_arg;
	void (*emptied)(struct scsi_target *t); /* the last nexus left while dying; under lock */
	struct loop *main;
	struct loop_msg empty_msg;
	void (*deleted)(void *arg, int status);
	void *deleted_arg;
	_Atomic uint32_t allowed; /* SCSI_ALLOW_*; main loop writes */
	pthread_mutex_t tpg_lock; /* a leaf; main loop writes what it guards */
	struct scsi_tpgs tpgs;	  /* tpg_lock */
	struct timer transition;  /* that of the groups ends; of main loop ->transition_on */
	struct loop *transition_on; /* NULL: none is timed */
	uint64_t transition_ns;	  /* when it began; main loop */
	bool bound;		  /* to bound_port; tpg_lock */
	unsigned nbound;
	uint16_t bound_port[SCSI_PORTS_MAX];
};

extern pthread_mutex_t targets_lock;
extern struct list targets;

/* What scsi_set_access() said: where to ask, NULL: nowhere, and the question. */
struct loop *scsi_access_loop(void);
bool scsi_may_log_in(struct scsi_target *t, const struct scsi_nexus *n);

static inline bool scsi_lu_is(const struct scsi_lu *lu, uint32_t flag)
{
	return atomic_load_explicit(&lu->flags, memory_order_relaxed) & flag;
}
/* May what is known here of @lu, a gateway group's, be told to initiators now? Any thread. */
static inline bool scsi_lease_holds(const struct scsi_lu *lu)
{
	return clock_boot_ns() <
	       atomic_load_explicit(lu->gateways->served_until, memory_order_relaxed);
}
/* ---- logical units --------------------------------------------------------------------------- */
static inline uint64_t scsi_lu_blocks(const struct scsi_lu *lu)
{
	return atomic_load_explicit(&lu->blk->size, memory_order_relaxed) >> lu->block_shift;
}
/* The NAA designator (SPC-4 7.8.6.6), stable over restarts. It is as configured, or else eight
 * bytes made of scsi_id before it was cut, or of target and LUN. Returns its length. lu->lock
 * held. */
#define SCSI_NAA_MAX 16
size_t scsi_lu_naa(const struct scsi_lu *lu, uint8_t naa[SCSI_NAA_MAX]);
void scsi_lu_update_gate_locked(struct scsi_lu *lu); /* recomputes LU-wide bits from state */
/* An initiator has changed what outlives this process: to the state journal, before the command is
 * answered. lu->lock held. */
void scsi_lu_record_locked(struct scsi_lu *lu);
/* An earlier process has recorded it: what files say is older. */
bool scsi_lu_recorded(const struct scsi_lu *lu);
#define SCSI_LU_KEY 32
/* An LU that could not be made: its loops stay whose they were. */
void scsi_lu_forget_loops(struct scsi_lu *lu);
/* target->lock held */
bool scsi_target_sees(struct scsi_target *t, const struct scsi_nexus *n, uint32_t lun);

static inline bool scsi_lu_thin(const struct scsi_lu *lu)
{
	return scsi_lu_is(lu, LU_THIN);
}
/* Thin, on a store that knows what is left. */
static inline bool scsi_lu_thresholds(const struct scsi_lu *lu)
{
	return scsi_lu_thin(lu) && (lu->blk->caps & BLK_CAP_SPACE);
}
#define SCSI_UNMAP_DESCRIPTORS 4096
#define SCSI_THRESHOLD_EXPONENT 11 /* provisioning is counted in 2^11 blocks */

/* Limits, in blocks. */
static inline uint32_t scsi_max_transfer(const struct scsi_lu *lu)
{
	return (uint32_t)(MiB(64) >> lu->block_shift);
}
static inline uint32_t scsi_max_caw(const struct scsi_lu *lu)
{
	/* Mirrored changes are whole by logical block, whoever takes over amid them. */
	if (lu->gateways)
		return 1;
	return (uint32_t)MIN((uint64_t)lu->blk->max_len >> lu->block_shift, 255u);
}
/* 0: the store cannot, and WRITE ATOMIC is not offered. */
static inline uint32_t scsi_max_atomic(const struct scsi_lu *lu)
{
	return atomic_load_explicit(&lu->atomic_max, memory_order_relaxed) >> lu->block_shift;
}
/* What its length and its first block are multiples of; 0: any. */
static inline uint32_t scsi_atomic_unit(const struct scsi_lu *lu)
{
	return lu->blk->atomic_max ? scsi_max_atomic(lu) : 0;
}

#endif
