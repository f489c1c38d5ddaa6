/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Connections that had something under way when the process before died: what is found. See
 * flight.h; what is done with it is flight_go.c.
 *
 *   1. Before the cache is attached all records are judged (flight_form.h), by what the kernel has
 *      counted. What is owed to sockets, and what was received and not looked at, is copied: from
 *      then on blocks may get other content. There is room for so much, of which those that need
 *      little get theirs first: nobody takes it from others by not reading what it has asked for.
 *      The keeper forgets the records: they hold no longer.
 *   2. carry_back.c goes on with sessions, as with those that were at rest (quiet.h), but with the
 *      numbers from here.
 *   3. When all sessions have arrived, what is owed is sent, commands are carried out again or
 *      answered. When all loops have done that, what was received is looked at.
 */
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "events/kept.h"
#include "tgtd/iscsi/carry.h"
#include "tgtd/iscsi/carry_form.h"
#include "tgtd/iscsi/core.h"
#include "tgtd/iscsi/flight.h"

#define OWED_MAX MiB(16)   /* of one connection: more is no batch */
#define COPIED_MAX MiB(512) /* of all: a process that has gone wrong may ask for any amount */

struct flight_taken {
	const char *why; /* it cannot be gone on with; NULL */
	struct flight_found f;
	uint8_t *owed, *unparsed;
	uint8_t *data[FLIGHT_CMDS]; /* of f.cmd[] that wait */
};

static struct {
	struct flight_taken **of;
	unsigned n, room; /* by TSIH when all are there */
} taken;

/* What is read from; only while the records are judged. */
struct taking {
	int fd;
	const int *arena_fd;
	unsigned nodes;
	bool (*count)(int fd, uint64_t *received, uint64_t *sent);
	struct flight_head head;
	struct flight_slot slot;
	struct flight_log log;
};

/* ---- judging; main, while nobody is served --------------------------------------------------- */

static bool read_whole(int fd, void *out, size_t len, uint64_t off)
{
	uint8_t *p = out;

	while (len) {
		const ssize_t n = fd < 0 ? -1 : pread(fd, p, len, (off_t)off);

		if (n <= 0)
			return false;
		p += n;
		off += (uint64_t)n;
		len -= (size_t)n;
	}
	return true;
}

/* Bytes that would be copied. */
static uint64_t copy_size(const struct flight_found *f)
{
	uint64_t size = (uint64_t)f->owed + f->unparsed;

	for (uint32_t i = 0; i < f->ncmds; i++)
		size += f->cmd[i].state == FLIGHT_WRITE ? bhs_data_len(f->cmd[i].bhs) : 0;
	return size;
}

static const char *copy_owed(const struct taking *k, struct flight_taken *t)
{
	uint8_t *at;

	if (!t->f.owed)
		return NULL;
	at = t->owed = malloc((size_t)t->f.owed);
	if (!at)
		return "there is no memory for it";
	for (uint32_t i = 0; i < t->f.npieces; i++) {
		const struct flight_piece *p = &t->f.piece[i];
		const int fd = p->arena == FLIGHT_ARENAS ? k->fd :
			       p->arena < k->nodes	 ? k->arena_fd[p->arena] :
							   -1;

		if (!read_whole(fd, at, p->len, p->off))
			return "it was sending what is gone";
		at += p->len;
	}
	return NULL;
}

static const char *copy_unparsed(const struct taking *k, struct flight_taken *t)
{
	if (!t->f.unparsed)
		return NULL;
	t->unparsed = malloc((size_t)t->f.unparsed);
	if (!t->unparsed)
		return "there is no memory for it";
	return read_whole(k->fd, t->unparsed, t->f.unparsed, t->f.unparsed_off) ?
		       NULL :
		       "it was reading what is gone";
}

/* Of writes that wait. */
static const char *copy_data(const struct taking *k, struct flight_taken *t)
{
	for (uint32_t i = 0; i < t->f.ncmds; i++) {
		const struct flight_cmd *c = &t->f.cmd[i];
		const uint32_t len = bhs_data_len(c->bhs);

		if (c->state != FLIGHT_WRITE)
			continue;
		t->data[i] = malloc((size_t)len + 1);
		if (!t->data[i])
			return "there is no memory for it";
		if (!read_whole(k->fd, t->data[i], len,
				k->head.rx_off + c->data * (uint64_t)FLIGHT_RX_ROOM))
			return "a write that it had received is gone";
	}
	return NULL;
}

static const char *judge_record(struct taking *k, struct flight_taken *t)
{
	const struct flight_log *log = NULL;
	uint64_t received, sent;
	const char *why;
	char key[CARRY_KEY];
	int fd;

	carry_key(key, k->slot.tsih, k->slot.cid);
	fd = kept_peek(key);
	if (fd < 0 || !k->count(fd, &received, &sent))
		return "a connection has broken";
	if (k->slot.log) {
		if (!flight_log_at(&k->head, k->slot.log) ||
		    !read_whole(k->fd, &k->log, sizeof(k->log), k->slot.log))
			return "what it was sending is damaged";
		log = &k->log;
	}
	why = flight_judge(&k->head, &k->slot, log, received, sent, &t->f);
	return why ?: t->f.owed > OWED_MAX ? "what it was sending is damaged" : NULL;
}

static const char *copy_what_is_owed(const struct taking *k, struct flight_taken *t)
{
	const char *why = copy_owed(k, t);

	why = why ?: copy_data(k, t);
	return why ?: copy_unparsed(k, t);
}

static void taken_free(struct flight_taken *t)
{
	free(t->owed);
	free(t->unparsed);
	for (unsigned i = 0; i < FLIGHT_CMDS; i++)
		free(t->data[i]);
	free(t);
}

static bool taken_add(struct flight_taken *t)
{
	if (taken.n == taken.room) {
		const unsigned room = taken.room ? 2 * taken.room : 16;
		struct flight_taken **more =
			realloc(taken.of, room * sizeof(struct flight_taken *));

		if (!more)
			return false;
		taken.of = more;
		taken.room = room;
	}
	taken.of[taken.n++] = t;
	return true;
}

static void take_one(struct taking *k)
{
	struct flight_taken *t;

	if (!k->slot.version)
		return;
	t = calloc(1, sizeof(*t));
	if (!t)
		return;
	t->why = judge_record(k, t);
	t->f.tsih = k->slot.tsih;
	if (!taken_add(t))
		taken_free(t);
}

static int by_tsih(const void *a, const void *b)
{
	const struct flight_taken *const *x = a, *const *y = b;

	return (*x)->f.tsih < (*y)->f.tsih ? -1 : (*x)->f.tsih > (*y)->f.tsih;
}

static void sort_taken(void)
{
	if (taken.n)
		qsort(taken.of, taken.n, sizeof(*taken.of), by_tsih);
	for (unsigned i = 1; i < taken.n; i++)
		if (taken.of[i - 1]->f.tsih == taken.of[i]->f.tsih)
			taken.of[i - 1]->why = taken.of[i]->why = "two records have one TSIH";
}

static void copy_all(const struct taking *k)
{
	uint64_t *size = calloc((size_t)taken.n + 1, sizeof(*size));
	bool *fits = calloc((size_t)taken.n + 1, sizeof(*fits));

	for (unsigned i = 0; size && i < taken.n; i++)
		size[i] = taken.of[i]->why ? 0 : copy_size(&taken.of[i]->f);
	if (size && fits)
		(void)carry_choose(size, fits, taken.n, COPIED_MAX);
	for (unsigned i = 0; i < taken.n; i++)
		if (!taken.of[i]->why)
			taken.of[i]->why = size && fits && fits[i] ?
						   copy_what_is_owed(k, taken.of[i]) :
						   "there is no room for what it has under way";
	free(size);
	free(fits);
}

/* Of a sparse file. */
static void take_slots(struct taking *k)
{
	for (uint32_t i = 0; i < k->head.slots; i++) {
		const off_t at = lseek(k->fd, (off_t)(FLIGHT_HEAD + i * (uint64_t)FLIGHT_SLOT),
				       SEEK_DATA);

		if (at < (off_t)FLIGHT_HEAD)
			return;
		i = (uint32_t)((uint64_t)(at - FLIGHT_HEAD) / FLIGHT_SLOT);
		if (i < k->head.slots && read_whole(k->fd, &k->slot, sizeof(k->slot),
						    FLIGHT_HEAD + i * (uint64_t)FLIGHT_SLOT))
			take_one(k);
	}
}

static const char *take_file(struct taking *k)
{
	struct stat st;
	const char *why;

	if (fstat(k->fd, &st) || !S_ISREG(st.st_mode) || st.st_size < (off_t)FLIGHT_HEAD ||
	    !read_whole(k->fd, &k->head, sizeof(k->head), 0))
		return "they are damaged";
	why = flight_head_wrong(&k->head, (uint64_t)st.st_size);
	if (why)
		return why;
	take_slots(k);
	sort_taken();
	copy_all(k);
	return NULL;
}

void iscsi_flight_take_over(const int arena_fd[], unsigned nodes,
			    bool (*count)(int fd, uint64_t *received, uint64_t *sent))
{
	const struct kept_origin *o = kept_origin();
	const int fd = kept_take(FLIGHT_KEY);
	struct taking *k = fd >= 0 ? calloc(1, sizeof(*k)) : NULL;
	const char *why = k ? NULL : "there is no memory";

	if (fd < 0)
		return;
	if (k && o->how != KEPT_END_PLANNED && o->died_soon < KEPT_DIED_NO_SESSIONS && !o->save) {
		*k = (struct taking){ .fd = fd, .arena_fd = arena_fd, .nodes = nodes,
				      .count = count };
		why = take_file(k);
	}
	if (why)
		log_error("iscsi: what connections had under way in the process before: %s", why);
	free(k);
	kept_close(fd);
	(void)kept_drop(FLIGHT_KEY);
}

/* ---- sessions that go on; main --------------------------------------------------------------- */

const struct flight_taken *iscsi_flight_taken_of(uint32_t tsih, const char **why)
{
	struct flight_taken *t;
	unsigned from = 0, to = taken.n;

	ASSERT_ON_MAIN();
	*why = NULL;
	while (from < to) {
		const unsigned at = from + (to - from) / 2;

		if (taken.of[at]->f.tsih < tsih)
			from = at + 1;
		else
			to = at;
	}
	t = from < taken.n && taken.of[from]->f.tsih == tsih ? taken.of[from] : NULL;
	*why = t ? t->why : NULL;
	return *why ? NULL : t;
}

bool iscsi_flight_busy(const struct flight_taken *t)
{
	return t->f.ncmds || t->f.owed || t->f.unparsed || t->f.skip;
}

uint32_t iscsi_flight_skip(const struct flight_taken *t)
{
	return t->f.skip;
}

uint32_t iscsi_flight_owes(const struct flight_taken *t)
{
	return t->f.owed;
}

unsigned iscsi_flight_commands(const struct flight_taken *t)
{
	return t->f.ncmds;
}

bool iscsi_flight_patch(const struct flight_taken *t, struct carry_session *s,
			struct carry_conn *c)
{
	const struct flight_found *f = &t->f;
	uint32_t open = 0;

	for (uint32_t i = 0; i < f->ncmds; i++)
		open += f->cmd[i].state != FLIGHT_DONE;
	if (s->nconns != 1 || c->cid != f->cid || c->unparsed || open > s->window ||
	    s->params.error_recovery_level ||
	    !sn_le(f->max_cmd_sn, f->exp_cmd_sn + s->window - 1 - open)) {
		((struct flight_taken *)(uintptr_t)t)->why = "its numbers do not fit";
		return false;
	}
	s->exp_cmd_sn = f->exp_cmd_sn;
	s->max_cmd_sn = f->max_cmd_sn;
	c->stat_sn = c->exp_stat_sn = f->stat_sn;
	c->received = f->received;
	c->sent = f->sent;
	c->counted = true;
	c->unparsed = f->unparsed;
	return true;
}

const uint8_t *iscsi_flight_unparsed(const struct flight_taken *t, uint32_t *len)
{
	*len = t->f.unparsed;
	return t->unparsed;
}

uint8_t *iscsi_flight_owed(const struct flight_taken *t, uint32_t *len)
{
	struct flight_taken *mine = (struct flight_taken *)(uintptr_t)t;
	uint8_t *owed = mine->owed;

	*len = t->f.owed;
	mine->owed = NULL;
	return owed;
}

void iscsi_flight_let_go(void)
{
	ASSERT_ON_MAIN();
	for (unsigned i = 0; i < taken.n; i++)
		taken_free(taken.of[i]);
	free(taken.of);
	memset(&taken, 0, sizeof(taken));
}

struct flight_going *iscsi_flight_going(const struct flight_taken *t)
{
	struct flight_taken *mine = (struct flight_taken *)(uintptr_t)t;
	struct flight_going *g = calloc(1, sizeof(*g));

	if (!g)
		return NULL;
	g->ncmds = t->f.ncmds;
	memcpy(g->cmd, t->f.cmd, sizeof(g->cmd));
	memcpy(g->data, mine->data, sizeof(g->data));
	memset(mine->data, 0, sizeof(mine->data));
	return g;
}

void iscsi_flight_going_free(struct flight_going *g)
{
	for (unsigned i = 0; i < FLIGHT_CMDS; i++)
		free(g->data[i]);
	free(g);
}
