/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * This daemon as one of a group of gateways: gateway.h with RADOS (rados_client.h), the stores
 * (cache/backend/rbd_store.h) and the device server (tgtd/scsi/target.h) behind it. All on the main
 * loop.
 */
#ifndef TGTD_CLUSTER_LIVE_GROUP_H
#define TGTD_CLUSTER_LIVE_GROUP_H

#include <sys/socket.h>
#include "tgtd/cluster/live/mirror_link.h"
#include "tgtd/scsi/target.h"

#define GROUP_NAME_MAX 41 /* letters, digits, '.', '_', '-': part of an object's name */
#define GROUP_MEMORY_MIN MiB(16)
#define GROUP_MEMORY_MAX (256 * GiB(1))
#define GROUP_MEMORY MiB(256) /* unless memory= says otherwise */

struct group_gateway {
	char name[GROUP_NAME_MAX];
	uint16_t id; /* its target port group, and the tag of its portals */
	/* Where it listens for mirrors (mirror_link.h: MIRROR_PORT); AF_UNSPEC: nowhere. */
	struct sockaddr_storage address;
	char address_text[64]; /* "192.0.2.1:7260", "[2001:db8::1]:7260", "" */
};
struct group_conf {
	char name[GROUP_NAME_MAX];
	char conf[256], user[72], cluster[64], pool[128]; /* of Ceph; pool: of the objects */
	unsigned n, self;
	struct group_gateway gateway[SCSI_GATEWAYS_MAX];
	/* Mirrored write-back. There is a secret, and two gateways at least have an address; or
	 * neither. */
	bool mirrors;
	char secret_file[256]; /* from the root */
	/* What is in it: group_read_secret() of tgtd/group_file.h. NULL: not read yet. Memory of
	 * events/secret.h, the process's for good. */
	char *secret;
	uint64_t memory; /* bytes for blocks of others */
	enum mirror_transport transport;
};

/* What mirrors need of the daemon. */
struct group_cache {
	struct cache *cache; /* NULL: none */
	uint32_t block;	     /* bytes */
	/* Threads that links and mirrors use; they outlive the group. */
	struct loop *const *loop;
	unsigned loops;
	bool kept; /* the cache goes on with all that an earlier process had left */
};

/* name=G,gateways=a:1+b:2,self=a[,pool=P][,conf=F][,id=U][,cluster=C], with mirrors also
 * gateways=a:1@192.0.2.1+b:2@[2001:db8::1]:7000,secret-file=F[,memory=512m]
 * [,transport=tcp]; a word twice: the last one counts, but for gateways=. 0, or -EINVAL with the
 * reason. Pure. */
int group_parse(struct group_conf *c, const char *text, char *why, size_t len) must_check;

/*
 * Once. @reaped: no earlier process of this gateway lives. The cluster need not answer yet. 0 or
 * -errno. What goes with a worker is taken back by the next one, under a new incarnation: its
 * lease is not handed on, and its units are served again when it has claimed them (README.md).
 */
int group_start(const struct group_conf *c, struct loop *main, const struct group_cache *cache,
		bool reaped) must_check;
/* Another process is to go on: nothing of what it finds changes from now on. At once. */
void group_rest(void);
bool group_runs(void);
/* Does @name name this daemon's group? */
bool group_is(const char *name);

/* Mirrored write-back, of units whose write cache is on. NULL: it is there; else why no unit here
 * has it, part of a sentence. Main loop. */
const char *group_mirrors_not(void);

/* A unit is to be made whose store is the group's (rbd_store_of_group()). */
void group_lu_conf(struct scsi_lu_conf *conf);
/* It has been. 0 or -errno. */
int group_lu_add(struct scsi_lu *lu) must_check;
/* It goes. -EBUSY: this gateway owns it, or is at work with it. Not the group's, or the group has
 * ended: 0. */
int group_lu_remove(struct scsi_lu *lu) must_check;
/* After -EBUSY: it is handed over, then removed. Answer: @left, later: 0, or -errno: it stays. */
void group_lu_leave(struct scsi_lu *lu, void (*left)(void *arg, int err), void *arg);
/* An administrator wants it at the gateway called @to; "home": where it belongs. -ENOENT: there is
 * no such gateway. -EINVAL: it is not the group's. */
int group_lu_move(struct scsi_lu *lu, const char *to) must_check;
/* Both gateways that had what is dirty of it are lost for good: any may serve it, in doubt. -EBUSY:
 * one of them is there, or nothing is missed. -EINVAL: it is not the group's. */
int group_lu_give_up(struct scsi_lu *lu) must_check;
/* Hands all over, then calls @left, at once where there is no group, and after some seconds in any
 * case. */
void group_leave(void (*left)(void *arg), void *arg);
/* Ends it, then calls @ended: nothing is served any more, and no answer of RADOS comes to the main
 * loop but those of units' stores. At once where there is no group. */
void group_stop(void (*ended)(void *arg), void *arg);

/* ---- what is shown --------------------------------------------------------------------------- */
struct group_view {
	const struct group_conf *conf;
	uint64_t lease_left_ns;
};
bool group_get(struct group_view *v); /* false: there is no group */
struct group_gateway_view {
	const char *state; /* "up", "down", "over", "unknown" */
	uint64_t incarnation, sequence, seen_ns_ago;
	char address[96];
};
void group_get_gateway(unsigned i, struct group_gateway_view *v);
struct group_lu_view {
	const char *id, *state, *step, *why; /* state: here; why: unavailable, or NULL */
	const char *owner, *home;	     /* names; "-": nobody */
	uint64_t epoch;
};
/* False: @lu is not the group's. */
bool group_get_lu(const struct scsi_lu *lu, struct group_lu_view *v);

/* ---- group_show.c: mirrors ------------------------------------------------------------------- */
struct group_mirrors_view {
	uint64_t memory, used; /* bytes for blocks of others; of them */
	uint32_t block;	       /* bytes */
	struct mirror_peer_show peer;
	struct mirror_links_show links;
	const char *refused; /* why the last connection was; "": none was */
};
/* False: this gateway has none. */
bool group_get_mirrors(struct group_mirrors_view *v);
/* The links between this gateway and @gateway. The same; false also for this one. */
bool group_get_pair(unsigned gateway, struct mirror_pair_show *v);
struct group_mirror_view {
	/* The owner's: "through", "beginning", "mirrored", "losing", "in doubt". Of others, as the
	 * object was read last: "none", "mirrored", "kept here", "in doubt". */
	const char *state;
	const char *object;    /* what the object says: "none", "valid", "invalid", "doubt" */
	const char *peer;      /* a name; "-": none */
	uint64_t epoch;	       /* of the mirror */
	bool owned;	       /* by this gateway, which has the following */
	uint64_t there, waits; /* bytes that the peer holds; that it has not confirmed */
	struct mirror_show owner;
	uint64_t kept; /* bytes that are kept here for its owner */
	bool sealed;   /* ... and taken over */
};
/* False: @lu is not the group's, or this gateway has no mirrors. */
bool group_get_lu_mirror(const struct scsi_lu *lu, struct group_mirror_view *v);

#endif
