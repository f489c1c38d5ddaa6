/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The iSCSI side of a target: session keys, keepalive, redirection. Access rules are in access.c,
 * accounts in account.c. */
#include <stdio.h>
#include <stdlib.h>

#include "events/bug.h"
#include "tgtd/iscsi/core.h"
#include "tgtd/iscsi/itarget.h"
#include "tgtd/iscsi/session.h"

#define BUCKETS 1024

unsigned iscsi_default_nop_interval = 30, iscsi_default_nop_count = 5,
	 iscsi_default_data_out_timeout = ISCSI_OWED_TIMEOUT_S;

static struct list bucket[BUCKETS];

static struct list *itarget_bucket_of(const struct scsi_target *t)
{
	uintptr_t v = (uintptr_t)t;

	if (!bucket[0].next)
		for (size_t i = 0; i < BUCKETS; i++)
			list_init(&bucket[i]);
	return &bucket[(v >> 6 ^ v >> 16) % BUCKETS];
}

struct itarget *itarget_find(const struct scsi_target *t)
{
	struct itarget *it;

	list_for_each(it, itarget_bucket_of(t), link)
		if (it->target == t)
			return it;
	return NULL;
}

/* ---- portals --------------------------------------------------------------------------------- */

static unsigned nbound; /* targets that are not at all portals */

bool iscsi_target_any_bound(void)
{
	return nbound;
}

bool iscsi_target_is_at(const struct scsi_target *t, const struct sockaddr *local)
{
	const struct itarget *it = nbound ? itarget_find(t) : NULL;

	return !it || iscsi_bind_allows(&it->bind, local);
}

bool iscsi_target_is_anywhere(const struct scsi_target *t)
{
	const struct itarget *it = nbound ? itarget_find(t) : NULL;

	return !it || iscsi_bind_anywhere(&it->bind);
}

void iscsi_target_each_bound(const struct scsi_target *t,
			     void (*fn)(const struct sockaddr *addr, void *arg), void *arg)
{
	const struct itarget *it = itarget_find(t);

	for (unsigned i = 0; it && i < it->bind.n; i++)
		fn((const struct sockaddr *)&it->bind.at[i].addr, arg);
}

static void portals_changed(void)
{
	struct itarget *it;

	for (size_t i = 0; nbound && i < BUCKETS; i++)
		list_for_each(it, &bucket[i], link)
			if (it->bind.n)
				iscsi_bind_apply(it->target, &it->bind);
}

void itarget_start(void)
{
	iscsi_portals_watch(portals_changed);
}

static int set_portals(struct itarget *it, const char *value)
{
	struct iscsi_bind b;
	int err = iscsi_bind_parse(value, &b);

	if (err || !it->target)
		return err;
	nbound += (b.n > 0) - (it->bind.n > 0);
	it->bind = b;
	iscsi_bind_apply(it->target, &it->bind);
	return 0;
}

/* ---- the table ------------------------------------------------------------------------------- */

struct itarget *itarget_new(struct scsi_target *t)
{
	struct itarget *it = calloc(1, sizeof(*it));

	ASSERT(!itarget_find(t));
	if (!it)
		return NULL;
	it->target = t;
	iscsi_offer_init(&it->offer);
	it->nop_interval = iscsi_default_nop_interval;
	it->nop_count = iscsi_default_nop_count;
	it->data_out_timeout = iscsi_default_data_out_timeout;
	it->max_queue_cmd = ISCSI_CMD_WINDOW;
	list_add_tail(itarget_bucket_of(t), &it->link);
	return it;
}

void itarget_free(struct itarget *it)
{
	list_del(&it->link);
	nbound -= it->bind.n > 0;
	free(it);
}

/* Small decimal admin numbers. */
static int set_unsigned(const char *value, unsigned max, unsigned *out)
{
	char *end;
	unsigned long v;

	errno = 0;
	v = strtoul(value, &end, 10);
	if (errno || end == value || *end || value[0] == '-' || v > max)
		return -EINVAL;
	*out = (unsigned)v;
	return 0;
}

static int itarget_set_text(const char *value, char *out, size_t len)
{
	if (strlen(value) >= len)
		return -EINVAL;
	strcpy(out, value);
	return 0;
}

static int set_reason(struct itarget *it, const char *value)
{
	/* tgt's words (RFC 7143 11.13.5, status class 1). */
	if (!strcmp(value, "Temporary"))
		it->redirect_permanent = false;
	else if (!strcmp(value, "Permanent"))
		it->redirect_permanent = true;
	else
		return -EINVAL;
	return 0;
}

static int set_allowed(struct itarget *it, unsigned what, const char *value)
{
	bool yes = !strcmp(value, "Yes");

	if (!yes && strcmp(value, "No"))
		return -EINVAL;
	if (it->target)
		scsi_target_allow(it->target, what, yes);
	return 0;
}

static int set_alua(struct itarget *it, const char *key, const char *value)
{
	struct scsi_tpgs g;
	int err;

	scsi_tpgs_init(&g);
	if (it->target)
		scsi_target_tpgs(it->target, &g);
	err = scsi_tpgs_parse(&g, key, value);
	if (!err && it->target)
		scsi_target_set_tpgs(it->target, &g, !strcmp(key, "alua_state"));
	return err;
}

/* itarget_check() has no target: then nothing but the value is looked at. */
static int set_key(struct itarget *it, const char *key, const char *value)
{
	unsigned port, n;

	/* tgt's own key: how many commands of a session there may be at a time */
	if (!strcmp(key, "MaxQueueCmd")) {
		if (set_unsigned(value, ISCSI_CMD_WINDOW, &n) || !n)
			return -EINVAL;
		it->max_queue_cmd = n;
		return 0;
	}

	if (!strcmp(key, "nop_interval"))
		return set_unsigned(value, 3600, &it->nop_interval);
	if (!strcmp(key, "nop_count"))
		return set_unsigned(value, 1000, &it->nop_count);
	if (!strcmp(key, "data_out_timeout"))
		return set_unsigned(value, ISCSI_OWED_TIMEOUT_MAX_S, &it->data_out_timeout);
	if (!strcmp(key, "RedirectAddress"))
		return itarget_set_text(value, it->redirect_address, sizeof(it->redirect_address));
	if (!strcmp(key, "RedirectPort")) {
		if (set_unsigned(value, 65535, &port))
			return -EINVAL;
		return itarget_set_text(value, it->redirect_port, sizeof(it->redirect_port));
	}
	if (!strcmp(key, "RedirectReason"))
		return set_reason(it, value);
	if (!strcmp(key, "allow_target_reset"))
		return set_allowed(it, SCSI_ALLOW_RESET, value);
	if (!strcmp(key, "allow_explicit_alua"))
		return set_allowed(it, SCSI_ALLOW_ALUA, value);
	if (!strcmp(key, "portals"))
		return set_portals(it, value);
	if (!strncmp(key, "alua_", 5))
		return set_alua(it, key, value);
	return iscsi_offer_set(&it->offer, key, value);
}

int itarget_set(struct scsi_target *t, const char *key, const char *value)
{
	struct itarget *it = itarget_find(t);

	return it ? set_key(it, key, value) : -ENOENT;
}

int itarget_check(const char *key, const char *value)
{
	struct itarget scratch;

	memset(&scratch, 0, sizeof(scratch));
	iscsi_offer_init(&scratch.offer);
	return set_key(&scratch, key, value);
}

void iscsi_target_each_key(struct scsi_target *t,
			   void (*fn)(const char *key, const char *value, void *arg), void *arg)
{
	struct itarget *it = itarget_find(t);
	const char *key;
	char value[64];

	for (unsigned i = 0; it && iscsi_offer_get(&it->offer, i, &key, value, sizeof(value)); i++)
		fn(key, value, arg);
}

unsigned iscsi_target_nop_interval(const struct scsi_target *t)
{
	struct itarget *it = itarget_find(t);

	return it ? it->nop_interval : 0;
}

unsigned iscsi_target_nop_count(const struct scsi_target *t)
{
	struct itarget *it = itarget_find(t);

	return it ? it->nop_count : 0;
}

unsigned iscsi_target_data_out_timeout(const struct scsi_target *t)
{
	struct itarget *it = itarget_find(t);

	return it ? it->data_out_timeout : 0;
}

unsigned iscsi_target_max_queue_cmd(const struct scsi_target *t)
{
	return iscsi_target_window(t);
}

uint32_t iscsi_target_window(const struct scsi_target *t)
{
	const struct itarget *it = t ? itarget_find(t) : NULL;

	return it ? it->max_queue_cmd : ISCSI_CMD_WINDOW;
}

void iscsi_target_offer(struct scsi_target *t, struct iscsi_offer *out)
{
	struct itarget *it = t ? itarget_find(t) : NULL;

	if (it)
		*out = it->offer;
	else
		iscsi_offer_init(out);
}
