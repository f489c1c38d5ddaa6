/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The world of test_mirror.c, stepped: gateways of one unit with their arenas, which may outlive a
 * process; links between them with two channels each; a RADOS with objects and a store of blocks;
 * initiators. All that is random comes of a seed.
 *
 * A sector's content is a number: the order in which it was written, by whomever. A read is stale
 * when it shows less than what anybody was told before it began.
 */
#ifndef TESTS_SIM_MIRROR_WORLD_H
#define TESTS_SIM_MIRROR_WORLD_H

#include "tgtd/cluster/cluster_impl.h"
#include "tgtd/cluster/mirror_impl.h"

#define GATES 3
#define BLOCKS 6
#define SECTORS 2
#define SHIFT 9
#define CHANS 2
#define MPAGES 16
#define MSLOTS 2
#define COMMANDS 48
#define INITIATORS 3
#define CLIENTS 256
#define ORDERS (1u << 16)
#define MS NSEC_PER_MSEC
#define SEC NSEC_PER_SEC

struct event {
	uint64_t at, order;
	void (*fn)(struct event *e);
	uint8_t gate; /* whose process it concerns; GATES: nobody's */
	uint32_t life;
	uint64_t id, a, b, c, d;
	bool again;
	uint32_t len;
	uint8_t *data;
	struct event *next;
};

typedef uint64_t content[BLOCKS][SECTORS];

struct object {
	uint64_t version;
	uint32_t len;
	uint8_t data[1024];
};

/* ---- a gateway ------------------------------------------------------------------------------- */
struct page { /* DIRTY or clean; of the arena */
	uint64_t v[SECTORS];
	uint64_t valid, dirty;
	uint64_t changes;
	bool writing, loading;
};
struct mpage { /* MIRROR; of the arena */
	bool used;
	uint32_t slot;
	uint64_t block, gen, map, v[SECTORS];
};
struct gate {
	struct gateway *gw;
	struct mirror_owner *mo;
	struct mirror_peer *mp;
	uint32_t life;
	int client;
	bool cut, mute[GATES];
	uint32_t conn[GATES]; /* the connection by which it sends to that gateway */
	uint64_t timer, tenure;
	enum gw_state state;
	bool resumed, wake;
	struct gw_mirror mirror; /* as lu_mirror() said last */
	uint64_t opens, drain, flush;
	uint64_t busy[BLOCKS]; /* by the command of this serial */
	/* The arena. */
	uint64_t stamp;
	struct page page[BLOCKS];
	struct mpage mpage[MPAGES];
	struct mirror_stamp mstamp[MSLOTS];
	struct peer_tomb mtomb[MSLOTS][MIRROR_TOMBS];
};

/* ---- commands -------------------------------------------------------------------------------- */
enum op { OP_NONE, OP_READ, OP_WRITE, OP_GROUP, OP_ZERO, OP_CUT, OP_GROW };
enum { REFUSED = 1, BUSY = 2 }; /* results besides 0 and -errno */
struct command {
	uint8_t op, gate, initiator, block, other, count; /* @other: of a group */
	bool waits, failed, held;			  /* @held: ZERO, at the store */
	uint32_t life, doubt;
	uint64_t serial, map, order, gen;
	content v; /* READ: the answer; before it what was known when it was sent */
};
struct initiator {
	struct command cmd;
	uint8_t path;
};

struct profile {
	bool kills, machines, cuts, mutes, breaks, slow, moves, resizes, small,
		single, /* one failure, and the next when all is well again */
		calm;	/* nothing happens, and no initiators */
};

struct world {
	uint64_t now, order, rng, serials, orders, seed, nonce;
	struct profile may;
	bool trace, healing;
	char failed[256];
	uint64_t slow_until;
	struct event *heap[8192], *spare;
	unsigned heaped;
	struct gate gate[GATES];
	struct object object[GATES + 1]; /* the last is the unit's */
	content store, floor;
	uint64_t size; /* blocks */
	bool fenced[CLIENTS], ended[CLIENTS];
	int clients;
	struct link {
		uint32_t conn;
		uint64_t old_until, last[CHANS]; /* bytes of earlier connections may still come */
	} link[GATES][GATES];
	uint64_t tomb_order[256]; /* by generation, of the present epoch: what a tombstone writes */
	uint64_t tomb_key[256];
	uint8_t group[ORDERS][2]; /* by order: its blocks + 1 */
	struct command command[COMMANDS];
	struct initiator initiator[INITIATORS];
	uint32_t doubt;	      /* counts */
	bool peer_lost[1024]; /* by epoch: a mirror went with its peer's memory */
	uint64_t acked_at, trouble_at;
	struct gw_counts counts;
	/* What has happened, over all seeds. */
	uint64_t reads, writes, groups, zeros, cuts, kills, machines, breaks, moves, doubts,
		takeovers, resumed, tombs_taken;
};
static struct world W;
/* A gateway dies here, sometimes. */
static void crash_point(unsigned gate, unsigned permille);

/* mirror_events.c */
static uint64_t world_random(uint64_t n);
static bool world_chance(unsigned percent);
static struct event *event_new(unsigned gate, void (*fn)(struct event *e), uint64_t delay);
static void event_data(struct event *e, const void *data, size_t len);
static void world_fails(const char *format, ...) printf_like(1, 2);
static void world_says(const char *format, ...) printf_like(1, 2);

/* mirror_rados.c */
static void store_write(unsigned gate, unsigned block);
static void store_load(unsigned gate, unsigned block);
static void store_zero(unsigned gate, uint64_t first, uint64_t count, uint64_t order, uint64_t gen,
		       void (*done)(struct event *e), uint64_t id);

/* mirror_glue.c */
static void gate_wakes(unsigned gate);
static void page_forget(struct page *p);
static const struct mirror_owner_ops owner_ops;
static const struct mirror_peer_ops peer_ops;

/* mirror_commands.c */
static void commands_run(unsigned gate);
static void tombs_note(unsigned gate);
static void command_ends(struct command *c, int result);
static struct command *command_by(unsigned gate, uint64_t serial);

static inline unsigned gate_of(void *arg)
{
	return (unsigned)((struct gate *)arg - W.gate);
}
static inline bool lease_holds(unsigned gate)
{
	return W.now < *gw_served_until(W.gate[gate].gw);
}

#endif
