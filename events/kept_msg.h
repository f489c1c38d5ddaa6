/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What a process and its keeper say to each other, one datagram a message on a SOCK_SEQPACKET
 * socket. They may be of different versions of tgtd: struct kept_msg never changes, words are added
 * at the end, and who does not know a word ignores it.
 *
 *     keeper  -> process   LEFT... [SAVE] ENDS [OOM] CAN [MOURNS] BEGIN   at its start; ALL_GONE
 *     process -> keeper    PUT, DROP              keeper -> process  DONE, for each
 *     process -> keeper    READY, PULSE, STALLED, RESTART, STOPPING, RECORDS
 *
 * In a planned restart the next process prepares while the one before serves:
 *
 *     serving              keeper               next
 *        RESTART ----------> LEFT... PREPARE ---->
 *        <---------------- GO <------------ PREPARED
 *        RESTS ------------->
 *        PUT... QUIESCENT --> (ends it) LEFT... BEGIN -->
 *                             <-------------- READY
 *                             TOOK ------------->
 */
#ifndef EVENTS_KEPT_MSG_H
#define EVENTS_KEPT_MSG_H

#include "events/base.h"

#define KEPT_KEY_MAX 64	  /* characters of a key */
#define KEPT_MAX 65536u	  /* keys */
#define KEPT_MSG_TEXT 128 /* with the NUL */
#define KEPT_MSG_FDS 253u /* of one message: the kernel's SCM_MAX_FD */
/* Of processes that die soon, one after the other. So many have: the next one goes on ... */
#define KEPT_DIED_NO_SESSIONS 2 /* ... with none of their sessions */
#define KEPT_DIED_NO_CLEAN 3	/* ... nor with what is clean in their cache */
#define KEPT_DIED_SOON_MAX 4	/* ... or there is none */
#define KEPT_APART 2u /* caches of other versions: "apart/K/N", K below this */
#define KEPT_MSG_MAGIC 0x6b657074u

enum kept_word {
	KEPT_NONE,
	KEPT_LEFT,	/* n descriptors, whose keys follow the message */
	KEPT_BEGIN,	/* that was all. A memfd to be mapped as long as the process lives; value:
		       * restarts, when: of the last, text: why, seq: died_soon of kept_origin() */
	KEPT_DONE,	/* value: 0, or the errno of the PUT or DROP with that seq */
	KEPT_PUT,	/* a descriptor; text: its key */
	KEPT_DROP,	/* text: the key */
	KEPT_READY,	/* it serves; text: the state, in words */
	KEPT_PULSE,	/* its threads go on; before READY: its main loop does */
	KEPT_STALLED,	/* one of them does not; text: which */
	KEPT_RESTART,	/* it is going to end, and another shall go on; text: who wants that */
	KEPT_STOPPING,	/* it is going to end, for good; value: within so many microseconds */
	KEPT_SAVE,	/* it is to write back what was left, to serve nobody, and to end */
	KEPT_ENDS,	/* of those that BEGIN counts; value: how many were planned, when: how many
			* had stood still, seq: enum kept_end of the last */
	KEPT_CAN,	/* value: KEPT_CAN_* of this keeper; said by none that can nothing */
	KEPT_PREPARE,	/* the one before serves still: it is to prepare what it can, to change
			* nothing, and to say PREPARED. LEFT before it are arenas. BEGIN comes
			* later, after LEFT that count in place of these. value, when, text, seq: as
			* of BEGIN */
	KEPT_PREPARED,	/* it waits for BEGIN; value: KEPT_WANTS_* */
	KEPT_GO,	/* to who has said RESTART: the next one is prepared, or will not be; value:
			 * what that wants */
	KEPT_QUIESCENT, /* to who has said GO: nothing that this process has begun is under way in
			 * the kernel, and it begins nothing any more: it may be ended, and the next
			 * one need not wait until its memory has gone */
	KEPT_TOOK,	/* text: what a planned restart took, step by step */
	KEPT_OOM,	/* before BEGIN. value: so many of those before were killed because memory
			 * had run out */
	KEPT_REPLACE,	/* the keeper's own program is to be replaced by what is at its path */
	KEPT_REPLACED,	/* value: how many times that has been done; text: why the last time it has
			 * not, or "" */
	KEPT_RESTS,	/* after GO: from now on it serves nobody */
	KEPT_RECORDS,	/* when it dies the next one need not wait until its memory has gone: it
			 * records what it has under way at which store, and heeds MOURNS itself */
	KEPT_MOURNS,	/* before BEGIN. value: so many of those before have died and not gone */
	KEPT_ALL_GONE,	/* to who was told MOURNS: now they have */
	KEPT_WORDS
};

#define KEPT_CAN_PREPARE 1u /* it says PREPARE, and GO */
#define KEPT_CAN_REPLACE 2u /* it hears REPLACE */

/* It does not know the memory that the one before keeps, and cannot go on with it: nothing may be
 * left in there that others need. */
#define KEPT_WANTS_CLEAN 1u

/* How a process has ended that another one replaces. */
enum kept_end {
	KEPT_END_NONE,	  /* there was none, or nobody has said */
	KEPT_END_DIED,	  /* a signal, or by itself */
	KEPT_END_STALLED, /* a thread of it stood still: the watchdog has ended it */
	KEPT_END_PLANNED, /* somebody wanted a restart */
	KEPT_END_OOM,	  /* the kernel has killed it: memory had run out */
	KEPT_END_KINDS
};

struct kept_msg {
	uint32_t magic;
	uint32_t word; /* enum kept_word */
	uint32_t seq;
	uint32_t n; /* descriptors that come with it */
	uint64_t value;
	uint64_t when; /* seconds since 1970 */
	char text[KEPT_MSG_TEXT];
};

typedef char kept_key[KEPT_KEY_MAX + 1];

/* What came: the message, and its descriptors, which the receiver owns. */
struct kept_mail {
	struct kept_msg msg;
	kept_key key[KEPT_MSG_FDS]; /* LEFT: n of them */
	int fd[KEPT_MSG_FDS];	    /* n of them */
};

/* 1 to KEPT_KEY_MAX printable characters without blanks? */
bool kept_key_ok(const char *key);
/* Sends @msg (its magic and n are set here) with @n descriptors and, of LEFT, their @keys; does
 * not wait. 0 or -errno (-EAGAIN: there is no room). Any thread. */
int kept_msg_send(int fd, struct kept_msg *msg, const kept_key *keys, const int *fds,
		  unsigned n) must_check;
/* The next message, without waiting. Its text has no control characters; those of a PUT or DROP are
 * left for kept_key_ok(). 1; 0: the other side has closed its socket; -EAGAIN: there is
 * none; -EBADMSG: it was none of ours, and is gone; -EMFILE: its descriptors did not fit, and
 * mail->msg alone is there. One thread a socket. */
int kept_msg_receive(int fd, struct kept_mail *mail) must_check;
/* Closes the descriptors of @mail, as kept_close(). */
void kept_mail_close(struct kept_mail *mail);
/* Closes a descriptor that came from the other side, without waiting: that of a socket whose owner
 * had it linger would otherwise wait for the peer, for as long as that owner said. */
void kept_close(int fd);

#endif
