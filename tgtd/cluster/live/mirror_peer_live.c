/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See mirror_peer_live.h. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "events/log.h"
#include "events/metrics.h"
#include "tgtd/cluster/live/mirror_peer_live.h"

struct mirror_live {
	pthread_mutex_t lock; /* all below */
	struct mirror_peer *peer;
	struct mirror_memory *memory;
	const struct mirror_live_ops *ops;
	void *arg;
	unsigned self;
	bool rests;
	uint64_t counted; /* bytes that M_mirror_kept_bytes has of it */
	uint64_t copied;  /* the same of M_mirror_copied_bytes */

	/* mirror_live_take(), while it runs. */
	mirror_adopt_fn *adopt;
	void *adopt_arg;
	enum mirror_taken refused; /* MIRROR_TAKE_MORE: none was */
};

/* With the lock, after what may have changed it. */
static void live_count(struct mirror_live *l)
{
	struct mirror_memory_conf is;
	uint64_t bytes;

	mirror_memory_conf(l->memory, &is);
	bytes = (uint64_t)mirror_peer_used(l->peer) << is.page_shift;
	metric_add(M_mirror_kept_bytes, bytes - l->counted);
	l->counted = bytes;
	bytes = mirror_memory_copied(l->memory);
	metric_add(M_mirror_copied_bytes, bytes - l->copied);
	l->copied = bytes;
}

/* ---- struct mirror_peer_ops, with the lock --------------------------------------------------- */
static void live_send(void *arg, unsigned to, unsigned channel, const struct mirror_frame *f)
{
	struct mirror_live *l = arg;

	mirror_memory_settle(l->memory);
	l->ops->send(l->arg, to, channel, f);
}

static void live_write(void *arg, uint32_t page, const struct mirror_frame *f, unsigned i)
{
	struct mirror_live *l = arg;

	mirror_memory_write(l->memory, page, f, i);
}

static void live_drop(void *arg, uint32_t page)
{
	struct mirror_live *l = arg;

	mirror_memory_drop(l->memory, page);
}

static void live_refuses(struct mirror_live *l, enum mirror_taken how, uint64_t lu, uint64_t block,
			 const char *why)
{
	l->refused = how;
	if (why)
		log_ratelimited(LOG_LVL_ERROR,
				"mirror: block %llu of unit %016llx cannot be taken over: %s",
				(unsigned long long)block, (unsigned long long)lu, why);
}

static bool live_adopt(void *arg, uint32_t page, uint64_t lu, uint64_t block, uint64_t gen,
		       uint64_t map)
{
	struct mirror_live *l = arg;
	struct mirror_adopted a = { .block = block, .gen = gen, .map = map };
	int err;

	a.data = mirror_memory_data(l->memory, page, &a.shift, &a.map);
	if (!a.data) {
		live_refuses(l, MIRROR_TAKE_BAD, lu, block, "its checksum is wrong");
		return false;
	}
	err = l->adopt(l->adopt_arg, lu, &a);
	if (err) {
		live_refuses(l, MIRROR_TAKE_LATER, lu, block,
			     err == -EAGAIN ? NULL : strerror(-err));
		return false;
	}
	mirror_memory_drop(l->memory, page);
	return true;
}

static void live_stamp(void *arg, uint32_t slot, const struct mirror_stamp *s)
{
	struct mirror_live *l = arg;

	mirror_memory_stamp(l->memory, slot, s);
}

static void live_tomb(void *arg, uint32_t slot, unsigned tomb, uint64_t first, uint64_t count,
		      uint64_t gen)
{
	struct mirror_live *l = arg;

	mirror_memory_tomb(l->memory, slot, tomb, first, count, gen);
}

static void live_say(void *arg, int level, const char *text)
{
	(void)arg;
	log_at((enum log_level)level, "mirror: %s", text);
}

static const struct mirror_peer_ops peer_ops = { .send = live_send,
						 .write = live_write,
						 .drop = live_drop,
						 .adopt = live_adopt,
						 .stamp = live_stamp,
						 .tomb = live_tomb,
						 .say = live_say };

static size_t memory_page(const struct mirror_live *l)
{
	struct mirror_memory_conf c;

	mirror_memory_conf(l->memory, &c);
	return (size_t)1 << c.page_shift;
}

/* ---- its life -------------------------------------------------------------------------------- */
static struct mirror_peer *live_peer(struct mirror_live *l)
{
	struct mirror_memory_conf c;

	mirror_memory_conf(l->memory, &c);
	return mirror_peer_new(
		&(struct mirror_peer_config){ .self = l->self, .lus = c.lus, .pages = c.pages },
		&peer_ops, l);
}

/* What was left, if it is of use. It is asked for by its own sizes: mirrors are in it. */
static int live_finds(struct mirror_live *l, int fd, struct mirror_memory_left *left)
{
	char why[100];
	int err;

	l->memory = mirror_memory_found(fd, why, sizeof(why));
	if (!l->memory) {
		log_error("mirror: what an earlier process held for other gateways is lost: %s",
			  why);
		return 0;
	}
	l->peer = live_peer(l);
	err = l->peer ? mirror_memory_load(l->memory, l->peer, l->self, left) : -ENOMEM;
	if (!err && left->mirrors)
		log_notice("mirror: %u blocks of %u units of other gateways are here still",
			   left->pages, left->mirrors);
	return err;
}

static bool live_is_as_asked(const struct mirror_live *l, const struct mirror_memory_conf *want)
{
	struct mirror_memory_conf is;

	mirror_memory_conf(l->memory, &is);
	return is.lus == want->lus && is.pages == want->pages &&
	       is.page_shift == want->page_shift && is.lent == want->lent;
}

/* A new memory, where there is none that is of use. */
static int live_makes(struct mirror_live *l, const struct mirror_memory_conf *conf)
{
	if (l->memory && (mirror_memory_used(l->memory) || live_is_as_asked(l, conf))) {
		if (!live_is_as_asked(l, conf))
			log_warn("mirror: other gateways' blocks are in a memory of another size: "
				 "the new size holds when a process begins without any");
		return 0;
	}
	mirror_peer_free(l->peer);
	mirror_memory_free(l->memory);
	l->peer = NULL;
	l->memory = mirror_memory_new(conf);
	if (!l->memory)
		return -errno;
	l->peer = live_peer(l);
	return l->peer ? 0 : -ENOMEM;
}

struct mirror_live *mirror_live_new(const struct mirror_live_conf *conf,
				    const struct mirror_live_ops *ops, void *arg,
				    struct mirror_memory_left *left)
{
	struct mirror_live *l = calloc(1, sizeof(*l));
	int err = 0;

	memset(left, 0, sizeof(*left));
	if (!l)
		return NULL;
	pthread_mutex_init(&l->lock, NULL);
	l->self = conf->self;
	l->ops = ops;
	l->arg = arg;
	if (conf->fd >= 0)
		err = live_finds(l, conf->fd, left);
	if (!err)
		err = live_makes(l, &conf->memory);
	if (!err) {
		live_count(l);
		return l;
	}
	mirror_live_free(l);
	errno = -err;
	return NULL;
}

void mirror_live_free(struct mirror_live *l)
{
	if (!l)
		return;
	metric_sub(M_mirror_kept_bytes, l->counted);
	mirror_peer_free(l->peer);
	mirror_memory_free(l->memory);
	pthread_mutex_destroy(&l->lock);
	free(l);
}

int mirror_live_fd(const struct mirror_live *l)
{
	return mirror_memory_fd(l->memory);
}

void mirror_live_incarnation(struct mirror_live *l, uint64_t incarnation)
{
	pthread_mutex_lock(&l->lock);
	mirror_peer_incarnation(l->peer, incarnation);
	pthread_mutex_unlock(&l->lock);
}

/* ---- frames ---------------------------------------------------------------------------------- */
void mirror_live_frame(struct mirror_live *l, unsigned from, unsigned channel,
		       const struct mirror_frame *f, uint64_t now)
{
	/* Its blocks are larger than pages here: the owner finds another peer. */
	struct mirror_frame no = { .kind = MIRROR_ACK,
				   .from = (uint8_t)l->self,
				   .result = MIRROR_NOROOM,
				   .shift = f->shift,
				   .lu = f->lu,
				   .session = f->session,
				   .mirror = f->mirror,
				   .serial = f->serial };
	bool fits;

	pthread_mutex_lock(&l->lock);
	if (l->rests) {
		pthread_mutex_unlock(&l->lock);
		return;
	}
	fits = mirror_memory_fits(l->memory, f);
	if (fits)
		mirror_peer_frame(l->peer, from, channel, f, now);
	else
		l->ops->send(l->arg, from, channel, &no);
	live_count(l);
	pthread_mutex_unlock(&l->lock);
	if (!fits)
		log_ratelimited(LOG_LVL_WARN,
				"mirror: gateway %u has larger blocks than pages are here", from);
}

/* ---- frames that are lent -------------------------------------------------------------------- */
static uint32_t live_lend(void *arg, uint64_t *ticket)
{
	struct mirror_live *l = arg;
	uint32_t frame;

	pthread_mutex_lock(&l->lock);
	frame = l->rests ? MIRROR_FRAME_NONE : mirror_memory_lend(l->memory, ticket);
	pthread_mutex_unlock(&l->lock);
	return frame;
}

static bool live_is_lent(void *arg, uint32_t frame, uint64_t ticket)
{
	struct mirror_live *l = arg;
	bool is;

	pthread_mutex_lock(&l->lock);
	is = mirror_memory_ticket(l->memory, frame) == ticket;
	pthread_mutex_unlock(&l->lock);
	return is;
}

static void live_gets_back(void *arg, uint32_t frame)
{
	struct mirror_live *l = arg;

	pthread_mutex_lock(&l->lock);
	mirror_memory_return(l->memory, frame);
	pthread_mutex_unlock(&l->lock);
}

bool mirror_live_slots(struct mirror_live *l, struct mirror_slots *slots)
{
	struct mirror_memory_conf c;

	mirror_memory_conf(l->memory, &c);
	*slots = (struct mirror_slots){ .arg = l,
					.shift = c.page_shift,
					.lend = live_lend,
					.is_lent = live_is_lent,
					.give_back = live_gets_back };
	slots->base = mirror_memory_frames(l->memory, &slots->len);
	return c.lent;
}

/* ---- what the object says -------------------------------------------------------------------- */
void mirror_live_object(struct mirror_live *l, uint64_t lu, const struct gw_mirror *m)
{
	pthread_mutex_lock(&l->lock);
	if (!l->rests)
		mirror_peer_object(l->peer, lu, m);
	live_count(l);
	pthread_mutex_unlock(&l->lock);
}

bool mirror_live_has(struct mirror_live *l, uint64_t lu, const struct gw_mirror *m)
{
	bool has;

	pthread_mutex_lock(&l->lock);
	has = mirror_peer_has(l->peer, lu, m);
	pthread_mutex_unlock(&l->lock);
	return has;
}

bool mirror_live_seal(struct mirror_live *l, uint64_t lu, const struct gw_mirror *m)
{
	bool here;

	pthread_mutex_lock(&l->lock);
	here = mirror_peer_seal(l->peer, lu, m);
	if (here)
		mirror_memory_seal(l->memory, lu);
	pthread_mutex_unlock(&l->lock);
	return here;
}

/* ---- takeover -------------------------------------------------------------------------------- */
bool mirror_live_zero(struct mirror_live *l, uint64_t lu, uint64_t *first, uint64_t *count,
		      uint64_t *gen)
{
	bool more;

	pthread_mutex_lock(&l->lock);
	more = mirror_peer_zero(l->peer, lu, first, count, gen);
	pthread_mutex_unlock(&l->lock);
	return more;
}

void mirror_live_zeroed(struct mirror_live *l, uint64_t lu, uint64_t gen)
{
	pthread_mutex_lock(&l->lock);
	mirror_peer_zeroed(l->peer, lu, gen);
	pthread_mutex_unlock(&l->lock);
}

enum mirror_taken mirror_live_take(struct mirror_live *l, uint64_t lu, uint64_t end, uint32_t max,
				   mirror_adopt_fn *adopt, void *adopt_arg)
{
	enum mirror_taken taken;

	pthread_mutex_lock(&l->lock);
	l->adopt = adopt;
	l->adopt_arg = adopt_arg;
	l->refused = MIRROR_TAKE_MORE;
	taken = mirror_peer_take(l->peer, lu, end, max) ? MIRROR_TAKEN : l->refused;
	live_count(l);
	pthread_mutex_unlock(&l->lock);
	return taken;
}

enum mirror_taken mirror_live_look(struct mirror_live *l, uint64_t lu, uint32_t *at,
				   struct mirror_adopted *page, uint8_t *data)
{
	enum mirror_taken found = MIRROR_TAKEN;
	const uint8_t *held;
	uint32_t n;

	pthread_mutex_lock(&l->lock);
	if (mirror_peer_look(l->peer, lu, at, &n, &page->block, &page->gen, &page->map)) {
		held = mirror_memory_data(l->memory, n, &page->shift, &page->map);
		found = held ? MIRROR_TAKE_MORE : MIRROR_TAKE_BAD;
		if (held)
			memcpy(data, held, memory_page(l));
		else
			live_refuses(l, found, lu, page->block, "its checksum is wrong");
		page->data = data;
	}
	pthread_mutex_unlock(&l->lock);
	return found;
}

size_t mirror_live_block(struct mirror_live *l)
{
	return memory_page(l);
}

void mirror_live_rest(struct mirror_live *l)
{
	pthread_mutex_lock(&l->lock);
	l->rests = true;
	pthread_mutex_unlock(&l->lock);
}

void mirror_live_show(struct mirror_live *l, struct mirror_peer_show *show)
{
	pthread_mutex_lock(&l->lock);
	mirror_peer_show(l->peer, show);
	pthread_mutex_unlock(&l->lock);
}

bool mirror_live_held(struct mirror_live *l, uint64_t lu, struct mirror_held *held)
{
	bool here;

	pthread_mutex_lock(&l->lock);
	here = mirror_peer_held(l->peer, lu, held);
	pthread_mutex_unlock(&l->lock);
	return here;
}
