/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * iSCSI as the admin side and main() see it: portals, what a target's sessions negotiate, who may
 * log in, who is logged in. Main loop only. Reaching event threads is this layer's own business.
 */
#ifndef TGTD_ISCSI_ISCSI_H
#define TGTD_ISCSI_ISCSI_H

#include <sys/socket.h>
#include "tgtd/scsi/target.h"

#define ISCSI_NAME_MAX 223 /* RFC 7143 4.2.7.2 */
#define ISCSI_LISTEN_PORT 3260

/* ---- start and stop -------------------------------------------------------------------------- */
#define ISCSI_DISCOVERY(max_connections) MIN(MAX((max_connections) / 16, 4u), 256u)
/* Which TCP connections go on in the next process when this one dies. */
enum iscsi_keep {
	ISCSI_KEEP_QUIET, /* of sessions that have nothing under way (quiet.h) */
	ISCSI_KEEP_ALL,	  /* and others (flight.h) */
	ISCSI_KEEP_NONE,
};
struct iscsi_conf {
	struct loop *main;
	const struct topology *topo;
	unsigned login_timeout_s;	/* default 15 */
	unsigned max_connections;	/* refused beyond, with login status
					 * 0302 (out of resources) */
	unsigned max_half_open;		/* connections in login at once */
	unsigned max_discovery;		/* discovery sessions, beside max_connections;
					 * default ISCSI_DISCOVERY() of that */
	unsigned nop_interval_s, nop_count; /* defaults of new targets; 0 = off */
	unsigned data_out_timeout_s; /* the same: write data that is owed */
	enum iscsi_keep keep;
};
/* On the main loop, before anything else here; again only after iscsi_stop(). @conf is copied,
 * its loop and topology must stay. 0 or -errno. */
int iscsi_start(const struct iscsi_conf *conf) must_check;
/* Stops accepting, asks initiators to log out, drops what is left after
 * @grace_ms; done() on main. */
void iscsi_stop(unsigned grace_ms, void (*done)(void *arg), void *arg);
/* Before iscsi_stop(): another process goes on at once, so initiators may log in again without
 * having waited for what they have agreed on. */
void iscsi_will_return(void);

/* ---- portals --------------------------------------------------------------------------------- */
/* "ip[:port][,tpgt]", "[v6]:port", "" or ":port" = all addresses: two portals, of IPv6 and of IPv4,
 * where there are both. 0, -EINVAL, -EEXIST, or the errno of bind/listen. */
int iscsi_portal_add(const char *text) must_check;
int iscsi_portal_delete(const char *text) must_check; /* -ENOENT */
/* Could there be such a portal? 0, -EINVAL, or the errno of binding an address that is not ours. */
int iscsi_portal_check(const char *text) must_check;
/* "ip:port,tpgt" as tgtadm shows it. */
void iscsi_portal_each(void (*fn)(const char *text, void *arg), void *arg);
/* The same, with the node of the adapter that has the address, -1 unknown. */
void iscsi_portal_each_node(void (*fn)(const char *text, int node, void *arg), void *arg);

/* ---- targets --------------------------------------------------------------------------------- */
/* Follows scsi_target_create(). 0 or -errno. */
int iscsi_target_add(struct scsi_target *t) must_check;
/* Between scsi_target_close() and scsi_target_delete(). Ends logins to it; sessions see nothing of
 * it any more. */
void iscsi_target_remove(struct scsi_target *t);
/* A session key (MaxRecvDataSegmentLength, HeaderDigest ...) for future logins, or nop_interval,
 * nop_count, data_out_timeout, RedirectAddress, RedirectPort, RedirectReason; or, at once,
 * allow_target_reset, allow_explicit_alua, alua_* (scsi_tpgs_parse()), default-mask, portals. 0,
 * -EINVAL, or -ENOENT: no such key. */
int iscsi_target_set(struct scsi_target *t, const char *key, const char *value) must_check;
/* Would any target take it? The same result. */
int iscsi_target_check(const char *key, const char *value) must_check;
/* The session keys in tgt's order, as `show -t N` prints them. */
void iscsi_target_each_key(struct scsi_target *t,
			   void (*fn)(const char *key, const char *value, void *arg), void *arg);
/* Can @t be reached at our address @local? */
bool iscsi_target_is_at(const struct scsi_target *t, const struct sockaddr *local);
/* Is there a portal where it can be? */
bool iscsi_target_is_anywhere(const struct scsi_target *t);
/* Some target is not at all portals. */
bool iscsi_target_any_bound(void);
/* The addresses that @t is bound to, whether or not there are such portals; none: all. */
void iscsi_target_each_bound(const struct scsi_target *t,
			     void (*fn)(const struct sockaddr *addr, void *arg), void *arg);
unsigned iscsi_target_nop_interval(const struct scsi_target *t);
unsigned iscsi_target_nop_count(const struct scsi_target *t);
unsigned iscsi_target_data_out_timeout(const struct scsi_target *t);
unsigned iscsi_target_max_queue_cmd(const struct scsi_target *t);

/* ---- access ---------------------------------------------------------------------------------- */
/*
 * Fails closed: with rules of one kind only, that kind must match; with rules of both kinds, both
 * must. No rule at all: nobody. "ALL" as an address matches every address and nothing else.
 */
enum iscsi_acl_kind { ISCSI_ACL_ADDRESS, ISCSI_ACL_NAME };
/* -EEXIST -EINVAL */
int iscsi_acl_add(struct scsi_target *t, enum iscsi_acl_kind kind, const char *rule) must_check;
/* -ENOENT */
int iscsi_acl_delete(struct scsi_target *t, enum iscsi_acl_kind kind, const char *rule) must_check;
void iscsi_acl_each(struct scsi_target *t, enum iscsi_acl_kind kind,
		    void (*fn)(const char *rule, void *arg), void *arg);
bool iscsi_acl_allows(struct scsi_target *t, const char *iqn, const struct sockaddr *peer);
/* A further rule over all others: nobody logs in whom it does not let in. Main
 * loop; NULL: none any more. */
void iscsi_acl_also(bool (*allows)(struct scsi_target *t, const char *iqn));
/* Limits an initiator (by IQN) to some LUNs: text "1,3-5", NULL = all again; at once, see
 * scsi_target_set_mask(). 0, -EINVAL, -ENOENT (iscsi_target_add() was not called), -ENOMEM. */
int iscsi_acl_set_luns(struct scsi_target *t, const char *iqn, const char *luns) must_check;

/*
 * What an initiator sees for which no LUNs are given: all of them, or (false) none until it is
 * bound by its name. Of the daemon; a target may say otherwise by its key default-mask ("all",
 * "none", "" as the daemon). At once, for sessions, too.
 */
void iscsi_set_default_mask(bool all);
bool iscsi_default_mask(void);

/* ---- accounts (CHAP) ------------------------------------------------------------------------- */
bool iscsi_account_valid(const char *user, const char *password); /* could it be made? */
/* -EEXIST -EINVAL -ENOMEM */
int iscsi_account_new(const char *user, const char *password) must_check;
int iscsi_account_delete(const char *user) must_check; /* -ENOENT; unbinds everywhere */
/* For logins from now on. 0, -ENOENT, -EINVAL, -ENOMEM. */
int iscsi_account_set_password(const char *user, const char *password) must_check;
/* RFC 7143 12.1.3: secrets of fewer than 96 bits are for nobody; whether they are refused is the
 * caller's to say. */
#define ISCSI_SECRET_MIN 12
bool iscsi_secret_weak(const char *password);
void iscsi_account_each_weak(void (*fn)(const char *user, void *arg), void *arg);
/* Where the administrator keeps the password, for what is shown and exported; NULL: not said. 0,
 * -ENOENT, -ENOMEM. */
int iscsi_account_set_file(const char *user, const char *file) must_check;
const char *iscsi_account_file(const char *user); /* NULL */
/* Does this user have this password? */
bool iscsi_account_check(const char *user, const char *password);
/* @tie: NULL, or called after its account for each name that it is tied to, at whatever target. */
void iscsi_account_each(void (*fn)(const char *user, void *arg),
			void (*tie)(uint32_t tid, const char *iqn, void *arg), void *arg);
/* Those that are bound to no target and not to discovery. */
void iscsi_account_each_loose(void (*fn)(const char *user, void *arg), void *arg);
/* @t NULL: discovery. A target has one outgoing account (-EBUSY: "already has an outgoing account")
 * and up to 64 incoming ones (-ENOSPC "too many accounts"). -EEXIST already bound; -ENOENT no such
 * user. */
int iscsi_account_bind(struct scsi_target *t, const char *user, bool outgoing) must_check;
int iscsi_account_unbind(struct scsi_target *t, const char *user, bool outgoing) must_check;
void iscsi_account_each_bound(struct scsi_target *t,
			      void (*fn)(const char *user, bool outgoing, void *arg), void *arg);
/*
 * Ties. An incoming account of a target that is tied to initiator names logs in to that target
 * under these names only. Nobody else logs in under them, except other accounts tied to the same
 * name. Untied accounts log in under the names that are left. Names are compared as they are, as
 * those of access rules. Logins from now on; sessions stay. What is unbound or deleted loses its
 * ties.
 */
bool iscsi_account_name_valid(const char *iqn);
/* Ties, and binds first what is not bound (an incoming account), in one step. 1024 a target
 * (-ENOSPC); -EALREADY; -ENOENT no such user; -EINVAL (also of discovery, which has no ties);
 * -ENOMEM. */
int iscsi_account_tie(struct scsi_target *t, const char *user, const char *iqn) must_check;
/* Takes one name away; the account stays bound, after the last one untied. -ENOENT it is not bound,
 * -ENXIO it is not tied to that name. */
int iscsi_account_untie(struct scsi_target *t, const char *user, const char *iqn) must_check;
bool iscsi_account_tied(const struct scsi_target *t, const char *user, const char *iqn);
/* May who has proven to be @user ("": nobody) log in as @iqn? */
bool iscsi_account_may_use(const struct scsi_target *t, const char *user, const char *iqn);
void iscsi_account_each_tie(struct scsi_target *t, const char *user,
			    void (*fn)(const char *iqn, void *arg), void *arg);

/* Wrong CHAP answers, by who gave them: an address and an account name. */
struct iscsi_failed_logins {
	char address[64];  /* of IPv6: its network */
	const char *user;  /* that was tried last */
	uint64_t failures; /* so far */
	uint64_t seconds;  /* since the last one */
	unsigned waiting;  /* answers that wait to be verified */
};
/* Those of a bounded table that was given up for newer ones are not told. */
void iscsi_failed_logins_each(void (*fn)(const struct iscsi_failed_logins *f, void *arg),
			      void *arg);

/* ---- sessions and connections ---------------------------------------------------------------- */
/*
 * `stat`: full feature phase of one connection so far, each figure when its PDU was received or
 * given to the transport. Octets are those of data segments (RFC 7143 11.2.1), of all kinds of
 * PDUs; what is sent a second time (SNACK) does not count again. A RDMA Read of iSER is a Data-Out
 * and a RDMA Write a Data-In, as they stand for them.
 */
struct iscsi_conn_stats {
	uint64_t rxdata_octets, txdata_octets, dataout_pdus, datain_pdus, cmd_pdus, rsp_pdus;
};

struct iscsi_conn_info {
	uint32_t tid, tsih;
	uint16_t cid;
	char initiator[ISCSI_NAME_MAX + 1], alias[256], address[64]; /* address without port */
	bool iser;
	const char *thread; /* its event thread's name */
	char channel[64];   /* iSER: its completion channel and device; else empty */
	struct iscsi_conn_stats stats;
};
/* A consistent copy, ordered by tsih, cid; fn may not call back into
 * iscsi. @t NULL: all targets. */
void iscsi_conn_each(struct scsi_target *t,
		     void (*fn)(const struct iscsi_conn_info *info, void *arg), void *arg);
/* The same of at most @max sessions whose TSIH is above @after (0: from the first). The TSIH of the
 * last one, for the next call; 0: there was none. So that whoever shows many can do it in steps,
 * between which sessions come and go. */
uint32_t iscsi_conn_some(struct scsi_target *t, uint32_t after, unsigned max,
			 void (*fn)(const struct iscsi_conn_info *info, void *arg), void *arg);
/* Session keys in force, or -ENOENT. */
int iscsi_session_each_key(uint32_t tid, uint32_t tsih,
			   void (*fn)(const char *key, const char *value, void *arg), void *arg);
/* Closes it (the initiator will reconnect). 0 or -ENOENT. */
int iscsi_conn_close(uint32_t tid, uint32_t tsih, uint16_t cid) must_check;
/* Per session statistics for `stat`: the nexus of a tsih; NULL when gone. Valid until
 * control returns to the main loop. */
struct scsi_nexus *iscsi_session_nexus(uint32_t tid, uint32_t tsih);

#endif
