/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The device server with real threads: sessions on several loops work on the same logical units
 * while others reset, preempt, change and delete them. Each session checks what it can know:
 * counters that only COMPARE AND WRITE moves lose nothing, every command ends once, nothing is left
 * at the end.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "events/bytes.h"
#include "events/clock.h"
#include "tests/support/unit.h"
#include "tgtd/scsi/commands/init.h"
#include "tgtd/scsi/target.h"

#define LOOPS 3
#define SESSIONS 8
#define DEPTH 4
#define BS 512

struct session;

struct job {
	struct scsi_cmd cmd;
	struct session *s;
	uint8_t cdb[16];
	uint8_t out[2 * BS], in[BS];
	uint64_t seen; /* COUNTER: the value that was read */
	int kind;
	bool busy, completed;
};

enum { TUR, READ, WRITE, COUNT_READ, COUNT_ADD, SANITIZE };

struct session {
	struct scsi_nexus n;
	struct loop *loop;
	struct loop_msg msg, tmf_msg;
	struct job job[DEPTH];
	uint64_t rng;
	uint64_t left;	 /* commands still to start */
	uint64_t added;	 /* increments that succeeded */
	unsigned running;
	bool closing, gone;
	uint32_t luns;
	bool count; /* nothing but counting on LUN 1 */
	void (*aborted)(void *arg);
	void *aborted_arg;
	struct scsi_lu *abort_lu;
	struct loop_deferred again;
};

static struct scsi_target *target;
static struct loop *main_loop, *loops[LOOPS];
static _Atomic unsigned sessions_gone;
static struct session *sessions[SESSIONS];

static uint32_t rnd(struct session *s)
{
	s->rng = s->rng * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(s->rng >> 33);
}

static void go_on(struct session *s);

static void check_aborts(struct session *s)
{
	if (!s->aborted)
		return;
	for (int i = 0; i < DEPTH; i++)
		if (s->job[i].busy && scsi_cmd_on(&s->job[i].cmd, s->abort_lu))
			return;
	void (*fn)(void *) = s->aborted;
	s->aborted = NULL;
	fn(s->aborted_arg);
}

static void fetch(struct scsi_cmd *cmd, struct scsi_seg *seg)
{
	struct job *j = container_of(cmd, struct job, cmd);

	frags_copy_in(&seg->io.data, 0, j->out + seg->off, seg->len);
	scsi_seg_fetched(seg, 0);
}

static void send(struct scsi_cmd *cmd, struct scsi_seg *seg)
{
	scsi_seg_sent(seg);
}

static void complete(struct scsi_cmd *cmd)
{
	struct job *j = container_of(cmd, struct job, cmd);
	struct session *s = j->s;

	ck_assert(j->busy && !j->completed);
	j->completed = true;
	if (cmd->tail) {
		frags_copy_out(&cmd->tail->io.data, 0, j->in, MIN(cmd->tail->len, (uint32_t)BS));
		scsi_seg_sent(cmd->tail);
	}
	if (j->kind == COUNT_ADD && cmd->status == SAM_GOOD)
		s->added++;
	scsi_cmd_end(cmd);
	j->busy = false;
	s->running--;
	check_aborts(s);
	loop_defer(s->loop, &s->again);
}

static void abort_all(struct scsi_nexus *n, struct scsi_lu *lu, bool tas, void (*done)(void *arg),
		      void *arg)
{
	struct session *s = n->host;

	if (s->aborted) { /* two at once: the second waits for all */
		struct session *o = s;
		void (*fn)(void *) = o->aborted;
		void *a = o->aborted_arg;
		o->aborted = NULL;
		for (int i = 0; i < DEPTH; i++)
			if (s->job[i].busy)
				scsi_cmd_abort(&s->job[i].cmd, tas);
		/* stores here complete on the spot: only held or posted
		 * commands remain, and end soon */
		fn(a);
	}
	for (int i = 0; i < DEPTH; i++)
		if (s->job[i].busy && scsi_cmd_on(&s->job[i].cmd, lu))
			scsi_cmd_abort(&s->job[i].cmd, tas);
	s->aborted = done;
	s->aborted_arg = arg;
	s->abort_lu = lu;
	check_aborts(s);
}

static void gone(void *arg)
{
	struct session *s = arg;

	s->gone = true;
	sessions_gone++;
}

static void drop(struct scsi_nexus *n)
{
	struct session *s = n->host;

	s->left = 0;
	s->closing = true;
	loop_defer(s->loop, &s->again);
}

static const struct scsi_transport_ops ops = {
	.name = "mt",
	.fetch = fetch,
	.send = send,
	.complete = complete,
	.abort_all = abort_all,
	.drop = drop,
};

static void start(struct session *s, struct job *j)
{
	uint32_t lun = s->count ? 1 : 1 + rnd(s) % s->luns, lba = 8 + rnd(s) % 512;
	bool in = false;
	size_t edtl = 0;

	memset(j->cdb, 0, sizeof(j->cdb));
	if (s->count)
		j->kind = j->kind == COUNT_READ && j->cmd.status == SAM_GOOD && j->completed ?
				  COUNT_ADD :
				  COUNT_READ;
	else
		j->kind = rnd(s) % 512 ? (int)(rnd(s) % 3) : SANITIZE;
	switch (j->kind) {
	case SANITIZE: /* BLOCK ERASE, every other one with IMMED */
		j->cdb[0] = 0x48;
		j->cdb[1] = (uint8_t)(rnd(s) & 0x80) | 0x02;
		break;
	case READ:
	case COUNT_READ:
		j->cdb[0] = 0x28;
		put_be32(j->cdb + 2, j->kind == COUNT_READ ? 0 : lba);
		j->cdb[8] = 1;
		in = true;
		edtl = BS;
		break;
	case WRITE:
		j->cdb[0] = 0x2a;
		put_be32(j->cdb + 2, lba);
		j->cdb[8] = 1;
		memset(j->out, (int)lba, BS);
		edtl = BS;
		break;
	case COUNT_ADD:
		memcpy(j->out, j->in, BS);
		memcpy(j->out + BS, j->in, BS);
		put_be64(j->out + BS, get_be64(j->in) + 1);
		j->cdb[0] = 0x89;
		j->cdb[13] = 1;
		edtl = 2 * BS;
		break;
	}
	j->cmd.nexus = &s->n;
	j->cmd.attr = rnd(s) % 16 == 0 ? SCSI_ATTR_ORDERED : SCSI_ATTR_SIMPLE;
	j->cmd.lun = (uint64_t)lun << 48;
	j->cmd.cdb = j->cdb;
	j->cmd.cdb_len = 16;
	j->cmd.edtl_in = in ? edtl : 0;
	j->cmd.edtl_out = in ? 0 : edtl;
	j->busy = true;
	j->completed = false;
	s->running++;
	s->left--;
	scsi_cmd_start(&j->cmd);
}

static void go_on(struct session *s)
{
	for (int i = 0; i < DEPTH && s->left; i++)
		if (!s->job[i].busy)
			start(s, &s->job[i]);
	if (s->left == 0 && s->running == 0 && !s->closing)
		s->closing = true;
	if (s->closing && s->running == 0 && !s->gone && s->n.host) {
		s->n.host = NULL;
		scsi_nexus_detach(&s->n, gone, s);
	}
}

static void again(struct loop_deferred *d)
{
	go_on(container_of(d, struct session, again));
}

static void begin(struct loop_msg *m)
{
	struct session *s = container_of(m, struct session, msg);

	for (int i = 0; i < DEPTH; i++) {
		scsi_cmd_init(&s->job[i].cmd);
		s->job[i].s = s;
	}
	if (scsi_nexus_attach(&s->n) < 0) { /* the target was faster */
		s->left = 0;
		s->n.host = NULL;
		gone(s);
		return;
	}
	go_on(s);
}

static void open_session(int i, uint64_t commands, uint32_t luns, bool count)
{
	struct session *s = calloc(1, sizeof(*s));

	s->loop = loops[i % LOOPS];
	s->rng = (uint64_t)i * 77 + 1;
	s->left = commands;
	s->luns = luns;
	s->count = count;
	s->n.target = target;
	s->n.loop = s->loop;
	s->n.ops = &ops;
	s->n.host = s;
	s->n.rtpi = 1;
	snprintf(s->n.initiator, sizeof(s->n.initiator), "iqn.%d,i,0x1", i);
	snprintf(s->n.iqn, sizeof(s->n.iqn), "iqn.%d", i);
	loop_deferred_init(&s->again, again);
	s->msg.handle = begin;
	sessions[i] = s;
	loop_post(s->loop, &s->msg);
}

static void free_sessions(void)
{
	for (int i = 0; i < SESSIONS; i++) {
		for (int j = 0; j < DEPTH; j++)
			scsi_cmd_fini(&sessions[i]->job[j].cmd);
		free(sessions[i]);
	}
}

static void wait_gone(void)
{
	uint64_t end = clock_now_ns() + 60 * NSEC_PER_SEC;

	while (sessions_gone < SESSIONS) {
		ck_assert_msg(clock_now_ns() < end, "%u of %d sessions ended", sessions_gone,
			      SESSIONS);
		usleep(1000);
	}
}

static struct scsi_lu *add_lu(uint32_t lun)
{
	struct blk_open_args args = { .path = "4m", .block_size = BS, .node = -1 };
	struct scsi_lu_conf conf;
	struct scsi_lu *lu;

	scsi_lu_conf_init(&conf);
	conf.lun = lun;
	conf.thin_provisioning = true;
	conf.blk = blk_open("ram", &args);
	ck_assert_ptr_nonnull(conf.blk);
	lu = scsi_lu_create(target, &conf);
	ck_assert_ptr_nonnull(lu);
	return lu;
}

static void do_setup(void *arg)
{
	scsi_commands_init();
	target = scsi_target_create(1, "iqn.2026-11.test:mt");
	ck_assert_ptr_nonnull(target);
	for (uint32_t lun = 1; lun <= 3; lun++)
		add_lu(lun);
}

static void setup(void)
{
	for (int i = 0; i <= LOOPS; i++) {
		struct loop_conf conf = { .name = "mt", .node = 0, .cpu = -1 };
		struct loop *l = loop_create(&conf);

		ck_assert_int_eq(loop_start(l), 0);
		if (i == LOOPS)
			main_loop = l;
		else
			loops[i] = l;
	}
	loop_call(main_loop, do_setup, NULL);
}

static _Atomic int pending;

static void done(void *arg, int status)
{
	int *out = arg;

	if (out)
		*out = status;
	pending--;
}

static void do_delete_target(void *arg)
{
	scsi_target_delete(target, true, done, arg);
}

static void wait_pending(void)
{
	uint64_t end = clock_now_ns() + 60 * NSEC_PER_SEC;

	while (pending) {
		ck_assert(clock_now_ns() < end);
		usleep(500);
	}
}

static void do_shutdown(void *arg)
{
	scsi_shutdown();
}

static void teardown(void)
{
	int status = 1;

	pending = 1;
	loop_call(main_loop, do_delete_target, &status);
	wait_pending();
	ck_assert_int_eq(status, 0);
	wait_gone();
	loop_call(main_loop, do_shutdown, NULL);
	for (int i = 0; i <= LOOPS; i++) {
		struct loop *l = i == LOOPS ? main_loop : loops[i];

		loop_end(l);
	}
}

static uint64_t counter;
static void do_read_counter(void *arg)
{
	struct scsi_lu *lu = scsi_lu_find(target, 1);
	struct scsi_lu_info info;
	struct blk_req req;
	uint8_t b[8];

	scsi_lu_get_info(lu, &info);
	blk_req_init(&req);
	req.op = BLK_READ;
	req.len = BS;
	ck_assert(blk_submit(info.conf.blk, &req));
	frags_copy_out(&req.data, 0, b, 8);
	counter = get_be64(b);
	blk_req_release(&req);
	blk_req_fini(&req);
}

/* COMPARE AND WRITE from eight sessions on three threads: no increment is lost. */
START_TEST(counting)
{
	uint64_t sum = 0;

	setup();
	for (int i = 0; i < SESSIONS; i++)
		open_session(i, 8000, 1, true);
	wait_gone();
	for (int i = 0; i < SESSIONS; i++)
		sum += sessions[i]->added;
	loop_call(main_loop, do_read_counter, NULL);
	ck_assert_uint_gt(sum, 1000);
	ck_assert_uint_eq(counter, sum);
	teardown();
	free_sessions();
}
END_TEST

/* ---- storms ---------------------------------------------------------------------------------- */

static int tmf_to_send;
static void tmf_done(void *arg, int response)
{
	(void)response;
	pending--;
}

static void do_tmf(struct loop_msg *m)
{
	struct session *s = container_of(m, struct session, tmf_msg);

	if (s->gone || s->closing || !s->n.host) {
		pending--;
		return;
	}
	scsi_tmf(&s->n, (enum scsi_tmf)tmf_to_send, 1ull << 48, tmf_done, s);
}

START_TEST(reset_storm)
{
	static const enum scsi_tmf fn[] = { TMF_LU_RESET, TMF_CLEAR_TASK_SET, TMF_TARGET_WARM_RESET,
					    TMF_ABORT_TASK_SET, TMF_I_T_NEXUS_RESET };

	setup();
	scsi_target_allow(target, SCSI_ALLOW_RESET, true);
	for (int i = 0; i < SESSIONS; i++)
		open_session(i, 60000, 3, false);
	for (int i = 0; i < 60; i++) {
		struct session *s = sessions[i % SESSIONS];

		tmf_to_send = (int)fn[(unsigned)i % ARRAY_SIZE(fn)];
		pending = 1;
		s->tmf_msg.handle = do_tmf;
		loop_post(s->loop, &s->tmf_msg);
		wait_pending();
	}
	wait_gone();
	teardown();
	free_sessions();
}
END_TEST

static uint32_t lun_to_delete;
static void do_delete_lu(void *arg)
{
	scsi_lu_delete(scsi_lu_find(target, lun_to_delete), true, done, arg);
}

static void do_add_lu(void *arg)
{
	add_lu(lun_to_delete);
}

static void do_change(void *arg)
{
	struct scsi_lu *lu = scsi_lu_find(target, 1);
	static unsigned n;
	static const char *const on[] = { "0", "1" };

	(void)!scsi_lu_update(lu, "readonly", on[n & 1]);
	(void)!scsi_lu_update(lu, "sense_format", on[n >> 1 & 1]);
	(void)!scsi_lu_update(lu, "online", on[(n % 5) != 0]);
	n++;
}

static struct blk *fresh;
static void do_swap(void *arg)
{
	scsi_lu_set_blk(scsi_lu_find(target, 1), fresh, done, arg);
}

static void do_close_fresh(void *arg)
{
	blk_close(fresh);
}

/* Units come and go, change and get other stores under load. */
START_TEST(admin_storm)
{
	setup();
	for (int i = 0; i < SESSIONS; i++)
		open_session(i, 60000, 3, false);
	for (int i = 0; i < 30; i++) {
		struct blk_open_args args = { .path = "4m", .block_size = BS, .node = -1 };
		int status = 1;

		lun_to_delete = 2 + (uint32_t)i % 2;
		pending = 1;
		loop_call(main_loop, do_delete_lu, &status);
		wait_pending();
		ck_assert_int_eq(status, 0);
		loop_call(main_loop, do_add_lu, NULL);
		loop_call(main_loop, do_change, NULL);
		fresh = blk_open("ram", &args);
		pending = 1;
		loop_call(main_loop, do_swap, &status);
		wait_pending();
		if (status) { /* not during SANITIZE */
			ck_assert_int_eq(status, -EBUSY);
			loop_call(main_loop, do_close_fresh, NULL);
		}
	}
	wait_gone();
	teardown();
	free_sessions();
}
END_TEST

/* The target goes while everybody is at work. */
START_TEST(forced_end)
{
	setup();
	for (int i = 0; i < SESSIONS; i++)
		open_session(i, UINT64_MAX, 3, false);
	usleep(50000);
	teardown();
	free_sessions();
}
END_TEST

UNIT_MAIN("mt_scsi", 60, counting, reset_storm, admin_storm, forced_end)
