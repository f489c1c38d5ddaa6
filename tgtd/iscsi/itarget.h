/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What iSCSI keeps of a target: session keys, access rules, bound accounts, redirection. Internal
 * to tgtd/iscsi; iscsi.h is the public face. Main loop only.
 */
#ifndef TGTD_ISCSI_ITARGET_H
#define TGTD_ISCSI_ITARGET_H

#include <strings.h>

#include "events/list.h"
#include "tgtd/iscsi/iscsi.h"
#include "tgtd/iscsi/params.h"
#include "tgtd/iscsi/portal.h"

#define ITARGET_INCOMING_MAX 64
#define ITARGET_TIES_MAX 1024

/* Is it one initiator? Names have no case (RFC 7143 4.2.7.2, RFC 3722), so reservations do not tell
 * two spellings apart; then neither may those who guard a name. */
static inline bool iscsi_same_name(const char *a, const char *b)
{
	return !strcasecmp(a, b);
}

struct account {
	struct list link;
	char *user;
	char *password;	 /* secret.h */
	uint64_t serial; /* of the password: another one has another number; from 1 */
	char *file;	 /* where the administrator keeps it, to be shown; NULL: not said */
	struct list ties; /* account_tie.of_account, of all targets */
	unsigned nbound;  /* to targets and discovery, incoming and outgoing each */
};

/* An incoming account may be used under this initiator name. */
struct account_tie {
	struct list link, of_account;
	const struct account *account;
	const struct scsi_target *target;
	char name[];
};

/* A set of accounts: of a target, or of discovery, which has no ties. */
struct account_set {
	struct account *incoming[ITARGET_INCOMING_MAX];
	unsigned nincoming;
	struct account *outgoing;
	struct list ties; /* in the order in which they were made */
	unsigned nties;
};

/* What an address rule matches. */
struct acl_prefix {
	int family; /* AF_UNSPEC: everything ("ALL") */
	uint8_t addr[16];
	unsigned bits;
};

struct acl_rule {
	struct list link;
	struct acl_prefix prefix; /* of an address rule */
	char text[];
};

/* What initiators without a mask see. */
enum default_mask { MASK_AS_DAEMON, MASK_ALL, MASK_NONE };

struct lun_mask {
	struct list link;
	char iqn[ISCSI_NAME_MAX + 1];
	unsigned nranges;
	struct { uint32_t from, to; } range[];
};

struct itarget {
	struct list link; /* hash bucket */
	struct scsi_target *target;
	struct iscsi_offer offer;
	unsigned nop_interval, nop_count, data_out_timeout;
	unsigned max_queue_cmd; /* the command window of its sessions */
	char redirect_address[64], redirect_port[8];
	bool redirect_permanent;
	struct iscsi_bind bind; /* the portals that it is at */
	struct list acl[2]; /* acl_rule by enum iscsi_acl_kind */
	unsigned nrules;    /* in both */
	struct listing_entry *entry; /* what SendTargets says of it */
	struct list masks;  /* lun_mask */
	uint8_t default_mask; /* enum default_mask */
	struct account_set accounts;
	struct list known; /* of known.c */
};

/* From struct iscsi_conf, for targets made later; set by iscsi_start(). */
extern unsigned iscsi_default_nop_interval, iscsi_default_nop_count;
extern unsigned iscsi_default_data_out_timeout;

struct itarget *itarget_find(const struct scsi_target *t); /* NULL: not added */
/* At start: what targets are bound to is looked at again when portals come and go. */
void itarget_start(void);
/* Of a target that has none, with the defaults: its access rules, accounts and listing are made by
 * iscsi_target_add() (iscsi.c), which knows all of them. NULL: out of memory. */
struct itarget *itarget_new(struct scsi_target *t);
/* Out of the table; the caller has freed what itarget_new() has not made. */
void itarget_free(struct itarget *it);
/* The command window of a new session of @t, and of discovery when NULL: it must
 * not shrink while one logs in. */
uint32_t iscsi_target_window(const struct scsi_target *t);
/* How many access rules it has. */
unsigned itarget_rules(const struct scsi_target *t);
/* The accounts of @t, or of discovery when NULL. */
struct account_set *itarget_accounts(const struct scsi_target *t);
/* Initiators that the administrator has named, by a rule or a tie: each reason for itself. */
void known_add(struct itarget *it, const char *name);
void known_drop(struct itarget *it, const char *name);
/* Called by iscsi_target_add(), and by iscsi_target_remove() when rules and ties have gone. */
void known_init(struct itarget *it);
void known_fini(struct itarget *it);
/* Called by iscsi_target_add() and by iscsi_target_remove() respectively. */
void account_set_init(struct account_set *set);
void account_set_fini(struct account_set *set);
/* Called by iscsi_target_remove() and by iscsi_target_add() respectively. */
void acl_fini(struct itarget *it);
void acl_init(struct itarget *it);
/* default-mask: "all", "none", or "" as the daemon says. @t NULL: could it be? 0, -EINVAL, or
 * -ENOENT. */
int acl_set_default(struct scsi_target *t, const char *value);
/* iscsi_target_set() and iscsi_target_check() but for default-mask. */
int itarget_set(struct scsi_target *t, const char *key, const char *value);
int itarget_check(const char *key, const char *value);
/* At start: third-party copies ask who may log in where. */
void iscsi_access_start(void);

#endif
