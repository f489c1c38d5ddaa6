/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See rbd_cluster.h. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cache/backend/rbd_cluster.h"
#include "events/bug.h"
#include "events/log.h"

#define CONNECT_S "10"

static pthread_mutex_t clusters_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cluster_connected = PTHREAD_COND_INITIALIZER;
static struct list clusters = LIST_INIT(clusters);

/*
 * What has to be, whatever the file says:
 *  - librbd has no cache of its own: two copies of a block would be two truths, and ours is stable
 *    when a write with FUA is done. (An image's own configuration still wins; rbd.c looks.)
 *  - A request never waits on the thread that makes it.
 *  - Who is fenced is so for an hour at least, see Ceph's tracker 54613.
 *  - Nobody else reads standard error or a socket of ours.
 */
static const char *const settings[][2] = {
	{ "rbd_cache", "false" },
	{ "rbd_non_blocking_aio", "true" },
	{ "rbd_blocklist_expire_seconds", "0" },
	{ "client_mount_timeout", CONNECT_S },
	{ "rados_mon_op_timeout", CONNECT_S },
	{ "admin_socket", "" },
	{ "log_to_stderr", "false" },
	{ "err_to_stderr", "false" },
};

/* A cluster that does not answer is to be noticed; the administrator may say when. */
static void cluster_timeout(const struct rbd_lib *lib, const struct rbd_cluster *c)
{
	const unsigned s = c->name.op_timeout_s;
	char is[32] = "", wanted[16];

	if (!s && !lib->rados_conf_get(c->rados, "rados_osd_op_timeout", is, sizeof(is)) &&
	    atof(is) > 0)
		return;
	snprintf(wanted, sizeof(wanted), "%u", s ? s : RBD_TIMEOUT_S);
	(void)lib->rados_conf_set(c->rados, "rados_osd_op_timeout", wanted);
}

static const char *cluster_fault(int err)
{
	switch (err) {
	case -ETIMEDOUT:
		return "no monitor of the cluster answers";
	case -ENOENT:
		return "no monitors or no key are known by the configuration";
	case -EACCES:
	case -EPERM:
		return "the cluster does not let this user in";
	default:
		return strerror(-err);
	}
}

static int cluster_address(const struct rbd_lib *lib, struct rbd_cluster *c)
{
	char *address = NULL;
	int err = lib->rados_getaddrs(c->rados, &address);

	if (!err &&
	    (size_t)snprintf(c->address, sizeof(c->address), "%s", address) >= sizeof(c->address))
		err = -ENAMETOOLONG;
	if (address)
		lib->rados_buffer_free(address);
	return err;
}

/* 0 or -errno with the reason. */
static int cluster_connect(const struct rbd_lib *lib, struct rbd_cluster *c)
{
	const struct rbd_name *n = &c->name;
	int err = lib->rados_create2(&c->rados, n->cluster, n->user, 0);

	if (err) {
		snprintf(c->why, sizeof(c->why), "no client of Ceph: %s", strerror(-err));
		return err;
	}
	err = lib->rados_conf_read_file(c->rados, *n->conf ? n->conf : NULL);
	if (err) {
		snprintf(c->why, sizeof(c->why), "the cluster's configuration%s%.80s: %s",
			 *n->conf ? " " : "", n->conf, strerror(-err));
	} else {
		for (size_t i = 0; i < ARRAY_SIZE(settings); i++)
			if (lib->rados_conf_set(c->rados, settings[i][0], settings[i][1]))
				log_notice("rbd: this Ceph knows no %s", settings[i][0]);
		if (*n->group) /* who breaks a lock there has fenced whom he means */
			(void)lib->rados_conf_set(c->rados, "rbd_blocklist_on_break_lock", "false");
		cluster_timeout(lib, c);
		err = lib->rados_connect(c->rados);
		if (!err) {
			err = lib->rados_cluster_fsid(c->rados, c->fsid, sizeof(c->fsid));
			err = MIN(err, 0);
		}
		if (!err)
			err = cluster_address(lib, c);
		if (err)
			snprintf(c->why, sizeof(c->why), "%.60s as %.60s: %s", n->cluster, n->user,
				 cluster_fault(err));
	}
	if (err)
		lib->rados_shutdown(c->rados);
	return err;
}

/* ---- the group of this process --------------------------------------------------------------- */

static struct rbd_name our_group;
static _Atomic bool of_a_group;

void rbd_cluster_set_group(const struct rbd_name *name)
{
	ASSERT(*name->group && !atomic_load(&of_a_group));
	our_group = *name;
	atomic_store_explicit(&of_a_group, true, memory_order_release);
}

/* Not said (@dflt), or the same. */
static bool group_agrees(const char *said, const char *dflt, const char *is)
{
	return !strcmp(said, dflt) || !strcmp(said, is);
}

int rbd_cluster_of_group(struct rbd_name *n, char *why, size_t len)
{
	const struct rbd_name *g = &our_group;

	if (!atomic_load_explicit(&of_a_group, memory_order_acquire) ||
	    strcmp(n->group, g->group)) {
		snprintf(why, len, "this daemon is no gateway of the group %.70s", n->group);
		return -EINVAL;
	}
	if (!group_agrees(n->conf, "", g->conf) ||
	    !group_agrees(n->user, "client.admin", g->user) ||
	    !group_agrees(n->cluster, "ceph", g->cluster)) {
		snprintf(why, len, "conf=, id= and cluster= are not those of the group");
		return -EINVAL;
	}
	memcpy(n->conf, g->conf, sizeof(n->conf));
	memcpy(n->user, g->user, sizeof(n->user));
	memcpy(n->cluster, g->cluster, sizeof(n->cluster));
	return 0;
}

/* ---- clients --------------------------------------------------------------------------------- */

static struct rbd_cluster *cluster_find(const struct rbd_name *n)
{
	struct rbd_cluster *c;

	list_for_each(c, &clusters, link)
		if (!atomic_load(&c->fenced) && !c->err && !strcmp(c->name.conf, n->conf) &&
		    !strcmp(c->name.user, n->user) && !strcmp(c->name.cluster, n->cluster) &&
		    !strcmp(c->name.group, n->group) && c->name.op_timeout_s == n->op_timeout_s)
			return c;
	return NULL;
}

/* Lock held. */
static void cluster_drop(struct rbd_cluster *c)
{
	if (--c->users == 0) {
		list_del(&c->link);
		free(c);
	}
}

struct rbd_cluster *rbd_cluster_get(const struct rbd_lib *lib, const struct rbd_name *name,
				    char *why, size_t len)
{
	struct rbd_cluster *c;
	int err;

	pthread_mutex_lock(&clusters_lock);
	c = cluster_find(name);
	if (c) {
		c->users++;
		while (c->connecting)
			pthread_cond_wait(&cluster_connected, &clusters_lock);
	} else if ((c = calloc(1, sizeof(*c)))) {
		c->name = *name;
		c->users = 1;
		c->connecting = true;
		list_add_tail(&clusters, &c->link);
		pthread_mutex_unlock(&clusters_lock);
		err = cluster_connect(lib, c);
		pthread_mutex_lock(&clusters_lock);
		c->err = err;
		c->connecting = false;
		pthread_cond_broadcast(&cluster_connected);
	}
	err = c ? c->err : -ENOMEM;
	if (err) {
		snprintf(why, len, "%s", c ? c->why : "no memory");
		if (c)
			cluster_drop(c);
		c = NULL;
	}
	pthread_mutex_unlock(&clusters_lock);
	errno = -err;
	return c;
}

void rbd_cluster_put(const struct rbd_lib *lib, struct rbd_cluster *c)
{
	rados_t rados = NULL;

	pthread_mutex_lock(&clusters_lock);
	if (c->users == 1)
		rados = c->rados;
	cluster_drop(c);
	pthread_mutex_unlock(&clusters_lock);
	if (rados)
		lib->rados_shutdown(rados);
}
