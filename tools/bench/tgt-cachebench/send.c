/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Who sends what was forwarded? A request of a connection is for blocks of another node. The thread
 * that owns the connection can read them itself (inline); or a worker of that node does, and then
 * either hands the references back, for the owner to send them (back), or takes the connection's
 * send token, stamps StatSN, sends, and tells the owner afterwards (worker). Measured over a TCP
 * connection to ourselves, with the real loops, mailboxes and cache, two nodes (simulated where
 * there is but one), and one thread pinned for each; the initiator is the main thread. Slices of
 * the three take turns, so that what else the machine does meets all alike.
 *
 * Protocol: a request and the header of an answer are struct wire each; behind
 * the header come the bytes.
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>
#include "cache/engine/cache.h"
#include "cache/engine/stat.h"
#include "events/clock.h"
#include "events/log.h"
#include "events/loop.h"
#include "events/metrics.h"
#include "tools/bench/tgt-cachebench/send.h"

#define DEPTH_MAX 64
#define ROUNDS_MAX 101
#define SLICE_NS (100 * NSEC_PER_MSEC)
#define GROUP MiB(1)
#define SPIN_NS 20000 /* as tgtd's threads do */
#define IOVS 256
#define BATCH_BYTES MiB(1)
#define CHECKED 200 /* answers of each way whose bytes are compared, before measuring */

static const char *const way_names[WAYS] = { "inline", "back", "worker" };

/* As long as a basic header segment. */
struct wire {
	uint32_t slot, len, stat_sn;
	uint32_t away; /* for the worker's node, 1 */
	uint64_t offset;
	uint8_t rest[24];
};
static_assert(sizeof(struct wire) == 48, "as a header");

struct answer {
	struct blk_req req;
	struct loop_msg msg;
	struct list link; /* conn.queue, then conn.batch */
	struct wire header;
	uint64_t sent; /* bytes, header included */
};

/* A slot's next request may be here before the worker has told that the one before it is over. */
#define ANSWERS (4 * DEPTH_MAX)

struct conn {
	struct loop_fd lfd;
	struct loop *owner, *worker;
	struct blk *blk;
	/* What is to be sent, in order. With WAY_WORKER under @lock; else the owner's alone. */
	uint32_t lock; /* atomic; held for a few instructions */
	bool token;    /* somebody sends, or waits for the socket: who adds to the
		        * queue may leave it to that one */
	struct list queue;
	/* Whoever has the token. */
	struct list batch; /* stamped */
	uint32_t stat_sn;
	struct loop_deferred owner_flush, worker_flush;
	struct loop_msg blocked; /* the socket is full: the owner waits for it */
	enum send_way way;	      /* changes while nothing is under way */
	unsigned have;	      /* bytes of @in */
	struct wire in[DEPTH_MAX];
	struct list free;     /* owner */
	struct answer answer[ANSWERS];
};
static struct conn conn;

/* ---- sending --------------------------------------------------------------------------------- */

static void lock(struct conn *c)
{
	if (c->way == WAY_WORKER)
		while (__atomic_exchange_n(&c->lock, 1, __ATOMIC_ACQUIRE))
			while (__atomic_load_n(&c->lock, __ATOMIC_RELAXED))
				cpu_relax();
}

static void unlock(struct conn *c)
{
	if (c->way == WAY_WORKER)
		__atomic_store_n(&c->lock, 0, __ATOMIC_RELEASE);
}

static void told(struct loop_msg *msg)
{
	list_add_head(&conn.free, &container_of(msg, struct answer, msg)->link);
}

/* The wire has all of it. Who has sent it puts the references; the rest is the owner's. */
static void finish(struct conn *c, struct answer *a)
{
	blk_req_release(&a->req);
	if (loop_current() == c->owner) {
		list_add_head(&c->free, &a->link);
		return;
	}
	a->msg.handle = told;
	loop_post(c->owner, &a->msg);
}

/* One sendmsg() of what is in the batch. False: the socket takes no more now. */
static bool send_some(struct conn *c)
{
	struct iovec iov[IOVS];
	struct msghdr m = { .msg_iov = iov };
	uint64_t bytes = 0;
	for (struct list *at = c->batch.next; at != &c->batch && bytes < BATCH_BYTES;
	     at = at->next) {
		struct answer *a = list_entry(at, struct answer, link);
		uint64_t skip = a->sent;
		if (m.msg_iovlen == IOVS)
			break;
		if (skip < sizeof(a->header)) {
			iov[m.msg_iovlen++] = (struct iovec){ (uint8_t *)&a->header + skip,
							      sizeof(a->header) - skip };
			bytes += sizeof(a->header) - skip;
			skip = sizeof(a->header);
		}
		skip -= sizeof(a->header);
		for (uint32_t i = 0; i < a->req.data.n && m.msg_iovlen < IOVS; i++) {
			const struct frag *f = &a->req.data.v[i];
			if (skip >= f->len) {
				skip -= f->len;
				continue;
			}
			iov[m.msg_iovlen++] = (struct iovec){ f->base + skip, f->len - skip };
			bytes += f->len - skip;
			skip = 0;
		}
	}
	ssize_t n = sendmsg(c->lfd.fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
	if (n < 0 && errno == EAGAIN)
		return false;
	if (n < 0) {
		perror("tgt-cachebench: sendmsg");
		_exit(1);
	}
	for (uint64_t left = (uint64_t)n; left;) {
		struct answer *a = list_first(&c->batch, struct answer, link);
		uint64_t now = MIN(left, sizeof(a->header) + a->req.len - a->sent);
		a->sent += now;
		left -= now;
		if (a->sent < sizeof(a->header) + a->req.len)
			break;
		list_del(&a->link);
		finish(c, a);
	}
	return (uint64_t)n == bytes;
}

static void wait_writable(struct loop_msg *msg)
{
	struct conn *c = container_of(msg, struct conn, blocked);
	if (loop_fd_modify(&c->lfd, EPOLLIN | EPOLLOUT) < 0)
		_exit(1);
}

/* By whoever has the token, which is given back when all is sent. */
static void transmit(struct conn *c)
{
	for (;;) {
		lock(c);
		if (list_empty(&c->queue) && list_empty(&c->batch)) {
			c->token = false;
			unlock(c);
			return;
		}
		struct list *last = c->batch.prev;
		list_splice_tail(&c->batch, &c->queue);
		unlock(c);
		for (struct list *at = last->next; at != &c->batch; at = at->next)
			list_entry(at, struct answer, link)->header.stat_sn = c->stat_sn++;
		if (!send_some(c)) {
			c->blocked.handle = wait_writable;
			if (loop_current() == c->owner)
				wait_writable(&c->blocked);
			else
				loop_post(c->owner, &c->blocked);
			return; /* the owner has the token now */
		}
	}
}

static void flush(struct conn *c)
{
	lock(c);
	bool mine = !c->token && !list_empty(&c->queue);
	c->token |= mine;
	unlock(c);
	if (mine)
		transmit(c);
}

static void owner_flush(struct loop_deferred *d)
{
	flush(container_of(d, struct conn, owner_flush));
}

static void worker_flush(struct loop_deferred *d)
{
	flush(container_of(d, struct conn, worker_flush));
}

/* The answer has its data. What else this iteration brings leaves with it. */
static void queue(struct conn *c, struct answer *a)
{
	if (a->req.status) {
		fprintf(stderr, "tgt-cachebench: a read failed\n");
		_exit(1);
	}
	a->sent = 0;
	lock(c);
	list_add_tail(&c->queue, &a->link);
	unlock(c);
	loop_defer(loop_current(), loop_current() == c->owner ? &c->owner_flush : &c->worker_flush);
}

/* ---- requests -------------------------------------------------------------------------------- */

static void read_done(struct blk_req *req)
{
	queue(&conn, container_of(req, struct answer, req));
}

static void read_now(struct conn *c, struct answer *a)
{
	if (blk_submit(c->blk, &a->req))
		queue(c, a);
}

static void worker_serves(struct loop_msg *msg)
{
	read_now(&conn, container_of(msg, struct answer, msg));
}

static void serve(struct conn *c, const struct wire *w)
{
	if (list_empty(&c->free)) {
		fprintf(stderr, "tgt-cachebench: requests do not come to their ends\n");
		_exit(1);
	}
	struct answer *a = list_first(&c->free, struct answer, link);
	list_del(&a->link);
	a->header = *w;
	a->req.op = BLK_READ;
	a->req.flags = 0;
	a->req.offset = w->offset;
	a->req.len = w->len;
	a->req.done = read_done;
	if (c->way != WAY_WORKER || !w->away) {
		read_now(c, a);
		return;
	}
	a->msg.handle = worker_serves;
	loop_post(c->worker, &a->msg);
}

static void ready(struct loop_fd *lfd, uint32_t revents)
{
	struct conn *c = container_of(lfd, struct conn, lfd);
	if (revents & EPOLLOUT) {
		if (loop_fd_modify(lfd, EPOLLIN) < 0)
			_exit(1);
		transmit(c);
	}
	if (!(revents & EPOLLIN))
		return;
	ssize_t n =
		recv(lfd->fd, (uint8_t *)c->in + c->have, sizeof(c->in) - c->have, MSG_DONTWAIT);
	if (n == 0)
		loop_fd_del(lfd);
	if (n <= 0)
		return;
	c->have += (unsigned)n;
	unsigned whole = c->have / sizeof(struct wire);
	for (unsigned i = 0; i < whole; i++)
		serve(c, &c->in[i]);
	c->have -= whole * (unsigned)sizeof(struct wire);
	memmove(c->in, &c->in[whole], c->have);
}

/* ---- the initiator --------------------------------------------------------------------------- */

static struct initiator {
	int fd;
	uint32_t expect; /* StatSN */
	uint64_t *place[2]; /* groups of the owner's node, of the worker's */
	unsigned places[2];
	uint64_t rng;
	struct wire out[DEPTH_MAX];
	unsigned nout;
	struct wire under_way[DEPTH_MAX];
	uint8_t *buf;
} ini;

static void broken(const char *what)
{
	fprintf(stderr, "tgt-cachebench: %s\n", what);
	_exit(1);
}

static uint64_t rnd(void)
{
	ini.rng ^= ini.rng << 13;
	ini.rng ^= ini.rng >> 7;
	ini.rng ^= ini.rng << 17;
	return ini.rng;
}

static void ask(uint32_t slot, uint32_t size, unsigned local)
{
	const unsigned away = rnd() % 100 >= local;
	struct wire *w = &ini.under_way[slot];
	*w = (struct wire){ .slot = slot, .len = size, .away = away };
	w->offset = ini.place[away][rnd() % ini.places[away]] + rnd() % (GROUP / size) * size;
	ini.out[ini.nout++] = *w;
}

static void push(void)
{
	for (size_t at = 0, len = ini.nout * sizeof(struct wire); at < len;) {
		ssize_t n = send(ini.fd, (uint8_t *)ini.out + at, len - at, MSG_NOSIGNAL);
		if (n <= 0)
			broken("the initiator cannot send");
		at += (size_t)n;
	}
	ini.nout = 0;
}

/* @to NULL: the bytes are thrown away, which costs the processor next to nothing. */
static void take(uint8_t *to, size_t len)
{
	while (len) {
		ssize_t n = recv(ini.fd, to, len, to ? MSG_WAITALL : MSG_TRUNC);
		if (n <= 0)
			broken("the initiator cannot receive");
		len -= (size_t)n;
		to = to ? to + n : NULL;
	}
}

/* One answer. */
static uint32_t answered(bool check)
{
	struct wire w;
	ssize_t n = recv(ini.fd, &w, sizeof(w), MSG_DONTWAIT);
	if (n < 0 && errno == EAGAIN) {
		push(); /* nothing is here: now is the time */
		n = 0;
	}
	if (n < 0)
		broken("the initiator cannot receive");
	take((uint8_t *)&w + n, sizeof(w) - (size_t)n);
	if (w.stat_sn != ini.expect++)
		broken("StatSN out of order");
	if (w.slot >= DEPTH_MAX || w.len != ini.under_way[w.slot].len ||
	    w.offset != ini.under_way[w.slot].offset)
		broken("an answer to what was not asked");
	ini.under_way[w.slot].len = 0;
	take(check ? ini.buf : NULL, w.len);
	for (uint32_t at = 0; check && at < w.len; at += KiB(4)) {
		uint64_t stamp;
		memcpy(&stamp, ini.buf + at, sizeof(stamp));
		if (stamp != w.offset + at)
			broken("wrong bytes");
	}
	return w.slot;
}

/* Requests until @ns have passed, or @n of them; how many. None is under way afterwards. */
static uint64_t requests_for(const struct send_conf *conf, uint32_t size, uint64_t ns, uint64_t n)
{
	const uint64_t until = ns ? clock_now_ns() + ns : UINT64_MAX;
	uint64_t done = 0, out = 0;
	for (; out < conf->depth; out++)
		ask((uint32_t)out, size, conf->local);
	push();
	while (out) {
		uint32_t slot = answered(n != 0);
		done++;
		if (n ? done + out <= n : clock_now_ns() < until)
			ask(slot, size, conf->local);
		else
			out--;
	}
	return done;
}

/* ---- measuring ------------------------------------------------------------------------------- */

struct slice {
	/* Requests a second; of each request. */
	double rate, owner_us, worker_us, messages, wakeups;
};

static void cpu_of(void *arg)
{
	struct timespec ts;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	*(uint64_t *)arg = (uint64_t)ts.tv_sec * NSEC_PER_SEC + (uint64_t)ts.tv_nsec;
}

/* What both have used so far. The worker first: what it has told by then, the
 * owner has heard afterwards. */
static void cpu_both(uint64_t ns[2])
{
	loop_call(conn.worker, cpu_of, &ns[1]);
	loop_call(conn.owner, cpu_of, &ns[0]);
}

static void set_way(struct cache *cache, enum send_way way)
{
	uint64_t ns[2];
	char err[100];
	cpu_both(ns); /* nobody is within our functions any more */
	conn.way = way;
	if (cache_update(cache, "affinity", way == WAY_BACK ? "forward" : "inline", err,
			 sizeof(err)) < 0)
		broken(err);
}

static struct slice slice(const struct send_conf *conf, struct cache *cache, uint32_t size,
			  enum send_way way)
{
	uint64_t before[2], after[2];
	set_way(cache, way);
	cpu_both(before);
	uint64_t messages = metric_read(M_loop_messages), wakeups = metric_read(M_loop_wakeups),
		 start = clock_now_ns();
	uint64_t n = requests_for(conf, size, SLICE_NS, 0);
	double s = (double)(clock_now_ns() - start) / 1e9, each = 1 / (double)n;
	messages = metric_read(M_loop_messages) - messages;
	wakeups = metric_read(M_loop_wakeups) - wakeups;
	cpu_both(after);
	return (struct slice){ (double)n / s, (double)(after[0] - before[0]) / 1e3 * each,
			       (double)(after[1] - before[1]) / 1e3 * each, (double)messages * each,
			       (double)wakeups * each };
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static double median(double *v, unsigned n)
{
	qsort(v, n, sizeof(*v), by_value);
	return v[n / 2];
}

static void measure(const struct send_conf *conf, struct cache *cache, uint32_t size, bool first)
{
	static double v[WAYS][7][ROUNDS_MAX];
	struct slice s[WAYS];
	for (unsigned w = 0; w < WAYS; w++) {
		set_way(cache, (enum send_way)w);
		requests_for(conf, size, 0, CHECKED);
	}
	for (unsigned i = 0; i < conf->rounds; i++) {
		for (unsigned k = 0; k < WAYS; k++)
			s[(i + k) % WAYS] =
				slice(conf, cache, size, (enum send_way)((i + k) % WAYS));
		for (unsigned w = 0; w < WAYS; w++) {
			const struct slice *b = &s[WAY_BACK];
			double f[7] = { s[w].rate,
					s[w].owner_us,
					s[w].worker_us,
					s[w].messages,
					s[w].wakeups,
					s[w].rate / b->rate,
					(s[w].owner_us + s[w].worker_us) /
						(b->owner_us + b->worker_us) };
			for (unsigned k = 0; k < 7; k++)
				v[w][k][i] = f[k];
		}
	}
	if (conf->told) { /* the best, which others have disturbed the least */
		double ns[WAYS];
		for (unsigned w = 0; w < WAYS; w++) {
			qsort(v[w][0], conf->rounds, sizeof(double), by_value);
			ns[w] = 1e9 / v[w][0][conf->rounds - 1];
		}
		conf->told(size, ns);
		return;
	}
	for (unsigned w = 0; w < WAYS; w++) {
		double m[7];
		for (unsigned k = 0; k < 7; k++)
			m[k] = median(v[w][k], conf->rounds);
		if (conf->json)
			printf("%s{\"bytes\": %u, \"way\": \"%s\", \"rate\": %.0f, \"owner_us\": "
			       "%.2f, \"worker_us\": %.2f, \"messages\": %.3f, \"wakeups\": %.3f, "
			       "\"rate_to_back\": %.3f, \"cpu_to_back\": %.3f}",
			       first && !w ? "[" : ",\n ", size, way_names[w], m[0], m[1], m[2],
			       m[3], m[4], m[5], m[6]);
		else
			printf("%5u KiB  %-6s %9.0f/s  CPU %7.2f us (owner %7.2f, worker %7.2f)  "
			       "%.2f messages, %.3f wake-ups  to back: %.2f x as fast, %.2f x the "
			       "CPU\n",
			       size >> 10, way_names[w], m[0], m[1] + m[2], m[1], m[2], m[3], m[4],
			       m[5], m[6]);
	}
	fflush(stdout);
}

/* ---- setting up ------------------------------------------------------------------------------ */

/* A store that has in each 4 KiB where they are. */
static bool stamped(struct blk *blk, struct blk_req *req)
{
	for (uint64_t at = 0; req->op == BLK_READ && at < req->len; at += KiB(4)) {
		uint64_t stamp = req->offset + at;
		frags_copy_in(&req->data, at, &stamp, sizeof(stamp));
	}
	req->status = 0;
	return true;
}

static void store_close(struct blk *blk)
{
	free(blk);
}

static const struct blk_ops store_ops = { .name = "stamped",
					  .read = stamped,
					  .write = stamped,
					  .sync = stamped,
					  .compare_and_write = stamped,
					  .close = store_close };

static uint64_t loaded;
static bool all_there; /* atomic */

static void load_more(struct loop_msg *msg);

static void load_done(struct blk_req *req)
{
	if (req->status)
		broken("a read failed");
	blk_req_release(req);
	load_more(&conn.answer[0].msg);
}

static void load_more(struct loop_msg *msg)
{
	struct blk_req *req = &conn.answer[0].req;
	while (loaded < conn.blk->size) {
		req->op = BLK_READ;
		req->offset = loaded;
		req->len = KiB(64);
		req->done = load_done;
		loaded += req->len;
		if (!blk_submit(conn.blk, req))
			return;
		blk_req_release(req);
	}
	__atomic_store_n(&all_there, true, __ATOMIC_RELEASE);
}

static void load_start(void *arg)
{
	load_more(NULL);
}

static void hear(void *arg)
{
	*(int *)arg = loop_fd_add(conn.owner, &conn.lfd);
}

static void stop_hearing(void *arg)
{
	loop_fd_del(&conn.lfd);
}

static void tune(int fd)
{
	int on = 1;
	if (setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4) < 0)
		fprintf(stderr, "tgt-cachebench: without congestion control reno: %s\n",
			strerror(errno));
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

static bool connect_both(int *initiator, int *target)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(a);
	int l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	*initiator = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	bool ok = l >= 0 && *initiator >= 0 && !bind(l, (struct sockaddr *)&a, len) &&
		  !listen(l, 1) && !getsockname(l, (struct sockaddr *)&a, &len) &&
		  !connect(*initiator, (struct sockaddr *)&a, len) &&
		  (*target = accept4(l, NULL, NULL, SOCK_CLOEXEC)) >= 0;
	if (!ok) {
		perror("tgt-cachebench: a connection to ourselves");
		return false;
	}
	close(l);
	tune(*initiator);
	tune(*target);
	return true;
}

/* Which groups are on which of the two nodes. */
static bool find_places(void)
{
	const uint64_t groups = conn.blk->size / GROUP;
	for (unsigned n = 0; n < 2; n++)
		if (!(ini.place[n] = calloc(groups, sizeof(*ini.place[n]))))
			return false;
	for (uint64_t at = 0; at < conn.blk->size; at += GROUP) {
		struct cache_residency r;
		if (cache_residency(conn.blk, at, GROUP, &r) < 0 || r.valid != GROUP)
			return false;
		unsigned node = r.node_valid[1] == GROUP;
		ini.place[node][ini.places[node]++] = at;
	}
	return ini.places[0] && ini.places[1];
}

static struct loop *thread(const struct topology *topo, const char *name, int node)
{
	struct loop_conf lc = {
		.name = name, .node = node, .cpu = nth_cpu((unsigned)node), .spin_ns = SPIN_NS
	};
	for (int cpu = CPU_SETSIZE; !topo->simulated && cpu-- > 0;)
		if (CPU_ISSET(cpu, &topo->node[node].cpus))
			lc.cpu = cpu;
	struct loop *l = loop_create(&lc);
	return l && !loop_start(l) ? l : NULL;
}

static void pin_initiator(struct loop *const loops[2])
{
	cpu_set_t set;
	unsigned n = 0;
	if (sched_getaffinity(0, sizeof(set), &set) < 0 || CPU_COUNT(&set) < 3)
		return; /* it shares with one of them, as it comes */
	while (nth_cpu(n) == loop_cpu(loops[0]) || nth_cpu(n) == loop_cpu(loops[1]))
		n++;
	CPU_ZERO(&set);
	CPU_SET(nth_cpu(n), &set);
	sched_setaffinity(0, sizeof(set), &set);
}

int send_run(const struct send_conf *conf)
{
	static struct topology topo;
	struct loop *loops[TOPO_MAX_NODES] = { NULL };
	int target = -1, rc = 0;
	struct conn *c = &conn;
	if (conf->topo)
		topo = *conf->topo;
	else if (topology_detect(&topo, "") < 0 ||
		 (topo.nnodes < 2 && topology_simulate(&topo, 2) < 0))
		return 1;
	topology_use(&topo);
	if (!(loops[0] = thread(&topo, "owner", 0)) || !(loops[1] = thread(&topo, "worker", 1)))
		return 1;
	pin_initiator(loops);
	c->owner = loops[0];
	c->worker = loops[1];
	struct cache_conf cc = { .size = conf->span * 4,
				 .group = GROUP / KiB(4),
				 .block = KiB(4),
				 .readahead = 1,
				 .affinity = CACHE_AFFINITY_INLINE,
				 .node_mask = 3,
				 .topo = &topo,
				 .workers = loops };
	struct cache *cache = cache_create(&cc);
	struct blk *blk = calloc(1, sizeof(*blk));
	if (!cache || !blk)
		return 1;
	*blk = (struct blk){ .ops = &store_ops, .size = conf->span, .block_size = 512,
			     .physical_size = 512,
			     .max_len = MiB(1), .node = -1, .identity = blk_identity("send") };
	if (!(c->blk = cache_open(cache, blk, false)) || !connect_both(&ini.fd, &target))
		return 1;
	list_init(&c->queue);
	list_init(&c->batch);
	list_init(&c->free);
	loop_deferred_init(&c->owner_flush, owner_flush);
	loop_deferred_init(&c->worker_flush, worker_flush);
	for (unsigned i = 0; i < ANSWERS; i++) {
		blk_req_init(&c->answer[i].req);
		list_init(&c->answer[i].link);
		list_add_tail(&c->free, &c->answer[i].link);
	}
	loop_call(c->owner, load_start, NULL);
	while (!__atomic_load_n(&all_there, __ATOMIC_ACQUIRE))
		usleep(1000);
	ini.rng = 88172645463325252ull;
	ini.buf = malloc(MiB(1));
	if (!ini.buf || !find_places())
		return 1;
	c->lfd = (struct loop_fd){ .fd = target, .events = EPOLLIN, .ready = ready };
	loop_call(c->owner, hear, &rc);
	if (rc)
		return 1;

	static const uint32_t sizes[] = { KiB(4), KiB(16), KiB(64), KiB(256), MiB(1) };
	for (unsigned i = 0; i < ARRAY_SIZE(sizes); i++)
		if (!conf->size || !i)
			measure(conf, cache, conf->size ? conf->size : sizes[i], !i);
	if (conf->json && !conf->told)
		printf("]\n");

	uint64_t ns[2];
	cpu_both(ns);
	loop_call(c->owner, stop_hearing, NULL);
	close(ini.fd);
	close(target);
	for (unsigned i = 0; i < ANSWERS; i++)
		blk_req_fini(&c->answer[i].req);
	blk_close(c->blk);
	cache_destroy(cache);
	for (unsigned i = 0; i < 2; i++) {
		loop_stop(loops[i]);
		loop_join(loops[i]);
	}
	for (unsigned i = 0; i < 2; i++)
		loop_destroy(loops[i]);
	for (unsigned n = 0; n < 2; n++)
		free(ini.place[n]);
	free(ini.buf);
	return 0;
}
