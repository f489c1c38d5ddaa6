/* SPDX-License-Identifier: GPL-2.0-or-later */
/* EXTENDED COPY between targets, in the background, its status while it
 * runs, and its end by force. */
#include <stdio.h>
#include <stdlib.h>
#include "events/bytes.h"
#include "tests/support/blk_pass.h"
#include "tests/support/scsi_host.h"
#include "tests/support/unit.h"

static struct host h, far; /* far: another target on the same loop; LUN 1 */
static struct host_nexus *n;
static bool allowed;
static unsigned asked;

static bool may_log_in(struct scsi_target *t, const struct scsi_nexus *nexus)
{
	ck_assert_ptr_eq(t, far.target);
	ck_assert_str_eq(nexus->iqn, "iqn.a");
	asked++;
	return allowed;
}

static void do_far_target(void *arg)
{
	(void)arg;
	far.target = scsi_target_create(777, "iqn.2026-11.test:far");
}

static void begin(void)
{
	host_open(&h, "16m", 512);
	host_add_lu(&h, 2, "8m", 512);
	memset(&far, 0, sizeof(far));
	far.loop = h.loop;
	list_init(&far.nexuses);
	host_do(&h, do_far_target, NULL);
	ck_assert_ptr_nonnull(far.target);
	far.lu = host_add_lu(&far, 1, "8m", 512);
	scsi_set_access(h.loop, may_log_in);
	allowed = true;
	asked = 0;
	n = host_login_ready(&h, "iqn.a");
	host_tur(n, 2);
}

struct end {
	bool done, force;
	int status;
};
static void ended(void *arg, int status)
{
	struct end *e = arg;

	e->done = true;
	e->status = status;
}
static void do_delete_far(void *arg)
{
	struct end *e = arg;

	scsi_target_delete(far.target, e->force, ended, e);
}

static void let_all(void);

static int delete_far(bool force)
{
	struct end e = { .force = force };

	host_do(&h, do_delete_far, &e);
	host_steps(&h, 10);
	/* By force it is over though a piece of the copy is at the other store, which does not
	 * answer. */
	ck_assert(host_wait(&h, &e.done));
	if (!e.status)
		far.target = NULL;
	return e.status;
}

static void finish(void)
{
	while (!list_empty(&far.nexuses))
		host_logout(list_first(&far.nexuses, struct host_nexus, link));
	if (far.target)
		ck_assert_int_eq(delete_far(false), 0); /* nothing of a copy is left there */
	host_close(&h);
	scsi_set_access(NULL, NULL);
}

/* A store under LUN 1 whose reads wait while holding, until they are let go. All on one loop. */
static struct pass *gate;
static struct blk_req *kept[128];
static unsigned nkept;
static bool holding;

static int keep(struct pass *p, struct blk_req *req)
{
	(void)p;
	if (!holding || req->op != BLK_READ)
		return 0;
	ck_assert_uint_lt(nkept, ARRAY_SIZE(kept));
	kept[nkept++] = req;
	return 1;
}

static struct blk_req *take(unsigned at)
{
	struct blk_req *req = kept[at];

	memmove(kept + at, kept + at + 1, (--nkept - at) * sizeof(kept[0]));
	return req;
}

static bool forget(struct pass *p, struct blk_req *req)
{
	(void)p;
	for (unsigned i = 0; i < nkept; i++)
		if (kept[i] == req) {
			take(i);
			return true;
		}
	return false;
}

static void do_let_one(void *arg)
{
	struct blk_req *req = nkept ? take(0) : NULL;

	(void)arg;
	if (req && pass_go(gate, req))
		blk_complete_here(req, req->status);
}

static void let_one(void)
{
	host_do(&h, do_let_one, NULL);
	host_steps(&h, 4);
}

static void let_all(void)
{
	holding = false;
	while (nkept)
		let_one();
}

static void do_gate(void *arg)
{
	struct blk_open_args args = { .path = "16m", .block_size = 512, .node = -1 };

	gate = calloc(1, sizeof(*gate));
	pass_init(gate, blk_open("ram", &args), "gate");
	gate->gate = keep;
	gate->abort = forget;
	scsi_lu_set_blk(h.lu, &gate->blk, ended, arg);
}

static void make_gate(void)
{
	struct end e = { 0 };

	nkept = 0;
	holding = false;
	host_do(&h, do_gate, &e);
	ck_assert(host_wait(&h, &e.done));
	ck_assert_int_eq(e.status, 0);
	while (host_tur(n, 1) != SAM_GOOD)
		ck_assert_uint_eq(n->key, SENSE_UNIT_ATTENTION);
}

static uint8_t near_id[3][32], far_id[32];

static void learn(void)
{
	struct host_nexus *f = host_login_ready(&far, "iqn.a");

	host_identification(f, 1, far_id);
	host_logout(f);
	host_identification(n, 1, near_id[1]);
	host_identification(n, 2, near_id[2]);
}

static uint8_t list4[48 + 64 + 28];

/* EXTENDED COPY(LID4) by LUN 1; the parameter list stays in list4. */
static struct host_cmd *start(const uint8_t *from_id, const uint8_t *to_id, uint64_t from,
			      uint64_t to, uint16_t blocks, uint32_t id, bool immed)
{
	uint8_t *p = list4, cdb[16] = { 0x83, 1, [13] = sizeof(list4) }, *s = p + 48 + 64;

	memset(p, 0, sizeof(list4));
	p[0] = 1;
	put_be16(p + 2, 0x20);
	p[15] = immed;
	p[16] = 0xff;
	put_be32(p + 20, id);
	put_be16(p + 42, 64);
	put_be16(p + 44, 28);
	memcpy(p + 48, from_id, 32);
	memcpy(p + 80, to_id, 32);
	s[0] = 0x02;
	put_be16(s + 2, 24);
	put_be16(s + 6, 1);
	put_be16(s + 10, blocks);
	put_be64(s + 12, from);
	put_be64(s + 20, to);
	return host_start(n, 1ull << 48, cdb, 16, false, p, sizeof(list4));
}

static const char *copy(const uint8_t *from_id, const uint8_t *to_id, uint64_t from, uint64_t to,
			uint16_t blocks, uint32_t id, bool immed)
{
	host_finish(start(from_id, to_id, from, to, blocks, id, immed));
	return host_result(n);
}

/* RECEIVE COPY STATUS(LID4): the status, and what is done in n->in. -1: no such list identifier. */
static int status(uint32_t id)
{
	uint8_t cdb[16] = { 0x84, 5, [13] = 128 };

	put_be32(cdb + 2, id);
	host_in(n, 1, cdb, 16, 128);
	return n->status == SAM_GOOD ? n->in[5] : -1;
}

static int wait_over(uint32_t id)
{
	int s;

	for (unsigned i = 0; i < 100000; i++) {
		s = status(id);
		if (s != 0x12 && s != 0x10)
			return s;
		host_steps(&h, 1);
	}
	return -2;
}

static const char *copy_abort(uint32_t id)
{
	uint8_t cdb[16] = { 0x83, 0x1c };
	struct host_cmd *c;

	put_be32(cdb + 2, id);
	c = host_start(n, 1ull << 48, cdb, 16, false, NULL, 0);
	host_steps(&h, 10);
	if (nkept)
		ck_assert(!c->completed); /* answered when the copy has ended */
	let_one();
	host_finish(c);
	return host_result(n);
}

START_TEST(between_targets)
{
	struct host_nexus *f;

	begin();
	learn();
	host_fill(n, 1, 0, 4000, 'a');
	ck_assert_str_eq(copy(near_id[1], far_id, 0, 100, 4000, 1, false), "good");
	ck_assert_uint_eq(asked, 1);
	f = host_login_ready(&far, "iqn.a");
	ck_assert_int_eq(host_holds(f, 1, 100, 4000), 'a');
	ck_assert_int_eq(host_holds(f, 1, 4100, 1), 0);
	host_logout(f);
	ck_assert_str_eq(copy(far_id, near_id[2], 100, 0, 3000, 2, false), "good");
	ck_assert_int_eq(host_holds(n, 2, 0, 3000), 'a');
	ck_assert_str_eq(copy(far_id, far_id, 100, 8000, 3000, 3, false), "good");
	/* what is all near asks nobody */
	asked = 0;
	ck_assert_str_eq(copy(near_id[1], near_id[2], 0, 0, 10, 4, false), "good");
	ck_assert_uint_eq(asked, 0);
	finish();
}
END_TEST

static bool hide_all(struct scsi_target *t, uint32_t lun, const char *iqn, const char *address,
		     void *arg)
{
	return lun == 0;
}
static void do_mask(void *arg)
{
	scsi_target_set_mask(far.target, NULL, arg ? hide_all : NULL, NULL);
}
static void do_offline(void *arg)
{
	scsi_target_set_offline(far.target, arg != NULL);
}
static void do_no_rules(void *arg)
{
	scsi_set_access(NULL, NULL);
}

/* Whoever may not log in there, or not see the unit there, has no way around it. */
START_TEST(closed_doors)
{
	struct host_nexus *f;

	begin();
	learn();
	allowed = false;
	ck_assert_str_eq(copy(near_id[1], far_id, 0, 0, 1, 1, false), "0a/08/04");
	ck_assert_str_eq(copy(far_id, near_id[1], 0, 0, 1, 2, false), "0a/08/04");
	/* Accepted, and fails. */
	ck_assert_str_eq(copy(far_id, near_id[1], 0, 0, 1, 3, true), "good");
	ck_assert_int_eq(wait_over(3), 0x02);
	allowed = true;
	host_do(&h, do_mask, &h);
	ck_assert_str_eq(copy(near_id[1], far_id, 0, 0, 1, 4, false), "0a/08/04");
	host_do(&h, do_mask, NULL);
	host_do(&h, do_offline, &h);
	ck_assert_str_eq(copy(near_id[1], far_id, 0, 0, 1, 5, false), "0a/08/04");
	host_do(&h, do_offline, NULL);
	ck_assert_str_eq(copy(near_id[1], far_id, 0, 0, 1, 6, false), "good");
	/* a reservation there is a reservation for a copy */
	f = host_login_ready(&far, "iqn.b");
	host_none(f, 1, (uint8_t[6]){ 0x16 }, 6);
	ck_assert_str_eq(host_result(f), "good");
	ck_assert_str_eq(copy(near_id[1], far_id, 0, 0, 1, 7, false), "0a/0d/02");
	host_none(f, 1, (uint8_t[6]){ 0x17 }, 6);
	ck_assert_str_eq(copy(near_id[1], far_id, 0, 0, 1, 8, false), "good");
	/* without rules nothing is reached */
	host_do(&h, do_no_rules, NULL);
	ck_assert_str_eq(copy(near_id[1], far_id, 0, 0, 1, 9, false), "0a/08/04");
	finish();
}
END_TEST

START_TEST(background)
{
	struct host_nexus *other;
	uint64_t before = 0, now;
	unsigned pieces = 0;

	begin();
	learn();
	make_gate();
	host_fill(n, 1, 0, 16000, 'b');
	holding = true;
	/* Answered at once. */
	ck_assert_str_eq(copy(near_id[1], near_id[2], 0, 0, 16000, 0x1234567, true), "good");
	ck_assert_int_eq(status(0x1234567), 0x12);
	ck_assert_uint_ne(get_be32(n->in + 8), UINT32_MAX); /* when to ask again */
	ck_assert_str_eq(copy(near_id[1], near_id[2], 0, 0, 1, 0x1234567, true), "05/00/16");
	while (status(0x1234567) == 0x12) {
		now = get_be64(n->in + 16);
		ck_assert(pieces == 0 || now > before);
		before = now;
		pieces++;
		let_one();
	}
	ck_assert_uint_eq(pieces, 8);
	/* The nexus that has worked for it gave its own place back, not that of the session. */
	other = host_login(&h, "iqn.other");
	ck_assert_uint_ne(other->n.id % 4096, n->n.id % 4096);
	host_logout(other);
	ck_assert_int_eq(status(0x1234567), 0x01);
	ck_assert_uint_eq(get_be64(n->in + 16), 16000 * 512);
	ck_assert_uint_eq(get_be16(n->in + 24), 1);
	holding = false;
	ck_assert_int_eq(host_holds(n, 2, 0, 16000), 'b');
	/* into another target */
	ck_assert_str_eq(copy(near_id[1], far_id, 0, 0, 16000, 5, true), "good");
	ck_assert_int_eq(wait_over(5), 0x01);
	/* what fails after the answer is in the status */
	ck_assert_str_eq(copy(near_id[1], near_id[2], 0, 16000, 1000, 6, true), "good");
	ck_assert_int_eq(wait_over(6), 0x02);
	ck_assert_uint_eq(n->in[12], SAM_CHECK_CONDITION);
	/* the session goes, the copy goes on */
	host_fill(n, 1, 0, 16000, 'c');
	holding = true;
	ck_assert_str_eq(copy(near_id[1], near_id[2], 0, 0, 16000, 7, true), "good");
	host_logout(n);
	n = host_login_ready(&h, "iqn.a");
	host_tur(n, 2);
	ck_assert_int_eq(host_holds(n, 2, 15999, 1), 'b');
	let_all();
	host_steps(&h, 100);
	ck_assert_int_eq(host_holds(n, 2, 0, 16000), 'c');
	ck_assert_int_eq(status(7), -1); /* another nexus */
	finish();
}
END_TEST

START_TEST(aborting)
{
	struct host_cmd *c;

	begin();
	learn();
	make_gate();
	ck_assert_str_eq(copy_abort(1), "05/24/00");
	holding = true;
	ck_assert_str_eq(copy(near_id[1], near_id[2], 0, 0, 16000, 1, true), "good");
	ck_assert_int_eq(status(1), 0x12);
	ck_assert_str_eq(copy_abort(1), "good");
	ck_assert_int_eq(status(1), 0x60); /* over when the answer comes */
	ck_assert_uint_eq(get_be64(n->in + 16), 2048 * 512); /* the piece that was under way */
	ck_assert_str_eq(copy_abort(1), "05/24/00");
	/* one in the foreground: its command ends with COPY ABORTED */
	c = start(near_id[1], near_id[2], 0, 0, 16000, 2, false);
	host_steps(&h, 2);
	ck_assert(!c->completed);
	ck_assert_str_eq(copy_abort(2), "good");
	host_finish(c);
	ck_assert_str_eq(host_result(n), "0a/00/00");
	ck_assert_int_eq(status(2), 0x60);
	/* a reset ends it, too, without waiting for the store */
	ck_assert_str_eq(copy(near_id[1], near_id[2], 0, 0, 16000, 3, true), "good");
	ck_assert_uint_eq(nkept, 1);
	ck_assert_int_eq(host_tmf(n, TMF_LU_RESET, 1), TMF_COMPLETE);
	ck_assert_uint_eq(nkept, 0);
	host_tur(n, 1);
	ck_assert_int_eq(status(3), 0x60);
	finish();
}
END_TEST

static void do_delete_lu2(void *arg)
{
	struct end *e = arg;

	scsi_lu_delete(scsi_lu_find(h.target, 2), e->force, ended, e);
}

/* What is being copied to or from: busy; by force it goes within one piece of the copy. */
START_TEST(deletion)
{
	struct end e = { 0 };

	begin();
	learn();
	make_gate();
	holding = true;
	ck_assert_str_eq(copy(near_id[1], far_id, 0, 0, 16000, 1, true), "good");
	host_steps(&h, 10);
	ck_assert_uint_eq(nkept, 1);
	ck_assert_int_eq(delete_far(false), -EBUSY);
	ck_assert_int_eq(status(1), 0x12);
	ck_assert_int_eq(delete_far(true), 0);
	ck_assert_int_eq(wait_over(1), 0x02);
	ck_assert_uint_le(get_be64(n->in + 16), 2048 * 512);
	holding = true;
	ck_assert_str_eq(copy(near_id[1], near_id[2], 0, 0, 16000, 2, true), "good");
	host_do(&h, do_delete_lu2, &e);
	ck_assert(e.done);
	ck_assert_int_eq(e.status, -EBUSY);
	e = (struct end){ .force = true };
	host_do(&h, do_delete_lu2, &e);
	ck_assert(host_wait(&h, &e.done)); /* here, too */
	ck_assert_int_eq(e.status, 0);
	host_tur(n, 1);
	ck_assert_str_eq(host_result(n), "06/3f/0e");
	ck_assert_int_eq(wait_over(2), 0x02);
	ck_assert_uint_le(get_be64(n->in + 16), 2048 * 512);
	/* and with ten of them at work, the target itself goes */
	holding = true;
	for (uint32_t id = 10; id < 20; id++)
		ck_assert_str_eq(copy(near_id[1], near_id[1], 0, 16000, 16000, id, true), "good");
	ck_assert_uint_eq(nkept, 10);
	finish();
	ck_assert_uint_eq(nkept, 0);
}
END_TEST

/* More than the machine is meant to carry: BUSY, and room again when they end. */
/* Background copies of @who that are begun before it is told to come back. */
static unsigned begun(struct host_nexus *who, uint32_t id)
{
	struct host_nexus *me = n;
	unsigned count = 0;

	n = who;
	while (count < 80 && !strcmp(copy(near_id[1], near_id[2], 0, 0, 2000, id + count, true),
				     "good"))
		count++;
	ck_assert_uint_eq(n->status, SAM_BUSY);
	n = me;
	return count;
}

/* One initiator has a quarter of them at most, one target half: the others can copy still. */
START_TEST(limit)
{
	struct host_nexus *b, *same, *c;

	begin();
	learn();
	make_gate();
	b = host_login_ready(&h, "iqn.b");
	same = host_login_ready(&h, "IQN.A");
	c = host_login_ready(&h, "iqn.c");
	host_tur(b, 2);
	host_tur(same, 2);
	host_tur(c, 2);
	holding = true;
	ck_assert_uint_eq(begun(n, 1), 16);
	ck_assert_uint_eq(begun(same, 1), 0);
	ck_assert_uint_eq(begun(b, 1), 16);
	ck_assert_uint_eq(begun(c, 1), 0);
	let_all();
	for (uint32_t id = 1; id <= 16; id++)
		ck_assert_int_eq(wait_over(id), 0x01);
	host_steps(&h, 20);
	ck_assert_str_eq(copy(near_id[1], near_id[2], 0, 0, 2000, 99, true), "good");
	finish();
}
END_TEST

static void do_late(void *lu)
{
	scsi_lu_set_lost(lu, true);
	scsi_lu_set_late(lu, true);
	ck_assert_int_eq(scsi_lu_await_store(lu), 0);
}

static void do_not_late(void *lu)
{
	scsi_lu_set_late(lu, false);
	scsi_lu_set_lost(lu, false);
}

static void do_release(void *lu)
{
	ck_assert(scsi_lu_release(lu));
}

/* A store that is expected in a moment: commands of its unit wait, and a copy is tried again. */
START_TEST(late_store)
{
	const uint8_t *const other[] = { near_id[2], far_id };
	struct scsi_lu *lu;

	begin();
	learn();
	host_fill(n, 1, 0, 100, 'a');
	for (unsigned i = 0; i < 2; i++) {
		lu = i ? far.lu : scsi_lu_find(h.target, 2);
		host_do(&h, do_late, lu);
		for (unsigned immed = 0; immed < 2; immed++) {
			(void)copy(near_id[1], other[i], 0, 0, 100, 1, immed);
			ck_assert_uint_eq(n->status, SAM_BUSY);
			(void)copy(other[i], near_id[1], 0, 0, 100, 1, immed);
			ck_assert_uint_eq(n->status, SAM_BUSY);
		}
		/* it has not come in time */
		host_do(&h, do_release, lu);
		ck_assert_str_eq(copy(near_id[1], other[i], 0, 0, 9, 1, false), "0a/0d/02");
		host_do(&h, do_not_late, lu);
		host_steps(&h, 10);
		ck_assert_str_eq(copy(near_id[1], other[i], 0, 0, 100, 1, false), "good");
	}
	finish();
}
END_TEST

UNIT_MAIN("xcopy", 60, between_targets, closed_doors, background, aborting, deletion, limit,
	  late_store)
