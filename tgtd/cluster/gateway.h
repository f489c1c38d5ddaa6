/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * One gateway of a group: who owns which logical unit (LU), by the rules in README.md. A state
 * machine without thread, clock or I/O. What happens comes in by the functions here, each with the
 * time; what is to be done goes out by struct gw_ops. So a simulation can step it
 * (tests/sim/test_gateway.c), and the daemon runs the same code.
 *
 * Thread: one, whichever; all functions are its own but gw_served_until(), which is for any.
 *
 * Requests: an operation with an @id is asynchronous. It returns at once, must not call back into
 * this file, and is answered once, later, with the same id. An answer that is no longer waited for
 * is ignored. Results are 0 or -errno. Operations of the control client have a deadline, of half a
 * second or so: several attempts must fit into a lease. Others may go unanswered.
 *
 * Time: @now is CLOCK_BOOTTIME in ns, and never goes back.
 */
#ifndef TGTD_CLUSTER_GATEWAY_H
#define TGTD_CLUSTER_GATEWAY_H

#include <stdatomic.h>
#include "tgtd/cluster/object.h"

struct gateway;

/* What the LU is here. The SCSI side answers by it (SPC-4 5.15.2.4), and by gw_served_until(). */
enum gw_state {
	GW_STANDBY,	  /* somebody else owns it and is well: 02/04/0B */
	GW_TRANSITIONING, /* nobody serves it, or nobody knows: 02/04/0A */
	GW_ACTIVE,	  /* owned here */
	GW_UNAVAILABLE,	  /* its object cannot be read, or its image not be opened: 02/04/0C */
	GW_STATES
};

struct gw_config {
	unsigned self, gateways; /* this gateway's index; how many there are, 1..GW_GATEWAYS */
	unsigned max_lus;	 /* memory is taken for so many, once */
	uint64_t seed;		 /* any number that differs between processes: nonces begin there */
	uint64_t first;		 /* incarnations are higher than this, and than any that the object
				  * names: the date in ms. So none comes again when the object
				  * was removed, while units name it still */
	const char *process; /* this one's name, for gone() of the next one; NULL, "": it has none.
			      * Read by gw_new() */
	/* ns. 0: the value in parentheses */
	uint64_t renew_ns;   /* between two renewals (0.4 s) */
	uint64_t lease_ns;   /* served for so long after the sending of a renewal (1.5 s) */
	uint64_t margin_ns;  /* clocks that differ, over a lease (0.2 s) */
	uint64_t doubt_ns;   /* no renewal seen for so long: LUs are TRANSITIONING (1.2 s) */
	uint64_t suspect_ns; /* ... the gateway is deposed (2 s); at least lease + margin */
	uint64_t poll_ns;    /* a LU's object is read at least so often (2 s) */
	uint64_t fence_ns;   /* how long a blocklisting holds: for good, as it is lifted by a proof
			      * (ten years) */
	uint64_t lift_ns;    /* after the proof, until OSDs have done what they may have (1 h) */
	uint64_t give_up_ns; /* a step of the way to ownership is given up, and others may try; a
			      * hand-over is given up, and the owner serves on; so is a snapshot:
			      * the way to it, and then the making of it (20 s) */
};

/*
 * What is to be done. @arg is gw_new()'s. @lu is the index that gw_lu_add() gave.
 *
 * Two clients of RADOS. The control client reads and writes objects, and is never fenced. The data
 * client does all I/O to images; its address is what others fence.
 */
struct gw_ops {
	/* ---- objects, by the control client: of @gateway where @lu is -1, else of that LU ---- */
	/* Answer: gw_read_done(). -ENOENT: there is none. */
	void (*read)(void *arg, uint64_t id, unsigned gateway, int lu);
	/* Compare-and-set: replaces the whole object if its version is @version (0: if there is
	 * none). @bytes are valid during the call. Answer: gw_write_done(): 0 and the new version;
	 * -ERANGE the version differs, or it exists (0), or it does not; -ETIMEDOUT it may have
	 * landed, or may yet. Any other error means the same as -ETIMEDOUT. */
	void (*write)(void *arg, uint64_t id, unsigned gateway, int lu, uint64_t version,
		      const void *bytes, size_t len);

	/* ---- fencing. Answer: gw_done() ---- */
	/* The @n (1..GW_FENCES) addresses are on the blocklist: 0 when the monitors say so. Those
	 * that it does not have come for @seconds; others keep the time that they have. */
	void (*fence)(void *arg, uint64_t id, const char *const *addr, unsigned n,
		      uint64_t seconds);
	/* @addr is not on the blocklist any more. 0 also if it was not there. */
	void (*lift)(void *arg, uint64_t id, const char *addr);
	/* Is it certain that no process of this name is left? No answer. */
	bool (*gone)(void *arg, const char *process);
	/* The data client has a map as new as the monitors' at this call, or newer. */
	void (*wait_map)(void *arg, uint64_t id);

	/* ---- the data client ---- */
	/* A new one. Answer: gw_client_done() with its address. There is none at that time. */
	void (*client_new)(void *arg, uint64_t id);
	/* Ends it WITHOUT flushing: what it has not sent is never sent; requests to it fail. There
	 * may be none. Answer: gw_done(), 0, when nothing of it can be sent any more. */
	void (*client_end)(void *arg, uint64_t id);

	/* ---- a LU. What concerns its lock takes effect in the order in which it is asked for,
	 * also when an answer is no longer waited for: RADOS keeps the order of one client's
	 * operations on one object ---- */
	/* From now on new commands are answered as @state says. Called when it changes; at first it
	 * is TRANSITIONING. No answer. */
	void (*lu_state)(void *arg, unsigned lu, enum gw_state state);
	/* The image is opened by the data client, without automatic locks. No page of the LU
	 * remains, clean or dirty, but those of an arena stamped with epoch @keep (0: none); those
	 * that will be made are stamped @epoch. Nothing is served before lu_state(ACTIVE). The
	 * image may be open already. Answer: gw_done(). */
	void (*lu_open)(void *arg, uint64_t id, unsigned lu, uint64_t epoch, uint64_t keep);
	/* Locks the image exclusively. Answer: gw_lock_done(): -EBUSY and the holder's address;
	 * -ESHUTDOWN the data client is fenced. A lock that this data client holds is 0. */
	void (*lu_lock)(void *arg, uint64_t id, unsigned lu);
	/* Breaks the lock if @addr holds it, and only then, and fences nobody
	 * (rbd_blocklist_on_break_lock=false). No such lock: 0. Answer: gw_done(). */
	void (*lu_break)(void *arg, uint64_t id, unsigned lu, const char *addr);
	void (*lu_unlock)(void *arg, uint64_t id, unsigned lu); /* gives back; none held: 0 */
	/* No command that was admitted is at work any more, nor an aborted one's I/O, but for those
	 * that wait for gw_change(), gw_look() or gw_reset(). The state is no longer ACTIVE.
	 * Answer: gw_done(). After a failure, or when it takes too long, it is ACTIVE again. */
	void (*lu_drain)(void *arg, uint64_t id, unsigned lu);
	/* All that is dirty is in RADOS, stable. Answer: gw_done(). */
	void (*lu_flush)(void *arg, uint64_t id, unsigned lu);
	/* No clean page remains. -EBUSY: a dirty one does. Answer: gw_done(). */
	void (*lu_drop)(void *arg, uint64_t id, unsigned lu);
	/* No page remains and the image is closed. Comes at any time, also while another operation
	 * of the LU is at work, which then need not be answered. Answer: gw_done(), 0.
	 * @lost: what is in flight fails, dirty pages go, nothing is flushed, the lock is left.
	 * Otherwise it has been drained, flushed, dropped and unlocked. */
	void (*lu_close)(void *arg, uint64_t id, unsigned lu, bool lost);
	/* The owner's shared state is now *@s (valid during the call): commands admitted from here
	 * on obey it. Answered by gw_done() when those are over, or aborted, that had been admitted
	 * under rights that are lost by it. */
	void (*lu_shared)(void *arg, uint64_t id, unsigned lu, const struct gw_shared *s);
	/* The LU's object says *@s (valid during the call): when that changes, and the LU is not
	 * served here. So nexuses hear of unit attentions. No answer. NULL: nobody listens. */
	void (*lu_heard)(void *arg, unsigned lu, const struct gw_shared *s);
	/* Its owner says that the image has another size. The LU is not served here. No answer.
	 * NULL: nobody listens. */
	void (*lu_size)(void *arg, unsigned lu);
	/* LOGICAL UNIT RESET that another gateway received. Answer: gw_done(). */
	void (*lu_reset)(void *arg, uint64_t id, unsigned lu);
	/* For a snapshot: writes are held back until lu_release(), those at work have ended, and
	 * all that is dirty is in RADOS. Answer: gw_done(). */
	void (*lu_hold)(void *arg, uint64_t id, unsigned lu);
	void (*lu_release)(void *arg, unsigned lu); /* no answer; also without a lu_hold() */

	/* ---- what was asked for by the functions below ---- */
	/* gw_change(): computes *@to (which is *@from to begin with, and has room for GW_SHARED_MAX
	 * bytes) from *@from. Pure: it may be called several times, and what an earlier call
	 * computed is void. @from->gen and @to->gen are left alone. 0: that is the change.
	 * GW_AS_IT_IS: *@from is what is asked for; who asks may be repeating what was made, and
	 * has not been told. It is answered by 0 when the owner obeys that. Otherwise there is
	 * none, and the result is what changed() gets: RESERVATION CONFLICT, a parameter that does
	 * not fit, ... */
#define GW_AS_IT_IS (-EALREADY)
	int (*change)(void *arg, unsigned lu, uint64_t cookie, const struct gw_shared *from,
		      struct gw_shared *to);
	/* gw_change() is over. 0: it is made, and the owner acts by it; @s is that, or later.
	 * Otherwise change()'s result, -ECANCELED, or -EBUSY (too many at once). */
	void (*changed)(void *arg, unsigned lu, uint64_t cookie, int result,
			const struct gw_shared *s);
	/* gw_look() is over: 0 and the shared state as it was at some time since it was asked for,
	 * which the owner obeys; or -EBUSY, -EIO (the object cannot be read). */
	void (*looked)(void *arg, unsigned lu, uint64_t cookie, int result,
		       const struct gw_shared *s);
	/* gw_reset() is over: 0, or -EBUSY, -ECANCELED. */
	void (*reset_done)(void *arg, unsigned lu, uint64_t cookie, int result);
	/* gw_quiesce() is over: 0, the image is quiet until gw_unquiesce(), or for give_up_ns; or
	 * -EAGAIN: it is not, ownership is under way, and the snapshot must not be made. */
	void (*quiesced)(void *arg, unsigned lu, uint64_t cookie, int result);

	/* ---- mirrored write-back (mirror.h). NULL: this gateway has none ---- */
	/* Is what is dirty of the LU here, in an arena stamped with @epoch of its owner? */
	bool (*arena_has)(void *arg, unsigned lu, uint64_t epoch);
	/* mirror_peer_has() */
	bool (*mirror_has)(void *arg, unsigned lu, const struct gw_mirror *m);
	/* mirror_peer_seal(), comes before the claim. Answer: gw_done(), when nothing of the mirror
	 * can be acknowledged any more. lu_open() then makes MIRROR pages DIRTY, before it is
	 * answered (mirror_peer_take()): before its epoch has moved they must stay. lu_close()
	 * leaves MIRROR pages alone. */
	void (*mirror_seal)(void *arg, uint64_t id, unsigned lu, const struct gw_mirror *m);
	/* The LU's object says *@m (valid during the call). When it changes. */
	void (*lu_mirror)(void *arg, unsigned lu, const struct gw_mirror *m);
	/* gw_mirror_set() is over: the object has said so. */
	void (*mirror_set)(void *arg, unsigned lu);

	/* ---- the rest ---- */
	/* To another gateway; it may get lost. @bytes are valid during the call. */
	void (*send)(void *arg, unsigned gateway, const void *bytes, size_t len);
	/* gw_tick() is wanted at @at; replaces the time that was wanted before. */
	void (*timer)(void *arg, uint64_t at);
	/* For the log and for `tgtadm --mode cluster`. @lu: -1 the gateway. @text: no newline. */
	void (*say)(void *arg, int level, int lu, const char *text); /* enum log_level */
};

/* NULL: no memory, or a configuration that cannot hold (*why then says which part). */
struct gateway *gw_new(const struct gw_config *config, const struct gw_ops *ops, void *arg,
		       const char **why) must_check;
void gw_free(struct gateway *gw); /* asks for nothing and tells nobody */

/* A LU of the group, by its identity (in all gateways' configurations alike); @home: the gateway
 * that it belongs to. Its index, or -ENOSPC, -EEXIST. At any time. */
int gw_lu_add(struct gateway *gw, const char *id, unsigned home, uint64_t now) must_check;
const char *gw_lu_id(const struct gateway *gw, unsigned lu);
/* Is no more of the configuration here. It must not be owned here (gw_lu_quit() first): -EBUSY. The
 * index is free then. */
int gw_lu_remove(struct gateway *gw, unsigned lu, uint64_t now) must_check;
/* It is about to be removed, or is not after all: it is handed over, to whoever takes it, and not
 * claimed here meanwhile. */
void gw_lu_quit(struct gateway *gw, unsigned lu, bool quits, uint64_t now);

/* Begins. @reaped: the keeper's word, or this is a new boot of the machine: no other process of
 * this gateway lives. Without it, the lease of such a one is waited for. */
void gw_start(struct gateway *gw, bool reaped, uint64_t now);
/* Ends in order: LUs are handed over, then the object says OVER. gw_left() then. */
void gw_leave(struct gateway *gw, uint64_t now);
bool gw_left(const struct gateway *gw);

/* ---- answers --------------------------------------------------------------------------------- */
void gw_done(struct gateway *gw, uint64_t id, int result, uint64_t now);
/* @bytes are copied. */
void gw_read_done(struct gateway *gw, uint64_t id, int result, uint64_t version, const void *bytes,
		  size_t len, uint64_t now);
void gw_write_done(struct gateway *gw, uint64_t id, int result, uint64_t version, uint64_t now);
void gw_client_done(struct gateway *gw, uint64_t id, int result, const char *addr, uint64_t now);
void gw_lock_done(struct gateway *gw, uint64_t id, int result, const char *holder, uint64_t now);

/* ---- what happens ---------------------------------------------------------------------------- */
void gw_tick(struct gateway *gw, uint64_t now);
/* I/O of the data client failed with -ESHUTDOWN: somebody has fenced it. */
void gw_fenced(struct gateway *gw, uint64_t now);
/* The keeper's word, of another machine's or this one's: no process of @incarnation lives. Only
 * the keeper that has reaped it may say so. GW_MSG_REAPED does the same. */
void gw_reaped(struct gateway *gw, unsigned gateway, uint64_t incarnation, uint64_t now);
/* Bytes that another gateway's ops->send() gave. */
void gw_message(struct gateway *gw, unsigned from, const void *bytes, size_t len, uint64_t now);
/* The image of a LU that is served here has another size: others are told, and look. */
void gw_resized(struct gateway *gw, unsigned lu);
/* A watch says that the LU's object has changed. A hint. */
void gw_hint(struct gateway *gw, unsigned lu, uint64_t now);

/* ---- what is asked for ----------------------------------------------------------------------- */
/* What follows may answer before it returns. */
/* Changes the LU's shared state by ops->change(): PERSISTENT RESERVE OUT, MODE SELECT, the size. At
 * any gateway. Answer: ops->changed(), when the owner obeys it. @cookie: the caller's, unique among
 * those at work at this LU. */
void gw_change(struct gateway *gw, unsigned lu, uint64_t cookie, uint64_t now);
/* The shared state as it is now, read from RADOS, and obeyed: PERSISTENT RESERVE IN, at any
 * gateway. Who sees that a change is made need not wait for it any more. */
void gw_look(struct gateway *gw, unsigned lu, uint64_t cookie, uint64_t now);
/* LOGICAL UNIT RESET at a standby port: goes to the owner. -EBUSY: that is this gateway. */
void gw_reset(struct gateway *gw, unsigned lu, uint64_t cookie, uint64_t now);
/* Nobody waits for it any more. It may have taken effect, or not. No answer follows. */
void gw_cancel(struct gateway *gw, unsigned lu, uint64_t cookie);
/* An administrator wants the LU at @gateway (GW_NOBODY: at its home); he may ask any gateway. The
 * owner hands it over; the object says so (gw_show_lu()). A gateway that is down gets it when it
 * comes, unless another has to take the LU before. */
void gw_move(struct gateway *gw, unsigned lu, unsigned gateway, uint64_t now);
/* A snapshot is about to be made (rbd_quiesce_watch). Answer: ops->quiesced(). One at a time. */
void gw_quiesce(struct gateway *gw, unsigned lu, uint64_t cookie, uint64_t now);
void gw_unquiesce(struct gateway *gw, unsigned lu, uint64_t cookie, uint64_t now);

/* The owner's object says *@m of the mirror, once ops->mirror_set() comes, which does not when the
 * ownership ends. One at a time for a LU. */
void gw_mirror_set(struct gateway *gw, unsigned lu, const struct gw_mirror *m, uint64_t now);
/* An administrator gives up what owner and mirror had: any gateway may claim, and the LU is in
 * doubt. -EBUSY: there is nothing to give up, or somebody is there who has it, or has not been
 * missing for give_up_ns. It is of the mirror that is known here now: if there is another when the
 * object can be written, nothing is done. */
int gw_mirror_force(struct gateway *gw, unsigned lu, uint64_t now) must_check;

/* ---- what is known --------------------------------------------------------------------------- */
/* CLOCK_BOOTTIME, ns: a command may be answered by what is known here if the clock, read after its
 * arrival and before the look-up, is below this. 0: nothing is served. One load and one comparison,
 * from any thread (relaxed: what it guards is in RADOS, not in memory). */
const _Atomic uint64_t *gw_served_until(const struct gateway *gw);

/* That of this process, by which it is registered; 0: it is not, now. */
uint64_t gw_incarnation(const struct gateway *gw);

struct gw_show_gateway {
	bool known; /* its object has been read */
	struct gw_gateway_object object;
	uint64_t seen_ns_ago; /* since its last renewal was first seen */
	bool suspected;
};
void gw_show_gateway(const struct gateway *gw, unsigned gateway, struct gw_show_gateway *show,
		     uint64_t now);
struct gw_show_lu {
	bool known;
	enum gw_state state; /* here */
	const char *step;    /* what this gateway is doing with it, a word */
	const char *why;     /* UNAVAILABLE: the reason; else NULL */
	uint8_t owner, home, wanted, claim;
	uint64_t epoch, gen, version;
	unsigned nfences;
	struct gw_mirror mirror;
};
void gw_show_lu(const struct gateway *gw, unsigned lu, struct gw_show_lu *show);
/* The state of @gateway's target port group for @lu, as REPORT TARGET PORT GROUPS shall say it. */
enum gw_state gw_port_state(const struct gateway *gw, unsigned lu, unsigned gateway);

/* Counts, for metrics and tests. */
struct gw_counts {
	uint64_t renewals, lapses, depositions, deposed, takes, resumes, handovers,
		handovers_failed, gave_up, asks, asks_deposed, fences, lifts, proofs, landed_late,
		not_landed, quiesces;
};
const struct gw_counts *gw_counts(const struct gateway *gw);

#endif
