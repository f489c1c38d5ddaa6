/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The iSCSI layer as a whole: start, stop, transports, and what a target has in all of its parts.
 * Nothing in the layer calls it. Main loop. */
#include <stdlib.h>

#include "tgtd/iscsi/core.h"
#include "tgtd/iscsi/itarget.h"
#include "tgtd/iscsi/listing.h"

void iscsi_transport_register(struct iscsi_transport *tp)
{
	struct iscsi_transport_link *l;

	list_for_each(l, &iscsi_core.transports, link)
		if (l->tp == tp)
			return;
	l = malloc(sizeof(*l));
	BUG_ON(!l);
	l->tp = tp;
	tp->scsi_ops = &iscsi_scsi_ops;
	tp->flight_ops = &iscsi_flight_scsi_ops;
	list_add_tail(&iscsi_core.transports, &l->link);
}

int iscsi_start(const struct iscsi_conf *conf)
{
	struct iscsi_conf *c = &iscsi_core.conf;

	ASSERT(!iscsi_core.started);
	*c = *conf;
	if (!c->login_timeout_s)
		c->login_timeout_s = 15;
	if (!c->max_connections)
		c->max_connections = 4096;
	if (!c->max_half_open)
		c->max_half_open = 256;
	if (!c->max_discovery)
		c->max_discovery = ISCSI_DISCOVERY(c->max_connections);
	iscsi_core.main = conf->main;
	iscsi_core.started = true;
	iscsi_core.stopping = false;
	iscsi_core.returns = false;
	iscsi_default_nop_interval = c->nop_interval_s;
	iscsi_default_nop_count = c->nop_count;
	iscsi_default_data_out_timeout = c->data_out_timeout_s;
	iscsi_access_start();
	iscsi_tries_start();
	itarget_start();
	return 0;
}

void iscsi_stop(unsigned grace_ms, void (*done)(void *arg), void *arg)
{
	ASSERT_ON_MAIN();
	iscsi_portals_close();
	iscsi_registry_stop(grace_ms, NULL, done, arg);
}

void iscsi_will_return(void)
{
	ASSERT_ON_MAIN();
	iscsi_core.returns = true;
}

int iscsi_target_add(struct scsi_target *t)
{
	struct itarget *it;

	if (itarget_find(t))
		return -EEXIST;
	it = itarget_new(t);
	if (!it)
		return -ENOMEM;
	it->entry = listing_entry_new(t);
	if (!it->entry) {
		itarget_free(it);
		return -ENOMEM;
	}
	known_init(it);
	acl_init(it);
	account_set_init(&it->accounts);
	return 0;
}

void iscsi_target_remove(struct scsi_target *t)
{
	struct itarget *it = itarget_find(t);

	if (!it)
		return;
	acl_fini(it);
	account_set_fini(&it->accounts);
	known_fini(it);
	listing_entry_gone(it->entry);
	itarget_free(it);
	iscsi_registry_no_logins(t);
}

int iscsi_target_set(struct scsi_target *t, const char *key, const char *value)
{
	return strcmp(key, "default-mask") ? itarget_set(t, key, value) : acl_set_default(t, value);
}

int iscsi_target_check(const char *key, const char *value)
{
	return strcmp(key, "default-mask") ? itarget_check(key, value) :
					     acl_set_default(NULL, value);
}
