/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Targets and logical units as the admin side sees them. Every function here runs on the main loop
 * (asserted where that can be); what event threads must learn reaches them by message. Calls that
 * have to wait for event threads take a callback; none blocks.
 *
 * Numbers and texts are tgt's (see conf/model.h for the configuration itself).
 */
#ifndef TGTD_SCSI_TARGET_H
#define TGTD_SCSI_TARGET_H

#include "events/offload.h"
#include "tgtd/scsi/cmd.h"

#define SCSI_MAX_TARGETS 4096
#define SCSI_MAX_LUN 16383 /* flat space addressing (SAM-5 4.7.7.4) */

struct scsi_lu;
struct scsi_target;

/* ---- targets --------------------------------------------------------------------------------- */
/* @tid > 0, @name a valid iSCSI name (the caller has checked). Creates LUN 0, the controller.
 * NULL with errno: EEXIST (tid or name), ENOMEM, EINVAL. */
struct scsi_target *scsi_target_create(uint32_t tid, const char *name) must_check;
struct scsi_target *scsi_target_find_name(const char *name); /* NULL: none */
struct scsi_target *scsi_target_next(struct scsi_target *t); /* NULL: first; ascending tid */
uint32_t scsi_target_tid(const struct scsi_target *t);
const char *scsi_target_name(const struct scsi_target *t);
unsigned scsi_target_nexus_count(const struct scsi_target *t); /* sessions that are logged in */
/* Calls fn for every nexus, under the target's lock: short, no calls back into scsi. Any thread. */
void scsi_target_each_nexus(struct scsi_target *t, void (*fn)(struct scsi_nexus *n, void *arg),
			    void *arg);
bool scsi_target_offline(const struct scsi_target *t);
void scsi_target_set_offline(struct scsi_target *t, bool offline); /* new logins are refused */
/* What any initiator that may log in to @t could do to all others there. Each is refused unless an
 * administrator allows it. */
enum {
	SCSI_ALLOW_RESET = 1 << 0, /* target resets, warm and cold (RFC 7143 11.5.1) */
	SCSI_ALLOW_ALUA = 1 << 1,  /* SET TARGET PORT GROUPS (SPC-4 6.45) */
};
/* From now on. A change of SCSI_ALLOW_ALUA raises INQUIRY DATA HAS CHANGED. */
void scsi_target_allow(struct scsi_target *t, unsigned what, bool on);
/* Any thread. */
bool scsi_target_allows(const struct scsi_target *t, unsigned what);
/* Asymmetric access states (SPC-4 5.15.2.4), numbered as on the wire, and their names (NULL where
 * there is no such state). */
enum scsi_alua {
	SCSI_ALUA_ACTIVE_OPTIMIZED,
	SCSI_ALUA_ACTIVE_NON_OPTIMIZED,
	SCSI_ALUA_STANDBY,
	SCSI_ALUA_UNAVAILABLE,
	SCSI_ALUA_STATES, /* that initiators may set */
	SCSI_ALUA_TRANSITIONING = 0xf,
	SCSI_ALUA_NAMES
};
extern const char *const scsi_alua_names[SCSI_ALUA_NAMES];
#define SCSI_TPG_MAX 16	  /* groups of a target */
#define SCSI_TPG_FIRST 1  /* the number of the one that there always is */
#define SCSI_PORTS_MAX 64 /* ports of a target */
/* A target's port groups as the administrator has them; tpg_text.c has them as text. */
struct scsi_tpgs {
	unsigned n;		   /* >= 1 */
	uint16_t id[SCSI_TPG_MAX]; /* [0]: SCSI_TPG_FIRST, which has all ports not named here */
	unsigned nports;
	struct {
		uint16_t rtpi, group; /* relative target port identifier; index into id[] */
	} port[SCSI_PORTS_MAX];
	uint8_t others;	      /* enum scsi_alua of groups that are not named in state[] */
	uint8_t others_then;  /* what follows on SCSI_ALUA_TRANSITIONING; that itself: not said */
	uint8_t transition_s; /* IMPLICIT TRANSITION TIME */
	uint16_t preferred;   /* a group's number; 0: none */
	unsigned nstates;
	struct {
		uint16_t id;	     /* there need not be such a group */
		uint8_t state, then; /* as others and others_then */
	} state[SCSI_TPG_MAX];
};
void scsi_tpgs_init(struct scsi_tpgs *g);
/* Takes @value for @key, one of alua_groups, alua_state, alua_preferred, alua_transition_time.
 * 0, -EINVAL (then @g is in part changed), -ENOENT another key. Pure, as is the way back. */
int scsi_tpgs_parse(struct scsi_tpgs *g, const char *key, const char *value) must_check;
void scsi_tpgs_print(const struct scsi_tpgs *g, const char *key, char *out, size_t len);
#define SCSI_TPGS_TEXT 1024 /* enough for any */
/* The same for states by group, as scsi_lu_alua() has them. */
void scsi_alua_print(const struct scsi_tpgs *g, const uint8_t *state, char *out, size_t len);
/* What was set last. */
void scsi_target_tpgs(struct scsi_target *t, struct scsi_tpgs *g);
/* From now on. @states: those of all LUs become as @g says, whatever initiators have set, and are
 * those of LUs to come. Initiators hear ASYMMETRIC ACCESS STATE CHANGED, or INQUIRY DATA HAS
 * CHANGED, where something did for them.
 *
 * A transition ends by itself when IMPLICIT TRANSITION TIME has passed since its state was set:
 * initiators need not wait longer for it (SPC-4 6.37). The groups come into the state that was
 * said with it, else into standby, where no medium can be reached by mistake. Without such a time
 * it lasts. Main loop. */
void scsi_target_set_tpgs(struct scsi_target *t, const struct scsi_tpgs *g, bool states);
/* The states of @lu by group, in the order of scsi_tpgs.id. True: initiators have set others than
 * the administrator. */
bool scsi_lu_alua(const struct scsi_lu *lu, uint8_t state[SCSI_TPG_MAX]);
/* @t can be reached by these ports alone, and has no others; !@bound: by all that are
 * configured. */
void scsi_target_bind_ports(struct scsi_target *t, const uint16_t *rtpi, unsigned n, bool bound);
/* Which LUs an initiator sees: fn(target, lun, iqn, address, arg). NULL: all. Set by
 * iscsi/access.c, and again whenever its answers may have changed. Sessions then lose at once what
 * they may no longer see, and are told that their LUNs have changed. @iqn: only this initiator's
 * answers changed, and nobody else is told; NULL: all. Called under the target's lock on any
 * thread: it must be quick and call nothing here. */
void scsi_target_set_mask(struct scsi_target *t, const char *iqn,
			  bool (*visible)(struct scsi_target *t, uint32_t lun, const char *iqn,
					  const char *address, void *arg),
			  void *arg);
/* The relative target port identifiers that initiators can come in by, of all targets (at most 64
 * count). To be called whenever they change. Initiators whose list changes get INQUIRY DATA HAS
 * CHANGED. Any thread. */
void scsi_set_ports(const uint16_t *rtpi, unsigned n);
/* Third-party copy may reach into other targets: may the initiator behind @n log in to @t now, with
 * what it has proven of itself? Asked on @main, for a session of the transport, which answers no
 * when in doubt. Set once, before there are sessions; without it a copy stays within its target. */
void scsi_set_access(struct loop *main,
		     bool (*may_log_in)(struct scsi_target *t, const struct scsi_nexus *n));
/* @t stays in memory until it is put again, though it may be under deletion. For a session that may
 * become a nexus, or was one. Any thread; the first hold on the main loop, while @t can be found by
 * its name. */
void scsi_target_hold(struct scsi_target *t);
void scsi_target_put(struct scsi_target *t);
/* Decides whether @t is deleted: -EBUSY while a nexus exists (unless @force) or when it is being
 * deleted already, -ENOMEM; nothing has changed then. With 0 nobody can join any more.
 * scsi_target_delete() must follow from the same callback. Only in between may other layers free
 * what they keep for the target. */
int scsi_target_close(struct scsi_target *t, bool force) must_check;
/* Deletes it; what scsi_target_close() says is the status when that was not called before. Sessions
 * are dropped first, LUs go with it, caches flushed. done(arg, status) on the main loop. The name
 * is free for reuse at done. */
void scsi_target_delete(struct scsi_target *t, bool force, void (*done)(void *arg, int status),
			void *arg);

/* ---- limits (limit.h says what counts) ------------------------------------------------------- */
enum { SCSI_LIMIT_ALL, SCSI_LIMIT_READ, SCSI_LIMIT_WRITE, SCSI_LIMIT_DIRS };
/* 0: no limit. */
struct scsi_limit_conf {
	uint64_t iops[SCSI_LIMIT_DIRS], bandwidth[SCSI_LIMIT_DIRS]; /* commands, bytes a second */
	/* What may pass at once after a while with less, commands and bytes; 0: what the limit
	 * lets pass in 100 ms. At least what it lets pass in 10 ms. */
	uint64_t iops_burst, bandwidth_burst;
};
#define SCSI_LIMIT_KEYS 8
extern const char *const scsi_limit_keys[SCSI_LIMIT_KEYS];
/* Takes @value for @key. 0, -EINVAL, -ENOENT another key; then @c is unchanged. Pure, as are the
 * next three. */
int scsi_limit_parse(struct scsi_limit_conf *c, const char *key, const char *value) must_check;
bool scsi_limit_any(const struct scsi_limit_conf *c); /* a limit, not just a burst */
/* That of scsi_limit_keys[@key]: operations or bytes. 0: none, or the burst that is usual. */
uint64_t scsi_limit_value(const struct scsi_limit_conf *c, unsigned key);
/* "iops_limit=500,bandwidth_limit=1048576", or "". */
#define SCSI_LIMIT_TEXT 400
void scsi_limit_print(const struct scsi_limit_conf *c, char *out, size_t len);
/* For all commands of all sessions of the initiator called @iqn with @t, together, from now on.
 * Without a limit in @conf it has none any more. 0, -ENOSPC (too many have limits), -ENOMEM. Main
 * loop. */
int scsi_target_set_limit(struct scsi_target *t, const char *iqn,
			  const struct scsi_limit_conf *conf) must_check;
/* False: it has none, and *@conf is zero. Main loop. */
bool scsi_target_get_limit(struct scsi_target *t, const char *iqn, struct scsi_limit_conf *conf);

/* ---- logical units --------------------------------------------------------------------------- */
struct scsi_gateways;
struct scsi_lu_conf {
	uint32_t lun;
	uint8_t device_type; /* 0x00 disk, 0x0c controller, 0x05 cd ... */
	struct blk *blk;     /* owned by the LU from now on; NULL for the controller */
	struct loop *loop;   /* its (first) event thread "lu-<tid>:<lun>"; the caller created
				 * and started it */
	bool loop_shared;    /* serves other LUs too: stays the
				 * caller's when the LU is deleted */
	/* "" = default */
	/* As wide as tgt's, which cuts what is longer, too. */
	char scsi_id[37], scsi_sn[37], vendor_id[9], product_id[17], product_rev[5];
	uint64_t scsi_id_rest; /* hash of what was cut off scsi_id, so that the made-up NAA still
				 * tells such units apart; 0: nothing was */
	char naa[33];	       /* 16 or 32 hexadecimal digits; "": made up, see scsi_lu_naa() */
	bool readonly, removable, online, thin_provisioning, swp;
	bool write_cache; /* WCE at start */
	uint8_t lbppbe;	  /* logical blocks per physical block exponent; 0xff: 0 */
	uint16_t la_lba;
	uint32_t optimal_xfer_gran, optimal_xfer_len;
	uint32_t sanitize_rate; /* MiB/s; 0: as fast as it goes */
	uint32_t atomic_unit;	/* bytes of a WRITE ATOMIC, a power of two; 0: not offered */
	uint16_t rotation_rate; /* SBC-4 6.6.2: 1 = not rotating */
	bool sense_format;	/* D_SENSE */
	struct scsi_limit_conf limit;
	const struct scsi_gateways *gateways; /* of a gateway group, see below; NULL: of none */
	unsigned gateway_home;		      /* index of the one that is preferred */
};
/* Empty texts, online, write cache on; the caller fills in lun, device_type, blk and loop. */
void scsi_lu_conf_init(struct scsi_lu_conf *c);

/* Visible to every nexus with unit attention REPORTED LUNS DATA HAS CHANGED. NULL with errno:
 * EEXIST, ENOMEM, EINVAL, or why its file of reservations could not be read (EBADMSG: it is
 * damaged). Then blk and loop stay the caller's. */
struct scsi_lu *scsi_lu_create(struct scsi_target *t, const struct scsi_lu_conf *conf) must_check;
struct scsi_lu *scsi_lu_find(struct scsi_target *t, uint32_t lun);
/* NULL: first; ascending LUN */
struct scsi_lu *scsi_lu_next(struct scsi_target *t, struct scsi_lu *lu);
/* -EBUSY when commands are in flight or removal is prevented (unless @force: aborted first). Waits
 * until no thread knows it, closes the blk device (flushing), stops its loop. */
void scsi_lu_delete(struct scsi_lu *lu, bool force, void (*done)(void *arg, int status), void *arg);

/* What `show` prints; a consistent copy. */
struct scsi_lu_info {
	struct scsi_lu_conf conf;
	uint64_t size;
	uint32_t block_size;
	bool prevent_removal;
	const char *bstype, *path; /* valid until the LU is deleted */
};
void scsi_lu_get_info(const struct scsi_lu *lu, struct scsi_lu_info *info);

/* A further event thread for an LU that has one: sessions spread over them. The caller created and
 * started it, and it is the LU's from now on (unless @shared). 0, -ENOSPC beyond SCSI_LU_MAX_LOOPS,
 * -ENOMEM. Main loop. */
#define SCSI_LU_MAX_LOOPS 64
int scsi_lu_add_loop(struct scsi_lu *lu, struct loop *loop, bool shared) must_check;
/* Gives up the threads beyond the first @n. They get no new sessions. Existing sessions stay to
 * their end; then the thread is stopped. Main loop. */
void scsi_lu_keep_loops(struct scsi_lu *lu, unsigned n);
unsigned scsi_lu_loops(const struct scsi_lu *lu); /* how many it has; main loop */

/* tgtadm --mode logicalunit --op update: one key and its value, by tgtadm(8)'s names. 0, -ENOENT
 * no such key, -EINVAL bad value, -EBUSY removal is prevented. Above 0: taken, but the text was
 * cut to so many characters, as tgt cuts it. Raises the unit attention that the change deserves. */
int scsi_lu_update(struct scsi_lu *lu, const char *key, const char *value) must_check;
/* Would any disk take this value for this key? 0, -ENOENT, -EINVAL, or above 0 what is left of a
 * text that would be cut. Any thread. */
int scsi_lu_check(const char *key, const char *value) must_check;
/* Writes what is cached of it to its store. done() on the main loop, perhaps from inside. Who
 * deletes the LU or gives it another store meanwhile waits for that; afterwards it is -EBUSY. */
void scsi_lu_flush(struct scsi_lu *lu, void (*done)(void *arg, int status), void *arg);
/* Replaces the store (`path`): waits for commands in flight, then closes the old one
 * (flushing). @blk is the LU's from now on when status is 0, else still the caller's. done() on
 * the main loop. */
void scsi_lu_set_blk(struct scsi_lu *lu, struct blk *blk, void (*done)(void *arg, int status),
		     void *arg);
/* Looks at the store's size again; CAPACITY DATA HAS CHANGED when it did. 0 or -errno. */
int scsi_lu_refresh(struct scsi_lu *lu);
/* The same, but a store that is in doubt stays so: nobody has looked after it. */
int scsi_lu_resize(struct scsi_lu *lu) must_check;

/* Its medium is not the one that it had: the store could not be opened, or was memory that ended
 * with an earlier process. Until that is taken back it is NOT READY, MANUAL INTERVENTION REQUIRED
 * (02/04/03), and then MEDIUM MAY HAVE CHANGED (06/28/00). Sessions that were carried over hear
 * whether it has another size. Main loop. */
void scsi_lu_set_lost(struct scsi_lu *lu, bool lost);
/* As long as it is lost: its store is being opened, and nobody need do anything. Then it is NOT
 * READY, IN PROCESS OF BECOMING READY (02/04/01). Main loop. */
void scsi_lu_set_late(struct scsi_lu *lu, bool late);
/* It is late, and may come before its initiators have noticed: instead of NOT READY commands wait,
 * whatever nexus they are of. Task management and what is answered of any unit go on: INQUIRY, but
 * for the pages that follow from the store. A store that comes meanwhile (scsi_lu_set_blk(),
 * scsi_lu_set_lost()) is the one that they know, so no attention is raised. The caller sees to an
 * end. 0, or -ENOMEM: nobody waits. Main loop. */
int scsi_lu_await_store(struct scsi_lu *lu) must_check;
/* Those that wait go on: with its store, or NOT READY. False: nobody was to wait. Main loop. */
bool scsi_lu_release(struct scsi_lu *lu);

/* ---- gateway groups ---- */
/*
 * The gateways of a group serve the same targets and units by the same names, a unit by one of them
 * at a time. Each is one target port group, of one number, which is the relative identifier of its
 * ports too: their portal group tag.
 */
#define SCSI_GATEWAYS_MAX 16
struct scsi_gateway_reset;
struct scsi_ask;
struct scsi_gateways {
	unsigned n, self;		/* self: the index of this one */
	uint16_t id[SCSI_GATEWAYS_MAX]; /* > 0, all different */
	uint8_t transition_s;		/* IMPLICIT TRANSITION TIME */
	/* Until then (CLOCK_BOOTTIME, ns) commands may be answered by what is known here. */
	const _Atomic uint64_t *served_until;
	/* A reset has been done here and is to be done where r->lu is served, too: ends by
	 * r->over(). r->lu stays. Any thread that is a loop's. NULL: nowhere else. */
	void (*reset)(struct scsi_gateway_reset *r);
	/*
	 * What a command asks of the group: to change what all gateways share (PERSISTENT RESERVE
	 * OUT), or to look at it. On @main. Answered by scsi_ask_over(), later or at once, unless
	 * it is cancelled before: then nothing is called for it any more.
	 */
	struct loop *main;
	void *arg;
	void (*change)(void *arg, struct scsi_lu *lu, struct scsi_ask *ask);
	void (*look)(void *arg, struct scsi_lu *lu, struct scsi_ask *ask);
	void (*cancel)(void *arg, struct scsi_lu *lu, struct scsi_ask *ask);
};
struct scsi_gateway_reset {
	struct scsi_lu *lu;
	struct loop *home;
	int status;			    /* 0, or -errno: it may have been done, or not */
	void (*over)(struct loop_msg *msg); /* its msg; on home */
	struct loop_msg msg;
	struct list link; /* the group's, as what follows */
	struct timer late;
	uint64_t cookie;
};
/*
 * scsi_lu_conf.gateways makes a unit one of the group's; the structure stays as long as the unit.
 * It is TRANSITIONING everywhere at first. Its writes go through, or to a mirror. Commands whose
 * state one daemon alone would have are not offered: RESERVE, copies, SANITIZE, FORMAT UNIT.
 */
/* enum scsi_alua by gateway; initiators hear of a change. Main loop. */
void scsi_lu_set_gateways(struct scsi_lu *lu, const uint8_t state[], unsigned home);
/* Its cache decides when a write is answered, since it is mirrored (cache/engine/mirror.h); else
 * they go through. Nobody uses it meanwhile. Any thread that may wait for the unit's lock. */
void scsi_lu_set_mirrored(struct scsi_lu *lu, bool mirrored);
/* LOGICAL UNIT RESET that another gateway has received. done(arg, 0) when it is done, or -ENOMEM:
 * not everywhere. It may not be deleted meanwhile. Main loop; done() there, perhaps from inside. */
void scsi_lu_reset(struct scsi_lu *lu, void (*done)(void *arg, int status), void *arg);
/* done(arg, 0) when all commands that were admitted before have ended: the unit is in no state here
 * that admits more. -EBUSY: it is being deleted, or gets another store. -ENOMEM. Main loop; done()
 * there, perhaps from inside. */
void scsi_lu_drain(struct scsi_lu *lu, void (*done)(void *arg, int status), void *arg);
/* All of these: main loop. Shared state is bytes that the group keeps; they may be of others. */
#define SCSI_SHARED_MAX KiB(64)
enum scsi_change {
	SCSI_CHANGED,	 /* @to, *@to_len bytes of it, is the new state */
	SCSI_UNCHANGED,	 /* it is as it was asked to be: GOOD, when the owner obeys that */
	SCSI_REFUSED,	 /* there is no change; that is the answer */
};
/* What a change makes of @from. It may be asked several times; the last one counts. */
enum scsi_change scsi_ask_change(struct scsi_ask *ask, const uint8_t *from, size_t from_len,
				 uint8_t *to, size_t *to_len);
/* A look has found this, and the owner obeys it. */
void scsi_ask_seen(struct scsi_ask *ask, const uint8_t *bytes, size_t len);
/* 0: the owner obeys the change; or it was refused. Or -errno: -EIO (the object cannot be read),
 * -EBUSY, -ENOMEM, -ECANCELED, -EBADMSG. */
void scsi_ask_over(struct scsi_ask *ask, int result);
/* The shared state is now *@bytes: initiators hear what has become of their registrations. 0,
 * -EBADMSG: not understood, nothing has changed; -ENOMEM. */
int scsi_lu_set_shared(struct scsi_lu *lu, const uint8_t *bytes, size_t len) must_check;
/* The same at the owner: done() when all has ended, or was aborted, that had been admitted under
 * rights that are lost. It may come from inside. */
void scsi_lu_obey(struct scsi_lu *lu, const uint8_t *bytes, size_t len,
		  void (*done)(void *arg, int status), void *arg);

/* ---- the state journal (tgtd/state/journal.h) ---- */
/* Commits @recs together with what the unit itself has to say. As journal_commit(). Main loop. */
struct journal_rec;
int scsi_lu_commit(struct scsi_lu *lu, const struct journal_rec *recs, unsigned n) must_check;
/* Makes it what an earlier process recorded of it: reservations, mode pages, access states. After
 * it has been configured, and before there are sessions. 0 also if there is no record; -EBADMSG:
 * some of it is not understood. Main loop. */
int scsi_lu_restore(struct scsi_lu *lu) must_check;

struct scsi_lu_stats {
	uint64_t rd_subm_bytes, rd_subm_cmds, rd_done_bytes, rd_done_cmds;
	uint64_t wr_subm_bytes, wr_subm_cmds, wr_done_bytes, wr_done_cmds, errs;
};
/* Per nexus (stat prints a line per session); @nexus NULL: sum. */
void scsi_lu_get_stats(const struct scsi_lu *lu, const struct scsi_nexus *nexus,
		       struct scsi_lu_stats *out);

/* What one session has on a logical unit. */
struct scsi_session_figures {
	uint64_t id;		      /* scsi_nexus.id */
	const char *initiator;	      /* its name; valid within fn() */
	uint64_t cmds, bytes;	      /* done, reads and writes */
	uint32_t under_way;	      /* commands, now */
	uint64_t rounds, full_rounds; /* as in scsi_nexus */
	struct loop *loop;
};
/* Of each that has used it and is there. Any thread; fn() runs under locks: it must be quick, and
 * call nothing here. */
void scsi_lu_each_session(struct scsi_lu *lu,
			  void (*fn)(const struct scsi_session_figures *f, void *arg), void *arg);

/* Work that may block: files, opening and closing stores. What has the same key happens in order,
 * on one thread at a time; a store that hangs keeps nobody else waiting. done() on ->home. */
struct scsi_work {
	struct offload_job job;
	uint64_t key; /* scsi_work_key() of the store's path; or anything
		       * that says what it is about; 0: of no store */
	struct loop *home;
	void (*work)(struct scsi_work *w); /* on a helper thread, which is no loop */
	void (*done)(struct scsi_work *w); /* on ->home; may free @w */
};
/* Any thread. @w is the helper's until done(). */
void scsi_helper_run(struct scsi_work *w);
/* Any thread. 0: @path is NULL. What has no path waits for nothing that has one. */
uint64_t scsi_work_key(const char *path);

/* Where persistent reservations with APTPL and saved mode pages live: files of each logical unit
 * in @dir. Call before the first LU is created; NULL (the default): APTPL is not offered. The
 * string is copied. Main thread. */
void scsi_set_state_dir(const char *dir);
/* At exit, when all targets are gone: ends the helper threads that do blocking work. */
void scsi_shutdown(void);

/* The event thread for a new session of @t: of all its LUs' threads the one with the fewest
 * sessions. On ties, one on @node_wish (the adapter's node, -1 unknown) is preferred. The session
 * counts from now until scsi_home_put(), which may come after @t has been deleted. NULL when no LU
 * has a thread (then the main loop serves it). Main loop. */
struct scsi_home;
struct scsi_home *scsi_home_get(struct scsi_target *t, int node_wish) must_check;
struct loop *scsi_home_loop(const struct scsi_home *home);
void scsi_home_put(struct scsi_home *home);
/* The node where most of its LUs' threads are (the lowest on ties), -1 when
 * there is none. Any thread. */
int scsi_target_node(struct scsi_target *t);

#endif
