/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Limits of initiators: tgtadm --mode target --op update --initiator-name ... --params ... */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "events/bug.h"
#include "tgtd/admin/admin_int.h"

#define VALUE_MAX 40

/* As they were said, so that a file that says the same differs in nothing; "": nothing was said. */
struct limit_texts {
	char value[SCSI_LIMIT_KEYS][VALUE_MAX];
};

static unsigned limit_key(const char *key, size_t len)
{
	unsigned k = 0;

	while (k < SCSI_LIMIT_KEYS && (strlen(scsi_limit_keys[k]) != len ||
				       memcmp(scsi_limit_keys[k], key, len) != 0))
		k++;
	return k;
}

/* Takes name=value[,...], where a name alone takes back. Also sets @conf to all that is said. */
static enum adm_status take_limits(struct adm_call *call, const char *params,
				   struct limit_texts *texts, struct scsi_limit_conf *conf)
{
	for (const char *next; *params; params = next) {
		size_t n = strcspn(params, ","), key_len = strcspn(params, "=,"), len;
		unsigned k = limit_key(params, key_len);
		const char *value = key_len < n ? params + key_len + 1 : "";

		next = params + n + (params[n] != 0);
		if (!n)
			continue;
		if (k == SCSI_LIMIT_KEYS)
			return admin_refuse(call, ADM_INVALID_REQUEST,
					    "no limit is called '%.*s'", (int)MIN(key_len, 60u),
					    params);
		len = key_len < n ? n - key_len - 1 : 0;
		if (len >= VALUE_MAX || (key_len < n && !len))
			return admin_refuse(call, ADM_INVALID_REQUEST, "%s cannot be '%.*s'",
					    scsi_limit_keys[k], (int)MIN(len, 60u), value);
		memcpy(texts->value[k], value, len);
		texts->value[k][len] = 0;
	}
	memset(conf, 0, sizeof(*conf));
	for (unsigned k = 0; k < SCSI_LIMIT_KEYS; k++)
		if (*texts->value[k] && scsi_limit_parse(conf, scsi_limit_keys[k], texts->value[k]))
			return refuse_value(call, scsi_limit_keys[k], texts->value[k]);
	return ADM_OK;
}

static enum adm_status name_check(struct adm_call *call, const char *iqn)
{
	size_t n = strlen(iqn);

	if (!n || n > 223 || strpbrk(iqn, " \t,\""))
		return admin_refuse(call, ADM_INVALID_REQUEST, "'%.60s' is no initiator name", iqn);
	return ADM_OK;
}

/* Capitals make no other name. */
static struct adm_set *limits_of(struct adm_target *t, const char *iqn)
{
	struct adm_set *set;

	list_for_each(set, &t->limits, link)
		if (!strcasecmp(set->key, iqn))
			return set;
	return NULL;
}

enum adm_status limit_check(struct adm_call *call)
{
	enum adm_status s = name_check(call, call->req.text[ADM_T_INITIATOR]);
	struct limit_texts texts = { 0 };
	struct scsi_limit_conf conf;

	return s == ADM_OK ? take_limits(call, call->req.text[ADM_T_PARAMS], &texts, &conf) : s;
}

enum adm_status limit_update(struct adm_call *call, struct adm_target *t)
{
	const char *iqn = call->req.text[ADM_T_INITIATOR];
	struct adm_set *set = limits_of(t, iqn);
	enum adm_status s = name_check(call, iqn);
	struct limit_texts texts = { 0 };
	struct scsi_limit_conf conf;
	char text[SCSI_LIMIT_KEYS * (VALUE_MAX + 32)];
	size_t n = 0;
	int err;

	ASSERT(!t->busy);
	if (s == ADM_OK && set)
		s = take_limits(call, set->value, &texts, &conf);
	if (s == ADM_OK)
		s = take_limits(call, call->req.text[ADM_T_PARAMS], &texts, &conf);
	if (s != ADM_OK)
		return s;
	*text = 0;
	for (unsigned k = 0; k < SCSI_LIMIT_KEYS; k++)
		if (*texts.value[k])
			n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%s=%s", n ? "," : "",
					      scsi_limit_keys[k], texts.value[k]);
	err = scsi_target_set_limit(t->scsi, iqn, &conf);
	if (err == -ENOSPC)
		return admin_refuse(call, ADM_INVALID_REQUEST,
				    "too many initiators of this target have limits");
	if (err)
		return ADM_NOMEM;
	if (!n)
		set_drop(set);
	else if (set_put(&t->limits, set ? set->key : iqn, text, NULL))
		return ADM_NOMEM;
	return ADM_OK;
}
