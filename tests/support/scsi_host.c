/* SPDX-License-Identifier: GPL-2.0-or-later */
#include <stdio.h>
#include <stdlib.h>
#include "events/bytes.h"
#include "events/clock.h"
#include "tests/support/expect.h"
#include "tests/support/scsi_host.h"
#include "tgtd/scsi/commands/init.h"

/* ---- the transport --------------------------------------------------------------------------- */

static struct host_cmd *cmd_of(struct scsi_cmd *cmd)
{
	return container_of(cmd, struct host_cmd, cmd);
}

static void take_in(struct host_cmd *c, struct scsi_seg *seg)
{
	size_t end = seg->off + seg->len;

	ck_assert_uint_eq(seg->off, c->in_len); /* in order, no holes */
	ck_assert_uint_le(end, c->in_size);
	ck_assert_uint_ge(seg->io.data.len, seg->len);
	frags_copy_out(&seg->io.data, 0, c->in + seg->off, seg->len);
	c->in_len = end;
}

static void check_aborts(struct host_nexus *n)
{
	struct host_cmd *c;

	if (!n->aborted)
		return;
	list_for_each(c, &n->cmds, link)
		if (!c->completed && scsi_cmd_on(&c->cmd, n->abort_lu))
			return;
	void (*fn)(void *) = n->aborted;
	n->aborted = NULL;
	fn(n->aborted_arg);
}

static void end_if_over(struct host_cmd *c)
{
	if (!c->completed || c->ended || c->on_wire)
		return;
	c->ended = true;
	list_del(&c->link);
	scsi_cmd_end(&c->cmd);
	check_aborts(c->n);
}

static void late(struct loop_msg *m)
{
	struct host_cmd *c = container_of(m, struct host_cmd, msg);
	struct scsi_seg *todo[SCSI_CMD_SEGS];

	memcpy(todo, c->late, sizeof(todo));
	memset(c->late, 0, sizeof(c->late));
	for (unsigned i = 0; i < SCSI_CMD_SEGS; i++) {
		struct scsi_seg *seg = todo[i];

		if (!seg)
			continue;
		c->on_wire--;
		if (c->out) {
			if (c->cmd.state & 1) { /* aborted */
				scsi_seg_fetched(seg, -ECANCELED);
			} else {
				frags_copy_in(&seg->io.data, 0, c->out + seg->off, seg->len);
				scsi_seg_fetched(seg, 0);
			}
		} else {
			scsi_seg_sent(seg);
		}
	}
	end_if_over(c);
}

static void later(struct host_cmd *c, struct scsi_seg *seg)
{
	bool first = true;
	unsigned i;

	for (i = 0; i < SCSI_CMD_SEGS; i++)
		first &= !c->late[i];
	for (i = 0; i < SCSI_CMD_SEGS && c->late[i]; i++)
		;
	ck_assert_uint_lt(i, SCSI_CMD_SEGS);
	c->late[i] = seg;
	c->on_wire++;
	if (first && !c->n->hold_fetch) {
		c->msg.handle = late;
		loop_post(c->n->h->loop, &c->msg);
	}
}

static void host_fetch(struct scsi_cmd *cmd, struct scsi_seg *seg)
{
	struct host_cmd *c = cmd_of(cmd);

	ck_assert_ptr_nonnull(c->out);
	ck_assert_uint_le(seg->off + seg->len, c->out_len);
	ck_assert_uint_eq(seg->state, SEG_WIRE);
	if (c->n->late || c->n->hold_fetch) {
		later(c, seg);
		return;
	}
	frags_copy_in(&seg->io.data, 0, c->out + seg->off, seg->len);
	scsi_seg_fetched(seg, 0);
}

static void host_send(struct scsi_cmd *cmd, struct scsi_seg *seg)
{
	struct host_cmd *c = cmd_of(cmd);

	take_in(c, seg);
	if (c->n->late)
		later(c, seg);
	else
		scsi_seg_sent(seg);
}

static void host_complete(struct scsi_cmd *cmd)
{
	struct host_cmd *c = cmd_of(cmd);

	ck_assert(!c->completed);
	c->status = cmd->status;
	c->was_aborted = cmd->aborted;
	if (cmd->sense_len) {
		bool desc = (cmd->sense[0] & 0x7f) >= 0x72;

		ck_assert_uint_eq(cmd->status, SAM_CHECK_CONDITION);
		c->key = cmd->sense[desc ? 1 : 2] & 0x0f;
		c->asc = get_be16(cmd->sense + (desc ? 2 : 12));
	} else {
		ck_assert_uint_ne(cmd->status, SAM_CHECK_CONDITION);
	}
	if (cmd->tail) {
		struct scsi_seg *seg = cmd->tail;

		take_in(c, seg);
		c->completed = true;
		if (c->n->late) {
			later(c, seg);
			return;
		}
		scsi_seg_sent(seg);
	}
	c->completed = true;
	end_if_over(c);
}

static void abort_held(struct host_cmd *c)
{
	struct scsi_seg *todo[SCSI_CMD_SEGS];

	memcpy(todo, c->late, sizeof(todo));
	memset(c->late, 0, sizeof(c->late));
	for (unsigned i = 0; i < SCSI_CMD_SEGS; i++)
		if (todo[i]) {
			c->on_wire--;
			scsi_seg_fetched(todo[i], -ECANCELED);
		}
}

static void abort_one(struct host_cmd *c, bool tas)
{
	scsi_cmd_abort(&c->cmd, tas);
	if (c->n->hold_fetch)
		abort_held(c);
}

static void do_abort(void *arg)
{
	abort_one(arg, false);
}

void host_abort(struct host_cmd *c)
{
	host_do(c->n->h, do_abort, c);
}

static void host_abort_all(struct scsi_nexus *sn, struct scsi_lu *lu, bool tas,
			   void (*done)(void *arg), void *arg)
{
	struct host_nexus *n = container_of(sn, struct host_nexus, n);
	struct host_cmd *c, *tmp;

	ck_assert_ptr_null(n->aborted);
	list_for_each_safe(c, tmp, &n->cmds, link)
		if (!c->completed && scsi_cmd_on(&c->cmd, lu))
			abort_one(c, tas);
	n->abort_lu = lu;
	n->aborted_arg = arg;
	n->aborted = done;
	check_aborts(n);
}

static void nexus_gone(void *arg)
{
	struct host_nexus *n = arg;

	n->gone = true;
}

static void do_detach(void *arg)
{
	struct host_nexus *n = arg;

	scsi_nexus_detach(&n->n, nexus_gone, n);
}

static void host_drop(struct scsi_nexus *sn)
{
	struct host_nexus *n = container_of(sn, struct host_nexus, n);

	n->dropped = true;
	scsi_nexus_detach(&n->n, nexus_gone, n);
}

static const struct scsi_transport_ops host_ops = {
	.name = "host",
	.fetch = host_fetch,
	.send = host_send,
	.complete = host_complete,
	.abort_all = host_abort_all,
	.drop = host_drop,
};

/* ---- running things on the loop -------------------------------------------------------------- */

struct call {
	struct loop_msg msg;
	void (*fn)(void *arg);
	void *arg;
	bool done;
};

static void call_arrived(struct loop_msg *m)
{
	struct call *c = container_of(m, struct call, msg);

	c->fn(c->arg);
	c->done = true;
}

void host_do(struct host *h, void (*fn)(void *arg), void *arg)
{
	struct call c = { .fn = fn, .arg = arg };

	if (loop_current() == h->loop) { /* @fn of another host_do() */
		fn(arg);
		return;
	}
	c.msg.handle = call_arrived;
	loop_post(h->loop, &c.msg);
	while (!c.done)
		loop_step(h->loop, 0);
}

bool host_wait(struct host *h, const bool *flag)
{
	uint64_t end = clock_now_ns() + 20 * NSEC_PER_SEC;

	while (!*(const volatile bool *)flag) {
		loop_step(h->loop, 1);
		if (clock_now_ns() > end)
			return false;
	}
	return true;
}

void host_steps(struct host *h, unsigned n)
{
	while (n--)
		loop_step(h->loop, 0);
}

void host_pass(struct host *h, uint64_t ms)
{
	host_steps(h, 3);
	clock_fake_advance(ms * NSEC_PER_MSEC);
	host_steps(h, 3);
}

/* ---- targets and nexuses --------------------------------------------------------------------- */

static uint32_t next_tid = 1;

struct new_lu {
	struct host *h;
	struct scsi_lu_conf conf;
	struct scsi_lu *lu;
};

static void do_new_lu(void *arg)
{
	struct new_lu *a = arg;

	a->lu = scsi_lu_create(a->h->target, &a->conf);
}

static struct scsi_lu *new_lu(struct host *h, uint32_t lun, const char *size, uint32_t block_size,
			      void (*tweak)(struct scsi_lu_conf *c))
{
	char err[200] = "";
	struct blk_open_args args = { .path = size,
				      .block_size = block_size,
				      .node = -1,
				      .err = err,
				      .err_len = sizeof(err) };
	struct new_lu a = { .h = h };

	scsi_lu_conf_init(&a.conf);
	a.conf.lun = lun;
	a.conf.thin_provisioning = true;
	a.conf.blk = blk_open("ram", &args);
	ck_assert_msg(a.conf.blk != NULL, "ram %s: %s", size, err);
	if (tweak)
		tweak(&a.conf);
	host_do(h, do_new_lu, &a);
	ck_assert_ptr_nonnull(a.lu);
	return a.lu;
}

struct scsi_lu *host_add_lu(struct host *h, uint32_t lun, const char *size, uint32_t block_size)
{
	return new_lu(h, lun, size, block_size, NULL);
}

static void do_new_target(void *arg)
{
	struct host *h = arg;
	char name[64];

	snprintf(name, sizeof(name), "iqn.2026-11.test:t%u", next_tid);
	scsi_commands_init();
	h->target = scsi_target_create(next_tid++, name);
}

void host_open_conf(struct host *h, const char *size, uint32_t block_size,
		    void (*tweak)(struct scsi_lu_conf *c))
{
	struct loop_conf conf = { .name = "test", .node = 0, .cpu = -1 };
	struct scsi_lu_info info;

	memset(h, 0, sizeof(*h));
	list_init(&h->nexuses);
	h->loop = loop_create(&conf);
	ck_assert_ptr_nonnull(h->loop);
	host_do(h, do_new_target, h);
	ck_assert_ptr_nonnull(h->target);
	h->lu = new_lu(h, 1, size, block_size, tweak);
	scsi_lu_get_info(h->lu, &info);
	h->blk = info.conf.blk;
}

void host_open(struct host *h, const char *size, uint32_t block_size)
{
	host_open_conf(h, size, block_size, NULL);
}

static void do_attach(void *arg)
{
	struct host_nexus *n = arg;

	ck_assert_int_eq(scsi_nexus_attach(&n->n), 0);
}

struct host_nexus *host_login(struct host *h, const char *iqn)
{
	struct host_nexus *n = calloc(1, sizeof(*n));

	ck_assert_ptr_nonnull(n);
	n->h = h;
	list_init(&n->cmds);
	n->n.target = h->target;
	n->n.loop = h->loop;
	n->n.ops = &host_ops;
	n->n.rtpi = 1;
	snprintf(n->n.iqn, sizeof(n->n.iqn), "%s", iqn);
	snprintf(n->n.initiator, sizeof(n->n.initiator), "%.200s,i,0x00023d000001", iqn);
	snprintf(n->n.address, sizeof(n->n.address), "127.0.0.1");
	list_add_tail(&h->nexuses, &n->link);
	host_do(h, do_attach, n);
	return n;
}

static void free_nexus(struct host_nexus *n)
{
	ck_assert(list_empty(&n->cmds));
	list_del(&n->link);
	free(n->in);
	free(n);
}

void host_logout(struct host_nexus *n)
{
	if (!n->dropped)
		host_do(n->h, do_detach, n);
	ck_assert(host_wait(n->h, &n->gone));
	free_nexus(n);
}

struct host_nexus *host_login_ready(struct host *h, const char *iqn)
{
	struct host_nexus *n = host_login(h, iqn);

	for (int i = 0; i < 4 && host_tur(n, 1) != SAM_GOOD; i++)
		ck_assert_uint_eq(n->key, SENSE_UNIT_ATTENTION);
	ck_assert_str_eq(host_result(n), "good");
	return n;
}

void host_outcome(void *arg, int status)
{
	struct host_outcome *o = arg;

	o->done = true;
	o->status = status;
}

const char *host_prout(struct host_nexus *n, uint8_t sa, uint8_t type, uint64_t key,
		       uint64_t sa_key)
{
	uint8_t p[24] = { 0 };

	put_be64(p, key);
	put_be64(p + 8, sa_key);
	host_out(n, 1, (uint8_t[10]){ 0x5f, sa, type, [8] = 24 }, 10, p, 24);
	return host_result(n);
}

struct deletion {
	struct host *h;
	bool done;
	int status;
};

static void deleted(void *arg, int status)
{
	struct deletion *d = arg;

	d->done = true;
	d->status = status;
}

static void do_delete(void *arg)
{
	struct deletion *d = arg;

	scsi_target_delete(d->h->target, true, deleted, d);
}

void host_close(struct host *h)
{
	struct deletion d = { .h = h };

	while (!list_empty(&h->nexuses))
		host_logout(list_first(&h->nexuses, struct host_nexus, link));
	host_do(h, do_delete, &d);
	ck_assert(host_wait(h, &d.done));
	ck_assert_int_eq(d.status, 0);
	host_steps(h, 4);
	scsi_shutdown();
	loop_destroy(h->loop);
}

/* ---- commands -------------------------------------------------------------------------------- */

static void do_start(void *arg)
{
	struct host_cmd *c = arg;

	c->cmd.born_ns = loop_now(c->n->h->loop);
	scsi_cmd_start(&c->cmd);
}

struct host_cmd *host_start(struct host_nexus *n, uint64_t lun_field, const void *cdb,
			    size_t cdb_len, bool in, const void *out, size_t edtl)
{
	struct host_cmd *c = calloc(1, sizeof(*c));

	ck_assert_ptr_nonnull(c);
	scsi_cmd_init(&c->cmd);
	c->n = n;
	memcpy(c->cdb, cdb, cdb_len);
	c->cmd.nexus = &n->n;
	c->cmd.lun = lun_field;
	c->cmd.cdb = c->cdb;
	c->cmd.cdb_len = (uint16_t)MAX(cdb_len, 16u);
	c->cmd.attr = n->attr ? n->attr : SCSI_ATTR_SIMPLE;
	c->cmd.dir_in = in;
	c->cmd.dir_out = out != NULL;
	c->cmd.edtl_in = in ? edtl : 0;
	c->cmd.edtl_out = out ? edtl : 0;
	c->out = out;
	c->out_len = out ? edtl : 0;
	c->in_size = in ? edtl : 0;
	c->in = malloc(MAX(c->in_size, 1u));
	memset(c->in, 0xee, MAX(c->in_size, 1u));
	list_add_tail(&n->cmds, &c->link);
	host_do(n->h, do_start, c);
	return c;
}

struct host_cmd *host_start_write(struct host_nexus *n, uint16_t nblocks)
{
	static const uint8_t zeros[KiB(64)];
	uint8_t cdb[10] = { 0x2a };
	const size_t len = (size_t)nblocks * 512;

	ck_assert_uint_le(len, sizeof(zeros));
	put_be16(cdb + 7, nblocks);
	return host_start(n, 1ull << 48, cdb, sizeof(cdb), false, zeros, len);
}

void host_finish_all(struct host_cmd **c, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		host_finish(c[i]);
}

uint8_t host_finish(struct host_cmd *c)
{
	struct host_nexus *n = c->n;

	ck_assert_msg(host_wait(n->h, &c->ended), "opcode %02x does not end", c->cdb[0]);
	n->status = c->status;
	n->key = c->key;
	n->asc = c->asc;
	n->sense_len = c->cmd.sense_len;
	memcpy(n->sense, c->cmd.sense_buf, sizeof(n->sense));
	n->in_total = c->cmd.in_total;
	n->out_total = c->cmd.out_total;
	free(n->in);
	n->in = c->in;
	n->in_len = c->in_len;
	scsi_cmd_fini(&c->cmd);
	free(c);
	return n->status;
}

static uint64_t lun_field(uint32_t lun)
{
	return (uint64_t)(lun < 256 ? lun : 0x4000 | lun) << 48;
}

uint8_t host_in(struct host_nexus *n, uint32_t lun, const void *cdb, size_t cdb_len, size_t edtl)
{
	return host_finish(host_start(n, lun_field(lun), cdb, cdb_len, true, NULL, edtl));
}

uint8_t host_out(struct host_nexus *n, uint32_t lun, const void *cdb, size_t cdb_len,
		 const void *out, size_t edtl)
{
	return host_finish(host_start(n, lun_field(lun), cdb, cdb_len, false, out, edtl));
}

uint8_t host_none(struct host_nexus *n, uint32_t lun, const void *cdb, size_t cdb_len)
{
	return host_finish(host_start(n, lun_field(lun), cdb, cdb_len, false, NULL, 0));
}

static void do_release(void *arg)
{
	struct host_nexus *n = arg;
	struct host_cmd *c, *tmp;

	n->hold_fetch = false;
	list_for_each_safe(c, tmp, &n->cmds, link)
		if (c->on_wire)
			late(&c->msg);
}

void host_release(struct host_nexus *n)
{
	host_do(n->h, do_release, n);
}

struct tmf_call {
	struct host_nexus *n;
	enum scsi_tmf fn;
	uint64_t lun;
	int response;
	bool done;
};

static void tmf_done(void *arg, int response)
{
	struct tmf_call *t = arg;

	t->response = response;
	t->done = true;
}

static void do_tmf(void *arg)
{
	struct tmf_call *t = arg;

	scsi_tmf(&t->n->n, t->fn, t->lun, tmf_done, t);
}

int host_tmf(struct host_nexus *n, enum scsi_tmf fn, uint32_t lun)
{
	struct tmf_call t = { .n = n, .fn = fn, .lun = lun_field(lun) };

	host_do(n->h, do_tmf, &t);
	ck_assert(host_wait(n->h, &t.done));
	return t.response;
}

uint8_t host_tur(struct host_nexus *n, uint32_t lun)
{
	return host_none(n, lun, (uint8_t[6]){ 0 }, 6);
}

uint8_t host_read10(struct host_nexus *n, uint32_t lba, uint16_t nblocks)
{
	uint8_t cdb[10] = { 0x28 };
	struct scsi_lu_info info;

	scsi_lu_get_info(n->h->lu, &info);
	put_be32(cdb + 2, lba);
	put_be16(cdb + 7, nblocks);
	return host_in(n, 1, cdb, 10, (size_t)nblocks * info.block_size);
}

uint8_t host_write10(struct host_nexus *n, uint32_t lba, uint16_t nblocks, const void *data,
		     size_t len)
{
	uint8_t cdb[10] = { 0x2a };

	put_be32(cdb + 2, lba);
	put_be16(cdb + 7, nblocks);
	return host_out(n, 1, cdb, 10, data, len);
}

const char *host_result(const struct host_nexus *n)
{
	static char text[4][32];
	static unsigned i;
	char *t = text[i++ % 4];

	switch (n->status) {
	case SAM_GOOD:
		return "good";
	case SAM_CONDITION_MET:
		return "condition met";
	case SAM_RESERVATION_CONFLICT:
		return "conflict";
	case SAM_TASK_ABORTED:
		return "aborted";
	case SAM_BUSY:
		return "busy";
	}
	snprintf(t, sizeof(text[0]), "%02x/%02x/%02x", n->key, n->asc >> 8, n->asc & 0xff);
	return t;
}

/* ---- golden files ---------------------------------------------------------------------------- */

/* As text, sixteen bytes a line: a difference is readable in review. */
static char *hexdump(const uint8_t *data, size_t len)
{
	char *text = malloc(len * 4 + len / 16 * 24 + 128), *p = text;

	for (size_t i = 0; i < len; i += 16) {
		p += sprintf(p, "%04zx ", i);
		for (size_t j = i; j < i + 16; j++)
			p += j < len ? sprintf(p, " %02x", data[j]) : sprintf(p, "   ");
		p += sprintf(p, "  ");
		for (size_t j = i; j < i + 16 && j < len; j++)
			*p++ = data[j] >= 0x20 && data[j] < 0x7f ? (char)data[j] : '.';
		*p++ = '\n';
	}
	*p = 0;
	return text;
}

void host_golden(const char *name, const uint8_t *data, size_t len)
{
	char path[256], *text = hexdump(data, len), *want;
	FILE *f;
	size_t n;

	snprintf(path, sizeof(path), "tests/unit/scsi/golden/%s", name);
	if (getenv("GOLDEN_UPDATE")) {
		f = fopen(path, "w");
		ck_assert_msg(f != NULL, "%s", path);
		fputs(text, f);
		fclose(f);
		free(text);
		return;
	}
	f = fopen(path, "r");
	ck_assert_msg(f != NULL, "%s is missing", path);
	want = calloc(1, 1 << 20);
	n = fread(want, 1, (1 << 20) - 1, f);
	fclose(f);
	want[n] = 0;
	ck_assert_msg(strcmp(want, text) == 0, "%s differs; it is now\n%s\nand was\n%s", name, text,
		      want);
	free(want);
	free(text);
}
