/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See fastdiff.h: the two targets, and the comparison. The initiator is in fastpeer.c. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "cache/engine/cache_impl.h"
#include "events/bug.h"
#include "events/clock.h"
#include "events/metrics.h"
#include "tests/support/fastpeer.h"
#include "tests/support/memdisk.h"
#include "tgtd/iscsi/core.h"
#include "tgtd/iscsi/iscsi.h"
#include "tgtd/scsi/lu.h"

#define DISK (FASTPEER_BLOCKS * 512ull)
#define SETTLE 200 /* iterations for what a helper thread does */

struct fastdiff_seen fastdiff_seen;

/* ---- the store ------------------------------------------------------------------------------- */

static struct store {
	struct blk *blk;
	const struct blk_ops *ops;
	struct blk_ops kept;
} store;
static struct cache *cache;

/* The logical unit's end is not the store's: its contents are still to be compared. */
static void keep_open(struct blk *blk)
{
	(void)blk;
}

/* It holds memory by pointers that the leak checker does not see: they lie in mapped memory. */
static void close_cache(void)
{
	cache_destroy(cache);
}

static struct blk *open_cached(bool at_once)
{
	static struct topology topo;
	static struct loop *workers[TOPO_MAX_NODES];
	struct cache_conf conf = { .topo = &topo, .workers = workers, .stepped = true };
	struct memdisk *disk;
	char err[200];

	if (!cache) {
		BUG_ON(topology_simulate(&topo, 1));
		workers[0] = wire_target.loop;
		BUG_ON(cache_parse(&conf, "size=8m,block=4k", err, sizeof(err)));
		cache = cache_create(&conf);
		BUG_ON(atexit(close_cache));
	}
	disk = memdisk_create(DISK, 512, "memdisk-1");
	BUG_ON(!cache || !disk);
	disk->now_percent = at_once ? 100 : 0;
	return cache_open(cache, &disk->blk, false);
}

static void store_open(enum fastpeer_store kind)
{
	struct blk_open_args args = { .path = "1m,block=4k", .block_size = 512, .node = -1 };

	store.blk = kind == FASTPEER_RAM ? blk_open("ram", &args) :
					   open_cached(kind == FASTPEER_CACHED);
	BUG_ON(!store.blk || store.blk->size != DISK);
	store.ops = store.blk->ops;
	store.kept = *store.ops;
	store.kept.close = keep_open;
	store.blk->ops = &store.kept;
}

static void store_close(void)
{
	store.blk->ops = store.ops;
	blk_close(store.blk);
	store.blk = NULL;
}

static bool io_over;

static void io_done(struct blk_req *req)
{
	(void)req;
	io_over = true;
}

/* READ, WRITE or SYNC behind the unit's back. (blktest.h is for check programs only.) */
static int store_io(enum blk_op op, uint64_t offset, void *buf, uint32_t len)
{
	struct blk_req req;

	blk_req_init(&req);
	req.op = op;
	req.offset = offset;
	req.len = len;
	req.flags = op == BLK_READ ? BLK_F_INTO : op == BLK_WRITE ? BLK_F_FROM : 0;
	req.done = io_done;
	BUG_ON(len && frags_append(&req.data, buf, len, NULL));
	loop_self_ = wire_target.loop;
	io_over = blk_submit(store.blk, &req);
	loop_self_ = NULL;
	for (unsigned i = 0; !io_over; i++) {
		BUG_ON(i > 20000);
		loop_step(wire_target.loop, i > 5 ? 1 : 0);
	}
	frags_put(&req.data);
	blk_req_fini(&req);
	return req.status;
}

/* ---- what is compared ------------------------------------------------------------------------ */

void fastpeer_note(struct fastpeer *f, const char *format, ...)
{
	struct fastpeer_log *l = f->log;
	va_list ap;

	if (l->len + 512 > l->size) {
		l->size = l->size ? l->size * 2 : 1 << 20;
		l->text = realloc(l->text, l->size);
		BUG_ON(!l->text);
	}
	va_start(ap, format);
	l->len += (size_t)vsnprintf(l->text + l->len, 512, format, ap);
	va_end(ap);
}

static uint64_t hash(uint64_t h, const void *data, size_t len)
{
	const uint8_t *p = data;

	for (size_t i = 0; i < len; i++)
		h = (h ^ p[i]) * 0x100000001b3ull;
	return h;
}

static void note_contents(struct fastpeer *f)
{
	static uint8_t buf[64 << 10];

	for (uint64_t at = 0; at < DISK; at += sizeof(buf)) {
		int rc = store_io(BLK_READ, at, buf, sizeof(buf));

		fastpeer_note(f, "store %lu: %d %016lx\n", at, rc, hash(1, buf, sizeof(buf)));
	}
}

/*
 * Not compared, since they differ by nature: messages and sleeps of the test's own waiting; and how
 * much write-back takes along, which depends on what else is dirty when it looks.
 */
static bool by_nature(enum metric m)
{
	switch (m) {
	case M_loop_wakeups:
	case M_loop_sleeps:
	case M_loop_messages:
	case M_store_writes:
	case M_store_write_bytes:
	case M_cache_flushes:
	case M_cache_flush_bytes:
		return true;
	default:
		return false;
	}
}

static uint64_t figures[METRIC_COUNT];

static void figures_begin(void)
{
	for (unsigned i = 0; i < METRIC_COUNT; i++)
		figures[i] = metric_read((enum metric)i);
}

static void note_figures(struct fastpeer *f)
{
	for (unsigned i = 0; i < METRIC_COUNT; i++) {
		uint64_t n = metric_read((enum metric)i) - figures[i];

		if (n && !by_nature((enum metric)i))
			fastpeer_note(f, "%s %lu\n", metric_name((enum metric)i), n);
	}
}

static void note_unit(struct fastpeer *f, const struct scsi_nexus *nexus)
{
	struct scsi_lu *lu = scsi_lu_find(wire_target.target, FASTPEER_LUN);
	struct lu_perf_times load;
	struct scsi_lu_stats st;
	uint64_t idle;

	scsi_lu_get_stats(lu, nexus, &st);
	fastpeer_note(f, "unit: read %lu/%lu %lu/%lu write %lu/%lu %lu/%lu errors %lu\n",
		      st.rd_subm_cmds, st.rd_done_cmds, st.rd_subm_bytes, st.rd_done_bytes,
		      st.wr_subm_cmds, st.wr_done_cmds, st.wr_subm_bytes, st.wr_done_bytes,
		      st.errs);
	scsi_lu_get_perf(lu, clock_now_ns(), &load, &idle);
	fastpeer_note(f, "load: %lu %lu %lu idle %lu\n", load.rd, load.wr, load.busy, idle);
	fastpeer_note(f, "mode: wce %d swp %d flags %x gate %x prevents %u\n", lu->mode.wce,
		      lu->mode.swp, atomic_load(&lu->flags), lu->gate, lu->prevents);
}

static void note_tasks(struct fastpeer *f, const struct iscsi_conn *conn)
{
	const struct iscsi_pending *p;
	const struct iscsi_task *t;

	list_for_each(t, &conn->tasks, link) {
		const struct scsi_cmd *c = &t->cmd;

		fastpeer_note(f,
			      "task %x sn %u standing %016lx data_sn %u edtl %u residual %u/%x\n",
			      t->itt, t->cmd_sn, t->state_word, t->data_sn, t->edtl, t->residual,
			      t->residual_flags);
		if (!t->started)
			continue; /* what the last one left is in its command */
		fastpeer_note(f, "  cdb %02x status %x state %x in %lu out %lu busy %u\n",
			      c->cdb[0], c->status, c->state & ~(uint32_t)CMD_PUMPING, c->in_total,
			      c->out_total, c->nsegs_busy);
		if (c->dir_out)
			fastpeer_note(f,
				      "  data-out %lu of %lu, next %lu, r2t %u busy %u open %d\n",
				      t->out.unsol_got, t->out.unsol_len, t->out.next,
				      t->out.r2t_sn, t->out.r2t_busy, t->out.unsol_open);
	}
	list_for_each(p, &conn->sess->held, link)
		fastpeer_note(f, "held %u\n", p->cmd_sn);
}

static void note_session(struct fastpeer *f, const struct iscsi_conn *conn)
{
	const struct iscsi_session *s = conn->sess;
	const struct scsi_itl *itl =
		s->nexus.nitl > FASTPEER_LUN ? s->nexus.itl[FASTPEER_LUN] : NULL;
	const struct iscsi_conn_stats *st = &conn->stats;

	fastpeer_note(f, "session: exp_cmd_sn %u max %u in_window %u immediates %u tmfs %u/%u\n",
		      s->exp_cmd_sn, s->max_cmd_sn, s->in_window, s->immediates, s->tmfs_live,
		      s->tmfs);
	fastpeer_note(f, "  ttt %u spilled %lu held %lu serial %lu waits %d fence %u\n",
		      s->next_ttt, s->spilled, s->held_bytes, s->next_serial,
		      !list_empty(&s->waits), s->fence.phase);
	fastpeer_note(f, "conn: state %u stopped %d failed %d stat_sn %u ctl %u/%u solicited %lu\n",
		      conn->state, conn->rx_stopped, conn->failed, conn->stat_sn, conn->ctl_out,
		      conn->ctl_out_bytes, conn->solicited);
	fastpeer_note(f, "  rx %lu tx %lu pdus %lu %lu %lu %lu\n", st->rxdata_octets,
		      st->txdata_octets, st->dataout_pdus, st->datain_pdus, st->cmd_pdus,
		      st->rsp_pdus);
	if (itl)
		fastpeer_note(f, "itl: on the wire %lu requests %u\n",
			      atomic_load(&itl->pin_holder.out), itl->pin_holder.requests);
	if (itl)
		fastpeer_note(f, "itl: gate %x inflight %u pins %u nua %u held %d\n",
			      atomic_load(&itl->gate), itl->inflight, itl->pins, itl->nua,
			      !list_empty(&itl->held));
	note_tasks(f, conn);
	note_unit(f, &s->nexus);
}

/* ---- the two targets ------------------------------------------------------------------------- */

struct iscsi_conn *fastpeer_conn(void)
{
	const struct iscsi_session *s;

	if (list_empty(&iscsi_core.sessions))
		return NULL;
	s = list_first(&iscsi_core.sessions, struct iscsi_session, link);
	return list_empty(&s->conns) ? NULL : list_first(&s->conns, struct iscsi_conn, sess_link);
}

void fastpeer_settle(void)
{
	for (unsigned i = 0; i < SETTLE; i++) {
		const struct iscsi_conn *conn = fastpeer_conn();
		const struct iscsi_task *t;
		bool busy = false;

		if (!conn)
			return;
		list_for_each(t, &conn->tasks, link)
			busy |= t->state == TASK_RUNNING &&
				(t->cmd.state & (CMD_JOB | CMD_POSTED)) != 0;
		if (!busy)
			return;
		loop_step(wire_target.loop, 1);
	}
}

static bool deleted;

static void lu_gone(void *arg, int status)
{
	(void)arg;
	BUG_ON(status);
	deleted = true;
}

static void delete_on_loop(struct loop_msg *msg)
{
	(void)msg;
	scsi_lu_delete(scsi_lu_find(wire_target.target, FASTPEER_LUN), true, lu_gone, NULL);
}

static void unit_up(enum fastpeer_store kind)
{
	static uint8_t buf[64 << 10];
	struct scsi_lu_conf lu;

	store_open(kind);
	/* Half of it is there, a quarter of the unit has not been written back. */
	for (uint64_t at = 0; at < DISK / 2; at += sizeof(buf)) {
		wire_pattern(buf, sizeof(buf), (uint32_t)at);
		BUG_ON(store_io(BLK_WRITE, at, buf, sizeof(buf)));
		if (at == DISK / 4)
			BUG_ON(store_io(BLK_SYNC, 0, NULL, 0));
	}
	scsi_lu_conf_init(&lu);
	lu.lun = FASTPEER_LUN;
	lu.online = lu.write_cache = true;
	lu.loop = wire_target.loop;
	lu.loop_shared = true;
	lu.blk = store.blk;
	BUG_ON(!scsi_lu_create(wire_target.target, &lu));
}

static void unit_down(void)
{
	static struct loop_msg msg;

	deleted = false;
	msg = (struct loop_msg){ .handle = delete_on_loop };
	loop_post(wire_target.loop, &msg);
	for (unsigned i = 0; !deleted; i++) {
		BUG_ON(i > 20000);
		loop_step(wire_target.loop, i > 5 ? 1 : 0);
	}
	store_close();
}

/* From here on nothing of this session takes a fast path. */
static void make_general(void)
{
	struct iscsi_conn *conn = fastpeer_conn();

	BUG_ON(!conn);
	conn->general = true;
	iscsi_conn_renegotiated(conn);
	atomic_fetch_or(&conn->sess->nexus.gate, GATE_GENERAL);
	scsi_lu_find(wire_target.target, FASTPEER_LUN)->fast_max = 0;
	if (cache)
		cache->affinity.fast_len = 0;
}

/* What was said, and how it was at the end. Returns what the target has known of ExpStatSN, summed
 * over all steps: only the general path looks at it. */
static uint64_t converse(const uint8_t *data, size_t size, bool general, struct fastpeer_log *log)
{
	static uint64_t hours;
	struct fastpeer *f = calloc(1, sizeof(*f));
	struct iscsi_conn *conn;
	uint64_t acked;
	char window[8];

	BUG_ON(!f);
	f->in = data;
	f->left = size;
	f->log = log;
	log->len = 0;
	clock_fake_set(++hours * 3600 * NSEC_PER_SEC); /* it never goes back */
	fastpeer_begin(f);
	snprintf(window, sizeof(window), "%u", f->window);
	BUG_ON(iscsi_target_set(wire_target.target, "MaxQueueCmd", window));
	unit_up(f->store);
	fastpeer_login(f);
	if (general)
		make_general();
	figures_begin();
	fastpeer_talk(f);
	conn = fastpeer_conn();
	if (conn)
		note_session(f, conn);
	else
		fastpeer_note(f, "the session is gone\n");
	note_figures(f);
	note_contents(f);
	wire_close(&f->w);
	for (unsigned i = 0; wire_sessions(); i++) {
		BUG_ON(i > 3000);
		loop_step(wire_target.loop, i > 20 ? 1 : 0);
	}
	note_unit(f, NULL);
	note_contents(f);
	unit_down();
	note_figures(f);
	if (cache)
		affinity_apply(&cache->affinity, CACHE_AFFINITY_OFF);
	if (!general) {
		fastdiff_seen.commands += f->seen.commands;
		fastdiff_seen.data_in += f->seen.data_in;
		fastdiff_seen.responses += f->seen.responses;
		fastdiff_seen.check_conditions += f->seen.check_conditions;
		fastdiff_seen.r2ts += f->seen.r2ts;
		fastdiff_seen.rejects += f->seen.rejects;
		fastdiff_seen.others += f->seen.others;
		fastdiff_seen.closed += !conn;
	}
	acked = f->acked;
	free(f);
	return acked;
}

/* ---- comparing ------------------------------------------------------------------------------- */

static void show(const char *who, const struct fastpeer_log *l, size_t from)
{
	size_t begin = from, end = from;

	for (unsigned lines = 0; begin && lines < 12; begin--)
		lines += l->text[begin - 1] == '\n';
	for (unsigned lines = 0; end < l->len && lines < 6; end++)
		lines += l->text[end] == '\n';
	fprintf(stderr, "# %s:\n%.*s\n", who, (int)(end - begin), l->text + begin);
}

bool fastdiff_run(const uint8_t *data, size_t size)
{
	static struct fastpeer_log as_is, general;
	uint64_t fast_acked, general_acked;
	size_t i = 0;

	if (!wire_target.loop)
		wire_target_start();
	fast_acked = converse(data, size, false, &as_is);
	general_acked = converse(data, size, true, &general);
	fastdiff_seen.fast += fast_acked != general_acked;
	while (i < as_is.len && i < general.len && as_is.text[i] == general.text[i])
		i++;
	if (i == as_is.len && i == general.len)
		return true;
	show("as it is", &as_is, i);
	show("by the general path", &general, i);
	return false;
}
