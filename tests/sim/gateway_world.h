/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The world that gateways live in, stepped (test_gateway.c): processes with clocks of their own, a
 * RADOS with objects, a blocklist and OSDs that learn of it late, images with locks, initiators,
 * and links. Nothing happens but what the queue of events says, and all that is random comes of a
 * seed.
 */
#ifndef TESTS_SIM_GATEWAY_WORLD_H
#define TESTS_SIM_GATEWAY_WORLD_H

#include "tgtd/cluster/cluster_impl.h"

#define GATES 3
#define UNITS 2
#define BLOCKS 2
#define OSDS 2
#define INITIATORS 3
#define CLIENTS 256 /* data clients that a seed may make */
#define CHANGES 512 /* of shared state, by unit */
#define OBJECT_MAX 2048 /* bytes */
#define COMMANDS 48 /* at work at once */
#define MS NSEC_PER_MSEC
#define SEC NSEC_PER_SEC

/* ---- events ---------------------------------------------------------------------------------- */
struct event {
	uint64_t at, order;
	void (*fn)(struct event *e);
	uint8_t gate;  /* whose process it concerns; GATES: nobody's */
	uint32_t life; /* that process */
	uint64_t id, a, b, c, d;
	bool again, timed; /* it is in the queue again; its answer was given up */
	struct event *next;
	uint32_t len;
	uint8_t data[OBJECT_MAX];
};

/* ---- RADOS ----------------------------------------------------------------------------------- */
struct object {
	uint64_t version;
	uint32_t len;
	uint64_t written_at; /* real time */
	uint8_t data[OBJECT_MAX];
};
struct value {
	uint64_t stamp; /* which write */
	uint64_t order; /* when it took effect, among those of its block */
};
#define LIFT_NS (3 * SEC) /* an hour in truth, see gw_config.lift_ns */
struct client { /* a data client */
	uint8_t gate;
	bool made, ended;
	uint64_t map;	    /* epoch of the map that it has */
	uint64_t fenced_at; /* epoch of the map that says so; 0: none does */
	uint64_t expires;   /* real time */
	char addr[32];
};
struct change { /* of a unit's shared state, by generation */
	uint8_t denied[GATES]; /* a bit for each initiator that may not write there */
	uint64_t op;
};
struct unit {
	struct object object;
	struct value block[BLOCKS];
	uint64_t order[BLOCKS];
	uint64_t floor[BLOCKS]; /* the highest order that anybody was told of */
	uint64_t tenure[OSDS];	/* the latest of which an I/O has been done there */
	uint64_t served;	/* the latest that was ACTIVE */
	int lock;		/* the client that holds it; -1: none */
	uint64_t gens, good;	/* generations of shared state; the highest that was GOOD */
	struct change change[CHANGES];
	uint64_t changed_at;
	uint64_t quiet;	   /* a snapshot is being made, in this tenure */
	uint64_t acked_at; /* the last write that was answered GOOD, or by a conflict */
};

/* ---- a gateway's process, and the SCSI side of it -------------------------------------------- */
struct page {
	struct value value;
	bool valid, dirty, writing;
	/* A miss and a write of one block exclude each other, as in the cache: else one reads what
	 * has landed and is not acknowledged, and the next hit shows what was before. */
	unsigned reading;
	uint64_t changes; /* counts writes and drops: what was read before them is not kept */
};
struct lun {
	enum gw_state state;
	bool configured, quits; /* the process has been told of it, or is being rid of it */
	bool open, held;
	uint64_t tenure; /* counts openings: an epoch may have two, of one gateway's processes */
	uint64_t gen;	/* of shared state, as it is obeyed, or as it was heard of */
	uint8_t denied; /* by it: see struct change */
	struct page page[BLOCKS]; /* the arena: may outlive the process */
	uint64_t stamp;		  /* its epoch */
	unsigned resets, sizes;
	/* what gw waits for */
	uint64_t drain, apply, hold, flush;
};
struct gate {
	struct gateway *gw;
	uint32_t life;	   /* counts processes */
	bool stopped, cut; /* cut: from RADOS */
	bool mute[GATES];  /* towards that gateway */
	double rate;
	uint64_t offset;
	int client; /* index; -1: none */
	uint64_t began;
	struct event *late, **late_end; /* what came while it was stopped */
	uint64_t timer;
	struct lun lun[UNITS];
};

/* ---- commands -------------------------------------------------------------------------------- */
enum op { OP_NONE, OP_READ, OP_WRITE, OP_RESERVE, OP_LOOK };
enum { REFUSED = 1, BUSY = 2 }; /* results besides 0 and -errno */
struct command {
	uint8_t op, gate, unit, block, initiator; /* INITIATORS: write-back */
	bool io;				  /* at the store */
	uint32_t life;
	uint64_t serial;
	uint64_t stamp; /* WRITE: the value; RESERVE: whose key is preempted */
	uint8_t action, type; /* RESERVE: enum pr_action, enum pr_type */
	bool as_it_is;	      /* RESERVE: nothing was to be changed */
	uint64_t floor; /* what was known when it was sent */
	uint64_t tenure, changes;
	int client;
};
struct initiator {
	struct command cmd;  /* OP_NONE: none is under way */
	uint8_t path[UNITS]; /* where it was served last */
	uint64_t answered;   /* the last GOOD */
};

struct profile { /* what may happen to a seed */
	bool kills, stops, cuts, mutes, slow, stalls, moves, reserves, quiets, back, bad_images,
		long_stop, even, /* RADOS may stand still, and nothing else */
		alone,		 /* no initiators, no failures by chance */
		prompt,		 /* RADOS answers soon */
		elsewhere,	 /* processes come up where nobody knows those before */
		strangers,	 /* somebody outside of the group locks an image */
		admin;		 /* units come late, go, and come again; objects are removed */
};

struct world {
	uint64_t now, order, rng, seed, serials, tenures;
	struct profile may;
	bool healing, trace;
	bool no_lease; /* a rule of the SCSI side, broken: it does not look at the lease */
	char failed[256];
	unsigned most_fences; /* that an object has named */
	char steps[128];      /* what was done to RADOS about unit 0, for gateway_rules.c */
	uint64_t slow_until, stall_until;
	struct gate gate[GATES];
	struct object object[GATES];
	struct unit unit[UNITS];
	struct client client[CLIENTS];
	int clients, stranger;
	uint64_t map, osd_map[OSDS];
	struct initiator initiator[INITIATORS];
	struct command command[COMMANDS];
	bool bad_image[GATES][UNITS];
	uint64_t image_asked[GATES][UNITS], image_done[GATES][UNITS]; /* one after the other */
	struct event *heap[8192], *spare;
	unsigned heaped;
	struct gw_counts counts; /* of processes that are no more */
	/* What has happened, over all seeds. */
	uint64_t reads, writes, hits, refused, given_up, reserves, snapshots, resets, kept, shut;
	uint64_t kills, stops, cuts, mutes, stalls, slows, lifted, added, removed, rm;
};
static struct world W;

/* gateway_events.c */
static uint64_t world_random(uint64_t n); /* 0..n-1 */
static bool world_chance(unsigned percent);
static struct event *event_new(unsigned gate, void (*fn)(struct event *e), uint64_t delay);
static void event_again(struct event *e, uint64_t delay); /* from inside of its fn() */
static void world_fails(const char *format, ...) printf_like(1, 2);
static void world_says(const char *format, ...) printf_like(1, 2);
static uint64_t local_time(unsigned gate);
static void step_note(unsigned unit, char step);
static void gate_check(unsigned gate);

/* gateway_rados.c */
static const struct gw_ops world_ops;
static void rados_io(struct command *c, struct value value);
static void reply(unsigned gate, uint64_t id, int result, uint64_t delay);

/* gateway_scsi.c */
static uint8_t shared_denies(const struct gw_shared *s, unsigned gate);
static void io_done(struct command *c, int result, struct value value);
static void lun_quiet_check(unsigned gate, unsigned unit);
static void owners_check(unsigned unit);

#endif
