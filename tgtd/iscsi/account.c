/* SPDX-License-Identifier: GPL-2.0-or-later */
/* CHAP accounts and what they are bound to. Main loop only. */
#include <stdlib.h>
#include <openssl/crypto.h>

#include "events/bug.h"
#include "tgtd/iscsi/itarget.h"
#include "tgtd/iscsi/text.h"

static struct list accounts = LIST_INIT(accounts);
static struct account_set discovery;

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
	a->password = strdup(password);
	if (!a->user || !a->password) {
		free(a->user);
		free(a->password);
		free(a);
		return -ENOMEM;
	}
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
	copy = strdup(password);
	if (!copy)
		return -ENOMEM;
	OPENSSL_cleanse(a->password, strlen(a->password));
	free(a->password);
	a->password = copy;
	return 0;
}

bool iscsi_account_check(const char *user, const char *password)
{
	struct account *a = account_find(user);
	size_t len = strlen(password);

	return a && strlen(a->password) == len && !CRYPTO_memcmp(a->password, password, len);
}

static bool set_remove(struct account_set *s, struct account *a, bool outgoing)
{
	if (outgoing) {
		if (s->outgoing != a)
			return false;
		s->outgoing = NULL;
		return true;
	}
	for (unsigned i = 0; i < s->nincoming; i++)
		if (s->incoming[i] == a) {
			/* Keep the order that show prints. */
			memmove(&s->incoming[i], &s->incoming[i + 1],
				(s->nincoming - i - 1) * sizeof(a));
			s->nincoming--;
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
	list_del(&a->link);
	OPENSSL_cleanse(a->password, strlen(a->password));
	free(a->password);
	free(a->user);
	free(a);
	return 0;
}

void iscsi_account_each(void (*fn)(const char *user, void *arg), void *arg)
{
	struct account *a;

	list_for_each(a, &accounts, link)
		fn(a->user, arg);
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
		return 0;
	}
	for (unsigned i = 0; i < s->nincoming; i++)
		if (s->incoming[i] == a)
			return -EEXIST;
	if (s->nincoming == ITARGET_INCOMING_MAX)
		return -ENOSPC;
	s->incoming[s->nincoming++] = a;
	return 0;
}

int iscsi_account_unbind(struct scsi_target *t, const char *user, bool outgoing)
{
	struct account_set *s = itarget_accounts(t);
	struct account *a = account_find(user);

	return a && s && set_remove(s, a, outgoing) ? 0 : -ENOENT;
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
