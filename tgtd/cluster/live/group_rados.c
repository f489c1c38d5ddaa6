/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What gateway.h asks of RADOS (group_impl.h). */
#include <stdio.h>
#include <stdlib.h>
#include "events/log.h"
#include "tgtd/cluster/live/group_impl.h"

void group_object_name(const struct group *g, unsigned gateway, int lu, char oid[RADOS_OID_MAX])
{
	if (lu >= 0)
		snprintf(oid, RADOS_OID_MAX, "tgtd.%.40s.lu.%.100s", g->conf.name,
			 gw_lu_id(g->gw, (unsigned)lu));
	else
		snprintf(oid, RADOS_OID_MAX, "tgtd.%.40s.gateway.%.64s", g->conf.name,
			 g->conf.gateway[gateway].name);
}

void group_data_name(const struct group *g, struct rbd_name *n)
{
	*n = (struct rbd_name){ 0 };
	snprintf(n->conf, sizeof(n->conf), "%s", g->conf.conf);
	snprintf(n->user, sizeof(n->user), "%s", g->conf.user);
	snprintf(n->cluster, sizeof(n->cluster), "%s", g->conf.cluster);
	snprintf(n->group, sizeof(n->group), "%s", g->conf.name);
}

/* ---- objects --------------------------------------------------------------------------------- */

static struct group_ask *object_ask(struct group *g, uint64_t id, unsigned gateway, int lu,
				    size_t len, void (*done)(struct rclient_req *req))
{
	struct group_ask *a = group_ask_new(g, id, NULL);

	if (!a || !(a->bytes = malloc(len + 1))) {
		free(a);
		return NULL;
	}
	group_object_name(g, gateway, lu, a->req.oid);
	a->req.data = a->bytes;
	a->req.len = len;
	a->req.done = done;
	return a;
}

static struct group_ask *ask_of(struct rclient_req *req)
{
	return container_of(req, struct group_ask, req);
}

static void answer_read(struct group_ask *a)
{
	const bool ok = !a->result; /* otherwise librados may still write there */

	gw_read_done(a->group->gw, a->id, a->result, ok ? a->req.version : 0, ok ? a->bytes : NULL,
		     ok ? a->req.len : 0, group_now());
}

static void group_got(struct rclient_req *req)
{
	group_answer_now(ask_of(req), req->status);
}

static void group_read(void *arg, uint64_t id, unsigned gateway, int lu)
{
	struct group *g = arg;
	struct group_ask *a = object_ask(g, id, gateway, lu, GW_OBJECT_MAX, group_got);

	if (!a)
		return;
	a->answer = answer_read;
	group_waits(a);
	if (g->ready)
		rclient_get(&g->control, &a->req);
	else
		group_answer(a, -ETIMEDOUT);
}

static void answer_write(struct group_ask *a)
{
	gw_write_done(a->group->gw, a->id, a->result, a->result ? 0 : a->req.version, group_now());
}

static void group_has_put(struct rclient_req *req)
{
	group_answer_now(ask_of(req), req->status);
}

static void group_write(void *arg, uint64_t id, unsigned gateway, int lu, uint64_t version,
			const void *bytes, size_t len)
{
	struct group *g = arg;
	struct group_ask *a = object_ask(g, id, gateway, lu, len, group_has_put);

	if (!a)
		return;
	memcpy(a->bytes, bytes, len);
	a->req.version = version;
	a->answer = answer_write;
	group_waits(a);
	if (g->ready)
		rclient_put(&g->control, &a->req);
	else
		group_answer(a, -ETIMEDOUT);
}

/* ---- fences ---------------------------------------------------------------------------------- */

static void group_req_done(struct rclient_req *req)
{
	group_answer_now(ask_of(req), req->status);
}

/* There was no memory for it: it is tried again. */
static void group_not_fenced(struct loop_msg *msg)
{
	struct group *g = container_of(msg, struct group, unfenced_msg);

	const uint64_t id = g->unfenced;

	g->unfenced = 0;
	if (g->stopped)
		return;
	gw_done(g->gw, id, -ENOMEM, group_now());
	group_looks(g);
}

static void group_fence(void *arg, uint64_t id, const char *const *addr, unsigned n,
			uint64_t seconds)
{
	struct group *g = arg;
	struct group_ask *a = group_ask_new(g, id, NULL);
	char *text = a ? malloc(n * (GW_ADDR_MAX + 1)) : NULL;

	if (!text) {
		free(a);
		g->unfenced_msg.handle = group_not_fenced;
		if (!g->unfenced) /* one at a time: all that a claim names */
			loop_post(g->main, &g->unfenced_msg);
		g->unfenced = id;
		return;
	}
	for (unsigned i = 0; i < n; i++, text += GW_ADDR_MAX + 1) {
		snprintf(text, GW_ADDR_MAX + 1, "%s", addr[i]);
		a->req.address[i] = text;
	}
	a->bytes = (uint8_t *)(uintptr_t)a->req.address[0];
	a->req.addresses = n;
	a->req.expire_s = (unsigned)MIN(seconds, FENCE_S);
	a->req.done = group_req_done;
	rclient_fence(&g->control, &a->req);
}

static void group_lift(void *arg, uint64_t id, const char *addr)
{
	struct group *g = arg;
	struct group_ask *a = group_ask_new(g, id, NULL);

	if (!a)
		return;
	snprintf(a->text, sizeof(a->text), "%s", addr);
	a->req.address[0] = a->text;
	a->req.addresses = 1;
	a->req.lift = true;
	a->req.done = group_req_done;
	rclient_fence(&g->control, &a->req);
}

static bool group_gone(void *arg, const char *process)
{
	(void)arg;
	return process_is_gone(process);
}

static void group_wait_map(void *arg, uint64_t id)
{
	struct group *g = arg;
	struct group_ask *a = group_ask_new(g, id, NULL);

	if (!a)
		return;
	a->req.waits = g->data ? g->data->rados : NULL;
	a->req.done = group_req_done;
	rclient_newest_map(&g->control, &a->req);
}

/* ---- the data client ------------------------------------------------------------------------- */

/* The control client keeps the library. */
static void client_new_run(struct group_ask *a)
{
	struct group *g = a->group;
	struct rbd_name n;
	char why[200];

	group_data_name(g, &n);
	a->client = rbd_cluster_get(g->lib, &n, why, sizeof(why));
	a->result = a->client ? 0 : -errno;
	if (a->client)
		snprintf(a->text, sizeof(a->text), "%s", a->client->address);
	else
		log_error("cluster: no client for images: %s", why);
}

static void answer_client(struct group_ask *a)
{
	a->group->data = a->client;
	a->group->fenced_told = false;
	gw_client_done(a->group->gw, a->id, a->result, a->text, group_now());
}

static void group_client_new(void *arg, uint64_t id)
{
	struct group *g = arg;
	struct group_ask *a = group_ask_new(g, id, NULL);

	if (!a)
		return;
	a->run = client_new_run;
	a->answer = answer_client;
	group_run(a);
}

static void client_put_run(struct group_ask *a)
{
	rbd_cluster_put(a->group->lib, a->client);
	a->result = 0;
}

static void client_fenced(struct rclient_req *req)
{
	struct group_ask *a = ask_of(req);

	/* What is on its way to OSDs, or is sent again to them, is refused there. Otherwise it is
	 * asked for again. */
	if (req->status) {
		group_answer_now(a, req->status);
		return;
	}
	a->client = a->group->data;
	a->group->data = NULL;
	a->run = client_put_run;
	group_run(a);
}

/* Images are closed by lu_close(), which need not have been asked for all: what they have under way
 * fails, since nothing that this client has sent is taken any more. */
static void group_client_end(void *arg, uint64_t id)
{
	struct group *g = arg;
	struct group_ask *a = group_ask_new(g, id, NULL);

	if (!a)
		return;
	if (!g->data) {
		group_answer(a, 0);
		return;
	}
	atomic_store(&g->data->fenced, true);
	g->fenced_told = true;
	snprintf(a->text, sizeof(a->text), "%s", g->data->address);
	a->req.address[0] = a->text;
	a->req.addresses = 1;
	a->req.expire_s = FENCE_S; /* an entry is not renewed (fences.c) */
	a->req.done = client_fenced;
	rclient_fence(&g->control, &a->req);
}

void group_look_fenced(struct group *g)
{
	if (!g->data || g->fenced_told || !atomic_load(&g->data->fenced))
		return;
	g->fenced_told = true;
	gw_fenced(g->gw, group_now());
}

/* ---- messages -------------------------------------------------------------------------------- */

static void group_sent(struct rclient_req *req)
{
	struct group_ask *a = ask_of(req);

	free(a->bytes);
	free(a);
}

static void group_send(void *arg, unsigned gateway, const void *bytes, size_t len)
{
	struct group *g = arg;
	struct group_ask *a = g->ready ? object_ask(g, 0, gateway, -1, len + 1, group_sent) : NULL;

	if (!a)
		return;
	a->bytes[0] = (uint8_t)g->conf.self;
	memcpy(a->bytes + 1, bytes, len);
	rclient_notify(&g->control, &a->req);
}

void group_heard(struct rclient *r, const void *data, size_t len)
{
	struct group *g = container_of(r, struct group, control);
	const uint8_t *p = data;

	if (!g->ready || g->stopped || len < 1 || p[0] >= g->conf.n || p[0] == g->conf.self)
		return;
	gw_message(g->gw, p[0], p + 1, len - 1, group_now());
	group_looks(g);
}

void group_rados_ops(struct gw_ops *ops)
{
	ops->read = group_read;
	ops->write = group_write;
	ops->fence = group_fence;
	ops->lift = group_lift;
	ops->gone = group_gone;
	ops->wait_map = group_wait_map;
	ops->client_new = group_client_new;
	ops->client_end = group_client_end;
	ops->send = group_send;
}
