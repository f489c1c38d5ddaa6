/* SPDX-License-Identifier: GPL-2.0-or-later */
/* INQUIRY (SPC-4 6.6): standard data and vital product data pages 00 80 83 85 86 87 88 B0 B1 B2. */
#include <stdio.h>
#include "events/hash.h"
#include "tgtd/scsi/commands/commands.h"
#include "tgtd/scsi/tpg.h"

#define STD_LEN 96
#define VPD_MAX (SCSI_PORTS_MAX * (12 + 4 + 256)) /* page 88h with the longest names;
						   * the rest is far smaller */

static void put_text(uint8_t *p, size_t size, const char *s)
{
	size_t n = strlen(s);

	n = MIN(n, size);
	memset(p, ' ', size);
	memcpy(p, s, n);
}

/* Names and numbers may be changed by tgtadm at any time. */
static void lock(struct scsi_cmd *cmd)
{
	if (cmd->lu)
		pthread_mutex_lock(&cmd->lu->lock);
}

static void unlock(struct scsi_cmd *cmd)
{
	if (cmd->lu)
		pthread_mutex_unlock(&cmd->lu->lock);
}

static uint8_t peripheral(const struct scsi_cmd *cmd)
{
	if (cmd->state & CMD_NO_LU)
		return 0x7f; /* qualifier 011b: no device can be there */
	if (cmd->state & CMD_WLUN)
		return 0x1e;
	return cmd->lu->type;
}

/* lu->lock, if there is one. */
static void fill_standard(const struct scsi_cmd *cmd, uint8_t *b)
{
	/* SAM-5 iSCSI SPC-4 SBC-3 SBC-4 */
	static const uint16_t disk_versions[] = { 0x00a0, 0x0960, 0x0460, 0x04c0, 0x0600 };
	const struct scsi_lu *lu = cmd->lu;

	b[0] = peripheral(cmd);
	b[2] = 0x06; /* SPC-4 */
	b[3] = 0x12; /* HISUP, response data format 2 */
	b[4] = STD_LEN - 5;
	b[6] = 0x10; /* MULTIP */
	b[7] = 0x02; /* CMDQUE */
	put_text(b + 8, 8, lu ? lu->conf.vendor_id : "IET");
	put_text(b + 16, 16,
		 lu ? lu->conf.product_id : (cmd->state & CMD_WLUN ? "REPORT LUNS" : ""));
	put_text(b + 32, 4, lu ? lu->conf.product_rev : "0001");
	if (lu) {
		b[1] = lu->conf.removable ? 0x80 : 0;
		/* TPGS: implicit, or both; 3PC */
		b[5] = (uint8_t)((scsi_target_allows(lu->target, SCSI_ALLOW_ALUA) && !lu->gateways ?
					  0x30 :
					  0x10) |
				 (lu->blk && !lu->gateways ? 0x08 : 0));
	}
	/* Version descriptors; the block commands' ones only on disks. */
	for (unsigned i = 0; i < ARRAY_SIZE(disk_versions) && (i < 3 || (lu && lu->blk)); i++)
		put_be16(b + 58 + 2 * i, disk_versions[i]);
}

static void standard(struct scsi_cmd *cmd)
{
	uint8_t *b = scsi_heap(cmd, STD_LEN);

	if (!b)
		return;
	lock(cmd);
	fill_standard(cmd, b);
	unlock(cmd);
	scsi_data_in(cmd, STD_LEN, get_be16(cmd->cdb + 3));
}

/* ---- designators (SPC-4 7.8.6.2) ------------------------------------------------------------- */

enum { CODE_BINARY = 1, CODE_ASCII = 2, CODE_UTF8 = 3 };
enum { ASSOC_LU = 0x00, ASSOC_PORT = 0x10, ASSOC_TARGET = 0x20 };
#define PROTOCOL_ISCSI 0x50
#define PIV 0x80

static uint8_t *designator(uint8_t *p, uint8_t code, uint8_t assoc, uint8_t type, const void *data,
			   uint8_t len)
{
	p[0] = (uint8_t)((assoc != ASSOC_LU ? PROTOCOL_ISCSI : 0) | code);
	p[1] = (uint8_t)((assoc != ASSOC_LU ? PIV : 0) | assoc | type);
	p[2] = 0;
	p[3] = len;
	memcpy(p + 4, data, len);
	return p + 4 + len;
}

/* SCSI name string: NUL-terminated, padded to a multiple of four. */
static uint8_t *name_string(uint8_t *p, uint8_t assoc, const char *name)
{
	char text[256] = "";
	size_t n = MIN(strlen(name), sizeof(text) - 5);

	memcpy(text, name, n);
	return designator(p, CODE_UTF8, assoc, 8, text, (uint8_t)ALIGN_UP(n + 1, (size_t)4));
}

uint8_t *scsi_lu_designators(const struct scsi_lu *lu, uint8_t *p)
{
	uint8_t t10[8 + 36], naa[SCSI_NAA_MAX], id_len;
	size_t len = scsi_lu_naa(lu, naa);
	char text[4 + 2 * SCSI_NAA_MAX + 1] = "naa.";

	put_text(t10, 8, lu->conf.vendor_id);
	/* a name that fits keeps the width, and so the identity, that it has always had */
	id_len = strlen(lu->conf.scsi_id) > 24 ? 36 : 24;
	put_text(t10 + 8, id_len, lu->conf.scsi_id);
	p = designator(p, CODE_ASCII, ASSOC_LU, 1, t10, (uint8_t)(8 + id_len));
	p = designator(p, CODE_BINARY, ASSOC_LU, 3, naa, (uint8_t)len);
	for (size_t i = 0; i < len; i++)
		sprintf(text + 4 + 2 * i, "%02X", naa[i]);
	return name_string(p, ASSOC_LU, text);
}

static uint8_t *port_name(const struct scsi_cmd *cmd, uint16_t rtpi, uint8_t *p)
{
	char text[256];

	/* RFC 7143 4.2.7.1: iSCSI target port name. The portal group tag
	 * is the relative port here. */
	snprintf(text, sizeof(text), "%.230s,t,0x%04x", cmd->nexus->target->name, rtpi);
	return name_string(p, ASSOC_PORT, text);
}

static size_t vpd_83(const struct scsi_cmd *cmd, uint8_t *b)
{
	uint8_t *p = scsi_lu_designators(cmd->lu, b);
	uint8_t port[4] = { 0 }, group[4] = { 0 };

	put_be16(port + 2, cmd->nexus->rtpi);
	p = designator(p, CODE_BINARY, ASSOC_PORT, 4, port, sizeof(port));
	put_be16(group + 2, scsi_tpg_id_locked(cmd->itl));
	p = designator(p, CODE_BINARY, ASSOC_PORT, 5, group, sizeof(group));
	p = port_name(cmd, cmd->nexus->rtpi, p);
	p = name_string(p, ASSOC_TARGET, cmd->nexus->target->name);
	return (size_t)(p - b);
}

/* ---- pages: each writes what follows the four-byte header and returns its length ------------- */

static size_t vpd_80(const struct scsi_cmd *cmd, uint8_t *b)
{
	size_t n = strlen(cmd->lu->conf.scsi_sn);

	memcpy(b, cmd->lu->conf.scsi_sn, n);
	return n;
}

static size_t vpd_85(const struct scsi_cmd *cmd, uint8_t *b)
{
	(void)cmd;
	(void)b;
	return 0; /* no management addresses */
}

static size_t vpd_86(const struct scsi_cmd *cmd, uint8_t *b)
{
	const struct scsi_lu *lu = cmd->lu;

	b[1] = 0x07; /* HEADSUP, ORDSUP, SIMPSUP */
	if (lu->blk && (lu->blk->caps & BLK_CAP_VOLATILE))
		b[2] = 0x01; /* V_SUP */
	b[3] = 0x01; /* LUICLR: a unit attention clears for one initiator port alone */
	b[9] = SCSI_SENSE_MAX; /* MAXIMUM SUPPORTED SENSE DATA LENGTH */
	return 60;
}

static size_t vpd_87(const struct scsi_cmd *cmd, uint8_t *b)
{
	(void)cmd;
	b[0] = 0x3f; /* all pages and subpages are shared by all initiator ports */
	b[1] = 0xff;
	return 4;
}

static size_t vpd_88(const struct scsi_cmd *cmd, uint8_t *b)
{
	uint16_t port[SCSI_PORTS_MAX];
	unsigned n = scsi_ports(cmd, port);
	uint8_t *p = b, *d;

	for (unsigned i = 0; i < n; i++) {
		d = p;
		put_be16(d + 2, port[i]);
		p = port_name(cmd, port[i], d + 12);
		put_be16(d + 10, (uint16_t)(p - d - 12));
	}
	return (size_t)(p - b);
}

/* Block limits (SBC-4 6.6.4) */
static size_t vpd_b0(const struct scsi_cmd *cmd, uint8_t *b)
{
	const struct scsi_lu *lu = cmd->lu;
	uint32_t gran;

	b[0] = 0x01; /* WSNZ */
	b[1] = (uint8_t)scsi_max_caw(lu);
	put_be16(b + 2, (uint16_t)lu->conf.optimal_xfer_gran);
	put_be32(b + 4, scsi_max_transfer(lu));
	put_be32(b + 8, lu->conf.optimal_xfer_len);
	if (scsi_lu_thin(lu)) {
		put_be32(b + 16, UINT32_MAX); /* LBAs per UNMAP */
		put_be32(b + 20, SCSI_UNMAP_DESCRIPTORS);
		gran = MAX(1u << lu->conf.lbppbe, lu->blk->physical_size >> lu->block_shift);
		put_be32(b + 24, gran);
		put_be32(b + 28, 0x80000000u | (lu->conf.la_lba & (gran - 1)));
	}
	put_be64(b + 32, 0); /* WRITE SAME: any length */
	put_be32(b + 40, scsi_max_atomic(lu));
	put_be32(b + 44, scsi_atomic_unit(lu)); /* ATOMIC ALIGNMENT */
	put_be32(b + 48, scsi_atomic_unit(lu)); /* ATOMIC TRANSFER LENGTH GRANULARITY */
	return 60;
}

/* Block device characteristics (SBC-4 6.6.2) */
static size_t vpd_b1(const struct scsi_cmd *cmd, uint8_t *b)
{
	const struct scsi_lu *lu = cmd->lu;
	uint16_t rate = lu->conf.rotation_rate;

	if (rate == 0 && !(lu->blk->caps & BLK_CAP_ROTATIONAL))
		rate = 1; /* does not rotate */
	put_be16(b, rate);
	b[3] = 0x40; /* WABEREQ 01b: reads work after a block erase */
	b[4] = 0x03; /* FUAB, VBULS */
	return 60;
}

/* Logical block provisioning (SBC-4 6.6.5) */
static size_t vpd_b2(const struct scsi_cmd *cmd, uint8_t *b)
{
	const struct scsi_lu *lu = cmd->lu;

	if (scsi_lu_thin(lu)) {
		b[0] = scsi_lu_thresholds(lu) ? SCSI_THRESHOLD_EXPONENT : 0;
		b[1] = 0x80 | 0x40 | 0x20 | 0x02; /* LBPU, LBPWS, LBPWS10, ANC_SUP */
		if (lu->blk->caps & BLK_CAP_DISCARD_ZEROES)
			b[1] |= 0x04; /* LBPRZ 001b */
		b[2] = 0x02;	      /* thin */
	}
	return 4;
}

/* @store: what it says follows from the store, so a unit that waits for its own does not say it. */
static const struct vpd_page {
	uint8_t code;
	bool disk, store;
	size_t (*fill)(const struct scsi_cmd *cmd, uint8_t *b);
} pages[] = {
	{ 0x00, false, false, NULL },	{ 0x80, false, false, vpd_80 },
	{ 0x83, false, false, vpd_83 }, { 0x85, false, false, vpd_85 },
	{ 0x86, false, true, vpd_86 },	{ 0x87, false, false, vpd_87 },
	{ 0x88, false, false, vpd_88 }, { 0x8f, true, true, scsi_vpd_8f },
	{ 0xb0, true, true, vpd_b0 },	{ 0xb1, true, true, vpd_b1 },
	{ 0xb2, true, true, vpd_b2 },
};

/* Names and identifiers of a unit are its configuration's: what may follow from this program, or
 * from the store, is the standard data and what disks have pages for. */
uint32_t scsi_inquiry_facts_locked(const struct scsi_lu *lu)
{
	const struct scsi_cmd cmd = { .lu = (struct scsi_lu *)(uintptr_t)lu };
	uint64_t h = FNV1A_INIT;
	uint8_t b[STD_LEN] = { 0 };

	fill_standard(&cmd, b);
	h = fnv1a(h, b, sizeof(b));
	for (unsigned i = 0; i < ARRAY_SIZE(pages); i++) {
		const struct vpd_page *pg = &pages[i];

		if (pg->disk && !lu->blk)
			continue;
		memset(b, 0, sizeof(b));
		b[0] = pg->code;
		/* (They are short; those of ports are not.) */
		if (pg->code == 0xb0 || pg->code == 0xb1 || pg->code == 0xb2)
			(void)pg->fill(&cmd, b + 1);
		h = fnv1a(h, b, sizeof(b));
	}
	return (uint32_t)(h ^ h >> 32);
}

void op_inquiry(struct scsi_cmd *cmd)
{
	uint8_t code = cmd->cdb[2], *b;
	size_t n = 0;

	if (!(cmd->cdb[1] & 0x01)) {
		if (code)
			scsi_bad_cdb(cmd, 2, -1);
		else
			standard(cmd);
		return;
	}
	for (unsigned i = 0; i < ARRAY_SIZE(pages); i++) {
		const struct vpd_page *pg = &pages[i];

		if (pg->code != code || (pg->disk && !(cmd->lu && cmd->lu->blk)) ||
		    (!cmd->lu && code))
			continue;
		if (pg->store && scsi_hold_late(cmd))
			return;
		b = scsi_heap(cmd, VPD_MAX);
		if (!b)
			return;
		b[0] = peripheral(cmd);
		b[1] = code;
		if (code == 0x88) { /* says nothing of the unit, and takes the target's lock */
			n = pg->fill(cmd, b + 4);
			put_be16(b + 2, (uint16_t)n);
			scsi_data_in(cmd, 4 + n, get_be16(cmd->cdb + 3));
			return;
		}
		lock(cmd);
		if (pg->fill)
			n = pg->fill(cmd, b + 4);
		else
			for (unsigned j = 0; j < ARRAY_SIZE(pages); j++)
				if (cmd->lu ? !pages[j].disk || cmd->lu->blk : pages[j].code == 0)
					b[4 + n++] = pages[j].code;
		unlock(cmd);
		put_be16(b + 2, (uint16_t)n);
		scsi_data_in(cmd, 4 + n, get_be16(cmd->cdb + 3));
		return;
	}
	scsi_bad_cdb(cmd, 2, -1);
}
