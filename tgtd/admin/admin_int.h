/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Private to tgtd/admin. A request on its way through the daemon. What admin remembers about
 * targets and LUs, beside what the SCSI and iSCSI layers know.
 *
 * From above to below; a file calls only what stands below it (README.md draws it):
 *
 *     admin.c    start, stop, drain
 *     restore.c  the way back from the state journal
 *     verbs.c    (mode, op) -> function; modes system, portal, session, connection, lld
 *     lu_verbs.c mode logicalunit
 *     check.c    requests that are only checked
 *     target_verbs.c account_verbs.c cache_verbs.c cluster_verbs.c   the other larger modes
 *     limit_verbs.c limits of initiators, for target_verbs.c and check.c
 *     export.c   the whole configuration as targets.conf text
 *     record.c   the same as requests, for the state journal
 *     show.c     everything that prints text
 *     show_machine.c  processes, threads and nodes, as text and as JSON
 *     json_show.c json_stat.c json_cache.c json_latency.c json_machine.c
 *                the same as JSON (json.h)
 *     json.c     JSON values, and large answers in steps
 *     apply.c    makes and takes down targets and LUs: stores, caches
 *     threads.c  event threads of LUs
 *     store.c    opens stores, beside the main loop
 *     overdue.c  stores that do not answer
 *     names.c    stores whose name is another one's by now
 *     call.c     what a request is about, why it is refused, what it waits for
 *     watch.c    who is told of what happens, as it happens
 *     server.c   sockets, framing, limits; hands requests up to what admin.c gave it
 *     registry.c what only admin knows: its state, targets and LUs
 *     out.c      the text of an answer while it grows
 *
 * All on the main loop, but for what store.c and cache_verbs.c say that a helper thread does.
 */
#ifndef TGTD_ADMIN_ADMIN_INT_H
#define TGTD_ADMIN_ADMIN_INT_H

#include "conf/adm_proto.h"
#include "events/list.h"
#include "tgtd/admin/admin.h"
#include "tgtd/scsi/target.h"

/* ---- out.c ----------------------------------------------------------------------------------- */
struct adm_out {
	char *buf;
	size_t len, cap;
	bool failed; /* no memory: the answer becomes "out of memory" */
};
void out_printf(struct adm_out *out, const char *fmt, ...) printf_like(2, 3);
void out_put(struct adm_out *out, const char *bytes, size_t n);
void out_puts(struct adm_out *out, const char *text);
void out_free(struct adm_out *out);

/* ---- one request ----------------------------------------------------------------------------- */
struct adm_client;
struct adm_target;
struct adm_lu;

struct adm_call {
	struct adm_req req;	   /* texts point into the buffer below */
	uint8_t *fields;	   /* secret.h */
	size_t fields_size;
	int file;		   /* the store that it names, opened by who asks; or -1 */
	struct adm_out out;
	char detail[512];	   /* why it was refused, or the warnings of what was done */
	char warnings[512];	   /* a line each */
	struct adm_client *client; /* NULL: the client has gone; the work is finished anyway */
	struct list wait;	   /* adm_target.waiters */
	const char *params_left;   /* logicalunit new, update: what is still to do */
	enum adm_status failed;	   /* logicalunit new: why it is being taken back */
	bool made;		   /* logicalunit new: it stands, its parameters follow */
	bool onlooker;		   /* of who may look, and change nothing */
	void *restored;		   /* restore.c's: nobody asks, it comes from the journal */
	uint32_t block_size;	   /* restored, of a store: what its blocks were; 0: as said */
	void (*ended)(struct adm_call *call, enum adm_status status); /* or NULL */
	bool done;
	struct adm_watcher *watcher; /* it is answered again and again, watch.c */
};

/* ---- server.c -------------------------------------------------------------------------------- */
/* Makes the socket of adm.conf.control_port and gives every request to @execute, which answers it
 * by adm_call_done(), at once or later. 0 or -errno, as admin_start(). */
struct server_calls {
	void (*execute)(struct adm_call *call);
	void (*pushed)(struct adm_call *call); /* what adm_call_push() took has been sent */
	void (*gone)(struct adm_call *call);   /* the client of a call with a watcher */
	void (*ended)(struct adm_call *call, enum adm_status status); /* answered next; or NULL */
};
int server_start(const struct server_calls *calls) must_check;
/* Closes the socket and every client; work under way goes on, its answers go nowhere. */
void server_stop(void);
/* Gives @call to execute(), also again after it waited; the call may be freed on return. */
void adm_call_run(struct adm_call *call);
/* A part of an answer that goes on: call->out is sent, and emptied; then pushed(). False: the one
 * before is still being sent. Such a call ends with its client, by gone(). */
bool adm_call_push(struct adm_call *call) must_check;
/* Answers; the call may be freed on return. */
void adm_call_done(struct adm_call *call, enum adm_status status);

/* ---- call.c ---------------------------------------------------------------------------------- */
/* Sets the reason and returns @status, for `return admin_refuse(...)`. @call may be NULL. */
enum adm_status admin_refuse(struct adm_call *call, enum adm_status status, const char *fmt, ...)
	printf_like(3, 4);
/* A warning line in the answer: the request is done, though not exactly as it was said. Unless the
 * request is only checked, the line goes into the log, too. */
void warn(struct adm_call *call, const char *fmt, ...) printf_like(2, 3);
/* The same of what the log has already, or need not have. */
void warn_unlogged(struct adm_call *call, const char *fmt, ...) printf_like(2, 3);
/* A parameter @key cannot be @value: with what it can be, where conf/words.c says so. */
enum adm_status refuse_value(struct adm_call *call, const char *key, const char *value);
/* -errno of a lower layer as a status, with the errno's text as the reason. */
enum adm_status refuse_errno(struct adm_call *call, int err, const char *what);
/* There is no parameter @key of what @of names; with what may have been meant. */
enum adm_status refuse_key(struct adm_call *call, const char *of, const char *key);
/* The same of a portal that was said to be @text. */
enum adm_status refuse_portal(struct adm_call *call, int err, const char *text);
/* The portal that `portal new` and `delete` are about; NULL: none. */
const char *portal_text(const struct adm_call *call);
/* Warns of an initiator name that no initiator can have (RFC 7143 4.2.7.3). */
void warn_odd_name(struct adm_call *call);
/* What the request is about. NULL: there is none, or it was not said. */
struct adm_target *call_target(struct adm_call *call);
struct adm_lu *call_lu(struct adm_call *call, struct adm_target *t);
/* The driver that --lld names, ADM_DRIVERS when it is unknown; the first without --lld. */
unsigned call_driver(const struct adm_call *call);
/* Waits for a busy target: true, and the verb runs again later. @t NULL: false. */
bool call_waits(struct adm_call *call, struct adm_target *t);
/* @t has stopped being busy: requests that waited for it run, one of which may make it busy. */
void call_waiters_run(struct adm_target *t);
/* done() of the apply functions: answers the call @arg. */
void call_finish(void *arg, enum adm_status status);
/* What an immediate verb must not return: "I will call adm_call_done() myself". */
#define ADM_PENDING ((enum adm_status)ADM_STATUSES)

/* ---- registry.c ------------------------------------------------------------------------------ */
enum { ADM_DRIVER_ISCSI, ADM_DRIVER_ISER, ADM_DRIVERS };
extern const char *const driver_names[ADM_DRIVERS];
enum { ADM_BS_SYNC = 1, ADM_BS_DIRECT = 2 };

/* What was set by hand, so that it can be exported and taken back. */
struct adm_set {
	struct list link;
	char *key, *value;
	char *original; /* targets: the value before the first change */
};
struct adm_set *set_find(const struct list *sets, const char *key);
/* Replaces or adds. 0 or -ENOMEM. @original is copied when the key is new. */
int set_put(struct list *sets, const char *key, const char *value, const char *original) must_check;
void set_drop(struct adm_set *set); /* NULL is fine */
void set_drop_all(struct list *sets);

struct adm_target {
	uint32_t tid;
	uint8_t driver;
	bool offline;	     /* its own state; the system's state comes on top */
	bool busy;	     /* something about it waits for event threads */
	struct scsi_target *scsi;
	struct list hash;
	struct list luns;    /* adm_lu.link, any order */
	struct list waiters; /* adm_call.wait: requests that change it, while busy */
	struct list masks;   /* adm_set: initiator name -> LUNs that it may see */
	struct list keys;    /* adm_set */
	struct list controller; /* adm_set: what was set of LUN 0 */
	struct list limits;  /* adm_set: initiator name -> its limits, as they were said */
	struct isns_access *isns; /* whom the iSNS server lets log in; NULL: it has not said */
};

struct adm_lu {
	uint32_t lun;
	uint8_t flags; /* ADM_BS_* */
	bool uncached; /* no cache was wanted on its store */
	bool write_through;
	bool shared;   /* its store may be another LU's too */
	struct adm_target *target;
	struct scsi_lu *scsi;
	struct list hash, link;
	int node_wish; /* bsopts node=, -1: none */
	unsigned threads; /* that it shall have, and has unless conf.central_events */
	struct place place[SCSI_LU_MAX_LOOPS]; /* of its threads */
	struct list params;	     /* adm_set */
	struct scsi_lu_conf initial; /* defaults, to go back to */
	char *bsopts, *blocksize;    /* as asked for; NULL: not */
	uint32_t size_news;	     /* of its store, that it has heard of: blk.news */
	char *bstype; /* as asked for: "rdwr" though aio serves it */
	char *path;   /* NULL: no medium yet */
	bool lost;     /* what was on it is not there since the process before ended */
	bool stand_in; /* lost, and its store could not be opened: another stands in for it */
	bool late;     /* ... yet: it is being opened (late.c) */
	struct timer await; /* commands wait for it so long */
	bool apart;    /* ... and may not be: see cache/engine/apart.h */
	/* names.c's */
	const void *name_look; /* that is to tell; only compared */
	uint64_t name_ns;      /* the last one told; 0: none */
	int name_err;	       /* ... so */
};

struct adm_state {
	struct admin_conf conf;
	bool offline;	/* tgtadm --mode system: State */
	bool draining, leaving;
	bool restoring;	    /* from the journal; what others ask waits meanwhile */
	struct list parked; /* adm_call.wait: until that is over */
	bool portals_restored;
	bool restarting; /* with leaving: another process takes over */
	struct loop_deferred drain; /* queued while draining, when a target is busy no more */
	bool lld_stopped[ADM_DRIVERS];
	char isns_server[64];
	unsigned isns_port;
	bool isns_access_control;
	bool refuse_weak; /* weak_secrets=refuse */
	/* What somebody has set while it ran, so that it is exported: */
	bool portals_set;
	const char *debug;	/* "on" or "off" */
	struct list cache_keys; /* adm_set */
	unsigned ntargets;
	struct loop *central; /* the LUs' one event thread with conf.central_events */
};
extern struct adm_state adm;

static inline bool adm_iser_runs(void)
{
	return adm.conf.iser_runs && adm.conf.iser_runs();
}

void registry_init(void);
struct adm_target *registry_target(uint32_t tid);
struct adm_target *registry_target_name(const char *name);
struct adm_lu *registry_lu(const struct adm_target *t, uint32_t lun);

void registry_add_target(struct adm_target *t);
void registry_add_lu(struct adm_lu *lu);

/* ---- store.c --------------------------------------------------------------------------------- */
struct store_opts {
	bool uncached, write_through, shared;
	int node; /* -1: anywhere */
};
bool store_parse_flags(const char *text, uint8_t *flags); /* --bsoflags */
/* --bsopts: cache=none|write-back|write-through, share=yes|no, node=N, and for @bstype rbd conf=,
 * id=, cluster=, which it reads itself; separated by ';' or ','. */
bool store_parse_opts(const char *text, const char *bstype, struct store_opts *o);
bool store_known(const char *bstype);

struct store_open {
	struct scsi_work work;
	/* wanted; texts stay the caller's */
	const char *path, *bstype, *bsopts; /* path NULL: no medium */
	uint32_t block_size;
	uint8_t flags; /* ADM_BS_* */
	bool uncached, write_through, shared;
	char who[48]; /* whose it will be, for messages */
	int node;
	bool give_up; /* where it is apart: what is dirty of it */
	int file; /* it is open already; or -1 */
	void (*done)(struct store_open *so); /* main loop, never from inside store_open() */
	/* outcome: blk, or err and reason */
	struct blk *blk;
	int err;
	bool needs_file; /* whoever asks has to open it: we may not */
	bool apart;	 /* err, since it is (cache/engine/apart.h) */
	bool given_up;	 /* not any more */
	char reason[200];
};
void store_open(struct store_open *so);
/* Flushes and closes what no LU got. Later; nobody waits for it. */
void store_close(struct blk *blk);

/* Could it be opened, if it were free? Opens it for reading, and lets it go again; of memory it
 * takes as much as it is to have, and gives it back. */
struct store_trial {
	struct scsi_work work;
	const char *path; /* the caller's */
	const char *bstype; /* whose path is no file's name; NULL: it is one */
	const char *bsopts; /* the caller's */
	uint32_t block_size;
	int file; /* as above */
	void (*done)(struct store_trial *st); /* main loop, never from inside store_try() */
	int err;
	bool needs_file; /* as above */
	char reason[200];
};
void store_try(struct store_trial *st);

/* ---- late.c ---------------------------------------------------------------------------------- */
/* store_open() for unit @lun of target @tid, which comes back from the journal. Whose store is not
 * open after two seconds is told -EINPROGRESS; after a tenth of one, when another is late already.
 * When it is open, and the unit still has a stand-in, @arrived is called, while its target is not
 * busy. done(arg, ADM_OK): @blk is the unit's. Another status: it is not, and @arrived is called
 * again after a while. done() perhaps from inside. */
typedef void late_arrived(struct adm_lu *lu, struct blk *blk,
			  void (*done)(void *arg, enum adm_status status), void *arg);
void late_open(struct store_open *so, uint32_t tid, uint32_t lun, late_arrived *arrived);
/* All others are open: store_kept_rest(), when those that are late are, too. */
void late_rest(void);
/* @lu is new. */
void late_init(struct adm_lu *lu);
/* Why @path cannot be opened now: it is being opened, for a unit that is late or has been deleted
 * meanwhile, and who opened it once more would hang as well. NULL: it can. */
const char *late_opens(const char *path);
/* @lu is there, and its store is late: commands wait for it, until AWAIT_NS after late_rest(). */
void late_await(struct adm_lu *lu);
/* Its commands wait no more: @lu is NOT READY, and still late. */
void late_release(struct adm_lu *lu);
/* It is late no more. Who waits is the caller's. */
void late_over(struct adm_lu *lu);

/* ---- write_cache.c --------------------------------------------------------------------------- */
/* Is it write_cache=mirror? @value may be NULL. */
bool write_cache_mirrors(const char *key, const char *value);
/* What the device server takes for @value of @key: "mirror" is on, "through" off; all else is as it
 * is. */
const char *write_cache_value(const char *key, const char *value);
/* Why @lu cannot have write_cache=mirror; NULL: it can. @lu NULL: as far as is known of any. */
const char *write_cache_no_mirror(const struct adm_lu *lu);
/* ... the answer. */
enum adm_status write_cache_refuse(struct adm_call *call, const char *why);

/* ---- check.c --------------------------------------------------------------------------------- */
enum adm_status check_execute(struct adm_call *call);
/* Keys that tgt's files give targets and that decide nothing here. -ENOENT: @key is none of them;
 * -EINVAL: tgt would refuse the value, too. 0: @why is what decides instead. */
int target_idle_key(const char *key, const char *value, const char **why);
/* @key of LUN @call->req.lun was cut to @left characters of @value. */
void warn_cut(struct adm_call *call, const char *key, const char *value, int left);
/* The store of @lu had @before bytes: has it fewer now? */
void warn_shrunk(struct adm_call *call, const struct adm_lu *lu, uint64_t before);
/* Those of --params that can be told without the LUN. */
enum adm_status check_lu_params(struct adm_call *call);

/* ---- apply.c --------------------------------------------------------------------------------- */
struct apply_lu {
	uint32_t lun;
	uint8_t device_type;
	const char *path, *bstype, *bsopts, *bsoflags, *blocksize;
};
/* Is its image of the group that this daemon is one of, by its bsopts? */
bool apply_lu_of_group(const struct adm_lu *lu);
/* Is it a name for a target? */
enum adm_status apply_target_check(struct adm_call *call, const char *name);
/* Are these options such as a LUN can have? */
enum adm_status apply_lu_check(struct adm_call *call, const struct apply_lu *want,
			       uint32_t *block_size);
enum adm_status apply_target_new(struct adm_call *call, uint32_t tid, const char *name,
				 unsigned driver);
/* ADM_OK: begun, and done() follows; it runs also when nothing had to be waited for, but never from
 * inside. Marks the target busy. */
enum adm_status apply_target_delete(struct adm_call *call, struct adm_target *t, bool force,
				    void (*done)(void *arg, enum adm_status status), void *arg);
/* As apply_target_delete(): ADM_OK is a beginning. */
enum adm_status apply_lu_new(struct adm_call *call, struct adm_target *t,
			     const struct apply_lu *want,
			     void (*done)(void *arg, enum adm_status status), void *arg);
enum adm_status apply_lu_delete(struct adm_call *call, struct adm_lu *lu,
				void (*done)(void *arg, enum adm_status status), void *arg);
/* Another store under the same LU. */
enum adm_status apply_lu_path(struct adm_call *call, struct adm_lu *lu, const char *path,
			      void (*done)(void *arg, enum adm_status status), void *arg);
/* Its own, for which another stands in. Where it is apart, what is dirty of it is given up. */
enum adm_status apply_lu_again(struct adm_call *call, struct adm_lu *lu,
			       void (*done)(void *arg, enum adm_status status), void *arg);
/* Its write cache was switched off: what is in it goes to the store. */
enum adm_status apply_lu_flush(struct adm_call *call, struct adm_lu *lu,
			       void (*done)(void *arg, enum adm_status status), void *arg);
/* Somebody has looked after its store, which was in doubt when it was opened. */
enum adm_status apply_lu_trust(struct adm_call *call, struct adm_lu *lu,
			       void (*done)(void *arg, enum adm_status status), void *arg);
/* It is trusted with what it has now, its store or new memory. */
void apply_lu_found(struct adm_lu *lu);
/* Pushes offline states down after adm.offline or a target's own changed. */
void apply_offline(struct adm_target *t);
unsigned apply_targets_of(unsigned driver);

/* ---- resized.c ------------------------------------------------------------------------------- */
/* Stores that tell of another size by themselves: their LUs take it over, and initiators hear of
 * it. From now on, and no more. Main thread. */
void resized_start(void);
void resized_stop(void);

/* ---- quiesced.c ------------------------------------------------------------------------------ */
/* Stores of which a snapshot is about to be made by somebody else: what their LUs have acknowledged
 * is written first. From now on, and no more. Main thread. */
void quiesced_start(void);
void quiesced_stop(void);

/* ---- overdue.c ------------------------------------------------------------------------------- */
/* A store was opened: those that do not answer are looked for. At the end: no more. */
void overdue_go_on(void);
void overdue_stop(void);

/* ---- names.c --------------------------------------------------------------------------------- */
/*
 * Looks whether the names of all units' stores, or @only's, still lead to these. Goes on by
 * @then(@call), at once or later, whose status is the request's (ADM_PENDING: it goes on by
 * itself). Waits some 250 ms at most; where there is no answer by then the last one holds. Returns
 * what @then() does, or ADM_PENDING.
 */
enum adm_status names_look(struct adm_call *call, struct adm_lu *only,
			   enum adm_status (*then)(struct adm_call *call));
#define NAMES_TEXT 160
/* What is known of @lu's: NULL when it is as it was, else @text, "is another store by now..." */
const char *names_say(const struct adm_lu *lu, char text[NAMES_TEXT]);
/* The same as a warning in the answer. The log has it once, when it is noticed. */
void names_warn(struct adm_call *call, const struct adm_lu *lu);
/* @lu has another store. */
void names_forget(struct adm_lu *lu);
/* At the end: who still waits is refused. */
void names_stop(void);

/* ---- threads.c ------------------------------------------------------------------------------- */
/* The event thread of @lu's place @nr, running; the shared one with
 * conf.central_events. NULL: *err is -errno. */
struct loop *lu_loop(const struct adm_lu *lu, unsigned nr, int *err) must_check;
/* Ends a thread that no LU has got; not the shared one. */
void lu_loop_end(struct loop *loop);
/* Gives back the places of all of @lu's threads but the first @keep. */
void places_release(struct adm_lu *lu, unsigned keep);
/* The parameter `threads`: as many event threads as @value says, at once. */
bool apply_lu_threads_ok(const char *value);
enum adm_status apply_lu_threads(struct adm_call *call, struct adm_lu *lu, const char *value);
/* At the end, when no LU is left: ends the shared event thread, if there is one. */
void apply_stop_central(void);

/* ---- verbs.c --------------------------------------------------------------------------------- */
/* What admin.c gives to server_start(): runs the verb, or refuses. */
void verbs_execute(struct adm_call *call);

/* ---- target_verbs.c, lu_verbs.c, account_verbs.c --------------------------------------------- */
enum adm_status verb_target_new(struct adm_call *call);
enum adm_status verb_target_delete(struct adm_call *call);
enum adm_status verb_target_show(struct adm_call *call);
enum adm_status verb_target_stat(struct adm_call *call);
enum adm_status verb_target_bind(struct adm_call *call);
enum adm_status verb_target_unbind(struct adm_call *call);
enum adm_status verb_target_update(struct adm_call *call);
enum adm_status verb_lu_new(struct adm_call *call);
enum adm_status verb_lu_delete(struct adm_call *call);
enum adm_status verb_lu_update(struct adm_call *call);
enum adm_status verb_lu_stat(struct adm_call *call);
enum adm_status verb_account_new(struct adm_call *call);
enum adm_status verb_account_delete(struct adm_call *call);
enum adm_status verb_account_bind(struct adm_call *call);
enum adm_status verb_account_unbind(struct adm_call *call);
enum adm_status verb_account_update(struct adm_call *call);
enum adm_status verb_account_show(struct adm_call *call);
/* Of `account new` and `update`: can these be a user and a password? Warns of a weak one, or
 * refuses it. */
enum adm_status account_check(struct adm_call *call);
/* Of `account bind` and `unbind`: may there be an initiator name, and this one? */
enum adm_status account_tie_check(struct adm_call *call);

/* ---- limit_verbs.c --------------------------------------------------------------------------- */
/* `target update` with an initiator's name and --params: its limits. */
enum adm_status limit_update(struct adm_call *call, struct adm_target *t);
/* The same, only checked. */
enum adm_status limit_check(struct adm_call *call);

/* ---- cluster_verbs.c ------------------------------------------------------------------------- */
enum adm_status cluster_verb_show(struct adm_call *call);

/* ---- cache_verbs.c --------------------------------------------------------------------------- */
enum adm_status cache_verb_show(struct adm_call *call);
enum adm_status cache_verb_stat(struct adm_call *call);
enum adm_status cache_verb_update(struct adm_call *call);
/* Would it be refused? */
enum adm_status cache_update_verb_check(struct adm_call *call);

/* ---- watch.c --------------------------------------------------------------------------------- */
/* `system watch`: ADM_PENDING, or why not. */
enum adm_status watch_begin(struct adm_call *call);
/* Of struct server_calls. */
void watch_pushed(struct adm_call *call);
void watch_gone(struct adm_call *call);

/* ---- latency_verbs.c ------------------------------------------------------------------------- */
enum adm_status verb_lu_latency(struct adm_call *call);
enum adm_status verb_lu_slow(struct adm_call *call);
enum adm_status verb_target_latency(struct adm_call *call);
enum adm_status verb_system_latency(struct adm_call *call);

/* ---- explain.c ------------------------------------------------------------------------------- */
enum adm_status verb_lu_explain(struct adm_call *call);
/* At the end: those that still look on go. */
void explain_stop(void);

/* ---- export.c -------------------------------------------------------------------------------- */
/* Everything as targets.conf text. */
void export_config(struct adm_call *call);

/* ---- record.c -------------------------------------------------------------------------------- */
#define ADM_KEY_PORTALS "portals"
/* May a request like this change anything? */
bool record_changes(const struct adm_req *req);
/* Before a request: is there room to record what it says? ADM_OK, or why it is refused. */
enum adm_status record_room(struct adm_call *call);
/* After it, and before it is answered: what it was about goes to the state journal. */
void record_ended(struct adm_call *call, enum adm_status status);

/* ---- show.c ---------------------------------------------------------------------------------- */
void show_targets(struct adm_call *call);
/* Lines key=value into @out. */
void show_target_keys(struct adm_out *out, struct adm_target *t);
void show_system(struct adm_call *call);
/* A line for each address and account name. */
void show_failed_logins(struct adm_call *call);
#define WORK_SHOWN 64 /* of long work; then how many more there are */
void show_work(struct adm_call *call);
void show_llds(struct adm_call *call);
/* show_machine.c: who serves, and since when that is not the first one; a line for each loop's
 * thread; one for each NUMA node. */
void show_processes(struct adm_out *out);
void show_threads(struct adm_call *call);
/* How long the thread of a loop was ready to run, and had no processor. Main loop. */
uint64_t loop_starved_ns(const struct loop_stats *s);
void show_nodes(struct adm_call *call);
/* A line for each LUN with a medium: target, LUN, bytes of the store, bytes of a block. */
void show_stores(struct adm_call *call);
void show_accounts(struct adm_call *call);
void show_portals(struct adm_call *call);
void show_connections(struct adm_call *call, struct adm_target *t);
/* With a session id its keys, lines key=value, into @out; without one the sessions. */
enum adm_status show_sessions(struct adm_call *call, struct adm_out *out, struct adm_target *t);
/* Words that JSON has, too. */
const char *show_driver_state(unsigned driver);
const char *show_type_name(uint8_t type);
const char *show_flags_text(uint8_t flags);
/* Counters whose names begin with @prefix, "all": all. False: there is none. */
bool show_metrics(struct adm_call *call, const char *prefix);
/* What each of them counts, and in which unit. */
void show_counters(struct adm_call *call);
void stat_header(struct adm_call *call);
void stat_lu(struct adm_call *call, struct adm_lu *lu);
void stat_target(struct adm_call *call, struct adm_target *t);
enum adm_status stat_sessions(struct adm_call *call, struct adm_target *t);
enum adm_status stat_connections(struct adm_call *call, struct adm_target *t);

#endif
