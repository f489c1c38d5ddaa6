/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A configuration as plain data: what targets.conf says, or what the daemon has. Nothing here acts.
 *
 *     build (parse.c, or the daemon's export) -> resolve -> verify (verify.c) -> diff (diff.c)
 *           -> apply
 *
 * Everything hangs on one struct conf and is freed with it. Single-threaded. Passwords are in it:
 * its memory is that of events/secret.h.
 */
#ifndef CONF_MODEL_H
#define CONF_MODEL_H

#include <stdio.h>
#include "events/list.h"

#define CONF_MAX_LUN 16383
#define CONF_NAME_MAX 223
#define CONF_CLUSTER_NAME 40 /* characters of a cluster's name, and of a gateway's */
#define CONF_CLUSTER_GATEWAYS 16
#define CONF_CLUSTER_PORT 7260 /* where a gateway listens for mirrors, unless it says so */
#define CONF_MAX_TARGETS 4096
#define CONF_MAX_LUS 65536 /* in one configuration */
#define CONF_MAX_RULES 16384 /* in a target */
#define CONF_MAX_USERS 16384 /* in a target, of discovery, of nobody */
#define CONF_MAX_LIMITS 1024 /* of initiators, in a target */
#define CONF_MAX_TIES 1024 /* of users to initiator names, in a target */

/* What stands in printed text for a password that is not known; as tgt-admin has always written. */
#define CONF_NO_PASSWORD "PLEASE_CORRECT_THE_PASSWORD"
#define CONF_STALE "stale"
/* `initiator-address NONE`: no rule at all, so that nobody may log in. */
#define CONF_NOBODY "NONE"
/* `portal NONE`: the daemon listens nowhere. `backing-store NONE`: a drive without a medium. */
#define CONF_NONE "NONE"

struct conf_pos {
	const char *file; /* NULL: not from a file */
	unsigned line;
};

/* `key value`: an option as written. */
struct conf_kv {
	struct list link;
	const char *key, *value;
	struct conf_pos pos;
};

struct conf_user {
	struct list link;
	const char *user, *password; /* password NULL: unknown (the daemon does not tell) */
	const char *file;  /* that the password is in; NULL: it stands in the configuration */
	bool outgoing;
	bool exposed;	   /* the file may be read by others than its owner */
	bool many_words;   /* the password, and no quotes around it */
	struct list names; /* conf_kv: the key is an initiator name that it is tied to */
	struct conf_pos pos;
};

struct conf_rule {
	struct list link;
	const char *text; /* address, network, ALL, or initiator name */
	bool is_name;
	const char *luns; /* name only: LUNs that it sees, NULL: all */
	struct conf_pos pos;
};

struct conf_lu {
	struct list link;
	const char *path;
	bool direct;	 /* direct-store */
	bool has_lun;
	uint32_t lun;
	/* Bytes of its store, whole blocks: what the daemon serves, or what the file or device has
	 * now. 0: not known. No line says it. */
	uint64_t size;
	uint32_t block; /* of the daemon's: how large its blocks are */
	struct list options; /* conf_kv: write-cache, vendor_id, bs-type ... */
	struct conf_pos pos;
	/* diff.c's, while it plans: */
	struct conf_store *store; /* what it stands on; NULL: memory */
	struct conf_part *frees;  /* of the daemon's: what takes it off its store; NULL: it stays */
	uint8_t how;		  /* of the file's: what becomes of it */
};

struct conf_target {
	struct list link;
	const char *name;
	const char *driver; /* NULL: default */
	struct conf_pos driver_pos;
	uint32_t tid;	    /* 0: not fixed */
	struct list lus;
	struct list options; /* LU options for all LUs that do not say otherwise */
	struct list keys;    /* conf_kv: session keys, state, nop_*, Redirect* */
	struct list users, rules;
	struct list limits; /* conf_kv: initiator name -> its limits (limit.h) */
	bool nobody; /* no rule on purpose */
	struct conf_pos pos;
	/* diff.c's, while it plans: */
	struct conf_part *frees;   /* of the daemon's: what takes it down; NULL: it stays */
	struct conf_part *changes; /* of the daemon's: what changes it; NULL: nothing does */
};

struct conf {
	struct list targets;
	struct list system; /* conf_kv: iSNS*, cache-*, state ... */
	/* conf_kv: keys are names of portals (conf/portal.h), values as they were written */
	struct list portals;
	/* <cluster NAME>; NULL: there is none. conf_kv: "gateway" -> "NAME TAG" or "NAME TAG
	 * ADDRESS:PORT"; pool, ceph-conf, ceph-id, ceph-cluster, mirror-secret-file,
	 * mirror-memory, mirror-transport */
	const char *cluster;
	struct list cluster_lines;
	struct conf_pos cluster_pos;
	bool no_portal;	    /* on purpose; without it an empty list says nothing about portals */
	struct list users;  /* discovery */
	struct list loose;  /* conf_user: accounts that are bound to nothing */
	/* What the daemon has, bound or not; diff.c. conf_kv: key is the user, value CONF_STALE
	 * when its password is not the one that is wanted. */
	struct list accounts;
	const char *default_driver;
	struct conf_pos default_driver_pos;
	bool ignore_errors;
	int control_port; /* -1: not said */
	struct list remarks; /* conf_kv: what a reader of the file should know, relax.c says it */
	unsigned nlus, ntargets;
	struct conf_chunk *memory;
};

/* Nothing in it; and all its memory back, which everything below points
 * into. One thread at a time. */
void conf_init(struct conf *c);
void conf_free(struct conf *c);
/* Memory that lives as long as @c, zeroed. Never NULL: a tool or a daemon out of memory for its
 * configuration ends (BUG). */
void *conf_alloc(struct conf *c, size_t size);
const char *conf_strdup(struct conf *c, const char *text);

/* Adding copies texts into @c and checks nothing: conf_verify() does.
 * Finding: NULL when there is none. */
struct conf_target *conf_add_target(struct conf *c, const char *name);
struct conf_target *conf_find_target(const struct conf *c, const char *name);
struct conf_target *conf_find_tid(const struct conf *c, uint32_t tid);
struct conf_lu *conf_add_lu(struct conf *c, struct conf_target *t, const char *path);
struct conf_lu *conf_find_lun(const struct conf_target *t, uint32_t lun);
struct conf_kv *conf_add_kv(struct conf *c, struct list *to, const char *key, const char *value);
struct conf_user *conf_add_user(struct conf *c, struct list *to, const char *user,
				const char *password, bool outgoing);
struct conf_rule *conf_add_rule(struct conf *c, struct conf_target *t, const char *text,
				bool is_name);
/* The value of the first option @key, NULL when there is none. */
const char *conf_get(const struct list *options, const char *key);
/* The same where keys are names of initiators: capitals make no other name. */
const char *conf_get_name(const struct list *options, const char *iqn);

/* What an option is. */
enum conf_kind {
	CONF_UNKNOWN,
	CONF_STORE,   /* of an LU, when it is made: bs-type bsopts bsoflags block-size
		       * device-type lun allow-in-use */
	CONF_PARAM,   /* of an LU, by `update --params` */
	CONF_CACHE,   /* write-cache */
	CONF_MULTI,   /* mode_page, params: may be given several times */
	CONF_KEY,     /* of a target, by `update --name` */
	CONF_SYSTEM,  /* of the daemon, outside of targets */
};
/* Never fails: CONF_UNKNOWN. */
enum conf_kind conf_kind(const char *key);
/* May it stand outside of targets, as a setting of the daemon (CONF_SYSTEM, or also a CONF_KEY)? */
bool conf_is_global(const char *key);

/* ---- words.c: the words of targets.conf, for people who mistype them ---- */
enum conf_place {
	CONF_IN_FILE = 1,
	CONF_IN_TARGET = 2,
	CONF_IN_STORE = 4,
	CONF_IS_BLOCK = 8,
	CONF_IN_CLUSTER = 16
};
/* What a value of @key may be, such as "0 to 15"; NULL: we have no words for it. */
const char *conf_says(const char *key);
/* What may have been meant by @word, which is not known at @place: ": did you mean 'lun'?", ": it
 * belongs in a <target>"; or "". */
void conf_hint(const char *word, enum conf_place place, char *out, size_t len);

/*
 * Gives every LU the options of its target that it lacks, and every target a driver. A target that
 * says nothing about initiators gets the rule ALL. Every LU gets a number, as in tgt: those without
 * `lun` get the lowest free ones from 1, backing-stores in the order of their paths, then
 * direct-stores. Idempotent.
 */
void conf_resolve(struct conf *c);
/* Has it been? conf_verify() and conf_diff() rely on it. */
bool conf_is_resolved(const struct conf *c);

/* targets.conf text that says the same. Options that hold their defaults are left out as far as
 * they are known. */
void conf_print(const struct conf *c, void (*put)(void *arg, const char *text), void *arg);

/* ---- parse.c --------------------------------------------------------------------------------- */
struct conf_error {
	char text[512];
};
/* Adds what @path (and files it includes) says. 0, or -errno with @err
 * filled ("file:line: ..."). */
int conf_parse_file(struct conf *c, const char *path, struct conf_error *err);
/* The same from memory; @name is what messages call it. `include` is followed unless @closed. */
int conf_parse_text(struct conf *c, const char *name, const char *text, size_t len, bool closed,
		    struct conf_error *err);

/* ---- cluster.c ------------------------------------------------------------------------------- */
#define CONF_CLUSTER_TEXT 4096
/* @c's cluster as `tgtd --group` takes it, without self=: the length, which is @len (never more
 * than CONF_CLUSTER_TEXT for paths of a sane length) or above when it is cut off. */
size_t conf_cluster_text(const struct conf *c, char *text, size_t len);
/* Do both say the same, whether or not they say what is so anyway? */
bool conf_cluster_same(const struct conf *a, const struct conf *b);

/* ---- relax.c --------------------------------------------------------------------------------- */
/* Removes from a resolved configuration what tgt's files may ask for and does not exist here:
 * logical units that are no disks or on stores of other types, a controller_tid that another target
 * has. Also reports where tgt understood something else. complain() is called for each, with its
 * line. To be called before conf_verify(). */
void conf_relax(struct conf *c, void (*complain)(void *arg, const char *text), void *arg);

/* ---- verify.c -------------------------------------------------------------------------------- */
/* Checks a resolved configuration for what the daemon would refuse. Calls complain() for
 * each fault; returns how many. */
unsigned conf_verify(const struct conf *c, void (*complain)(void *arg, const char *text),
		     void *arg);

#endif
