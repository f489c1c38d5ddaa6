/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What verbs ask about the request they serve: its target, its LU, its driver; why it is refused;
 * whether it has to wait for an earlier one, and how it goes on after that.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <strings.h>

#include "conf/model.h"
#include "events/bug.h"
#include "events/log.h"
#include "tgtd/admin/admin_int.h"

/* ---- refusing -------------------------------------------------------------------------------- */

enum adm_status admin_refuse(struct adm_call *call, enum adm_status status, const char *fmt, ...)
{
	va_list ap;

	ASSERT(status != ADM_OK && status < ADM_STATUSES);
	if (!call)
		return status;
	ASSERT(!call->done);
	va_start(ap, fmt);
	vsnprintf(call->detail, sizeof(call->detail), fmt, ap);
	va_end(ap);
	return status;
}

static void add_warning(struct adm_call *call, bool logged, const char *fmt, va_list ap)
{
	size_t at = strlen(call->warnings);
	int n;

	ASSERT(!call->done);
	n = vsnprintf(call->warnings + at, sizeof(call->warnings) - at, fmt, ap);
	if (n < 0 || (size_t)n + 1 >= sizeof(call->warnings) - at) {
		call->warnings[at] = 0; /* whole lines, or none */
		return;
	}
	if (logged)
		log_warn("admin: %s", call->warnings + at);
	strcat(call->warnings, "\n");
}

void warn(struct adm_call *call, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	add_warning(call, !call->req.check, fmt, ap);
	va_end(ap);
}

void warn_unlogged(struct adm_call *call, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	add_warning(call, false, fmt, ap);
	va_end(ap);
}

enum adm_status refuse_value(struct adm_call *call, const char *key, const char *value)
{
	const char *says = conf_says(key);

	return admin_refuse(call, ADM_INVALID_REQUEST, "%s cannot be '%.120s'%s%s", key, value,
			    says ? ": it is " : "", says ? says : "");
}

enum adm_status refuse_errno(struct adm_call *call, int err, const char *what)
{
	ASSERT(err < 0);
	return admin_refuse(call, err == -ENOMEM ? ADM_NOMEM : ADM_INVALID_REQUEST, "%s: %s", what,
			    strerror(-err));
}

enum adm_status refuse_key(struct adm_call *call, const char *of, const char *key)
{
	char hint[160];

	conf_hint(key, *of == 't' ? CONF_IN_TARGET : CONF_IN_STORE, hint, sizeof(hint));
	return admin_refuse(call, ADM_INVALID_REQUEST, "no %s parameter is called '%.80s'%s", of,
			    key, hint);
}

enum adm_status refuse_portal(struct adm_call *call, int err, const char *text)
{
	switch (err) {
	case -EINVAL:
		return admin_refuse(call, ADM_INVALID_REQUEST,
				    "'%.80s' is no portal: it is %s", text, conf_says("portal"));
	case -EEXIST:
		return admin_refuse(call, ADM_INVALID_REQUEST, "there is a portal at %s", text);
	case -ENOENT:
		return admin_refuse(call, ADM_INVALID_REQUEST, "there is no portal at %s", text);
	default:
		return refuse_errno(call, err, text);
	}
}

/* "portal=<text>" possibly among others, separated by commas as far as a portal
 * does not end in ",<tpgt>". */
const char *portal_text(const struct adm_call *call)
{
	const char *p = call->req.text[ADM_T_PARAMS];

	p = p ? strstr(p, "portal=") : NULL;
	return p ? p + strlen("portal=") : NULL;
}

void warn_odd_name(struct adm_call *call)
{
	const char *name = call->req.text[ADM_T_INITIATOR];

	if (name && strncasecmp(name, "iqn.", 4) && strncasecmp(name, "eui.", 4) &&
	    strncasecmp(name, "naa.", 4))
		warn(call, "'%s' is no name of an initiator: those begin with iqn., eui. or naa.",
		     name);
}

void warn_shrunk(struct adm_call *call, const struct adm_lu *lu, uint64_t before)
{
	struct scsi_lu_info info;

	scsi_lu_get_info(lu->scsi, &info);
	if (info.size < before)
		warn(call,
		     "target %u LUN %u: the store has shrunk from %" PRIu64 " to %" PRIu64
		     " bytes; what initiators keep beyond that is gone",
		     lu->target->tid, lu->lun, before, info.size);
}

/* ---- what it is about ------------------------------------------------------------------------ */

struct adm_target *call_target(struct adm_call *call)
{
	return call->req.has_tid ? registry_target(call->req.tid) : NULL;
}

struct adm_lu *call_lu(struct adm_call *call, struct adm_target *t)
{
	return t && call->req.has_lun && call->req.lun <= SCSI_MAX_LUN ?
		       registry_lu(t, (uint32_t)call->req.lun) :
		       NULL;
}

unsigned call_driver(const struct adm_call *call)
{
	const char *name = call->req.text[ADM_T_LLD];
	unsigned d;

	for (d = 0; name && *name && d < ADM_DRIVERS; d++)
		if (!strcmp(driver_names[d], name))
			break;
	return d;
}

/* ---- when it runs, and when it ends ---------------------------------------------------------- */

bool call_waits(struct adm_call *call, struct adm_target *t)
{
	ASSERT_ON_LOOP(adm.conf.main);
	if (!t || !t->busy)
		return false;
	ASSERT(!call->done && !list_linked(&call->wait));
	list_add_tail(&t->waiters, &call->wait);
	return true;
}

void call_waiters_run(struct adm_target *t)
{
	struct list ready = LIST_INIT(ready);
	struct adm_call *call;

	ASSERT_ON_LOOP(adm.conf.main);
	ASSERT(!t->busy);
	/* the first of them may make it busy again, and then the others queue anew, in order */
	list_splice_tail(&ready, &t->waiters);
	while ((call = list_first_or_null(&ready, struct adm_call, wait))) {
		list_del(&call->wait);
		adm_call_run(call);
	}
	if (adm.draining)
		loop_defer(adm.conf.main, &adm.drain);
}

void call_finish(void *arg, enum adm_status status)
{
	adm_call_done(arg, status);
}
