/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The mode pages: what is in them, and what of it may be changed (SPC-4 7.5, SBC-4 6.5). */
#include "tgtd/scsi/commands/mode_pages.h"
#include "tgtd/scsi/state_file.h"

/* Each fills a whole page, header included, with the values of @m, or with ones where MODE SELECT
 * may change something. Returns its length. */
static size_t page_01(const struct scsi_lu *lu, const struct scsi_mode *m, enum mode_pc pc,
		      uint8_t *p)
{
	(void)lu;
	(void)m;
	p[0] = 0x01;
	p[1] = 0x0a;
	if (pc != MODE_PC_CHANGEABLE)
		p[2] = 0xc0; /* AWRE, ARRE */
	return 12;
}

static size_t page_08(const struct scsi_lu *lu, const struct scsi_mode *m, enum mode_pc pc,
		      uint8_t *p)
{
	(void)lu;
	p[0] = 0x08;
	p[1] = 0x12;
	if (pc == MODE_PC_CHANGEABLE) {
		p[2] = 0x05; /* WCE, RCD */
		return 20;
	}
	/* DISC: the cache crosses cylinders */
	p[2] = (uint8_t)(0x10 | (m->wce ? 0x04 : 0) | (m->rcd ? 0x01 : 0));
	put_be16(p + 4, 0xffff); /* pre-fetch whatever the length */
	put_be16(p + 8, 0xffff);
	put_be16(p + 10, 0xffff);
	p[12] = 0x80; /* FSW; DRA = 0: reading ahead is up to the store */
	return 20;
}

static size_t page_0a(const struct scsi_lu *lu, const struct scsi_mode *m, enum mode_pc pc,
		      uint8_t *p)
{
	(void)lu;
	p[0] = 0x0a;
	p[1] = 0x0a;
	if (pc == MODE_PC_CHANGEABLE) {
		p[2] = 0x06; /* D_SENSE, GLTSD */
		p[4] = 0x08; /* SWP */
		p[5] = 0x40; /* TAS */
		return 12;
	}
	p[2] = (uint8_t)((m->d_sense ? 0x04 : 0) | (m->gltsd ? 0x02 : 0));
	p[3] = 0x10; /* QUEUE ALGORITHM MODIFIER 1h: unrestricted reordering of SIMPLE commands */
	p[4] = m->swp ? 0x08 : 0;
	p[5] = m->tas ? 0x40 : 0;
	put_be16(p + 8, 0xffff); /* busy time-out: no limit */
	return 12;
}

static size_t page_0a_01(const struct scsi_lu *lu, const struct scsi_mode *m, enum mode_pc pc,
			 uint8_t *p)
{
	(void)lu;
	(void)m;
	p[0] = 0x4a;
	p[1] = 0x01;
	put_be16(p + 2, 0x1c);
	if (pc != MODE_PC_CHANGEABLE)
		p[4] = 0x02; /* SCSIP: SET TIMESTAMP takes precedence over other means */
	return 32;
}

static size_t page_1c(const struct scsi_lu *lu, const struct scsi_mode *m, enum mode_pc pc,
		      uint8_t *p)
{
	(void)lu;
	p[0] = 0x1c;
	p[1] = 0x0a;
	if (pc == MODE_PC_CHANGEABLE) {
		p[2] = 0x89; /* PERF, DEXCPT, LOGERR */
		p[3] = 0x0f;
		memset(p + 4, 0xff, 8);
		return 12;
	}
	p[2] = m->ie_flags;
	p[3] = m->mrie;
	put_be32(p + 4, m->ie_interval);
	put_be32(p + 8, m->ie_count);
	return 12;
}

/* Logical block provisioning (SBC-4 6.5.9): a threshold of what is left, one of what is used. */
static size_t page_1c_02(const struct scsi_lu *lu, const struct scsi_mode *m, enum mode_pc pc,
			 uint8_t *p)
{
	(void)lu;
	p[0] = 0x5c;
	p[1] = 0x02;
	put_be16(p + 2, 28);
	p[4] = pc == MODE_PC_CHANGEABLE || m->situa ? 0x01 : 0;
	for (unsigned i = 0; i < SCSI_THRESHOLDS; i++) {
		uint8_t *d = p + 16 + 8 * i;

		if (pc == MODE_PC_CHANGEABLE) {
			d[0] = 0x80; /* ENABLED */
			memset(d + 4, 0xff, 4);
			continue;
		}
		/* soft; armed decreasing, armed increasing */
		d[0] = (uint8_t)((m->threshold_on[i] ? 0x80 : 0) | (i == SCSI_THRESHOLD_USED));
		d[1] = (uint8_t)(i + 1); /* as the parameters of log page 0Ch */
		put_be32(d + 4, m->threshold[i]);
	}
	return 32;
}

static const struct mode_page {
	uint8_t code, sub;
	bool disk, savable;
	size_t (*fill)(const struct scsi_lu *lu, const struct scsi_mode *m, enum mode_pc pc,
		       uint8_t *p);
} pages[] = {
	{ 0x01, 0, true, false, page_01 }, { 0x08, 0, true, true, page_08 },
	{ 0x0a, 0, false, true, page_0a }, { 0x0a, 1, false, false, page_0a_01 },
	{ 0x1c, 0, true, true, page_1c },  { 0x1c, 2, true, false, page_1c_02 },
};

static bool has_page(const struct scsi_lu *lu, const struct mode_page *pg)
{
	if (pg->fill == page_1c_02 && !(lu->blk && scsi_lu_thresholds(lu)))
		return false;
	return !pg->disk || lu->blk;
}

size_t scsi_mode_page(const struct scsi_lu *lu, const struct scsi_mode *m, uint8_t code, uint8_t *p)
{
	memset(p, 0, 64);
	for (unsigned i = 0; i < ARRAY_SIZE(pages); i++)
		if (pages[i].code == code && pages[i].savable && has_page(lu, &pages[i]))
			return pages[i].fill(lu, m, MODE_PC_CURRENT, p);
	return 0;
}

size_t mode_page_len(const uint8_t *p)
{
	return p[0] & 0x40 ? 4u + get_be16(p + 2) : 2u + p[1];
}

size_t mode_pages_put(const struct scsi_lu *lu, uint8_t code, uint8_t sub, enum mode_pc pc,
		      uint8_t *p)
{
	const struct scsi_mode *m = pc == MODE_PC_DEFAULT ? &lu->mode_default :
				    pc == MODE_PC_SAVED   ? &lu->mode_saved :
						       &lu->mode;
	size_t n = 0;

	for (unsigned i = 0; i < ARRAY_SIZE(pages); i++) {
		const struct mode_page *pg = &pages[i];

		if (!has_page(lu, pg) || (code != 0x3f && code != pg->code))
			continue;
		/* Subpage 00h: that page; FFh: all subpages too; page 3Fh
		 * with 00h: pages without SPF. */
		if (sub != 0xff && sub != pg->sub)
			continue;
		size_t page_len = pg->fill(lu, m, pc, p + n);

		if (pg->savable && state_file_possible())
			p[n] |= 0x80; /* PS */
		n += page_len;
	}
	for (uint32_t at = 0; at < lu->extra_pages_len;) {
		const uint8_t *e = lu->extra_pages + at;
		size_t len = mode_page_len(e);
		uint8_t esub = e[0] & 0x40 ? e[1] : 0;

		at += (uint32_t)len;
		if ((code != 0x3f && code != (e[0] & 0x3f)) || (sub != 0xff && sub != esub) ||
		    n + len > MODE_MAX - 64)
			continue;
		memcpy(p + n, e, len);
		if (pc == MODE_PC_CHANGEABLE)
			memset(p + n + (e[0] & 0x40 ? 4 : 2), 0, len - (e[0] & 0x40 ? 4 : 2));
		n += len;
	}
	return n;
}

size_t mode_page_known(const struct scsi_lu *lu, uint8_t code, uint8_t sub, enum mode_pc pc,
		       uint8_t *p)
{
	const struct scsi_mode *m = pc == MODE_PC_DEFAULT ? &lu->mode_default :
				    pc == MODE_PC_SAVED   ? &lu->mode_saved :
							    &lu->mode;

	memset(p, 0, 64);
	for (unsigned i = 0; i < ARRAY_SIZE(pages); i++)
		if (pages[i].code == code && pages[i].sub == sub && (!pages[i].disk || lu->blk))
			return pages[i].fill(lu, m, pc, p);
	return 0;
}

void scsi_mode_apply(struct scsi_mode *m, uint8_t code, uint8_t sub, const uint8_t *p)
{
	if (code == 0x1c && sub == 2) {
		m->situa = p[4] & 0x01;
		for (unsigned i = 0; i < SCSI_THRESHOLDS; i++) {
			m->threshold_on[i] = p[16 + 8 * i] & 0x80;
			m->threshold[i] = get_be32(p + 16 + 8 * i + 4);
		}
	}
	if (sub)
		return;
	switch (code) {
	case 0x08:
		m->wce = p[2] & 0x04;
		m->rcd = p[2] & 0x01;
		break;
	case 0x0a:
		m->d_sense = p[2] & 0x04;
		m->gltsd = p[2] & 0x02;
		m->swp = p[4] & 0x08;
		m->tas = p[5] & 0x40;
		break;
	case 0x1c:
		m->ie_flags = p[2] & 0x89;
		m->mrie = p[3] & 0x0f;
		m->ie_interval = get_be32(p + 4);
		m->ie_count = get_be32(p + 8);
		break;
	}
}

size_t mode_page_take(const struct scsi_lu *lu, struct scsi_mode *m, const uint8_t *p,
		      size_t left, size_t *bad)
{
	uint8_t code = p[0] & 0x3f, sub = p[0] & 0x40 ? p[1] : 0;
	uint8_t now[MODE_MAX], mask[MODE_MAX];
	size_t len = left < 2 || ((p[0] & 0x40) && left < 4) ? 0 : mode_page_len(p),
	       head = p[0] & 0x40 ? 4 : 2;

	*bad = 0;
	if (len == 0 || len > left)
		goto too_short;
	for (unsigned i = 0; i < ARRAY_SIZE(pages); i++) {
		const struct mode_page *pg = &pages[i];

		if (pg->code != code || pg->sub != sub || !has_page(lu, pg))
			continue;
		memset(now, 0, 64);
		memset(mask, 0, 64);
		*bad = 1;
		if (pg->fill(lu, m, MODE_PC_CURRENT, now) != len)
			return 0;
		pg->fill(lu, m, MODE_PC_CHANGEABLE, mask);
		for (size_t b = head; b < len; b++)
			if ((p[b] ^ now[b]) & (uint8_t)~mask[b]) {
				*bad = b;
				return 0;
			}
		scsi_mode_apply(m, code, sub, p);
		return len;
	}
	*bad = 0;
	return 0;
too_short:
	*bad = SIZE_MAX;
	return 0;
}

bool mode_page_lives(const struct scsi_lu *lu, uint64_t code, uint64_t sub)
{
	for (unsigned i = 0; i < ARRAY_SIZE(pages); i++)
		if (pages[i].code == code && pages[i].sub == sub && has_page(lu, &pages[i]))
			return true;
	return false;
}
