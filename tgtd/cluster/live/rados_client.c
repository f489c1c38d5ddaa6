/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See rados_client.h. */
#include <stdio.h>
#include <stdlib.h>
#include "events/log.h"
#include "tgtd/cluster/live/rados_client.h"
#include "tgtd/cluster/live/rados_watch.h"

/* ---- requests that librados does by itself --------------------------------------------------- */

static void rclient_req_over(struct loop_msg *msg)
{
	struct rclient_req *req = container_of(msg, struct rclient_req, msg);
	struct rclient *r = req->rados;

	req->done(req);
	r->let_go(r);
}

static void rclient_req_begin(struct rclient *r, struct rclient_req *req)
{
	ASSERT_ON_LOOP(r->home);
	ASSERT(r->open && !r->closing && req->done && strlen(req->oid) < sizeof(req->oid));
	req->rados = r;
	req->msg.handle = rclient_req_over;
	atomic_fetch_add(&r->under_way, 1);
}

/* Any thread. */
static void rclient_req_end(struct rclient_req *req, int status)
{
	req->status = status;
	loop_post(req->rados->home, &req->msg);
}

static int rclient_write_status(int err)
{
	switch (err) {
	case -EEXIST:	 /* there is an object where there should be none */
	case -ERANGE:	 /* it is newer */
	case -EOVERFLOW: /* older, or gone */
	case -ENOENT:
		return -ERANGE;
	default:
		return MIN(err, 0);
	}
}

/* On librados' thread, as the next two. */
static void rclient_got(rados_completion_t c, void *arg)
{
	struct rclient_req *req = arg;
	const struct rbd_lib *lib = req->rados->lib;
	const int ret = lib->rados_aio_get_return_value(c);

	if (ret >= 0) {
		req->len = (size_t)ret;
		req->version = lib->rados_aio_get_version(c);
	}
	lib->rados_aio_release(c);
	rclient_req_end(req, MIN(ret, 0));
}

static void rclient_has_put(rados_completion_t c, void *arg)
{
	struct rclient_req *req = arg;
	const struct rbd_lib *lib = req->rados->lib;
	const int err = rclient_write_status(lib->rados_aio_get_return_value(c));

	if (!err)
		req->version = lib->rados_aio_get_version(c);
	lib->rados_aio_release(c);
	rclient_req_end(req, err);
}

static void rclient_notified(rados_completion_t c, void *arg)
{
	struct rclient_req *req = arg;
	const struct rbd_lib *lib = req->rados->lib;
	const int ret = lib->rados_aio_get_return_value(c);

	lib->rados_aio_release(c);
	rclient_req_end(req, MIN(ret, 0));
}

/* NULL: @req has ended. */
static rados_completion_t rclient_completion(struct rclient_req *req, rados_callback_t then)
{
	rados_completion_t c;
	int err = req->rados->lib->rados_aio_create_completion2(req, then, &c);

	if (err)
		rclient_req_end(req, err);
	return err ? NULL : c;
}

static void rclient_began(struct rclient_req *req, rados_completion_t c, int err)
{
	if (!err)
		return;
	req->rados->lib->rados_aio_release(c);
	rclient_req_end(req, err);
}

void rclient_get(struct rclient *r, struct rclient_req *req)
{
	rados_completion_t c;

	rclient_req_begin(r, req);
	c = rclient_completion(req, rclient_got);
	if (c)
		rclient_began(req, c,
			      r->lib->rados_aio_read(r->io, req->oid, c, req->data, req->len, 0));
}

void rclient_put(struct rclient *r, struct rclient_req *req)
{
	const struct rbd_lib *lib = r->lib;
	rados_completion_t c;
	rados_write_op_t op;

	ASSERT(req->len <= RADOS_OBJECT_MAX);
	rclient_req_begin(r, req);
	c = rclient_completion(req, rclient_has_put);
	if (!c)
		return;
	op = lib->rados_create_write_op();
	if (req->version)
		lib->rados_write_op_assert_version(op, req->version);
	else
		lib->rados_write_op_create(op, LIBRADOS_CREATE_EXCLUSIVE, NULL);
	lib->rados_write_op_write_full(op, req->data, req->len);
	rclient_began(req, c, lib->rados_aio_write_op_operate(op, r->io, c, req->oid, NULL, 0));
	lib->rados_release_write_op(op);
}

void rclient_notify(struct rclient *r, struct rclient_req *req)
{
	rados_completion_t c;

	ASSERT(req->len <= RADOS_NOTE_MAX);
	rclient_req_begin(r, req);
	c = rclient_completion(req, rclient_notified);
	if (c)
		rclient_began(req, c,
			      r->lib->rados_aio_notify(r->io, req->oid, c, req->data, (int)req->len,
						       RADOS_TIMEOUT_S * 1000, NULL, NULL));
}

/* ---- requests that block --------------------------------------------------------------------- */

static void rclient_job_over(struct offload_job *job)
{
	struct rclient_req *req = container_of(job, struct rclient_req, job);

	rclient_req_over(&req->msg);
}

/* "[v2:1.2.3.4:0/5,v1:1.2.3.4:0/5]" and "v1:1.2.3.4:0/5" are both 1.2.3.4:0/5 to a fence: it
 * concerns a client whatever it speaks. False: it is none. */
static bool fence_address(const char *is, char *to, size_t room)
{
	size_t n;

	is += *is == '[';
	if (!strncmp(is, "v1:", 3) || !strncmp(is, "v2:", 3))
		is += 3;
	else if (!strncmp(is, "any:", 4))
		is += 4;
	/* It goes into JSON: nothing there but what an address has. */
	n = strspn(is, "0123456789abcdefABCDEF.:/[]");
	while (n && is[n - 1] == ']' && !memchr(is, '[', n))
		n--;
	if (!n || n >= room || !memchr(is, '/', n) || !strchr(",]", is[n]))
		return false;
	memcpy(to, is, n);
	to[n] = '\0';
	return true;
}

static int fence_one(struct rclient *r, const struct rclient_req *req, const char *address)
{
	char text[128], command[256], *out = NULL, *status = NULL;
	const char *commands[] = { command };
	size_t nout = 0, nstatus = 0;
	int err;

	if (!fence_address(address, text, sizeof(text)))
		return -EINVAL;
	if (req->lift)
		snprintf(command, sizeof(command),
			 "{\"prefix\":\"osd blocklist\",\"blocklistop\":\"rm\",\"addr\":\"%s\"}",
			 text);
	else
		snprintf(command, sizeof(command),
			 "{\"prefix\":\"osd blocklist\",\"blocklistop\":\"add\",\"addr\":\"%s\","
			 "\"expire\":%u.0}",
			 text, req->expire_s);
	err = r->lib->rados_mon_command(r->client->rados, commands, 1, NULL, 0, &out, &nout,
					&status, &nstatus);
	if (err)
		log_ratelimited(LOG_LVL_ERROR, "cluster: %s cannot be fenced: %.*s", text,
				status ? (int)nstatus : 0, status ? status : "");
	if (out)
		r->lib->rados_buffer_free(out);
	if (status)
		r->lib->rados_buffer_free(status);
	return err;
}

/* Each has a lane, hence a thread: the monitors answer when a map with all of them is agreed on. */
struct rclient_fence {
	struct rclient_req *req;
	struct offload_lane lane;
	struct offload_job job;
	int status;
};

static void rclient_fence_run(struct offload_job *job)
{
	struct rclient_fence *f = container_of(job, struct rclient_fence, job);

	f->status = fence_one(f->req->rados, f->req, f->req->address[f - f->req->fences]);
}

static void rclient_fence_over(struct offload_job *job)
{
	struct rclient_fence *f = container_of(job, struct rclient_fence, job);
	struct rclient_req *req = f->req;

	if (f->status)
		req->status = f->status;
	if (--req->left)
		return;
	free(req->fences);
	req->fences = NULL;
	rclient_req_over(&req->msg);
}

void rclient_fence(struct rclient *r, struct rclient_req *req)
{
	ASSERT(req->addresses && req->addresses <= RADOS_FENCES_MAX);
	rclient_req_begin(r, req);
	req->fences = calloc(req->addresses, sizeof(*req->fences));
	if (!req->fences) {
		rclient_req_end(req, -ENOMEM);
		return;
	}
	req->status = 0;
	req->left = req->addresses;
	for (unsigned i = 0; i < req->addresses; i++) {
		struct rclient_fence *f = &req->fences[i];

		f->req = req;
		offload_submit_library(&f->lane, &f->job, r->home, rclient_fence_run,
				       rclient_fence_over);
	}
}

static void rclient_map_run(struct offload_job *job)
{
	struct rclient_req *req = container_of(job, struct rclient_req, job);
	struct rclient *r = req->rados;

	req->status =
		r->lib->rados_wait_for_latest_osdmap(req->waits ? req->waits : r->client->rados);
}

void rclient_newest_map(struct rclient *r, struct rclient_req *req)
{
	rclient_req_begin(r, req);
	offload_submit_library(&r->lane, &req->job, r->home, rclient_map_run, rclient_job_over);
}

/* ---- opening, closing ------------------------------------------------------------------------ */

static void rclient_open_run(struct offload_job *job)
{
	struct rclient *r = container_of(job, struct rclient, job);

	r->lib = rbd_lib_load(r->why, sizeof(r->why));
	r->err = r->lib ? 0 : -ENOSYS;
	if (r->err)
		return;
	r->client = rbd_cluster_get(r->lib, &r->name, r->why, sizeof(r->why));
	if (!r->client) {
		r->err = -errno;
		return;
	}
	r->err = r->lib->rados_ioctx_create(r->client->rados, r->name.pool, &r->io);
	if (r->err) {
		r->io = NULL;
		snprintf(r->why, sizeof(r->why), "pool %.64s: %s", r->name.pool, strerror(-r->err));
		return;
	}
	r->lib->rados_ioctx_set_namespace(r->io, r->name.space);
	r->lib->rados_set_pool_full_try(r->io);
}

static void rclient_open_done(struct offload_job *job)
{
	struct rclient *r = container_of(job, struct rclient, job);

	r->open = !r->err;
	if (r->open && *r->watched)
		rclient_watch_begin(r);
	r->opened(r, r->err, r->why);
}

static void rclient_close_run(struct offload_job *job)
{
	struct rclient *r = container_of(job, struct rclient, job);

	if (r->io)
		r->lib->rados_ioctx_destroy(r->io);
	if (r->client)
		rbd_cluster_put(r->lib, r->client);
	r->io = NULL;
	r->client = NULL;
}

static void rclient_close_done(struct offload_job *job)
{
	struct rclient *r = container_of(job, struct rclient, job);

	r->closed(r);
}

static void rclient_let_go(struct rclient *r)
{
	ASSERT_ON_LOOP(r->home);
	if (atomic_fetch_sub(&r->under_way, 1) == 1)
		offload_submit_library(&r->lane, &r->job, r->home, rclient_close_run,
				       rclient_close_done);
}

void rclient_open(struct rclient *r)
{
	ASSERT_ON_LOOP(r->home);
	ASSERT(!r->client && r->opened && r->closed && *r->name.group);
	r->name.op_timeout_s = RADOS_TIMEOUT_S;
	atomic_store(&r->under_way, 1); /* until it is closed */
	r->let_go = rclient_let_go;
	rclient_watch_init(r);
	offload_submit_library(&r->lane, &r->job, r->home, rclient_open_run, rclient_open_done);
}

void rclient_close(struct rclient *r)
{
	ASSERT_ON_LOOP(r->home);
	ASSERT(!r->closing);
	r->closing = true;
	if (r->open && *r->watched)
		rclient_watch_end(r);
	else
		rclient_let_go(r);
}
