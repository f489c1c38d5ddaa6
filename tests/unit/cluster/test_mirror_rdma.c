/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A channel of a mirror over RDMA, both ends on the stand-in adapter, stepped by hand: blocks reach
 * the slots that they are written to; who writes elsewhere, or names what it was not granted, is
 * cut off; nothing can be written once it has been cut; whatever fails ends it, and all is given
 * back.
 */
#include "tests/support/unit.h"
#ifndef HAVE_RDMA
START_TEST(not_built)
{
}
END_TEST
UNIT_MAIN("mirror_rdma (built without rdma-core)", 5, not_built)
#else
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>

#include "events/bytes.h"
#include "events/log.h"
#include "tests/support/rdmafake.h"
#include "tgtd/cluster/live/mirror_rdma_impl.h"

#define FRAMES 200u
#define SHIFT 12
#define BLOCK (1u << SHIFT)

static struct loop *loop;

/* ---- the peer's memory ----------------------------------------------------------------------- */
static uint8_t memory[FRAMES * BLOCK] __attribute__((aligned(4096)));
static uint64_t lent[FRAMES], loans;
static bool page[FRAMES];
static unsigned nlent, most = MIRROR_RDMA_SLOTS;

static uint32_t mem_lends(void *arg, uint64_t *ticket)
{
	for (uint32_t i = 0; i < FRAMES && nlent < most; i++)
		if (!lent[i] && !page[i]) {
			lent[i] = *ticket = ++loans;
			nlent++;
			return i;
		}
	return UINT32_MAX;
}

static bool mem_is_lent(void *arg, uint32_t frame, uint64_t ticket)
{
	return lent[frame] == ticket;
}

static void mem_gets_back(void *arg, uint32_t frame)
{
	ck_assert(lent[frame]);
	lent[frame] = 0;
	nlent--;
}

static const struct mirror_slots slots = { .base = memory,
					   .len = sizeof(memory),
					   .shift = SHIFT,
					   .lend = mem_lends,
					   .is_lent = mem_is_lent,
					   .give_back = mem_gets_back };

/* ---- two ends -------------------------------------------------------------------------------- */
static struct end {
	struct mirror_rdma_dev *dev;
	struct mirror_coder out, in;
	struct list sending;
	struct mirror_rdma *r;
	const char *why; /* it has failed */
	unsigned frames, sent;
	uint64_t serial;
	bool answers;
} owner, peer;

static void queue(struct end *e, const struct mirror_frame *f, const uint8_t *data)
{
	const size_t head = MIRROR_HEAD + (size_t)f->n * MIRROR_RECORD;
	struct mirror_buf *b = mirror_buf_new(head + f->data_len, f->data_len ? e->dev : NULL);

	ck_assert_ptr_nonnull(b);
	(void)mirror_encode(f, b->bytes);
	if (f->data_len)
		memcpy(b->bytes + head, data, f->data_len);
	list_add_tail(&e->sending, &b->link);
}

static struct mirror_frame head_of(enum mirror_kind kind, uint64_t serial)
{
	return (struct mirror_frame){ .kind = (uint8_t)kind,
				      .from = kind == MIRROR_ACK,
				      .shift = 9,
				      .lu = 5,
				      .session = { 1, 1, 1 },
				      .mirror = 1,
				      .serial = serial };
}

static uint8_t byte_of(uint64_t serial, unsigned i, size_t at)
{
	return (uint8_t)(serial * 7 + i * 3 + at);
}

/* The record's sectors lie in the frame that is lent. */
static const char *peer_hears(void *arg, const struct mirror_frame *f)
{
	struct mirror_frame ack = head_of(MIRROR_ACK, f->serial);
	unsigned wrong = 0;

	ck_assert_int_eq(f->kind, MIRROR_BATCHED);
	ck_assert_uint_eq(f->serial, ++peer.serial);
	for (unsigned i = 0; i < f->n; i++) {
		const struct mirror_record *rec = &f->record[i];
		size_t at = 0;

		if (rec->op != MIRROR_WRITE)
			continue;
		ck_assert(rec->ref < FRAMES && lent[rec->ref]);
		for (unsigned s = 0; s < 8; s++)
			for (unsigned k = 0; rec->map >> s & 1 && k < 512; k++)
				wrong += memory[rec->ref * BLOCK + s * 512 + k] !=
					 byte_of(f->serial, i, at++);
		/* It has become a page; those of long ago have been released. */
		lent[rec->ref] = 0;
		nlent--;
		page[rec->ref] = rec->block % 2;
	}
	ck_assert_uint_eq(wrong, 0);
	peer.frames++;
	if (peer.answers)
		queue(&peer, &ack, NULL);
	return NULL;
}

static const char *owner_hears(void *arg, const struct mirror_frame *f)
{
	ck_assert_int_eq(f->kind, MIRROR_ACK);
	ck_assert_uint_eq(f->serial, ++owner.serial);
	owner.frames++;
	return NULL;
}

static void end_fails(void *arg, const char *why)
{
	struct end *e = arg;

	ck_assert_ptr_null(e->why);
	e->why = why;
	mirror_rdma_free(e->r);
	e->r = NULL;
}

static void end_sent(void *arg, unsigned frames, size_t bytes)
{
	((struct end *)arg)->sent += frames;
}

static void dev_gone(void *arg)
{
}

static struct mirror_rdma_dev *dev_open(const struct mirror_slots *s)
{
	struct sockaddr_in at = { .sin_family = AF_INET };
	struct sockaddr_storage addr = { 0 };
	char why[100];

	memcpy(&addr, &at, sizeof(at));
	return mirror_rdma_dev_open(loop, &addr, s, dev_gone, NULL, why, sizeof(why));
}

static const char *end_make(struct end *e)
{
	struct mirror_rdma_conf conf = { .loop = loop,
					 .dev = e->dev,
					 .listens = e == &peer,
					 .out = &e->out,
					 .in = &e->in,
					 .sending = &e->sending,
					 .frame = e == &peer ? peer_hears : owner_hears,
					 .failed = end_fails,
					 .sent = end_sent,
					 .arg = e };
	const char *why;

	e->r = mirror_rdma_new(&conf, &why);
	return e->r ? NULL : why;
}

static void begin(void)
{
	const struct loop_conf lc = { .name = "test", .node = -1, .cpu = -1 };
	const uint8_t one[MIRROR_KEY] = { 1 }, two[MIRROR_KEY] = { 2 };

	log_set_level(LOG_LVL_ERROR);
	rdmafake_install();
	loop = loop_create(&lc);
	ck_assert_ptr_nonnull(loop);
	list_init(&owner.sending);
	list_init(&peer.sending);
	peer.answers = true;
	ck_assert(mirror_coder_init(&owner.out, one) && mirror_coder_init(&peer.in, one));
	ck_assert(mirror_coder_init(&owner.in, two) && mirror_coder_init(&peer.out, two));
	ck_assert_ptr_nonnull(owner.dev = dev_open(NULL));
	ck_assert_ptr_nonnull(peer.dev = dev_open(&slots));
	ck_assert(!mirror_rdma_dev_lends(owner.dev) && mirror_rdma_dev_lends(peer.dev));
}

static void steps(unsigned n)
{
	for (struct end *e = &owner; n--; e = e == &owner ? &peer : &owner) {
		const char *why = e->r ? mirror_rdma_flush(e->r) : NULL;

		if (why)
			end_fails(e, why);
		loop_step(loop, 0);
	}
}

static void meet(void)
{
	uint8_t of_owner[MIRROR_RDMA_OFFER], of_peer[MIRROR_RDMA_OFFER];
	bool can;

	ck_assert_ptr_null(end_make(&owner));
	ck_assert_ptr_null(end_make(&peer));
	mirror_rdma_offer(owner.r, of_owner);
	mirror_rdma_offer(peer.r, of_peer);
	ck_assert(!mirror_rdma_offered(of_owner, &can) && can);
	ck_assert(!mirror_rdma_offered(of_peer, &can) && can);
	ck_assert_ptr_null(mirror_rdma_connect(peer.r, of_owner));
	ck_assert_ptr_null(mirror_rdma_connect(owner.r, of_peer));
	steps(8);
	ck_assert_uint_eq(owner.r->ngrants, MIRROR_RDMA_SLOTS);
	ck_assert(mirror_rdma_is_proved(owner.r) && mirror_rdma_is_proved(peer.r));
}

static void finish(void)
{
	mirror_rdma_free(owner.r);
	mirror_rdma_free(peer.r);
	mirror_bufs_free(&owner.sending);
	mirror_bufs_free(&peer.sending);
	ck_assert_uint_eq(nlent, 0);
	mirror_rdma_dev_close(owner.dev);
	mirror_rdma_dev_close(peer.dev);
	mirror_coder_free(&owner.in);
	mirror_coder_free(&owner.out);
	mirror_coder_free(&peer.in);
	mirror_coder_free(&peer.out);
	loop_destroy(loop);
	ck_assert(rdmafake_clean());
}

/* A BATCH of @n blocks, with sectors @map of each. */
static void batch_of(struct mirror_frame *f, uint8_t *data, uint64_t serial, unsigned n,
		     uint64_t map)
{
	*f = head_of(MIRROR_BATCHED, serial);
	f->n = (uint16_t)n;
	f->data = data;
	for (unsigned i = 0; i < n; i++) {
		struct mirror_record *rec = &f->record[i];
		const size_t len = (size_t)__builtin_popcountll(map) << 9;

		*rec = (struct mirror_record){ .op = MIRROR_WRITE,
					       .ref = MIRROR_INLINE,
					       .block = serial + i,
					       .gen = serial,
					       .map = map };
		for (size_t k = 0; k < len; k++)
			data[f->data_len + k] = byte_of(serial, i, k);
		rec->crc = mirror_sum(data + f->data_len, len);
		f->data_len += len;
	}
}

static struct mirror_frame f;
static uint8_t data[MIRROR_BATCH * BLOCK];

/* ---- what is sent arrives -------------------------------------------------------------------- */
START_TEST(blocks_arrive)
{
	unsigned writes = 0;

	begin();
	meet();
	for (uint64_t s = 1; s <= 600; s++) {
		const uint64_t map = s % 5 ? 0xff : s % 3 ? 0x5a : 0x81;
		const unsigned n = (unsigned)(s % 7 ? s % 9 : MIRROR_BATCH);

		batch_of(&f, data, s, n, map);
		queue(&owner, &f, data);
		writes += n * (map == 0xff ? 1 : map == 0x5a ? 3 : 2);
		if (s % 11 == 0)
			steps(6);
		for (unsigned i = 0; i < FRAMES; i++)
			page[i] &= s % 4 != 0;
	}
	for (unsigned i = 0; i < 10000 && owner.frames < 600; i++) {
		steps(2);
		memset(page, 0, sizeof(page));
	}
	ck_assert_uint_eq(peer.frames, 600);
	ck_assert_uint_eq(owner.frames, 600);
	ck_assert_uint_eq(owner.sent, 600);
	ck_assert_uint_eq(fake.rdma_writes, writes);
	ck_assert(!owner.why && !peer.why);
	finish();
}
END_TEST

/* Nothing of it is answered: grants and reports go by themselves. */
START_TEST(silence_does_not_stop_it)
{
	begin();
	peer.answers = false;
	meet();
	for (uint64_t s = 1; s <= 500; s++) {
		batch_of(&f, data, s, (unsigned)(s % 3), 0xff);
		queue(&owner, &f, data);
	}
	for (unsigned i = 0; i < 10000 && peer.frames < 500; i++) {
		steps(2);
		memset(page, 0, sizeof(page));
	}
	ck_assert_uint_eq(peer.frames, 500);
	ck_assert(!owner.why && !peer.why);
	finish();
}
END_TEST

/* More writes than the queue holds, by a device whose queues are as short as may be. */
START_TEST(short_queues)
{
	fake.attr.max_qp_wr = QUEUE_MIN;
	begin();
	meet();
	ck_assert_uint_eq(owner.r->depth, QUEUE_MIN);
	for (uint64_t s = 1; s <= 30; s++) {
		batch_of(&f, data, s, s % 3 ? MIRROR_BATCH : 0, 0x55);
		queue(&owner, &f, data);
	}
	for (unsigned i = 0; i < 10000 && owner.frames < 30; i++) {
		steps(2);
		memset(page, 0, sizeof(page));
	}
	ck_assert_uint_eq(owner.frames, 30);
	ck_assert_uint_eq(fake.rdma_writes, 20 * 4 * MIRROR_BATCH);
	ck_assert(!owner.why && !peer.why);
	finish();
}
END_TEST

/* It was made for TCP, before the channel knew. */
START_TEST(from_other_memory)
{
	struct mirror_rdma_dev *dev = owner.dev;

	begin();
	meet();
	dev = owner.dev;
	owner.dev = NULL;
	batch_of(&f, data, 1, 3, 0xff);
	queue(&owner, &f, data);
	owner.dev = dev;
	steps(10);
	ck_assert_uint_eq(peer.frames, 1);
	finish();
}
END_TEST

/* ---- who goes too far ------------------------------------------------------------------------ */
static void write_at(uint64_t addr, uint32_t key, uint32_t len)
{
	struct ibv_sge sge = { .addr = (uintptr_t)owner.r->mem->addr,
			       .length = len,
			       .lkey = owner.r->mem->lkey };
	struct ibv_send_wr wr = { .wr_id = ++owner.r->posted,
				  .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = IBV_WR_RDMA_WRITE,
				  .send_flags = IBV_SEND_SIGNALED,
				  .wr.rdma = { .remote_addr = addr, .rkey = key } },
			   *bad;

	memset(owner.r->mem->addr, 0xee, len);
	ck_assert_int_eq(rdma_v->post_send(owner.r->qp, &wr, &bad), 0);
}

static const char *outside[] = {
	"before", "beyond", "no key", "another slot's", "used up", "read"
};
/* A queue pair that writes anywhere but into its slots is cut off, and has changed nothing. */
START_TEST(writes_elsewhere)
{
	static uint8_t was[sizeof(memory)];
	struct rdma_grant g, h;

	begin();
	meet();
	g = owner.r->grant[10];
	h = owner.r->grant[11];
	if (_i == 4) {
		g = owner.r->grant[owner.r->ngrants - 1];
		batch_of(&f, data, 1, 1, 0xff);
		queue(&owner, &f, data);
		steps(3); /* it has arrived: no grant is back yet that has its key */
		ck_assert_uint_eq(peer.frames, 1);
	}
	memcpy(was, memory, sizeof(memory));
	if (_i == 0)
		write_at(g.addr - 1, g.key, 2);
	else if (_i == 1)
		write_at(g.addr + BLOCK - 1, g.key, 2);
	else if (_i == 2)
		write_at(g.addr, g.key + 1, 1);
	else if (_i == 3)
		write_at(h.addr, g.key, 1);
	else if (_i == 4)
		write_at(g.addr, g.key, 1);
	else
		write_at((uintptr_t)memory, ((struct ibv_mr *)peer.dev->slots_mr)->lkey, 1);
	ck_assert_uint_eq(fake.refused_writes, 1);
	ck_assert_msg(!memcmp(was, memory, sizeof(memory)), "%s", outside[_i]);
	steps(8);
	ck_assert(owner.why && peer.why);
	ck_assert_ptr_nonnull(strstr(owner.why, "does not let in"));
	finish();
}
END_TEST

/* Records name what was not granted, though the code is right. */
START_TEST(names_elsewhere)
{
	static const char *const why[] = { "not granted", "not granted", "more than its slot",
					   "checksum", "code" };

	begin();
	meet();
	batch_of(&f, data, 1, 2, 0xff);
	if (_i == 2)
		f.record[0].map = 0x1fe; /* a sector behind it */
	if (_i == 2)
		owner.r->slot_shift = 18;
	if (_i == 3)
		f.record[1].crc ^= 1;
	if (_i == 4)
		owner.out.n++;
	/* (It writes into slots that it has, and names others: one that the peer has taken back, or
	 * one twice.) */
	if (_i == 0)
		peer.r->window[owner.r->grant[owner.r->ngrants - 1].slot].state = WINDOW_NAMED;
	if (_i == 1)
		owner.r->grant[owner.r->ngrants - 1].slot =
			owner.r->grant[owner.r->ngrants - 2].slot;
	if (_i == 2) /* what would lie behind is not written, so that this is not why */
		owner.r->grant[owner.r->ngrants - 1].addr -= 512;
	queue(&owner, &f, data);
	steps(10);
	ck_assert_uint_eq(peer.frames, 0);
	ck_assert_ptr_nonnull(peer.why);
	ck_assert_uint_eq(fake.refused_writes, 0);
	ck_assert_msg(strstr(peer.why, why[_i]), "%s", peer.why);
	finish();
}
END_TEST

/* Foreign messages and offers: whatever they say, it ends at most. */
START_TEST(foreign_bytes)
{
	uint8_t offer[MIRROR_RDMA_OFFER];
	bool can;

	begin();
	meet();
	mirror_rdma_offer(owner.r, offer);
	for (unsigned i = 0; i < sizeof(offer) * 8; i++) {
		offer[i / 8] ^= (uint8_t)(1u << i % 8);
		if (!mirror_rdma_offered(offer, &can) && can)
			ck_assert(offer[6] >= IBV_MTU_256 && offer[6] <= IBV_MTU_4096);
		offer[i / 8] ^= (uint8_t)(1u << i % 8);
	}
	mirror_rdma_offer(NULL, offer);
	ck_assert(!mirror_rdma_offered(offer, &can) && !can);
	for (uint32_t i = 0; i < 3000; i++) {
		uint8_t *m = rdma_message_in(peer.r, 0);
		const uint32_t len = (uint32_t)(rand() % MESSAGE_MAX);

		for (uint32_t k = 0; k < len; k++)
			m[k] = (uint8_t)rand();
		memcpy(m, "tgRM\1\0", 6);
		if (i % 3)
			put_be16(m + 6, (uint16_t)(rand() % 70));
		if (i % 5)
			put_be32(m + 12, len - 16 - 16 - 16u * get_be16(m + 6));
		/* (What passes as a message has no code that is right.) */
		if (!rdma_in_came(peer.r, 0, len))
			ck_assert_ptr_nonnull(rdma_in_take(peer.r));
		peer.r->messages = 0;
	}
	ck_assert_uint_eq(peer.frames, 0);
	finish();
}
END_TEST

/* ---- the end --------------------------------------------------------------------------------- */
/* When it has been cut, keys that were granted let nobody in. */
START_TEST(cut)
{
	static uint8_t was[sizeof(memory)];
	struct rdma_grant g;

	begin();
	meet();
	g = owner.r->grant[0];
	write_at(g.addr, g.key, BLOCK);
	ck_assert_uint_eq(fake.refused_writes, 0);
	ck_assert_uint_eq(memory[g.addr - (uintptr_t)memory], 0xee);
	mirror_rdma_cut(peer.r);
	ck_assert_int_eq(fake.mws, 0);
	memcpy(was, memory, sizeof(memory));
	memset(owner.r->mem->addr, 0xdd, BLOCK);
	write_at(g.addr, g.key, 1);
	ck_assert(!memcmp(was, memory, sizeof(memory)));
	mirror_rdma_cut(peer.r); /* again: nothing more */
	steps(6);
	ck_assert(owner.why && peer.why);
	finish();
}
END_TEST

/* Cut while a message waits for its windows to be invalid. */
START_TEST(cut_in_the_middle)
{
	begin();
	meet();
	batch_of(&f, data, 1, 4, 0xff);
	queue(&owner, &f, data);
	ck_assert_ptr_null(
		mirror_rdma_flush(owner.r)); /* it is with the peer, who has not looked */
	mirror_rdma_cut(peer.r);
	steps(6);
	ck_assert_uint_eq(peer.frames, 0);
	ck_assert_ptr_nonnull(peer.why); /* (the owner hears of it by TCP) */
	finish();
}
END_TEST

/* Whatever fails while it works ends it. */
START_TEST(work_fails)
{
	begin();
	meet();
	batch_of(&f, data, 1, 4, 0xff);
	queue(&owner, &f, data);
	if (_i < 12) {
		fake.error_wr = _i + 1;
		fake.error_status = IBV_WC_LOC_PROT_ERR;
	} else if (_i < 20) {
		fake.fail_post_send = _i - 11;
	} else if (_i == 20) {
		fake.cut_off = true;
	} else {
		fake.fail_post_recv = 1;
	}
	steps(12);
	if (_i == 20)
		ck_assert_ptr_nonnull(strstr(owner.why, "does not answer"));
	ck_assert(owner.why || peer.why);
	finish();
}
END_TEST

/* Whatever cannot be had: there is no channel, and nothing is left of it. */
START_TEST(nothing_to_be_had)
{
	const char *why = NULL;

	begin();
	if (_i == 0)
		fake.fail_create_cq = 1;
	else if (_i == 1)
		fake.fail_create_qp = 1;
	else if (_i == 2)
		fake.fail_modify_qp = 1;
	else if (_i == 3)
		fake.fail_reg_mr = 1;
	else if (_i == 4)
		fake.fail_post_recv = 20;
	else if (_i == 5)
		fake.fail_alloc_mw = 30;
	else
		most = 40;
	why = end_make(&peer);
	ck_assert_ptr_nonnull(why);
	ck_assert_uint_eq(nlent, 0);
	finish();
}
END_TEST

START_TEST(devices)
{
	struct mirror_rdma_dev *dev;
	const uint32_t flags = IBV_DEVICE_MEM_MGT_EXTENSIONS;

	begin();
	fake.no_device = true;
	ck_assert_ptr_null(dev_open(&slots));
	fake.no_device = false;
	fake.fail_reg_mr = 1;
	ck_assert_ptr_null(dev_open(&slots));
	fake.attr.device_cap_flags = flags; /* no windows: it can write elsewhere, all the same */
	ck_assert_ptr_nonnull(dev = dev_open(&slots));
	ck_assert(!mirror_rdma_dev_lends(dev));
	mirror_rdma_dev_close(dev);
	fake.attr.max_qp_wr = 100;
	ck_assert_ptr_null(dev_open(NULL));
	finish();
}
END_TEST

UNIT_TABLE("mirror_rdma", 60, { blocks_arrive }, { silence_does_not_stop_it },
	   { from_other_memory }, { short_queues }, { writes_elsewhere, 6 }, { names_elsewhere, 5 },
	   { foreign_bytes }, { cut }, { cut_in_the_middle }, { work_fails, 22 },
	   { nothing_to_be_had, 7 }, { devices })
#endif
