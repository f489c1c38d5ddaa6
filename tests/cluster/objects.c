/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * tgtd/cluster/live/rados_client.h against a Ceph that test_objects.sh brings up: objects by
 * version, races of clients, messages, fences, an OSD that does not answer. Prints TAP. Process id
 * of the OSD: $OSD.
 */
#include <dirent.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include "events/clock.h"
#include "tgtd/cluster/live/rados_client.h"

#define DEADLINE_S 60u /* of anything; a machine may be busy */

static struct loop *loop;
static unsigned tests, failed;

static bool __attribute__((format(printf, 2, 3))) tap(bool good, const char *fmt, ...)
{
	va_list ap;

	tests++;
	failed += !good;
	printf("%s ", good ? "ok" : "not ok");
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	printf("\n");
	fflush(stdout);
	return good;
}

/* ---- a client, one request at a time --------------------------------------------------------- */

struct peer {
	struct rclient r;
	struct rclient_req req;
	bool opened, closed, over;
	int err;
	unsigned heard;
	char last[64], data[64];
};

static bool await(const bool *flag)
{
	const uint64_t until = clock_now_ns() + DEADLINE_S * NSEC_PER_SEC;

	while (!*flag && clock_now_ns() < until)
		loop_step(loop, 20);
	return *flag;
}

static void peer_opened(struct rclient *r, int err, const char *why)
{
	struct peer *p = container_of(r, struct peer, r);

	p->opened = true;
	p->err = err;
	if (err)
		printf("# %s\n", why);
}

static void peer_closed(struct rclient *r)
{
	container_of(r, struct peer, r)->closed = true;
}

static void peer_heard(struct rclient *r, const void *data, size_t len)
{
	struct peer *p = container_of(r, struct peer, r);

	snprintf(p->last, sizeof(p->last), "%.*s", (int)len, (const char *)data);
	p->heard++;
}

static void peer_over(struct rclient_req *req)
{
	container_of(req, struct peer, req)->over = true;
}

static void fill(struct peer *p, const char *group, const char *watched)
{
	memset(p, 0, sizeof(*p));
	p->r.home = loop;
	p->r.name = (struct rbd_name){
		.user = "client.admin", .cluster = "ceph", .pool = "rbd", .space = "tgtd"
	};
	snprintf(p->r.name.group, sizeof(p->r.name.group), "%s", group);
	snprintf(p->r.watched, sizeof(p->r.watched), "%s", watched);
	p->r.heard = peer_heard;
	p->r.opened = peer_opened;
	p->r.closed = peer_closed;
	p->req.done = peer_over;
}

/* rclient_open() and the like are called on the loop. */
struct on_loop {
	struct loop_msg msg;
	void (*fn)(struct peer *p);
	struct peer *p;
	bool ran;
};

static void on_loop_run(struct loop_msg *msg)
{
	struct on_loop *o = container_of(msg, struct on_loop, msg);

	o->fn(o->p);
	o->ran = true;
}

static void on_loop(struct peer *p, void (*fn)(struct peer *p))
{
	struct on_loop o = { .msg.handle = on_loop_run, .fn = fn, .p = p };

	loop_post(loop, &o.msg);
	(void)await(&o.ran);
}

static void do_open(struct peer *p)
{
	rclient_open(&p->r);
}

static void do_close(struct peer *p)
{
	rclient_close(&p->r);
}

static void do_get(struct peer *p)
{
	rclient_get(&p->r, &p->req);
}

static void do_put(struct peer *p)
{
	rclient_put(&p->r, &p->req);
}

static void do_notify(struct peer *p)
{
	rclient_notify(&p->r, &p->req);
}

static void do_fence(struct peer *p)
{
	rclient_fence(&p->r, &p->req);
}

static void do_map(struct peer *p)
{
	rclient_newest_map(&p->r, &p->req);
}

static bool peer_open(struct peer *p, const char *group, const char *watched)
{
	fill(p, group, watched);
	on_loop(p, do_open);
	return await(&p->opened) && !p->err;
}

static bool peer_close(struct peer *p)
{
	on_loop(p, do_close);
	return await(&p->closed);
}

/* The status; 1: it never ended. */
static int ask(struct peer *p, void (*fn)(struct peer *p), const char *oid)
{
	p->over = false;
	snprintf(p->req.oid, sizeof(p->req.oid), "%s", oid);
	on_loop(p, fn);
	return await(&p->over) ? p->req.status : 1;
}

static int get(struct peer *p, const char *oid)
{
	p->req.data = p->data;
	p->req.len = sizeof(p->data) - 1;
	const int status = ask(p, do_get, oid);

	p->data[status ? 0 : p->req.len] = '\0';
	return status;
}

static int put(struct peer *p, const char *oid, const char *text, uint64_t version)
{
	p->req.data = (char *)(uintptr_t)text;
	p->req.len = strlen(text);
	p->req.version = version;
	return ask(p, do_put, oid);
}

static int notify(struct peer *p, const char *oid, const char *text)
{
	p->req.data = (char *)(uintptr_t)text;
	p->req.len = strlen(text);
	return ask(p, do_notify, oid);
}

static int fence(struct peer *p, const char *address, bool lift)
{
	p->req.address[0] = address;
	p->req.addresses = 1;
	p->req.expire_s = 3600;
	p->req.lift = lift;
	return ask(p, do_fence, "");
}

static int fence_for(struct peer *p, const char *address, unsigned seconds)
{
	p->req.address[0] = address;
	p->req.addresses = 1;
	p->req.expire_s = seconds;
	p->req.lift = false;
	return ask(p, do_fence, "");
}

/* ---- objects --------------------------------------------------------------------------------- */

static void test_versions(struct peer *a)
{
	uint64_t first, second;

	tap(get(a, "o") == -ENOENT, "an object that is not there");
	tap(put(a, "o", "one", 7) == -ERANGE, "a write that expects another one fails");
	tap(put(a, "o", "one", 0) == 0, "it is made");
	first = a->req.version;
	tap(put(a, "o", "two", 0) == -ERANGE, "... and not made twice");
	tap(get(a, "o") == 0 && !strcmp(a->data, "one") && a->req.version == first,
	    "what is read has the version that was written");
	tap(put(a, "o", "second", first) == 0 && a->req.version > first,
	    "the one that is known is replaced");
	second = a->req.version;
	tap(put(a, "o", "third", first) == -ERANGE, "an older one is not");
	tap(put(a, "o", "third", second + 5) == -ERANGE, "... nor one that is yet to come");
	tap(get(a, "o") == 0 && !strcmp(a->data, "second") && a->req.version == second,
	    "... and nothing of it has been written");
}

#define RACERS 4u
#define RACE_ROUNDS 50u

/* Each adds one to a number, as long as another one has done so meanwhile. */
struct racer {
	struct peer p;
	unsigned left, lost;
	bool over, writes;
};

static void race_on(struct rclient_req *req)
{
	struct racer *r = container_of(req, struct racer, p.req);

	if (r->writes && !req->status)
		r->left--;
	r->lost += r->writes && req->status == -ERANGE;
	if ((req->status && !(r->writes && req->status == -ERANGE)) || !r->left) {
		r->p.err = req->status;
		r->over = true;
		return;
	}
	if (r->writes) {
		r->writes = false;
		req->data = r->p.data;
		req->len = sizeof(r->p.data) - 1;
		rclient_get(&r->p.r, req);
		return;
	}
	r->p.data[req->len] = '\0';
	req->len = (size_t)snprintf(r->p.data, sizeof(r->p.data), "%d", atoi(r->p.data) + 1);
	r->writes = true;
	rclient_put(&r->p.r, req);
}

static void race_begin(struct peer *p)
{
	p->req.done = race_on;
	p->req.data = p->data;
	p->req.len = sizeof(p->data) - 1;
	rclient_get(&p->r, &p->req);
}

static void test_race(struct peer *a)
{
	static struct racer racer[RACERS];
	unsigned lost = 0;
	bool good = put(a, "count", "0", 0) == 0;

	for (unsigned i = 0; i < RACERS; i++) {
		char group[16];

		snprintf(group, sizeof(group), "racer%u", i);
		good &= peer_open(&racer[i].p, group, "");
		racer[i].left = RACE_ROUNDS;
		snprintf(racer[i].p.req.oid, sizeof(racer[i].p.req.oid), "count");
	}
	for (unsigned i = 0; i < RACERS && good; i++)
		on_loop(&racer[i].p, race_begin);
	for (unsigned i = 0; i < RACERS && good; i++) {
		good &= await(&racer[i].over) && !racer[i].p.err;
		lost += racer[i].lost;
	}
	tap(good && get(a, "count") == 0 && atoi(a->data) == RACERS * RACE_ROUNDS,
	    "%u clients count to %u together; %u times another one was first", RACERS,
	    RACERS * RACE_ROUNDS, lost);
	for (unsigned i = 0; i < RACERS; i++)
		(void)peer_close(&racer[i].p);
}

/* ---- messages -------------------------------------------------------------------------------- */

static bool says_until_heard(struct peer *from, struct peer *to, const char *oid, const char *text)
{
	const uint64_t until = clock_now_ns() + DEADLINE_S * NSEC_PER_SEC;
	const unsigned before = to->heard;

	while (to->heard == before && clock_now_ns() < until) {
		(void)notify(from, oid, text);
		loop_step(loop, 20);
	}
	return to->heard > before && !strcmp(to->last, text);
}

static void test_messages(struct peer *a, struct peer *b)
{
	tap(notify(a, "b", "nobody") == -ENOENT, "a message to an object that is not there");
	(void)put(b, "b", "", 0);
	tap(says_until_heard(a, b, "b", "hello"), "a message is heard once there is an object");
	tap(notify(a, "b", "again") == 0 && says_until_heard(a, b, "b", "last"),
	    "... and so are more");
}

/* ---- fences ---------------------------------------------------------------------------------- */

static void test_fence(struct peer *a, struct peer *b)
{
	const char *address = b->r.client->address;

	printf("# the address of a client: %s\n", address);
	tap(fence(a, "nonsense", false) == -EINVAL, "what is no address is not fenced");
	tap(fence(a, "1.2.3.4:0/5\",\"expire\":\"1", false) == -EINVAL,
	    "... nor what would be more than one");
	tap(put(b, "f", "one", 0) == 0, "a client writes");
	tap(fence(a, address, false) == 0, "... is fenced");
	tap(ask(a, do_map, "") == 0, "... the newest map is waited for");
	tap(get(a, "f") == 0 && !strcmp(a->data, "one"), "... what is read then is the last");
	tap(put(b, "f", "two", b->req.version) == -ESHUTDOWN, "... for it writes no more");
	tap(get(a, "f") == 0 && !strcmp(a->data, "one"), "... and has not");
	tap(fence(a, address, false) == 0, "it may be fenced again");
	tap(fence(a, address, true) == 0, "... and a fence be lifted");
}

/* An entry that exists keeps its time: fences are made for long from the beginning (fences.c). */
#define SHORT_S 4u
static void test_expiry(struct peer *a)
{
	static struct peer early, late, brief;
	const bool open = peer_open(&early, "early", "") && peer_open(&late, "late", "") &&
			  peer_open(&brief, "brief", "");
	const uint64_t until = clock_now_ns() + DEADLINE_S * NSEC_PER_SEC;
	const char *first, *second;
	int err;

	tap(open, "three more clients");
	if (!open)
		return;
	first = early.r.client->address;
	second = late.r.client->address;
	tap(fence_for(a, first, 3600) == 0 && fence_for(a, first, SHORT_S) == 0,
	    "one is fenced for long, then for %u s", SHORT_S);
	tap(fence_for(a, second, SHORT_S) == 0, "the other one for %u s", SHORT_S);
	tap(fence_for(a, second, 3600) == 0 && ask(a, do_map, "") == 0, "... then for long");
	tap(fence_for(a, brief.r.client->address, SHORT_S) == 0, "a third one for %u s", SHORT_S);
	/* The monitor looks every five seconds. */
	while ((err = put(&brief, "x", "one", 0)) == -ESHUTDOWN && clock_now_ns() < until)
		loop_step(loop, 100);
	tap(!err, "... which are over");
	tap(put(&early, "x", "two", brief.req.version) == -ESHUTDOWN,
	    "who was fenced for long first stays fenced");
	/* Which of both it is depends on Ceph; nothing here may build upon it. */
	printf("# fenced for long at the second time: %s\n",
	       put(&late, "y", "one", 0) ? "the second time counts" : "Ceph keeps the first time");
	(void)fence(a, first, true);
	(void)fence(a, second, true);
	tap(peer_close(&early) && peer_close(&late) && peer_close(&brief), "they are closed");
}

/* A gateway's whole list is one batch. */
static void test_batch(struct peer *a)
{
	static char text[16][32];
	uint64_t began;

	for (unsigned i = 0; i < 16; i++) {
		snprintf(text[i], sizeof(text[i]), "192.0.2.1:0/%u", i + 1);
		a->req.address[i] = text[i];
	}
	for (unsigned n = 1; n <= 16; n += 15)
		for (unsigned lift = 0; lift < 2; lift++) {
			a->req.addresses = n;
			a->req.expire_s = 3600;
			a->req.lift = lift;
			began = clock_now_ns();
			tap(ask(a, do_fence, "") == 0, "%u addresses at once are %s", n,
			    lift ? "lifted" : "fenced");
			printf("# in %llu ms\n", (unsigned long long)((clock_now_ns() - began) /
								      NSEC_PER_MSEC));
			for (unsigned i = 0; i < 16; i++)
				a->req.address[i] = text[i];
		}
	a->req.addresses = 2;
	a->req.lift = false;
	a->req.address[1] = "nonsense";
	tap(ask(a, do_fence, "") == -EINVAL, "one of them that is none is refused");
}

/* ---- an OSD that does not answer ------------------------------------------------------------- */

/* Is one thread of @pid not stopped yet? */
static bool still_runs(pid_t pid)
{
	char path[320], line[512];
	const struct dirent *e;
	bool runs = false;
	FILE *f;
	DIR *d;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	d = opendir(path);
	while (d && !runs && (e = readdir(d))) {
		const char *state;

		snprintf(path, sizeof(path), "/proc/%d/task/%s/stat", (int)pid, e->d_name);
		f = *e->d_name == '.' ? NULL : fopen(path, "r");
		if (!f)
			continue;
		state = fgets(line, sizeof(line), f) ? strrchr(line, ')') : NULL;
		runs = state && state[1] == ' ' && state[2] != 'T';
		fclose(f);
	}
	if (d)
		closedir(d);
	return runs;
}

/* Threads of a busy machine may go on for a while after the signal. */
static void stop_all(pid_t pid)
{
	kill(pid, SIGSTOP);
	for (unsigned i = 0; i < 4000 && still_runs(pid); i++)
		usleep(5000);
}

static void test_silence(struct peer *a, pid_t osd)
{
	uint64_t began, took, version;
	int status;

	(void)put(a, "s", "one", 0);
	version = a->req.version;
	stop_all(osd);
	began = clock_now_ns();
	status = put(a, "s", "two", version);
	took = clock_now_ns() - began;
	kill(osd, SIGCONT);
	tap(status == -ETIMEDOUT, "an OSD that is stopped: a write is given up");
	tap(took < 30 * NSEC_PER_SEC, "... after %u ms", (unsigned)(took / 1000000));
	for (unsigned i = 0; i < 60 && (status = get(a, "s")) == -ETIMEDOUT; i++)
		;
	tap(status == 0 && (!strcmp(a->data, "one") || !strcmp(a->data, "two")),
	    "when it goes on the object is read: the write has landed, or not");
	tap(put(a, "s", "three", a->req.version) == 0 ||
		    (get(a, "s") == 0 && put(a, "s", "three", a->req.version) == 0),
	    "... and written");
}

int main(void)
{
	const struct loop_conf conf = { .name = "objects", .node = -1, .cpu = -1 };
	static struct peer a, b;
	const char *osd = getenv("OSD");

	loop = loop_create(&conf);
	if (!loop || !osd)
		return 1;
	if (tap(peer_open(&a, "g/a", "a") && peer_open(&b, "g/b", "b"),
		"two clients of a group connect")) {
		test_versions(&a);
		test_race(&a);
		test_messages(&a, &b);
		test_fence(&a, &b);
		test_batch(&a);
		test_expiry(&a);
		test_silence(&a, atoi(osd));
	}
	tap(peer_close(&a) && peer_close(&b), "they are closed");
	loop_destroy(loop);
	tap(offload_fini(), "nothing is left");
	printf("1..%u\n", tests);
	return failed != 0;
}
