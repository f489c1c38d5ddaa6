/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * cache/backend/rbd_store.h against a Ceph that test_objects.sh brings up: two processes, as two
 * gateways, have one image; locks, fences, and the image closed and opened below its store. Prints
 * TAP.
 */
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include "cache/backend/rbd_cluster.h"
#include "cache/backend/rbd_put.h"
#include "cache/backend/rbd_store.h"
#include "events/clock.h"
#include "events/offload.h"
#include "events/loop.h"

static unsigned tests, failed;

static void __attribute__((format(printf, 2, 3))) tap(bool good, const char *fmt, ...)
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
}

/* ---- a gateway: does what it is told by a line, and answers by one --------------------------- */

static struct loop *loop;
static struct blk *blk;
static struct topology topo;
static struct rbd_cluster *client;
static const struct rbd_lib *lib;
static uint8_t page[KiB(4)];

static const struct rbd_name whose = {
	.user = "client.admin", .cluster = "ceph", .pool = "rbd", .group = "g"
};

static int new_client(void)
{
	char why[200];

	if (client) {
		atomic_store(&client->fenced, true);
		rbd_cluster_put(lib, client);
	}
	lib = rbd_lib_load(why, sizeof(why));
	client = lib ? rbd_cluster_get(lib, &whose, why, sizeof(why)) : NULL;
	return client ? 0 : -errno;
}

static int fence(const char *address)
{
	char text[256], *out = NULL, *status = NULL;
	const char *command[] = { text };
	size_t nout = 0, nstatus = 0;
	int err;

	snprintf(text, sizeof(text),
		 "{\"prefix\":\"osd blocklist\",\"blocklistop\":\"add\",\"addr\":\"%s\"}", address);
	err = lib->rados_mon_command(client->rados, command, 1, NULL, 0, &out, &nout, &status,
				     &nstatus);
	return err ? err : lib->rados_wait_for_latest_osdmap(client->rados);
}

struct transfer {
	struct loop_msg msg;
	struct blk_req req;
	bool over;
};

static void transfer_over(struct blk_req *req)
{
	container_of(req, struct transfer, req)->over = true;
}

static void transfer_begin(struct loop_msg *msg)
{
	struct transfer *x = container_of(msg, struct transfer, msg);

	x->over = blk_submit(blk, &x->req);
}

/* The first blocks, from or to the page. */
static int transfer(enum blk_op op, uint16_t flags)
{
	struct transfer x = { .msg.handle = transfer_begin };
	const uint64_t until = clock_now_ns() + 60 * NSEC_PER_SEC;

	blk_req_init(&x.req);
	x.req.op = op;
	x.req.flags = flags;
	x.req.len = sizeof(page);
	x.req.done = transfer_over;
	if (frags_append(&x.req.data, page, sizeof(page), NULL))
		return -ENOMEM;
	loop_post(loop, &x.msg);
	while (!x.over && clock_now_ns() < until)
		loop_step(loop, 20);
	if (!x.over)
		_exit(1);
	frags_put(&x.req.data);
	blk_req_fini(&x.req);
	return x.req.status;
}

/* What a takeover brings: the first blocks, and then zeros behind the first. */
static int put(int value)
{
	struct rbd_put p;
	int err = rbd_put_begin(&p, blk);

	if (err)
		return err;
	memset(page, value, sizeof(page));
	for (size_t at = 0; at < sizeof(page); at += 512)
		rbd_put(&p, at, page + at, 512);
	err = rbd_put_end(&p);
	if (err)
		return err;
	err = rbd_put_begin(&p, blk);
	if (err)
		return err;
	rbd_put_zeroes(&p, 512, rbd_put_size(&p) - 512);
	return rbd_put_end(&p);
}

static int gateway_do(const char *verb, const char *arg, char *said, size_t len)
{
	char why[200] = "";
	int err;

	if (!strcmp(verb, "open")) {
		const struct blk_open_args args = { .path = "rbd/two",
						    .opts = "group=g",
						    .node = -1,
						    .topo = &topo,
						    .err = why,
						    .err_len = sizeof(why) };
		blk = blk_open("rbd", &args);
		if (!blk)
			return -errno;
		return rbd_store_of_group(blk) ? new_client() : -EINVAL;
	}
	if (!strcmp(verb, "address"))
		return snprintf(said, len, "%s", client->address) ? 0 : 1;
	if (!strcmp(verb, "lock"))
		return rbd_store_lock(blk, said, len);
	if (!strcmp(verb, "break"))
		return rbd_store_break(blk, arg);
	if (!strcmp(verb, "unlock"))
		return rbd_store_unlock(blk);
	if (!strcmp(verb, "fence"))
		return fence(arg);
	if (!strcmp(verb, "write")) {
		memset(page, atoi(arg), sizeof(page));
		return transfer(BLK_WRITE, BLK_F_FROM);
	}
	if (!strcmp(verb, "read")) {
		err = transfer(BLK_READ, BLK_F_INTO);
		snprintf(said, len, "%d %d", page[0], page[512]);
		return err;
	}
	if (!strcmp(verb, "put"))
		return put(atoi(arg));
	if (!strcmp(verb, "stop"))
		rbd_store_stop(blk);
	else if (!strcmp(verb, "go"))
		rbd_store_go(blk);
	else if (!strcmp(verb, "detach"))
		rbd_store_detach(blk);
	else if (!strcmp(verb, "client"))
		return new_client();
	else if (!strcmp(verb, "attach"))
		return rbd_store_attach(blk, why, sizeof(why));
	else
		return -EINVAL;
	return 0;
}

__attribute__((noreturn)) static void gateway_main(int fd)
{
	FILE *f = fdopen(fd, "r"), *back = fdopen(dup(fd), "w");

	const struct loop_conf conf = { .name = "gateway", .node = -1, .cpu = -1 };

	loop = loop_create(&conf);
	if (topology_detect(&topo, "") || !loop)
		_exit(1);
	char line[256], verb[32], arg[200], said[200];

	while (f && back && fgets(line, sizeof(line), f)) {
		*arg = *said = '\0';
		if (sscanf(line, "%31s %199s", verb, arg) < 1)
			break;
		const int err = gateway_do(verb, arg, said, sizeof(said));

		fprintf(back, "%d %s\n", err, said);
		fflush(back);
	}
	blk_close(blk);
	_exit(0);
}

/* ---- the other side -------------------------------------------------------------------------- */

static char more[200];

/* The status; what else was said is in @more. 999: it has ended. */
static int __attribute__((format(printf, 2, 3))) tell(int fd, const char *fmt, ...)
{
	char line[300];
	size_t n = 0;
	int status = 999;
	va_list ap;

	va_start(ap, fmt);
	vdprintf(fd, fmt, ap);
	va_end(ap);
	if (write(fd, "\n", 1) != 1)
		return status;
	while (n < sizeof(line) - 1 && read(fd, line + n, 1) == 1 && line[n] != '\n')
		n++;
	line[n] = '\0';
	*more = '\0';
	(void)sscanf(line, "%d %199[^\n]", &status, more);
	return status;
}

static int gateway(void)
{
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
		return -1;
	if (!fork()) {
		close(pair[0]);
		gateway_main(pair[1]);
	}
	close(pair[1]);
	return pair[0];
}

static void test_locks(int a, int b)
{
	char address[200];

	tap(tell(a, "address") == 0 && snprintf(address, sizeof(address), "%s", more) > 0,
	    "a gateway's data client has an address: %s", more);
	tap(tell(a, "write 1") == -ENODEV, "it writes nothing that is not its own");
	tap(tell(a, "lock") == 0, "it takes the lock");
	tap(tell(a, "lock") == 0, "... and has it");
	tap(tell(a, "write 1") == -ENODEV, "... and nothing before it is told to");
	tap(tell(a, "go") == 0 && tell(a, "write 1") == 0, "... and then writes");
	tap(tell(b, "lock") == -EBUSY && !strcmp(more, address),
	    "another one is told whose it is: %s", more);
	tap(tell(b, "break 1.2.3.4:0/5") == 0 && tell(b, "lock") == -EBUSY,
	    "the lock is not broken for another address");
	tap(tell(a, "unlock") == 0 && tell(b, "lock") == 0, "it is given back, and taken");
	tap(tell(b, "unlock") == 0 && tell(b, "unlock") == 0, "... and given back, once");
	tap(tell(a, "lock") == 0, "the first one has it again");
}

static void test_takeover(int a, int b)
{
	char address[200];
	uint64_t began;

	(void)tell(a, "address");
	snprintf(address, sizeof(address), "%s", more);
	began = clock_now_ns();
	tap(tell(b, "fence %s", address) == 0 && tell(b, "break %s", address) == 0 &&
		    tell(b, "lock") == 0,
	    "the other one fences it, breaks its lock and takes it");
	tap(tell(b, "put 7") == 0 && tell(b, "go") == 0 && tell(b, "read") == 0 &&
		    !strcmp(more, "7 0"),
	    "... brings what was held elsewhere, before it begins (%s)", more);
	tap(tell(b, "write 2") == 0, "... and writes, %u ms after it began",
	    (unsigned)((clock_now_ns() - began) / 1000000));
	tap(tell(a, "write 3") == -ENODEV, "the fenced one writes nothing");
	tap(tell(a, "put 8") < 0, "... and brings nothing");
	tap(tell(b, "read") == 0 && !strcmp(more, "2 2"), "... nothing");
}

static void test_return(int a, int b)
{
	tap(tell(a, "stop") == 0 && tell(a, "read") == -ENODEV,
	    "one that is stopped reads nothing");
	tap(tell(a, "detach") == 0 && tell(a, "read") == -ENODEV, "nor one that is detached");
	tap(tell(a, "client") == 0 && tell(a, "attach") == 0 && tell(a, "go") == 0 &&
		    tell(a, "read") == 0 && !strcmp(more, "2 2"),
	    "with a new client it reads what is there");
	tap(tell(a, "attach") == 0, "it is attached once");
	tap(tell(a, "lock") == -EBUSY, "... and has no lock");
	tap(tell(b, "unlock") == 0 && tell(a, "lock") == 0 && tell(a, "write 4") == 0,
	    "... until that is given back");
	tap(tell(b, "read") == 0 && !strcmp(more, "4 4"), "the other one reads what was written");
}

int main(void)
{
	int a, b, status = 0;

	signal(SIGPIPE, SIG_IGN);
	rbd_cluster_set_group(&whose);
	a = gateway();
	b = gateway();

	if (a < 0 || b < 0)
		return 1;
	tap(tell(a, "open") == 0 && tell(b, "open") == 0, "two gateways open one image");
	test_locks(a, b);
	test_takeover(a, b);
	test_return(a, b);
	close(a);
	close(b);
	for (unsigned i = 0; i < 2; i++)
		tap(wait(&status) > 0 && WIFEXITED(status) && !WEXITSTATUS(status),
		    "a gateway has ended");
	printf("1..%u\n", tests);
	return failed != 0;
}
