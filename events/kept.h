/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What outlives this process: descriptors by name, of which the keeper (tgtd/keeper/) has
 * duplicates. The process that the keeper starts next takes them. Without a keeper, put and drop do
 * nothing and give 0, and take finds nothing.
 *
 *     kept_start(fd);                    before threads: receives what the process before left
 *     fd = kept_take("state");           each once
 *     kept_put("state", fd);             from now on the keeper has it, too
 *     kept_tell(KEPT_READY, 0, "...");   how this process fares
 *
 * Keys have 1 to KEPT_KEY_MAX printable characters, "KIND/NAME" by convention. All on the main
 * thread, but for kept_tell().
 */
#ifndef EVENTS_KEPT_H
#define EVENTS_KEPT_H

#include "events/kept_msg.h"

/* @fd: the socket to the keeper, -1: there is none. Receives what was left, and waits for it.
 * Before there are threads, once. */
void kept_start(int fd);
/* The process before serves still (a planned restart): this one may look at what lies there by
 * kept_peek(), takes nothing and changes nothing, until kept_begin(). */
bool kept_prepares(void);
/* Some of what was left has not come, since this process may not have as many files open. After
 * kept_start(), and after kept_begin(). */
bool kept_lost(void);
/* As kept_take(), but it stays the keeper's: valid until kept_begin(). */
int kept_peek(const char *key);
/* Says that this process is prepared, and wants @wants (KEPT_WANTS_*) of the one before, and waits
 * for its turn: what was left is what is left then. True; false: the keeper has gone, and the other
 * one serves. Before threads use any of this. */
bool kept_begin(uint64_t wants) must_check;
/* For tests: forgets everything, closes what nobody has taken, and the socket. */
void kept_end(void);
/* The socket, to be watched for its end; -1: there is no keeper. */
int kept_fd(void);
/* Reads what has come on it, without waiting. False: the keeper has gone. */
bool kept_alive(void);
/* After KEPT_RESTART: does the keeper say when the next process is prepared (kept_may_go())? */
bool kept_waits_for_next(void);
/* Can the keeper's own program be replaced (KEPT_REPLACE)? */
bool kept_can_replace(void);
/* How many times it has been, and why it was not the last time: "". Changes with kept_alive(). */
unsigned kept_replaced(const char **why);
/* It has said so. Changes with kept_alive(). */
bool kept_may_go(void);
/* What the next process wants: KEPT_WANTS_*. As kept_may_go(). */
uint64_t kept_next_wants(void);
/* So many processes before this one have died, and have not gone: the kernel is not done with what
 * they had asked for. 0 when it is; changes with kept_alive(). */
unsigned kept_mourned(void);
/* What the last planned restart took, once the keeper has said; "". */
const char *kept_took(void);

/* The keeper gets a duplicate of @fd, which replaces what has that key; the caller keeps its own.
 * Waits for the keeper's answer, which takes some 20 us, and 500 ms at most. 0, or -errno: it is
 * not kept: -EINVAL the key, -ENOSPC there are KEPT_MAX, -EMFILE, -ETIMEDOUT, -EPIPE. */
int kept_put(const char *key, int fd);
/* The same, but nobody waits for the answer, nor for room: what the keeper does not take it has
 * not, and says so in the log. 0, or -errno: it was not asked. Any thread. */
int kept_put_soon(const char *key, int fd);
struct kept_pair {
	char key[KEPT_KEY_MAX + 1];
	int fd;
	int err; /* as of kept_put() */
};
/* kept_put() of all @n, without waiting for each, and with more patience: 5 s for the next answer.
 * For who serves nobody. */
void kept_put_all(struct kept_pair *pair, unsigned n);
/* What the process before left: the caller owns the descriptor. -1: nothing, or taken already. The
 * keeper keeps its duplicate until kept_drop(). That process may have gone wrong: it may be any
 * descriptor, which the caller has to judge, and closes by kept_close() when it is not his. */
int kept_take(const char *key);
/* The keeper closes its duplicate; 0 also when it has none. After kept_hold(): does nothing. As
 * kept_put(). */
int kept_drop(const char *key);
/* As kept_drop(), and after kept_hold(), too: the next process has no use for it. */
int kept_give_up(const char *key);
/* The same, as kept_put_soon(); -EAGAIN: there is no room now, and the keeper has it still. */
int kept_drop_soon(const char *key);
/* The same of all that were left with keys that begin with @prefix, taken or not, with the patience
 * of kept_put_all(). 0, or -errno of one of them. */
int kept_drop_all(const char *prefix);
/* All is written back, and nothing that was kept is of use to anybody. As the last thing. */
void kept_ended(void);
/* This process ends so that another goes on: nothing is dropped any more. */
void kept_hold(void);
/* Walks the keys that begin with @prefix and were left, and not yet taken. *@at is 0 at first.
 * NULL: that was all. They stay until kept_end(). Between two steps anything may be taken. */
const char *kept_next(const char *prefix, unsigned *at);

/* Why this process runs. */
struct kept_origin {
	unsigned restarts;    /* how many processes of this keeper have served before */
	uint64_t restarted_s; /* when the last of them was replaced, seconds since 1970; 0: none */
	char why[KEPT_MSG_TEXT]; /* and why; "" */
	/* So many in a row have died soon after they began to serve, or before: see
	 * KEPT_DIED_NO_SESSIONS. */
	unsigned died_soon;
	bool save; /* it is to write back what was left, to serve nobody, and to end */
	enum kept_end how;		/* the last of them ended */
	unsigned planned, stalled, oom;	/* of the restarts: KEPT_END_* */
};
const struct kept_origin *kept_origin(void);
/* "none", "died", "stalled", "planned", "oom": as they are shown. */
extern const char *const kept_end_names[KEPT_END_KINDS];

/* Says @word with @value and @text (NULL: none; cut at KEPT_MSG_TEXT) to the keeper, see
 * kept_msg.h. Does not wait. Any thread. False: there is none, or it did not take it. */
bool kept_tell(enum kept_word word, uint64_t value, const char *text);

#endif
