/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See group_file.h. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "conf/model.h"
#include "conf/secret_file.h"
#include "events/secret.h"
#include "tgtd/cluster/live/mirror_link.h"
#include "tgtd/group_file.h"

static_assert(CONF_PASSWORD_MAX == MIRROR_SECRET_MAX, "what is read is not too long");
static_assert(CONF_CLUSTER_GATEWAYS == GW_GATEWAYS && CONF_CLUSTER_PORT == MIRROR_PORT,
	      "a <cluster> that is taken when it is read is taken here, too");

static bool is_gateway(const struct conf *c, const char *name, size_t n)
{
	const struct conf_kv *kv;

	list_for_each(kv, &c->cluster_lines, link)
		if (!strcmp(kv->key, "gateway") && !strncmp(kv->value, name, n) &&
		    kv->value[n] == ' ')
			return true;
	return false;
}

/* The name of this machine as a gateway has it: whole, or without the domain. 0: none has it. */
static size_t machine_name(const struct conf *c, char *host, size_t room)
{
	size_t n;

	if (gethostname(host, room))
		*host = 0;
	host[room - 1] = 0;
	n = strlen(host);
	if (is_gateway(c, host, n))
		return n;
	n = strcspn(host, ".");
	return is_gateway(c, host, n) ? n : 0;
}

static int text_of(const struct conf *c, const char *path, const char *self, char *text, size_t len,
		   char *why, size_t why_len)
{
	char host[HOST_NAME_MAX + 1];
	size_t n, name = strlen(self);

	if (!c->cluster) {
		snprintf(why, why_len, "%s has no <cluster>", path);
		return -EINVAL;
	}
	if (!name) {
		name = machine_name(c, host, sizeof(host));
		self = host;
	}
	if (!name) {
		snprintf(why, why_len, "%s: no gateway has the name of this machine, %.64s: self=?",
			 path, host);
		return -EINVAL;
	}
	n = conf_cluster_text(c, text, len);
	if (n < len)
		n += (size_t)snprintf(text + n, len - n, ",self=%.*s", (int)name, self);
	if (n < len)
		return 0;
	snprintf(why, why_len, "%s: its <cluster> is too long", path);
	return -EINVAL;
}

int group_of_file(const char *arg, char *text, size_t len, char *why, size_t why_len)
{
	const char *comma = strstr(arg, ",self="), *self = comma ? comma + 6 : "";
	char path[PATH_MAX];
	struct conf_error err;
	struct conf c;
	int rc;

	snprintf(path, sizeof(path), "%.*s", comma ? (int)(comma - arg) : PATH_MAX, arg);
	conf_init(&c);
	rc = conf_parse_file(&c, path, &err);
	if (rc)
		snprintf(why, why_len, "%s", err.text);
	else
		rc = text_of(&c, path, self, text, len, why, why_len);
	conf_free(&c);
	return rc;
}

int group_read_secret(struct group_conf *c, char *why, size_t why_len)
{
	char *secret, err[400];
	bool exposed;
	int rc;

	if (!*c->secret_file)
		return 0;
	rc = conf_read_password(c->secret_file, false, &secret, &exposed, err, sizeof(err));
	if (rc) {
		snprintf(why, why_len, "the secret of mirrors: %s", err);
		return rc;
	}
	*why = '\0';
	if (exposed)
		snprintf(why, why_len,
			 "the secret of mirrors: others than its owner may read %s (chmod 600)",
			 c->secret_file);
	else if (strlen(secret) < MIRROR_SECRET_MIN)
		snprintf(why, why_len, "the secret of mirrors: %s has less than %u characters",
			 c->secret_file, MIRROR_SECRET_MIN);
	if (*why) {
		secret_strfree(secret);
		return -EINVAL;
	}
	c->secret = secret;
	return 0;
}
