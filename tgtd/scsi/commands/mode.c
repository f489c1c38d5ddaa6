/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * MODE SENSE and MODE SELECT, 6 and 10 (SPC-4 6.13-6.16). Pages (mode_pages.c): read-write error
 * recovery 01h, caching 08h, control 0Ah, control extension 0Ah/01h, informational exceptions 1Ch,
 * and pages given by tgtadm (mode_page=...), which are shown and not changeable.
 *
 * Parameters are shared by all initiator ports. SP = 1 saves them all to a file (mode_file.c) when
 * there is a place for it; a reset brings back what was saved, or what the configuration says.
 * What tgtadm sets is the default from then on and outlasts resets; targets.conf says it again at
 * each start.
 *
 * WCE is the write policy of the unit's cache: it is switched, and what was cached is written
 * before the command that took WCE away is answered.
 */
#include <stdlib.h>
#include "tgtd/scsi/commands/mode_pages.h"
#include "tgtd/scsi/state_file.h"

int scsi_mode_init(struct scsi_lu *lu)
{
	struct scsi_mode *m = &lu->mode_default;

	memset(m, 0, sizeof(*m));
	m->wce = lu->conf.write_cache;
	m->d_sense = lu->conf.sense_format;
	m->swp = lu->conf.swp;
	m->tas = true;
	lu->mode_saved = *m;
	scsi_mode_load(lu);
	lu->mode = lu->mode_saved;
	return 0;
}

void scsi_mode_free(struct scsi_lu *lu)
{
	free(lu->extra_pages);
	lu->extra_pages = NULL;
	lu->extra_pages_len = 0;
}

/* The saved ones come back. */
bool scsi_mode_reset_locked(struct scsi_lu *lu)
{
	bool flush = lu->blk && lu->mode.wce && !lu->mode_saved.wce;

	lu->mode = lu->mode_saved;
	scsi_lu_record_locked(lu);
	return flush;
}

/* ---- the state journal ----------------------------------------------------------------------- */

/* What is as the line before is left out: default, saved, current. */
static const struct {
	const char *name;
	enum mode_pc pc;
} recorded[] = { { "default", MODE_PC_DEFAULT },
		 { "saved", MODE_PC_SAVED },
		 { "current", MODE_PC_CURRENT } };
static const struct {
	uint8_t code, sub;
} recorded_pages[] = { { 0x08, 0 }, { 0x0a, 0 }, { 0x1c, 0 }, { 0x1c, 2 } };

static struct scsi_mode *mode_of(struct scsi_lu *lu, enum mode_pc pc)
{
	return pc == MODE_PC_DEFAULT ? &lu->mode_default :
	       pc == MODE_PC_SAVED   ? &lu->mode_saved :
				       &lu->mode;
}

/* One page, @p has MODE_MAX bytes; 0: it is left out. What it says is the unit's, and not the
 * store's. So while another one stands in for that it is told all the same. */
static size_t page_to_record(const struct scsi_lu *lu, uint8_t code, uint8_t sub, enum mode_pc pc,
			     uint8_t *p)
{
	return lu->lost || mode_page_lives(lu, code, sub) ? mode_page_known(lu, code, sub, pc, p) :
							    0;
}

void scsi_mode_record_locked(const struct scsi_lu *lu, FILE *f)
{
	uint8_t before[MODE_MAX], p[MODE_MAX];

	for (unsigned g = 0; g < ARRAY_SIZE(recorded_pages); g++) {
		const uint8_t code = recorded_pages[g].code, sub = recorded_pages[g].sub;
		size_t had = 0;

		for (unsigned i = 0; i < ARRAY_SIZE(recorded); i++) {
			const size_t n = page_to_record(lu, code, sub, recorded[i].pc, p);

			if (!n || (n == had && !memcmp(p, before, n)))
				continue;
			fprintf(f, "%s %02x %02x ", recorded[i].name, code, sub);
			for (size_t b = 0; b < n; b++)
				fprintf(f, "%02x", p[b]);
			fputc('\n', f);
			memcpy(before, p, n);
			had = n;
		}
	}
}

/* "saved 08 00 8812...": that, and what comes after it in recorded[]. */
static bool mode_take_record(struct scsi_lu *lu, const char *line)
{
	uint8_t p[64] = { 0 }, now[MODE_MAX];
	unsigned code, sub, byte, from = 0;
	size_t n = 0;
	char name[16];
	int at = 0;

	if (sscanf(line, "%15s %2x %2x %n", name, &code, &sub, &at) != 3 || !at)
		return false;
	while (from < ARRAY_SIZE(recorded) && strcmp(recorded[from].name, name) != 0)
		from++;
	for (line += at; line[0] && line[1] && n < sizeof(p); line += 2) {
		if (sscanf(line, "%2x", &byte) != 1)
			return false;
		p[n++] = (uint8_t)byte;
	}
	if (*line || from == ARRAY_SIZE(recorded) ||
	    mode_page_known(lu, (uint8_t)code, (uint8_t)sub, MODE_PC_CURRENT, now) != n)
		return false;
	for (; from < ARRAY_SIZE(recorded); from++)
		scsi_mode_apply(mode_of(lu, recorded[from].pc), (uint8_t)code, (uint8_t)sub, p);
	return true;
}

bool scsi_mode_restore_locked(struct scsi_lu *lu, char *lines)
{
	char *line, *save = NULL;
	bool ok = true;

	for (line = strtok_r(lines, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
		ok &= mode_take_record(lu, line);
	return ok;
}

/* ---- MODE SENSE ------------------------------------------------------------------------------ */

static size_t block_descriptor(const struct scsi_lu *lu, bool llbaa, uint8_t *p)
{
	uint64_t blocks = scsi_lu_blocks(lu);

	if (llbaa) {
		put_be64(p, blocks);
		put_be32(p + 12, lu->block_size);
		return 16;
	}
	put_be32(p, (uint32_t)MIN(blocks, UINT32_MAX));
	put_be24(p + 5, lu->block_size);
	return 8;
}

void op_mode_sense(struct scsi_cmd *cmd)
{
	struct scsi_lu *lu = cmd->lu;
	const uint8_t *cdb = cmd->cdb;
	bool six = cdb[0] == 0x1a, llbaa = !six && (cdb[1] & 0x10), dbd = cdb[1] & 0x08;
	uint8_t code = cdb[2] & 0x3f, sub = cdb[3], *b, dev = 0;
	enum mode_pc pc = cdb[2] >> 6;
	uint32_t alloc = six ? cdb[4] : get_be16(cdb + 7);
	size_t head = six ? 4 : 8, bd = 0, n;

	if (pc == MODE_PC_SAVED && !state_file_possible()) {
		scsi_done_sense(cmd, SENSE_ILLEGAL_REQUEST, ASC_SAVING_PARAMETERS_NOT_SUPPORTED);
		return;
	}
	if (code == 0x3f && sub != 0 && sub != 0xff) {
		scsi_bad_cdb(cmd, 3, -1);
		return;
	}
	b = scsi_heap(cmd, MODE_MAX);
	if (!b)
		return;
	if (!dbd && lu->blk)
		bd = block_descriptor(lu, llbaa, b + head);
	pthread_mutex_lock(&lu->lock);
	n = mode_pages_put(lu, code, sub, pc, b + head + bd);
	if (lu->blk)
		/* DPOFUA, WP */
		dev = (uint8_t)(0x10 | (scsi_lu_is(lu, LU_READONLY) || lu->mode.swp ? 0x80 : 0));
	pthread_mutex_unlock(&lu->lock);
	if (n == 0) {
		scsi_bad_cdb(cmd, 2, 5);
		return;
	}
	n += head + bd;
	if (six) {
		b[0] = (uint8_t)MIN(n - 1, 255u);
		b[2] = dev;
		b[3] = (uint8_t)bd;
		n = MIN(n, 256u);
	} else {
		put_be16(b, (uint16_t)(n - 2));
		b[3] = dev;
		b[4] = llbaa && bd ? 0x01 : 0;
		put_be16(b + 6, (uint16_t)bd);
	}
	scsi_data_in(cmd, n, alloc);
}

/* ---- MODE SELECT ----------------------------------------------------------------------------- */

/* What is to be saved: the values as this command left them. */
struct save {
	struct scsi_mode mode;
	int status;
};

static void save_fini(struct scsi_cmd *cmd)
{
	free(cmd->priv);
	cmd->priv = NULL;
}

/* Helper thread, one after the other for a logical unit. */
static void mode_save_work(struct scsi_cmd *cmd)
{
	struct save *s = cmd->priv;

	s->status = scsi_mode_write(cmd->lu, &s->mode);
	if (s->status < 0)
		return;
	pthread_mutex_lock(&cmd->lu->lock);
	cmd->lu->mode_saved = s->mode;
	scsi_lu_record_locked(cmd->lu);
	pthread_mutex_unlock(&cmd->lu->lock);
}

static void saved(struct scsi_cmd *cmd)
{
	int status = ((struct save *)cmd->priv)->status;

	if (status < 0) { /* in force, but it would not survive: say so */
		log_ratelimited(LOG_LVL_ERROR, "scsi: cannot save mode pages: %s",
				strerror(-status));
		scsi_done_sense(cmd, SENSE_HARDWARE_ERROR, ASC_INTERNAL_TARGET_FAILURE);
		return;
	}
	scsi_done(cmd);
}

static void select_save(struct scsi_cmd *cmd)
{
	if (cmd->priv)
		scsi_on_helper(cmd, mode_save_work, saved);
	else
		scsi_done(cmd);
}

static void select_synced(struct scsi_cmd *cmd)
{
	if (cmd->seg[1].io.status < 0) {
		cmd->state |= CMD_WRITE;
		scsi_sense_errno(cmd, cmd->seg[1].io.status, SENSE_NO_INFO);
		scsi_done(cmd);
		return;
	}
	select_save(cmd);
}

/* The block descriptor at @head: formatting to another size is not what this is for. Answers and
 * returns false when it asks for that. */
static bool same_blocks(struct scsi_cmd *cmd, size_t head, bool longlba)
{
	const uint8_t *b = cmd->heap + head;
	uint64_t blocks = longlba ? get_be64(b) : get_be32(b);
	uint32_t size = longlba ? get_be32(b + 12) : get_be24(b + 5);
	uint64_t have = scsi_lu_blocks(cmd->lu);

	if (size != cmd->lu->block_size) {
		scsi_bad_param(cmd, (uint16_t)(head + (longlba ? 12 : 5)), -1);
		return false;
	}
	if (blocks != 0 && blocks != have &&
	    !(!longlba && blocks == UINT32_MAX && have > UINT32_MAX)) {
		scsi_bad_param(cmd, (uint16_t)head, -1);
		return false;
	}
	return true;
}

static void mode_select(struct scsi_cmd *cmd)
{
	struct scsi_lu *lu = cmd->lu;
	const uint8_t *b = cmd->heap;
	bool six = cmd->cdb[0] == 0x15, longlba, changed;
	size_t head = six ? 4 : 8, len = cmd->heap_got, bd, at, bad, n;
	struct scsi_mode m;
	struct save *save = NULL;
	bool flush = false;

	if (len < head) {
		scsi_done_sense(cmd, SENSE_ILLEGAL_REQUEST, ASC_PARAMETER_LIST_LENGTH_ERROR);
		return;
	}
	bd = six ? b[3] : get_be16(b + 6);
	longlba = !six && (b[4] & 0x01);
	if ((bd != 0 && bd != (longlba ? 16 : 8)) || (bd && !lu->blk)) {
		scsi_bad_param(cmd, six ? 3 : 6, -1);
		return;
	}
	at = head + bd;
	if (at > len) {
		scsi_done_sense(cmd, SENSE_ILLEGAL_REQUEST, ASC_PARAMETER_LIST_LENGTH_ERROR);
		return;
	}
	if (bd && !same_blocks(cmd, head, longlba))
		return;
	pthread_mutex_lock(&lu->lock);
	m = lu->mode;
	for (; at < len; at += n) {
		n = mode_page_take(lu, &m, b + at, len - at, &bad);
		if (n == 0) {
			pthread_mutex_unlock(&lu->lock);
			if (bad == SIZE_MAX)
				scsi_done_sense(cmd, SENSE_ILLEGAL_REQUEST,
						ASC_PARAMETER_LIST_LENGTH_ERROR);
			else
				scsi_bad_param(cmd, (uint16_t)(at + bad), -1);
			return;
		}
	}
	if (lu->lost && lu->mode.wce && !m.wce) {
		/* Another store stands in: nothing of what is cached would be written. */
		const uint16_t asc = lu->late ? ASC_BECOMING_READY :
						ASC_MANUAL_INTERVENTION_REQUIRED;

		pthread_mutex_unlock(&lu->lock);
		scsi_done_sense(cmd, SENSE_NOT_READY, asc);
		return;
	}
	if (cmd->cdb[1] & 0x01) {
		save = malloc(sizeof(*save));
		if (!save) {
			pthread_mutex_unlock(&lu->lock);
			cmd->status = SAM_BUSY;
			scsi_done(cmd);
			return;
		}
		save->mode = m;
	}
	changed = memcmp(&m, &lu->mode, sizeof(m)) != 0;
	if (changed) {
		flush = lu->mode.wce && !m.wce && lu->blk;
		lu->mode = m;
		lu->generation++;
		scsi_lu_update_gate_locked(lu);
		scsi_ua_raise_locked(lu, cmd->itl, UA_MODE_CHANGED);
		scsi_lu_record_locked(lu);
	}
	pthread_mutex_unlock(&lu->lock);
	cmd->priv = save;
	if (save)
		cmd->fini = save_fini;
	if (flush) { /* SBC-4 6.5.6: what was cached while WCE was one is written now */
		struct blk_req *io = scsi_io(cmd);

		io->op = BLK_SYNC;
		io->offset = io->len = 0;
		scsi_io_submit(cmd, select_synced);
		return;
	}
	select_save(cmd);
}

void op_mode_select(struct scsi_cmd *cmd)
{
	uint32_t len = cmd->cdb[0] == 0x15 ? cmd->cdb[4] : get_be16(cmd->cdb + 7);

	if (!(cmd->cdb[1] & 0x10)) /* PF: pages are all there is */
		scsi_bad_cdb(cmd, 1, 4);
	else if ((cmd->cdb[1] & 0x01) && !state_file_possible()) /* SP: nothing is saved */
		scsi_bad_cdb(cmd, 1, 0);
	else if (len == 0)
		scsi_done(cmd);
	else
		scsi_data_out(cmd, len, mode_select);
}

/* ---- tgtadm: mode_page=page:subpage:length:byte:byte... -------------------------------------- */

static bool next_number(const char **s, uint64_t max, uint64_t *v)
{
	char *end;

	if (**s < '0' || **s > '9')
		return false;
	*v = strtoull(*s, &end, 0);
	if (*v > max || (*end && *end != ':'))
		return false;
	*s = *end ? end + 1 : end;
	return true;
}

#define PAGE_MAX (4 + 1024)

/* The text as a whole page (zeroed before), and its length; 0: it is none. */
static size_t parse_page(const char *text, uint8_t *page, uint64_t *code, uint64_t *sub)
{
	uint64_t len, v;
	size_t head, n;

	if (!next_number(&text, 0x3e, code) || !next_number(&text, 0xfe, sub) ||
	    !next_number(&text, 1024, &len))
		return 0;
	head = *sub ? 4 : 2;
	if (!*sub && len > 255)
		return 0;
	page[0] = (uint8_t)(*code | (*sub ? 0x40 : 0));
	page[1] = (uint8_t)(*sub ? *sub : len);
	if (*sub)
		put_be16(page + 2, (uint16_t)len);
	for (n = 0; n < len && *text; n++) {
		if (!next_number(&text, 0xff, &v))
			return 0;
		page[head + n] = (uint8_t)v;
	}
	return *text || n == 0 ? 0 : head + len;
}

int scsi_mode_page_check(const char *text)
{
	uint8_t page[PAGE_MAX] = { 0 };
	uint64_t code, sub;

	return parse_page(text, page, &code, &sub) ? 0 : -EINVAL;
}

int scsi_mode_page_update(struct scsi_lu *lu, const char *text)
{
	uint64_t code, sub;
	uint8_t page[PAGE_MAX] = { 0 }, *all;
	size_t n = parse_page(text, page, &code, &sub);
	uint32_t at = 0;

	if (!n)
		return -EINVAL;
	pthread_mutex_lock(&lu->lock);
	/* Pages that live: their changeable part is taken over, the rest is what it is. */
	if (mode_page_lives(lu, code, sub)) {
		scsi_mode_apply(&lu->mode, (uint8_t)code, (uint8_t)sub, page);
		scsi_mode_apply(&lu->mode_saved, (uint8_t)code, (uint8_t)sub, page);
		scsi_mode_apply(&lu->mode_default, (uint8_t)code, (uint8_t)sub, page);
		lu->generation++;
		scsi_lu_update_gate_locked(lu);
		scsi_ua_raise_locked(lu, NULL, UA_MODE_CHANGED);
		pthread_mutex_unlock(&lu->lock);
		return 0;
	}
	all = malloc(lu->extra_pages_len + n);
	if (!all || lu->extra_pages_len + n > MODE_MAX - 256) {
		pthread_mutex_unlock(&lu->lock);
		free(all);
		return -ENOMEM;
	}
	/* Without the page that this one replaces. */
	for (uint32_t from = 0; from < lu->extra_pages_len;) {
		const uint8_t *e = lu->extra_pages + from;
		uint32_t elen = (uint32_t)mode_page_len(e);

		if (e[0] != page[0] || (sub && e[1] != page[1])) {
			memcpy(all + at, e, elen);
			at += elen;
		}
		from += elen;
	}
	memcpy(all + at, page, n);
	free(lu->extra_pages);
	lu->extra_pages = all;
	lu->extra_pages_len = at + (uint32_t)n;
	lu->generation++;
	scsi_ua_raise_locked(lu, NULL, UA_MODE_CHANGED);
	pthread_mutex_unlock(&lu->lock);
	return 0;
}
