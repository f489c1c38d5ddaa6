/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The connection manager: listening at portals, connection requests, and the events of connections,
 * which all come by one channel to the main loop and are passed on to where the connection lives.
 *
 *   CONNECT_REQUEST    limits, device, queues, one receive posted -> accept, else reject with a
 *                      reason
 *   ESTABLISHED        (or the first message, which may be faster)
 *   DISCONNECTED       the peer hung up
 *   DEVICE_REMOVAL     of a connection: it ends; of a listener: it is set up again when it can be
 *   ADDR_CHANGE        likewise
 *   TIMEWAIT_EXIT      nothing: what it protects is per queue pair number, and ours is gone by then
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <unistd.h>

#include "events/topology.h"
#include "iser/conn.h"

#define BACKLOG 256
#define EVENTS 64	  /* in one go */
#define RETRY_MS 2000	  /* a listener whose device or address went away */
#define RETRIES 150

/* Private data of a reject: why, for whoever looks at a trace. */
enum reject { REJECT_LIMIT = 1, REJECT_NO_DEVICE, REJECT_NO_RDMA_READ, REJECT_NO_RESOURCES };
static const char *const reject_text[] = { "", "too many connections", "its device cannot be used",
					   "the initiator serves no RDMA reads", "no resources" };

struct listener {
	struct list link;
	struct rdma_cm_id *id;
	struct sockaddr_storage addr;
	uint16_t tpgt;
	struct timer retry;
	unsigned retries;
};

static struct rdma_event_channel *channel;
static struct loop_fd cm_fd;
static struct loop *main_loop;
static struct iscsi_transport *transport; /* of all connections */
static struct list listeners = LIST_INIT(listeners);
static struct list conns = LIST_INIT(conns); /* iser_conn.all */

/* ---- listening ------------------------------------------------------------------------------- */

static int start_listening(struct listener *l)
{
	int rc;

	if (rdma_v->create_id(channel, &l->id, NULL))
		return -errno;
	rc = rdma_v->set_listen_options(l->id, l->addr.ss_family == AF_INET6);
	if (!rc)
		rc = rdma_v->bind_addr(l->id, (const struct sockaddr *)&l->addr);
	if (!rc)
		rc = rdma_v->listen(l->id, BACKLOG);
	if (rc) {
		rc = -errno;
		rdma_v->destroy_id(l->id);
		l->id = NULL;
		return rc;
	}
	l->id->context = NULL; /* connections have themselves there */
	return 0;
}

static void cm_retry(struct timer *t)
{
	struct listener *l = container_of(t, struct listener, retry);
	int rc;

	if (l->id) {
		rdma_v->destroy_id(l->id);
		l->id = NULL;
	}
	rc = start_listening(l);
	if (!rc)
		log_notice("iser: listening again");
	else if (++l->retries < RETRIES)
		loop_timer_arm(main_loop, &l->retry, RETRY_MS * NSEC_PER_MSEC);
	else
		log_warn("iser: a portal is not served by iSER any more: %s", strerror(-rc));
}

int iser_listen(struct loop *main, const struct sockaddr *addr, socklen_t len, uint16_t tpgt,
		void **portal)
{
	struct listener *l;
	int rc;

	/* A device may have come since. */
	if (!channel && iser_cm_open(main, transport))
		return -ENODEV;
	if (!iser_dev_count())
		iser_dev_init(main, topology_current(), &iser_cm_dev_hooks);
	l = calloc(1, sizeof(*l));
	if (!l)
		return -ENOMEM;
	list_init(&l->link);
	timer_init(&l->retry, cm_retry);
	memcpy(&l->addr, addr, MIN((size_t)len, sizeof(l->addr)));
	l->tpgt = tpgt;
	if (iser_opt.port && addr->sa_family == AF_INET)
		((struct sockaddr_in *)&l->addr)->sin_port = htons(iser_opt.port);
	else if (iser_opt.port)
		((struct sockaddr_in6 *)&l->addr)->sin6_port = htons(iser_opt.port);
	rc = start_listening(l);
	if (rc) {
		char text[INET6_ADDRSTRLEN] = "?";

		inet_ntop(addr->sa_family,
			  addr->sa_family == AF_INET ?
				  (const void *)&((const struct sockaddr_in *)addr)->sin_addr :
				  (const void *)&((const struct sockaddr_in6 *)addr)->sin6_addr,
			  text, sizeof(text));
		log_debug("iser: not at %s: %s", text, strerror(-rc));
		free(l);
		return rc;
	}
	list_add_tail(&listeners, &l->link);
	*portal = l;
	return 0;
}

void iser_unlisten(void *portal)
{
	struct listener *l = portal;

	loop_timer_cancel(main_loop, &l->retry);
	if (l->id)
		rdma_v->destroy_id(l->id);
	list_del(&l->link);
	free(l);
}

static struct listener *listener_of(const struct rdma_cm_id *id)
{
	struct listener *l;

	list_for_each(l, &listeners, link)
		if (l->id == id)
			return l;
	return NULL;
}

/* ---- a connection request -------------------------------------------------------------------- */

static void cm_refuse(struct rdma_cm_id *id, enum reject why)
{
	uint8_t data[ISER_CM_HDR_LEN] = { 0, 0, 0, (uint8_t)why };

	metric_inc(M_iser_refused);
	log_ratelimited(LOG_LVL_INFO, "iser: connection request refused: %s", reject_text[why]);
	(void)!rdma_v->reject(id, data, sizeof(data));
	rdma_v->destroy_id(id);
}

static void copy_address(struct sockaddr_storage *to, const struct sockaddr *from)
{
	memset(to, 0, sizeof(*to));
	memcpy(to, from,
	       from->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) :
					     sizeof(struct sockaddr_in));
}

static void connect_request(struct rdma_cm_id *id, const struct listener *l,
			    struct rdma_conn_param *param)
{
	struct rdma_conn_param answer = { .flow_control = 1,
					  .retry_count = 7,
					  .rnr_retry_count = 7 };
	struct sockaddr_storage peer, local;
	uint8_t header[ISER_CM_HDR_LEN];
	struct iser_dev *dev;
	struct iser_conn *ic;

	copy_address(&peer, rdma_get_peer_addr(id));
	copy_address(&local, rdma_get_local_addr(id));
	if (!l || !iscsi_conn_admit((const struct sockaddr *)&peer)) {
		cm_refuse(id, REJECT_LIMIT);
		return;
	}
	dev = id->verbs ? iser_dev_get(id->verbs) : NULL;
	if (!dev) {
		cm_refuse(id, REJECT_NO_DEVICE);
		return;
	}
	if (!param->initiator_depth) {
		cm_refuse(id, REJECT_NO_RDMA_READ);
		return;
	}
	ic = iser_conn_new(dev, id, param);
	if (!ic) {
		cm_refuse(id, REJECT_NO_RESOURCES);
		return;
	}
	id->context = ic;
	list_add_tail(&conns, &ic->all);
	iscsi_conn_init(&ic->conn, transport, main_loop, &peer, &local, l->tpgt);
	if (dev->node >= 0)
		/* Else that of the interface with the address, perhaps. */
		ic->conn.node_wish = dev->node;
	iser_login_recv(ic);
	if (iser_cq_start(ic, main_loop)) {
		iscsi_conn_fail(&ic->conn, "epoll failed");
		return;
	}
	answer.initiator_depth = (uint8_t)ic->rd_max;
	answer.responder_resources =
		(uint8_t)MIN((uint32_t)param->responder_resources,
			     (uint32_t)MIN(MAX(dev->attr.max_qp_rd_atom, 0), 255));
	answer.private_data_len = (uint8_t)iser_cm_build(&ic->caps, ic->use_inv, header);
	answer.private_data = answer.private_data_len ? header : NULL;
	metric_inc(M_iser_accepts);
	log_debug(
		"iser: %s: connection request on %s: %s header, %u RDMA reads at once, remote invalidation %s",
		ic->conn.peer_text, dev->name, ic->caps.header ? "iSER CM" : "no", ic->rd_max,
		ic->use_inv ? "on" : "off");
	if (rdma_v->accept(id, &answer))
		iscsi_conn_fail(&ic->conn, "connection request could not be accepted");
}

/* ---- events ---------------------------------------------------------------------------------- */

static void listener_lost(struct listener *l, const char *why)
{
	log_notice("iser: a listener is set up anew: %s", why);
	l->retries = 0;
	loop_timer_cancel(main_loop, &l->retry);
	/* Not from within its own event: that has been acknowledged, but
	 * other ids share the channel. */
	loop_timer_arm(main_loop, &l->retry, 10 * NSEC_PER_MSEC);
}

/* Ends all connections of the device, then the device. */
static void device_gone(struct iser_dev *dev)
{
	struct iser_conn *ic;

	list_for_each(ic, &conns, all)
		if (ic->dev == dev)
			iser_cm_tell(ic, CM_REMOVED);
	iser_dev_removed(dev);
}

static void device_broken(struct iser_conn *ic)
{
	iser_cm_tell(ic, CM_QP_FATAL);
}

const struct iser_dev_hooks iser_cm_dev_hooks = { .gone = device_gone, .broken = device_broken };

static void handle(struct rdma_cm_id *id, struct rdma_cm_id *listen_id,
		   enum rdma_cm_event_type type, int status, struct rdma_conn_param *param)
{
	struct iser_conn *ic = id->context;
	struct listener *l;

	if (type == RDMA_CM_EVENT_CONNECT_REQUEST) {
		connect_request(id, listener_of(listen_id), param);
		return;
	}
	l = listener_of(id);
	if (l) {
		if (type == RDMA_CM_EVENT_DEVICE_REMOVAL || type == RDMA_CM_EVENT_ADDR_CHANGE)
			listener_lost(l, rdma_event_str(type));
		return;
	}
	if (!ic)
		return; /* being freed */
	log_debug("iser: %s: %s (%d)", ic->conn.peer_text, rdma_event_str(type), status);
	switch (type) {
	case RDMA_CM_EVENT_ESTABLISHED:
		iser_cm_tell(ic, CM_ESTABLISHED);
		break;
	case RDMA_CM_EVENT_DISCONNECTED:
		iser_cm_tell(ic, CM_DISCONNECTED);
		break;
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		device_gone(ic->dev);
		break;
	case RDMA_CM_EVENT_ADDR_CHANGE: /* the path is not the one that was set up */
	case RDMA_CM_EVENT_CONNECT_ERROR:
	case RDMA_CM_EVENT_UNREACHABLE:
	case RDMA_CM_EVENT_REJECTED:
		iser_cm_tell(ic, CM_FAILED);
		break;
	default:
		break;
	}
}

static void cm_ready(struct loop_fd *lfd, uint32_t revents)
{
	(void)lfd;
	(void)revents;
	for (unsigned i = 0; i < EVENTS; i++) {
		struct rdma_conn_param param = { 0 };
		enum rdma_cm_event_type type;
		struct rdma_cm_id *id, *listen_id;
		struct rdma_cm_event *ev;
		uint8_t data[256];
		int status;

		if (!channel || rdma_v->get_cm_event(channel, &ev))
			return;
		/* Acknowledged at once, so that ids can be destroyed: what is needed is copied. */
		id = ev->id;
		listen_id = ev->listen_id;
		type = ev->event;
		status = ev->status;
		if (type == RDMA_CM_EVENT_CONNECT_REQUEST) {
			param = ev->param.conn;
			if (param.private_data)
				memcpy(data, param.private_data, param.private_data_len);
			param.private_data = param.private_data ? data : NULL;
		}
		rdma_v->ack_cm_event(ev);
		handle(id, listen_id, type, status, &param);
	}
}

/* ---- the channel ----------------------------------------------------------------------------- */

int iser_cm_open(struct loop *main, struct iscsi_transport *t)
{
	int flags, rc;

	main_loop = main;
	transport = t;
	channel = rdma_v->create_event_channel();
	if (!channel)
		return -errno;
	flags = fcntl(channel->fd, F_GETFL);
	rc = flags < 0 || fcntl(channel->fd, F_SETFL, flags | O_NONBLOCK) ? -errno : 0;
	cm_fd = (struct loop_fd){ .fd = channel->fd, .events = EPOLLIN, .ready = cm_ready };
	if (!rc)
		rc = loop_fd_add(main, &cm_fd);
	if (rc) {
		rdma_v->destroy_event_channel(channel);
		channel = NULL;
	}
	return rc;
}

void iser_cm_close(void)
{
	if (!channel)
		return;
	ASSERT(list_empty(&listeners));
	loop_fd_del(&cm_fd);
	rdma_v->destroy_event_channel(channel);
	channel = NULL;
}
