/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Measuring how long commands take: see timing.h. */
#include <stdlib.h>

#include "tgtd/scsi/latency_impl.h"
#include "tgtd/scsi/lu.h"
#include "tgtd/scsi/timing.h"

__thread struct scsi_batch scsi_batch_ = { .born = BATCH_NONE };

static _Atomic bool initiators;

void lat_initiators_set(bool on)
{
	atomic_store_explicit(&initiators, on, memory_order_relaxed);
}

bool lat_initiators(void)
{
	return atomic_load_explicit(&initiators, memory_order_relaxed);
}

enum lat_class scsi_cmd_class(const struct scsi_cmd *cmd)
{
	switch (cmd->cdb[0]) {
	case 0x08: /* READ(6), (10), (12), (16) */
	case 0x28:
	case 0xa8:
	case 0x88:
		return LAT_READ;
	case 0x0a: /* WRITE(6), (10), (12), (16); AND VERIFY; COMPARE AND WRITE; ATOMIC */
	case 0x2a:
	case 0xaa:
	case 0x8a:
	case 0x2e:
	case 0xae:
	case 0x8e:
	case 0x89:
	case 0x9c:
		return LAT_WRITE;
	case 0x35: /* SYNCHRONIZE CACHE(10), (16) */
	case 0x91:
		return LAT_SYNC;
	case 0x42: /* UNMAP */
		return LAT_UNMAP;
	case 0x41: /* WRITE SAME(10), (16): with UNMAP */
	case 0x93:
		return cmd->cdb[1] & 0x08 ? LAT_UNMAP : LAT_OTHER;
	default:
		return LAT_OTHER;
	}
}

/* ---- counting -------------------------------------------------------------------------------- */

static void own_count(struct scsi_itl *itl, enum lat_class class, uint64_t ns, uint32_t n)
{
	struct lat_own *own = itl->own;

	if (!own) {
		own = calloc(1, sizeof(*own));
		if (!own)
			return;
		__atomic_store_n(&itl->own, own, __ATOMIC_RELEASE);
	}
	(void)lat_series_count(&own->total[class], ns, n);
}

static void itl_count(struct scsi_itl *itl, enum lat_class class, const struct lat_times *t)
{
	lat_shard_count(itl->load.of->lat, class, 1, t);
	if (unlikely(lat_initiators()))
		own_count(itl, class, t->part_ns[LAT_TOTAL], 1);
}

static __attribute__((noinline, cold)) void slow_count(struct scsi_itl *itl,
						       const struct scsi_cmd *cmd,
						       enum lat_class class,
						       const struct lat_times *t, uint32_t alike)
{
	struct lat_slow slow = { .class = (uint8_t)class, .alike = alike };

	if (cmd) {
		slow.opcode = cmd->cdb[0];
		slow.status = cmd->status;
		slow.aborted = cmd->aborted;
	}
	if (cmd && (cmd->state & CMD_SUBM)) {
		slow.lba = cmd->lba;
		slow.bytes = cmd->xfer_len;
	}
	memcpy(slow.initiator, itl->nexus->iqn, sizeof(slow.initiator) - 1);
	lat_slow_note(itl->load.of->lat, t, &slow);
}

/* ---- batches --------------------------------------------------------------------------------- */

void scsi_batch_begin(uint64_t born, uint64_t rx_begin, uint64_t rx_end, uint64_t tx_begin,
		      uint64_t now)
{
	struct scsi_batch *b = &scsi_batch_;

	ASSERT(b->born == BATCH_NONE && born <= now);
	b->born = born;
	b->now = now;
	b->rx_begin = MAX(rx_begin, born);
	if (unlikely(tx_begin < b->rx_begin)) /* it was blocked when they came */
		tx_begin = rx_end ? rx_end : b->rx_begin;
	b->tx_begin = MAX(tx_begin, b->rx_begin);
	b->rx_end = MAX(rx_end ? MIN(rx_end, b->tx_begin) : b->tx_begin, b->rx_begin);
}

static __attribute__((noinline, cold)) void batch_slow(struct scsi_itl *itl, enum lat_class class,
						       uint32_t n, uint64_t waiting)
{
	const struct scsi_batch *b = &scsi_batch_;
	struct lat_times t = { { 0 }, { 0 } };

	t.part_ns[LAT_TOTAL] = b->now - b->born;
	t.part_ns[LAT_WAITING] = t.wait_ns[LAT_WAIT_THREAD] = waiting;
	t.part_ns[LAT_CACHE] = b->rx_end - b->rx_begin;
	t.part_ns[LAT_WIRE] = b->now - b->tx_begin;
	slow_count(itl, NULL, class, &t, n);
}

/* As lat_shard_count(), for those of @class in the batch. */
static __attribute__((noinline)) void batch_count(struct scsi_itl *itl, enum lat_class class)
{
	const struct scsi_batch *b = &scsi_batch_;
	const uint64_t total = b->now - b->born, wire = b->now - b->tx_begin,
		       cache = b->rx_end - b->rx_begin, waiting = total - wire - cache;
	struct lat_shard *s = itl->load.of->lat;
	struct lat_kind *k = &s->class[class];
	const uint32_t n = itl->batched[class];
	bool counted;

	itl->batched[class] = 0;
	counted = lat_series_count(&k->figure[LAT_TOTAL], total, n);
	counted &= lat_series_count(&k->figure[LAT_CACHE], cache, n);
	counted &= lat_series_count(&k->figure[LAT_WIRE], wire, n);
	if (unlikely(waiting)) {
		counted &= lat_series_count(&k->figure[LAT_WAITING], waiting, n);
		counter_add(&k->wait_ns[LAT_WAIT_THREAD], waiting * n);
	}
	if (unlikely(!counted))
		counter_add(&s->lost, n);
	if (unlikely(lat_initiators()))
		own_count(itl, class, total, n);
	if (lat_slow_wanted(s, total, b->now))
		batch_slow(itl, class, n, waiting);
}

void scsi_itl_count_batch(struct scsi_itl *itl)
{
	uint32_t *n = itl->batched;

	if (n[LAT_READ])
		batch_count(itl, LAT_READ);
	if (n[LAT_WRITE])
		batch_count(itl, LAT_WRITE);
	for (unsigned c = LAT_SYNC; unlikely(n[LAT_SYNC] | n[LAT_UNMAP] | n[LAT_OTHER]); c++)
		if (n[c])
			batch_count(itl, c);
}

void scsi_batch_end(struct scsi_nexus *nexus)
{
	for (struct scsi_itl *itl = nexus ? nexus->touched : NULL; itl; itl = itl->next_touched)
		scsi_itl_count_batch(itl);
	scsi_batch_.born = BATCH_NONE;
}

/* ---- one by one ------------------------------------------------------------------------------ */

/* Its time until @now goes to where it stands. */
static void charge(struct scsi_cmd *cmd, uint64_t now)
{
	struct scsi_cmd_time *t = &cmd->time;
	const uint64_t ns = now > t->mark_ns ? now - t->mark_ns : 0;

	t->part_ns[t->part] += ns;
	if (t->part == LAT_WAITING)
		t->wait_ns[t->why] += ns;
	t->mark_ns += ns;
}

/* Its first stop: until now it was worked on, once its thread had come to it. */
static void time_begin(struct scsi_cmd *cmd)
{
	struct scsi_cmd_time *t = &cmd->time;
	const uint64_t at = scsi_batch_.rx_begin;

	memset(t, 0, sizeof(*t));
	t->mark_ns = cmd->born_ns;
	t->part = LAT_WAITING;
	t->why = LAT_WAIT_THREAD;
	charge(cmd, MIN(MAX(at, cmd->born_ns), clock_now_ns()));
	t->part = LAT_CACHE;
	cmd->born_ns |= CMD_TIMED;
}

static void part_begin(struct scsi_cmd *cmd, enum lat_figure part, enum lat_wait why)
{
	struct scsi_cmd_time *t = &cmd->time;

	if (!cmd->born_ns) /* of a transport that measures nothing */
		return;
	if (!(cmd->born_ns & CMD_TIMED))
		time_begin(cmd);
	else if (t->part == part && t->why == why)
		return;
	charge(cmd, clock_now_ns());
	t->part = part;
	t->why = why;
}

void scsi_cmd_part(struct scsi_cmd *cmd, enum lat_figure part)
{
	ASSERT(part != LAT_TOTAL && part != LAT_WAITING);
	part_begin(cmd, part, 0);
}

void scsi_cmd_waits(struct scsi_cmd *cmd, enum lat_wait why)
{
	part_begin(cmd, LAT_WAITING, why);
}

void scsi_cmd_io_back(struct scsi_cmd *cmd, struct blk_req *req)
{
	struct scsi_cmd_time *t = &cmd->time;
	const enum lat_wait why = req->waited == BLK_WAITED_SHARE ? LAT_WAIT_SHARE :
								   LAT_WAIT_BLOCKS;
	uint64_t short_ns = req->waited ? req->waited_ns : 0, left;

	req->waited = BLK_WAITED_NOT;
	if (!(cmd->born_ns & CMD_TIMED))
		return;
	if (t->part == LAT_WAITING) {
		t->why = why;
	} else if (short_ns) {
		const uint64_t now = clock_now_ns();

		left = now > t->mark_ns ? now - t->mark_ns : 0;
		short_ns = MIN(short_ns, left);
		t->mark_ns += short_ns;
		t->part_ns[LAT_WAITING] += short_ns;
		t->wait_ns[why] += short_ns;
	}
	part_begin(cmd, LAT_CACHE, 0);
}

/* Answered while its socket was full: it has waited for that ever since its thread came to it. */
static void count_late(struct scsi_cmd *cmd)
{
	struct scsi_cmd_time *t = &cmd->time;

	memset(t, 0, sizeof(*t));
	t->mark_ns = cmd->born_ns;
	t->part = LAT_WIRE;
}

void scsi_cmd_count(struct scsi_cmd *cmd)
{
	struct scsi_itl *itl = cmd->itl;
	struct lat_times t;
	enum lat_class class;
	uint64_t total = 0;

	if (!cmd->born_ns)
		return;
	if (cmd->born_ns == scsi_batch_.born && itl) { /* not by cmd_end(): no READ or WRITE */
		itl->batched[scsi_cmd_class(cmd)]++;
		cmd->born_ns = 0;
		return;
	}
	if (!(cmd->born_ns & CMD_TIMED))
		count_late(cmd);
	cmd->born_ns = 0;
	if (!itl)
		return;
	charge(cmd, scsi_batch_.born != BATCH_NONE ? scsi_batch_.now : clock_now_ns());
	for (unsigned f = LAT_WAITING; f < LAT_FIGURES; f++) {
		t.part_ns[f] = cmd->time.part_ns[f];
		total += t.part_ns[f];
	}
	t.part_ns[LAT_TOTAL] = total;
	memcpy(t.wait_ns, cmd->time.wait_ns, sizeof(t.wait_ns));
	class = scsi_cmd_class(cmd);
	itl_count(itl, class, &t);
	if (lat_slow_wanted(itl->load.of->lat, total, cmd->time.mark_ns))
		slow_count(itl, cmd, class, &t, 0);
}

void scsi_cmd_answered(struct scsi_cmd *cmd)
{
	scsi_cmd_count(cmd);
}
