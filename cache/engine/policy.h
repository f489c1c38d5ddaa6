/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Which block to keep: one instance per partition, guarded by that partition's lock. It holds the
 * clean indexed blocks only (dirty, filling and pinned-for-work blocks cannot be evicted, so they
 * are not in its way and eviction takes few steps); while a block is away it keeps its rank in its
 * header.
 *
 * A hit moves nothing: the block's 2-bit use count goes up, for a read within one block without the
 * lock (read.c), and one key in many is shown to the shadows, with it (see policy.c).
 */
#ifndef CACHE_ENGINE_POLICY_H
#define CACHE_ENGINE_POLICY_H

#include "cache/memory/block.h"
#include "cache/memory/node_heap.h"

/* Header flags used by the policy. */
enum {
	POLICY_USES_MASK = 0x3,	  /* uses since it entered its queue, saturating */
	POLICY_QUEUE_SHIFT = 2,
	POLICY_QUEUE_MASK = 0xc,
	POLICY_SETTLED_MASK = 0xc0, /* as struct policy has it: the shadows
				     * need not hear of uses for now */
	POLICY_SETTLED_STEP = 0x40,
};

enum policy_queue {
	POLICY_NONE,  /* never ranked, or forgotten */
	POLICY_SMALL, /* on probation */
	POLICY_MAIN,  /* proved useful */
	POLICY_QUEUES
};

/* How large SMALL is, and how long its victims are remembered. */
enum policy_mode {
	POLICY_FREQUENCY, /* 2 % and half a cacheful: skewed and cyclic use, scans */
	POLICY_RECENCY,	  /* 50 % and a whole one: what was used just now is used again soon */
	POLICY_MODES
};

struct policy_list {
	uint32_t head, tail; /* oldest, newest; block indexes or BLOCK_NONE */
	uint32_t count;
};

struct policy_shadow;

struct policy {
	struct block *hdr;	/* the arena's headers */
	uint32_t capacity;	/* blocks that this partition may hold */
	uint32_t small_target;	/* blocks that SMALL keeps while MAIN has any */
	uint32_t stuck;		/* blocks of MAIN in a row that could not go: when
				 * there are only such, SMALL must give */
	bool warm;		/* something has been evicted already */
	uint8_t mode;		/* enum policy_mode in force */
	uint8_t settled;	/* one of three marks; the next one when the
				 * shadows have changed by an eighth */
	uint32_t changes;	/* of the shadows since then */
	uint64_t sample_mask;	/* keys whose hash has none of these bits
				 * are sampled; all ones: none */
	struct policy_list list[POLICY_QUEUES];
	/* Fingerprints of what SMALL evicted lately: coming back while remembered goes to MAIN.
	 * Sets of eight, each entry fingerprint << 32 | ghost_clock at entry. */
	uint64_t *ghost;
	uint32_t ghost_sets;	/* power of two */
	uint32_t ghost_clock;	/* counts entries */
	uint32_t ghost_len;	/* how many of the latest entries are remembered */
	/* The choice of mode: what each mode would have hit of the sampled keys. */
	struct policy_shadow *shadow[POLICY_MODES];
	uint32_t switches;	/* of mode, ever */
	struct node_heap *heap;	/* where its memory is from, or NULL */
};

/* @heap: of the node; NULL: the C library's. 0 or -ENOMEM. */
int policy_init(struct policy *p, struct block *hdr, uint32_t capacity,
		struct node_heap *heap) must_check;
void policy_fini(struct policy *p);
/* As many blocks as @p may hold from now on. What is remembered of others stays as large as it was
 * made, until policy_take(). Lock held, as for all that follows. */
void policy_resize(struct policy *p, uint32_t capacity);
/* @p goes on with the memory of @fresh, made by policy_init() for its size: it forgets the ghosts,
 * and what the shadows have seen, but not the mode. What it had is its heap's. */
void policy_take(struct policy *p, const struct policy *fresh);

/* Shows a key to the shadows. True: both have it, and nothing more to learn of its being used,
 * until something else comes. */
bool policy_sample(struct policy *p, uint64_t device, uint64_t block);

/*
 * One multiplication serves both the index, which takes the upper bits, and the choice of keys to
 * sample, which takes some in the middle. The next block's is POLICY_HASH_STEP more.
 */
#define POLICY_HASH_STEP 0x9e3779b97f4a7c15ull
#define POLICY_SAMPLE_SHIFT 29
static inline uint64_t policy_hash(uint64_t device, uint64_t block)
{
	return (device + block) * POLICY_HASH_STEP;
}

static inline_always bool policy_samples(const struct policy *p, uint64_t hash)
{
	return !(hash & p->sample_mask);
}

/* A key is used, whether it is there or not: every look-up for a request, once. */
static inline void policy_use(struct policy *p, uint64_t device, uint64_t block)
{
	if (unlikely(policy_samples(p, policy_hash(device, block))))
		policy_sample(p, device, block);
}

/* A block was used again. Any state in which it is indexed. The shadows hear of it by
 * themselves. */
static inline void policy_touch(struct block *b)
{
	const unsigned more = b->flags + 1u;
	if (more & POLICY_USES_MASK) /* else there is no counting on */
		b->flags = (uint8_t)more;
}

/* Is a use of this page one that the shadows hear of? */
static inline_always bool policy_tells(const struct policy *p, uint64_t hash, const struct block *b)
{
	return unlikely(policy_samples(p, hash)) && (b->flags & POLICY_SETTLED_MASK) != p->settled;
}

/* Tells them (the slow part of policy_hit()). */
void policy_tell(struct policy *p, struct block *b);

/* A block was found by its key, which hashes to @hash, and is used again. */
static inline void policy_hit(struct policy *p, uint64_t hash, struct block *b)
{
	policy_touch(b);
	if (policy_tells(p, hash, b))
		policy_tell(p, b);
}

/* What policy_admit() will look at for a block that was not ranked is on its way to the processor.
 * Without the lock. */
void policy_ahead(const struct policy *p, uint64_t device, uint64_t block);
/* A block of an earlier process's: its flags are a hint of how useful it has been. It is away. */
void policy_found(struct block *b);
/* A clean block enters (or comes back from being dirty or filled, to where it was). */
void policy_admit(struct policy *p, struct block *b);
/* A block leaves for now (it becomes dirty or is filled) and keeps its rank. Harmless when away. */
void policy_hold(struct policy *p, struct block *b);
/* A block leaves for good without having been evicted (overwritten, discarded). */
void policy_forget(struct policy *p, struct block *b);
/* @to takes over the rank of @from, which is about to leave the index. Neither is queued. */
void policy_inherit(struct block *to, const struct block *from);

/*
 * Takes the next victim out. @usable says whether a block can go now; those that cannot stay, at
 * the young end. Looks at up to *@visits blocks in vain, and takes them off *@visits. NULL: none
 * was found; the next call goes on where this one has ended.
 */
struct block *policy_evict(struct policy *p, bool (*usable)(void *arg, struct block *b), void *arg,
			   uint32_t *visits);

static inline uint32_t policy_count(const struct policy *p)
{
	return p->list[POLICY_SMALL].count + p->list[POLICY_MAIN].count;
}

#endif
