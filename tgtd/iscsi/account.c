/* SPDX-License-Identifier: GPL-2.0-or-later */
/* CHAP accounts and what they are bound to. Main loop only. */
#include <stdlib.h>
#include <openssl/crypto.h>

#include "events/bug.h"
#include "events/secret.h"
#include "tgtd/iscsi/itarget.h"
#include "tgtd/iscsi/text.h"

static struct list accounts = LIST_INIT(accounts);
static uint64_t serials;
static struct account_set discovery = { .ties = LIST_INIT(discovery.ties) };

static struct account *account_find(const char *user)
{
	struct account *a;

	list_for_each(a, &accounts, link)
		if (!strcmp(a->user, user))
			return a;
	return NULL;
}

struct account_set *itarget_accounts(const struct scsi_target *t)
{
	struct itarget *it;

	if (!t)
		return &discovery;
	it = itarget_find(t);
	return it ? &it->accounts : NULL;
}

bool iscsi_account_valid(const char *user, const char *password)
{
	return *user && *password && strlen(user) <= TEXT_VALUE_MAX &&
	       strlen(password) <= TEXT_VALUE_MAX;
}

int iscsi_account_new(const char *user, const char *password)
{
	struct account *a;

	if (!iscsi_account_valid(user, password))
		return -EINVAL;
	if (account_find(user))
		return -EEXIST;
	a = calloc(1, sizeof(*a));
	if (!a)
		return -ENOMEM;
	a->user = strdup(user);
	a->password = secret_strdup(password);
	if (!a->user || !a->password) {
		free(a->user);
		secret_strfree(a->password);
		free(a);
		return -ENOMEM;
	}
	a->serial = ++serials;
	list_init(&a->ties);
	list_add_head(&accounts, &a->link); /* newest first, as tgt lists them */
	return 0;
}

int iscsi_account_set_password(const char *user, const char *password)
{
	struct account *a = account_find(user);
	char *copy;

	if (!a)
		return -ENOENT;
	if (!*password || strlen(password) > TEXT_VALUE_MAX)
		return -EINVAL;
	copy = secret_strdup(password);
	if (!copy)
		return -ENOMEM;
	secret_strfree(a->password);
	a->password = copy;
	a->serial = ++serials;
	return 0;
}

bool iscsi_secret_weak(const char *password)
{
	return strlen(password) < ISCSI_SECRET_MIN;
}

void iscsi_account_each_weak(void (*fn)(const char *user, void *arg), void *arg)
{
	struct account *a;

	list_for_each(a, &accounts, link)
		if (iscsi_secret_weak(a->password))
			fn(a->user, arg);
}

int iscsi_account_set_file(const char *user, const char *file)
{
	struct account *a = account_find(user);
	char *copy = file ? strdup(file) : NULL;

	if (!a || (file && !copy)) {
		free(copy);
		return a ? -ENOMEM : -ENOENT;
	}
	free(a->file);
	a->file = copy;
	return 0;
}

const char *iscsi_account_file(const char *user)
{
	const struct account *a = account_find(user);

	return a ? a->file : NULL;
}

bool iscsi_account_check(const char *user, const char *password)
{
	struct account *a = account_find(user);
	size_t len = strlen(password);

	return a && strlen(a->password) == len && !CRYPTO_memcmp(a->password, password, len);
}

/* ---- ties ------------------------------------------------------------------------------------ */

void account_set_init(struct account_set *set)
{
	list_init(&set->ties);
}

static void tie_free(struct account_set *s, struct account_tie *tie)
{
	struct itarget *it = itarget_find(tie->target);

	if (it)
		known_drop(it, tie->name);
	list_del(&tie->link);
	list_del(&tie->of_account);
	s->nties--;
	free(tie);
}

/* @a NULL: of all accounts. */
static void ties_drop(struct account_set *s, const struct account *a)
{
	struct account_tie *tie, *tmp;

	list_for_each_safe(tie, tmp, &s->ties, link)
		if (!a || tie->account == a)
			tie_free(s, tie);
}

void account_set_fini(struct account_set *set)
{
	ties_drop(set, NULL);
	for (unsigned i = 0; i < set->nincoming; i++)
		set->incoming[i]->nbound--;
	if (set->outgoing)
		set->outgoing->nbound--;
	set->nincoming = 0;
	set->outgoing = NULL;
}

static struct account_tie *tie_find(const struct account_set *s, const char *user, const char *iqn)
{
	struct account_tie *tie;

	list_for_each(tie, &s->ties, link)
		if (!strcmp(tie->account->user, user) && iscsi_same_name(tie->name, iqn))
			return tie;
	return NULL;
}

bool iscsi_account_tied(const struct scsi_target *t, const char *user, const char *iqn)
{
	const struct account_set *s = itarget_accounts(t);

	return s && tie_find(s, user, iqn);
}

bool iscsi_account_may_use(const struct scsi_target *t, const char *user, const char *iqn)
{
	const struct account_set *s = itarget_accounts(t);
	struct account_tie *tie;
	bool tied = false;

	if (!s)
		return false;
	list_for_each(tie, &s->ties, link) {
		bool same_user = !strcmp(tie->account->user, user);
		bool same_name = iscsi_same_name(tie->name, iqn);

		if (same_user && same_name)
			return true;
		tied |= same_user || same_name;
	}
	return !tied;
}

/* ---- bindings -------------------------------------------------------------------------------- */

static bool is_bound(const struct account_set *s, const struct account *a)
{
	for (unsigned i = 0; i < s->nincoming; i++)
		if (s->incoming[i] == a)
			return true;
	return false;
}

static bool set_remove(struct account_set *s, struct account *a, bool outgoing)
{
	if (outgoing) {
		if (s->outgoing != a)
			return false;
		s->outgoing = NULL;
		a->nbound--;
		return true;
	}
	for (unsigned i = 0; i < s->nincoming; i++)
		if (s->incoming[i] == a) {
			/* Keep the order that show prints. */
			memmove(&s->incoming[i], &s->incoming[i + 1],
				(s->nincoming - i - 1) * sizeof(a));
			s->nincoming--;
			a->nbound--;
			ties_drop(s, a);
			return true;
		}
	return false;
}

int iscsi_account_delete(const char *user)
{
	struct account *a = account_find(user);

	if (!a)
		return -ENOENT;
	set_remove(&discovery, a, false);
	set_remove(&discovery, a, true);
	for (struct scsi_target *t = scsi_target_next(NULL); t; t = scsi_target_next(t)) {
		struct account_set *s = itarget_accounts(t);

		if (s) {
			set_remove(s, a, false);
			set_remove(s, a, true);
		}
	}
	ASSERT(!a->nbound);
	list_del(&a->link);
	secret_strfree(a->password);
	free(a->file);
	free(a->user);
	free(a);
	return 0;
}

void iscsi_account_each(void (*fn)(const char *user, void *arg),
			void (*tie)(uint32_t tid, const char *iqn, void *arg), void *arg)
{
	const struct account_tie *each;
	struct account *a;

	list_for_each(a, &accounts, link) {
		fn(a->user, arg);
		list_for_each(each, &a->ties, of_account)
			if (tie)
				tie(scsi_target_tid(each->target), each->name, arg);
	}
}

void iscsi_account_each_loose(void (*fn)(const char *user, void *arg), void *arg)
{
	struct account *a;

	list_for_each(a, &accounts, link)
		if (!a->nbound)
			fn(a->user, arg);
}

static void bind_incoming(struct account_set *s, struct account *a)
{
	ASSERT(s->nincoming < ITARGET_INCOMING_MAX);
	s->incoming[s->nincoming++] = a;
	a->nbound++;
}

int iscsi_account_bind(struct scsi_target *t, const char *user, bool outgoing)
{
	struct account_set *s = itarget_accounts(t);
	struct account *a = account_find(user);

	if (!a || !s)
		return -ENOENT;
	if (outgoing) {
		if (s->outgoing)
			return -EBUSY;
		s->outgoing = a;
		a->nbound++;
		return 0;
	}
	if (is_bound(s, a))
		return -EEXIST;
	if (s->nincoming == ITARGET_INCOMING_MAX)
		return -ENOSPC;
	bind_incoming(s, a);
	return 0;
}

int iscsi_account_unbind(struct scsi_target *t, const char *user, bool outgoing)
{
	struct account_set *s = itarget_accounts(t);
	struct account *a = account_find(user);

	return a && s && set_remove(s, a, outgoing) ? 0 : -ENOENT;
}

bool iscsi_account_name_valid(const char *iqn)
{
	size_t len = strlen(iqn);

	/* What could not be a name at login, or stand in a list of names. */
	for (const char *p = iqn; *p; p++)
		if ((unsigned char)*p <= ' ' || *p == 0x7f || *p == ',' || *p == '"')
			return false;
	return len && len <= ISCSI_NAME_MAX;
}

int iscsi_account_tie(struct scsi_target *t, const char *user, const char *iqn)
{
	struct account_set *s = itarget_accounts(t);
	struct account *a = account_find(user);
	struct account_tie *tie;
	size_t len = strlen(iqn);

	if (!t || !iscsi_account_name_valid(iqn))
		return -EINVAL;
	if (!a || !s)
		return -ENOENT;
	if (tie_find(s, user, iqn))
		return -EALREADY;
	if (s->nties == ITARGET_TIES_MAX)
		return -ENOSPC;
	if (!is_bound(s, a) && s->nincoming == ITARGET_INCOMING_MAX)
		return -ENOSPC;
	tie = malloc(sizeof(*tie) + len + 1);
	if (!tie)
		return -ENOMEM;
	tie->account = a;
	memcpy(tie->name, iqn, len + 1);
	tie->target = t;
	list_add_tail(&s->ties, &tie->link);
	list_add_tail(&a->ties, &tie->of_account);
	s->nties++;
	known_add(itarget_find(t), iqn);
	if (!is_bound(s, a))
		bind_incoming(s, a);
	return 0;
}

int iscsi_account_untie(struct scsi_target *t, const char *user, const char *iqn)
{
	struct account_set *s = itarget_accounts(t);
	struct account *a = account_find(user);
	struct account_tie *tie;

	if (!a || !s || !is_bound(s, a))
		return -ENOENT;
	tie = tie_find(s, user, iqn);
	if (!tie)
		return -ENXIO;
	tie_free(s, tie);
	return 0;
}

void iscsi_account_each_tie(struct scsi_target *t, const char *user,
			    void (*fn)(const char *iqn, void *arg), void *arg)
{
	struct account_set *s = itarget_accounts(t);
	struct account_tie *tie;

	if (!s)
		return;
	list_for_each(tie, &s->ties, link)
		if (!strcmp(tie->account->user, user))
			fn(tie->name, arg);
}

void iscsi_account_each_bound(struct scsi_target *t,
			      void (*fn)(const char *user, bool outgoing, void *arg), void *arg)
{
	struct account_set *s = itarget_accounts(t);

	if (!s)
		return;
	for (unsigned i = 0; i < s->nincoming; i++)
		fn(s->incoming[i]->user, false, arg);
	if (s->outgoing)
		fn(s->outgoing->user, true, arg);
}
