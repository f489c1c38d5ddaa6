/* SPDX-License-Identifier: GPL-2.0-or-later */
/* READ and WRITE families: data, ranges, residuals, segments; verify, compare, same, unmap. */
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>
#include "events/bytes.h"
#include "tests/support/scsi_host.h"
#include "tests/support/unit.h"

static struct host h;
static struct host_nexus *n;

static void open_host(const char *size, uint32_t bs)
{
	host_open(&h, size, bs);
	n = host_login_ready(&h, "iqn.a");
}

static uint8_t *pattern(size_t len, unsigned seed)
{
	uint8_t *p = malloc(len);

	for (size_t i = 0; i < len; i++)
		p[i] = (uint8_t)((i * 2654435761u >> 13) + seed + i);
	return p;
}

static void cdb16(uint8_t *cdb, uint8_t op, uint64_t lba, uint32_t len)
{
	memset(cdb, 0, 16);
	cdb[0] = op;
	put_be64(cdb + 2, lba);
	put_be32(cdb + 10, len);
}

START_TEST(write_then_read_in_all_sizes)
{
	uint32_t bs = _i ? 4096 : 512;
	uint8_t *data = pattern(256 * bs, 1), cdb[16];

	open_host("64m", bs);
	n->late = _i;
	/* 6 */
	ck_assert_uint_eq(host_out(n, 1, (uint8_t[]){ 0x0a, 0, 0, 9, 3, 0 }, 6, data, 3 * bs),
			  SAM_GOOD);
	ck_assert_uint_eq(host_in(n, 1, (uint8_t[]){ 0x08, 0, 0, 9, 3, 0 }, 6, 3 * bs), SAM_GOOD);
	ck_assert_mem_eq(n->in, data, 3 * bs);
	/* 6 with length 0: 256 blocks */
	ck_assert_uint_eq(host_out(n, 1, (uint8_t[]){ 0x0a, 0, 0, 0, 0, 0 }, 6, data, 256 * bs),
			  SAM_GOOD);
	ck_assert_uint_eq(host_in(n, 1, (uint8_t[]){ 0x08, 0, 0, 0, 0, 0 }, 6, 256 * bs), SAM_GOOD);
	ck_assert_uint_eq(n->in_len, 256 * bs);
	ck_assert_mem_eq(n->in, data, 256 * bs);
	/* 10 */
	ck_assert_uint_eq(host_write10(n, 77, 5, data + bs, 5 * bs), SAM_GOOD);
	ck_assert_uint_eq(host_read10(n, 77, 5), SAM_GOOD);
	ck_assert_mem_eq(n->in, data + bs, 5 * bs);
	/* 12 */
	ck_assert_uint_eq(host_out(n, 1, (uint8_t[]){ 0xaa, 0, 0, 0, 1, 0, 0, 0, 0, 2, 0, 0 }, 12,
				   data + 9, 2 * bs),
			  SAM_GOOD);
	ck_assert_uint_eq(
		host_in(n, 1, (uint8_t[]){ 0xa8, 0, 0, 0, 1, 0, 0, 0, 0, 2, 0, 0 }, 12, 2 * bs),
		SAM_GOOD);
	ck_assert_mem_eq(n->in, data + 9, 2 * bs);
	/* 16 */
	cdb16(cdb, 0x8a, 1000, 200);
	ck_assert_uint_eq(host_out(n, 1, cdb, 16, data, 200 * bs), SAM_GOOD);
	cdb16(cdb, 0x88, 1000, 200);
	ck_assert_uint_eq(host_in(n, 1, cdb, 16, 200 * bs), SAM_GOOD);
	ck_assert_mem_eq(n->in, data, 200 * bs);
	free(data);
	host_close(&h);
}
END_TEST

/* Larger than a segment, than two, and not a multiple: order and contents, wire fast and slow. */
START_TEST(many_segments)
{
	uint32_t blocks = (uint32_t)(MiB(5) + KiB(4)) / 512;
	uint8_t *data = pattern((size_t)blocks * 512, 7), cdb[16];

	open_host("64m", 512);
	n->late = _i;
	cdb16(cdb, 0x8a, 3, blocks);
	ck_assert_uint_eq(host_out(n, 1, cdb, 16, data, (size_t)blocks * 512), SAM_GOOD);
	cdb16(cdb, 0x88, 3, blocks);
	ck_assert_uint_eq(host_in(n, 1, cdb, 16, (size_t)blocks * 512), SAM_GOOD);
	ck_assert_uint_eq(n->in_len, (size_t)blocks * 512);
	ck_assert(memcmp(n->in, data, (size_t)blocks * 512) == 0);
	free(data);
	host_close(&h);
}
END_TEST

START_TEST(ranges)
{
	static const uint8_t ops[] = { 0x88, 0x8a, 0x8e, 0x8f, 0x8b, 0x93, 0x90, 0x91, 0x9c };
	uint8_t cdb[16], buf[1024] = { 0 };
	uint64_t last = (8 << 20) / 512;

	open_host("8m", 512);
	for (unsigned i = 0; i < sizeof(ops); i++) {
		const struct {
			uint64_t lba;
			uint32_t len;
		} bad[] = {
			{ last, 1 },
			{ last - 1, 2 },
			{ last + 1, 0 },
			{ UINT64_MAX, 1 },
			{ UINT64_MAX, 0 },
			{ 1ull << 63, 1 },
			{ 0xffffffffull, 0xffff },
			{ UINT64_MAX - 1, 2 },
		};
		for (unsigned j = 0; j < ARRAY_SIZE(bad); j++) {
			cdb16(cdb, ops[i], bad[j].lba, bad[j].len);
			host_out(n, 1, cdb, 16, buf, 512);
			ck_assert_msg(strcmp(host_result(n), "05/21/00") == 0,
				      "%02x lba %llx len %x: %s", ops[i],
				      (unsigned long long)bad[j].lba, bad[j].len, host_result(n));
		}
		/* zero blocks at the very end are in range (but no length
		 * of a WRITE SAME: WSNZ = 1) */
		cdb16(cdb, ops[i], last, 0);
		host_out(n, 1, cdb, 16, buf, 512);
		ck_assert_msg(strcmp(host_result(n), ops[i] == 0x93 ? "05/24/00" : "good") == 0,
			      "%02x: %s", ops[i], host_result(n));
	}
	host_close(&h);
}
END_TEST

/* SAM-5 and iSCSI: what moves is the smaller of what the CDB and the initiator say. */
/* Longer than the MAXIMUM TRANSFER LENGTH of VPD page B0h: INVALID FIELD IN CDB, which is TRANSFER
 * LENGTH, wherever the CDB has it. */
START_TEST(transfer_length)
{
	static const struct {
		uint8_t opcode, len, at, size;
		uint8_t byte1;
	} c[] = {
		{ 0x28, 10, 7, 2, 0 },	{ 0xa8, 12, 6, 4, 0 }, { 0x88, 16, 10, 4, 0 },
		{ 0x2a, 10, 7, 2, 0 },	{ 0xaa, 12, 6, 4, 0 }, { 0x8a, 16, 10, 4, 0 },
		{ 0x2e, 10, 7, 2, 0 },	{ 0xae, 12, 6, 4, 0 }, { 0x8e, 16, 10, 4, 0 },
		{ 0x2f, 10, 7, 2, 2 },	{ 0xaf, 12, 6, 4, 2 }, { 0x8f, 16, 10, 4, 2 },
		{ 0x8b, 16, 10, 4, 0 },
	};
	uint32_t max;

	host_open(&h, "300m", 4096);
	n = host_login_ready(&h, "iqn.a");
	host_in(n, 1, (uint8_t[]){ 0x12, 1, 0xb0, 0, 64, 0 }, 6, 64);
	max = get_be32(n->in + 8);
	ck_assert_uint_lt(max, 0xffff);
	for (unsigned i = 0; i < ARRAY_SIZE(c); i++) {
		uint8_t cdb[16] = { c[i].opcode, c[i].byte1 };

		if (c[i].size == 2)
			put_be16(cdb + c[i].at, (uint16_t)(max + 1));
		else
			put_be32(cdb + c[i].at, max + 1);
		host_none(n, 1, cdb, 16);
		ck_assert_msg(strcmp(host_result(n), "05/24/00") == 0, "%02x: %s", cdb[0],
			      host_result(n));
		ck_assert_uint_eq(n->sense[15], 0xc0);
		ck_assert_uint_eq(get_be16(n->sense + 16), c[i].at);
	}
	/* Nothing is transferred when a VERIFY only reads. */
	uint8_t verify[16] = { 0x8f };
	put_be32(verify + 10, max + 1);
	host_none(n, 1, verify, 16);
	ck_assert_str_eq(host_result(n), "good");
	host_close(&h);
}
END_TEST

START_TEST(residuals)
{
	uint8_t a[2048], b[2048];

	memset(a, 'a', sizeof(a));
	memset(b, 'b', sizeof(b));
	open_host("8m", 512);
	ck_assert_uint_eq(host_in(n, 1, (uint8_t[]){ 0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0 }, 10, 0),
			  SAM_GOOD);
	ck_assert_uint_eq(n->in_total, 512);
	ck_assert_uint_eq(n->in_len, 0);
	ck_assert_uint_eq(host_in(n, 1, (uint8_t[]){ 0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0 }, 10, 10000),
			  SAM_GOOD);
	ck_assert_uint_eq(n->in_total, 512);
	ck_assert_uint_eq(n->in_len, 512);
	ck_assert_uint_eq(host_in(n, 1, (uint8_t[]){ 0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0 }, 10, 200),
			  SAM_GOOD);
	ck_assert_uint_eq(n->in_total, 512);
	ck_assert_uint_eq(n->in_len, 200);
	/* flagged as a write: nothing moves, nothing breaks */
	ck_assert_uint_eq(
		host_out(n, 1, (uint8_t[]){ 0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0 }, 10, a, 512),
		SAM_GOOD);
	ck_assert_uint_eq(host_none(n, 1, (uint8_t[]){ 0x2a, 0, 0, 0, 0, 0, 0, 0, 1, 0 }, 10),
			  SAM_GOOD);
	ck_assert_uint_eq(n->out_total, 512);

	ck_assert_uint_eq(host_write10(n, 0, 2, a, 1024), SAM_GOOD);
	/* More offered than asked for. */
	ck_assert_uint_eq(host_write10(n, 0, 1, b, 1024), SAM_GOOD);
	ck_assert_uint_eq(n->out_total, 512);
	host_read10(n, 0, 2);
	ck_assert_mem_eq(n->in, b, 512);
	ck_assert_mem_eq(n->in + 512, a, 512);
	ck_assert_uint_eq(host_write10(n, 0, 2, a, 1024), SAM_GOOD);
	ck_assert_uint_eq(host_write10(n, 0, 2, b, 512), SAM_GOOD); /* less */
	ck_assert_uint_eq(n->out_total, 1024);
	host_read10(n, 0, 2);
	ck_assert_mem_eq(n->in, b, 512);
	ck_assert_mem_eq(n->in + 512, a, 512);
	host_write10(n, 0, 1, a, 200); /* not even a block */
	ck_assert_str_eq(host_result(n), "05/0e/03");
	ck_assert_uint_eq(n->out_total, 512);
	host_read10(n, 0, 1);
	ck_assert_mem_eq(n->in, b, 512);
	host_close(&h);
}
END_TEST

START_TEST(reserved_bits)
{
	open_host("8m", 512);
	for (unsigned i = 1; i < 8; i++) { /* RDPROTECT */
		host_in(n, 1, (uint8_t[]){ 0x28, (uint8_t)(i << 5), 0, 0, 0, 0, 0, 0, 1, 0 }, 10,
			512);
		ck_assert_str_eq(host_result(n), "05/24/00");
		ck_assert_uint_eq(n->sense[15] & 0xc0, 0xc0); /* SKSV, in the CDB */
		ck_assert_uint_eq(get_be16(n->sense + 16), 1);
	}
	host_in(n, 1, (uint8_t[]){ 0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0x04 }, 10, 512); /* NACA */
	ck_assert_str_eq(host_result(n), "05/24/00");
	/* DPO FUA, group */
	host_in(n, 1, (uint8_t[]){ 0x28, 0x18, 0, 0, 0, 0, 0x1f, 0, 1, 0 }, 10, 512);
	ck_assert_str_eq(host_result(n), "good");
	host_none(n, 1, (uint8_t[6]){ 0xcc }, 6);
	ck_assert_str_eq(host_result(n), "05/20/00");
	host_in(n, 1, (uint8_t[16]){ 0x9e, 0x1f }, 16, 512);
	ck_assert_str_eq(host_result(n), "05/24/00");
	host_close(&h);
}
END_TEST

START_TEST(verify)
{
	uint8_t *data = pattern(600 * 512, 3), cdb[16];

	open_host("8m", 512);
	n->late = _i;
	cdb16(cdb, 0x8e, 10, 600);
	cdb[1] = 0x02;
	/* WRITE AND VERIFY */
	ck_assert_uint_eq(host_out(n, 1, cdb, 16, data, 600 * 512), SAM_GOOD);
	cdb16(cdb, 0x8f, 10, 600);
	ck_assert_uint_eq(host_none(n, 1, cdb, 16), SAM_GOOD);
	cdb[1] = 0x02;
	ck_assert_uint_eq(host_out(n, 1, cdb, 16, data, 600 * 512), SAM_GOOD);
	data[599 * 512 + 7] ^= 1;
	host_out(n, 1, cdb, 16, data, 600 * 512);
	ck_assert_str_eq(host_result(n), "0e/1d/00");
	ck_assert_uint_eq(get_be32(n->sense + 3), 599 * 512 + 7);
	cdb[1] = 0x04; /* reserved BYTCHK */
	host_out(n, 1, cdb, 16, data, 600 * 512);
	ck_assert_str_eq(host_result(n), "05/24/00");
	for (unsigned i = 1; i < 600; i++)
		memcpy(data + i * 512, data, 512);
	cdb16(cdb, 0x8a, 10, 600);
	ck_assert_uint_eq(host_out(n, 1, cdb, 16, data, 600 * 512), SAM_GOOD);
	cdb16(cdb, 0x8f, 10, 600);
	cdb[1] = 0x06; /* one block against all */
	ck_assert_uint_eq(host_out(n, 1, cdb, 16, data, 512), SAM_GOOD);
	data[511] ^= 0x80;
	host_out(n, 1, cdb, 16, data, 512);
	ck_assert_str_eq(host_result(n), "0e/1d/00");
	free(data);
	host_close(&h);
}
END_TEST

START_TEST(compare_and_write)
{
	uint32_t bs = 512;
	uint8_t *data = malloc(2 * 255 * bs), cdb[16] = { 0x89 };

	open_host("8m", bs);
	n->late = _i;
	for (unsigned blocks = 1; blocks <= 255; blocks += 127) {
		memset(data, 'A', 255 * bs);
		host_write10(n, 0, (uint16_t)blocks, data, blocks * bs);
		memset(data + blocks * bs, 'B', blocks * bs);
		cdb[13] = (uint8_t)blocks;
		host_out(n, 1, cdb, 16, data, 2 * blocks * bs);
		ck_assert_str_eq(host_result(n), "good");
		host_read10(n, 0, (uint16_t)blocks);
		ck_assert_mem_eq(n->in, data + blocks * bs, blocks * bs);
		data[blocks * bs - 27] = 'x';
		memset(data, 'B', blocks * bs - 27);
		host_out(n, 1, cdb, 16, data, 2 * blocks * bs);
		ck_assert_str_eq(host_result(n), "0e/1d/00");
		ck_assert_uint_eq(get_be32(n->sense + 3), blocks * bs - 27);
	}
	cdb[13] = 1;
	host_out(n, 1, cdb, 16, data, 4 * bs);
	ck_assert_uint_eq(n->status, SAM_CHECK_CONDITION);
	cdb[13] = 3;
	host_out(n, 1, cdb, 16, data, 4 * bs);
	ck_assert_uint_eq(n->status, SAM_CHECK_CONDITION);
	cdb[13] = 0;
	ck_assert_uint_eq(host_none(n, 1, cdb, 16), SAM_GOOD);
	free(data);
	host_close(&h);
}
END_TEST

START_TEST(orwrite)
{
	uint8_t *a = pattern(300 * 512, 1), *b = pattern(300 * 512, 99), cdb[16];

	open_host("8m", 512);
	n->late = _i;
	host_write10(n, 4, 300, a, 300 * 512);
	cdb16(cdb, 0x8b, 4, 300);
	host_out(n, 1, cdb, 16, b, 300 * 512);
	ck_assert_str_eq(host_result(n), "good");
	host_read10(n, 4, 300);
	for (unsigned i = 0; i < 300 * 512; i++)
		ck_assert_uint_eq(n->in[i], a[i] | b[i]);
	free(a);
	free(b);
	host_close(&h);
}
END_TEST

START_TEST(write_same)
{
	uint8_t *data = pattern(512, 5), zero[512] = { 0 }, cdb[16];
	uint32_t blocks = 3000;

	open_host("8m", 512);
	n->late = _i;
	cdb16(cdb, 0x93, 100, blocks);
	ck_assert_uint_eq(host_out(n, 1, cdb, 16, data, 512), SAM_GOOD);
	host_read10(n, 99, (uint16_t)(blocks + 2));
	ck_assert_mem_eq(n->in, zero, 512);
	for (unsigned i = 1; i <= blocks; i++)
		ck_assert_mem_eq(n->in + i * 512, data, 512);
	ck_assert_mem_eq(n->in + (blocks + 1) * 512, zero, 512);
	cdb[1] = 0x08; /* UNMAP with data that is not zeros: written all the same */
	data[0] ^= 0xff;
	ck_assert_uint_eq(host_out(n, 1, cdb, 16, data, 512), SAM_GOOD);
	host_read10(n, 100, 1);
	ck_assert_mem_eq(n->in, data, 512);
	cdb[1] = 0x10; /* ANCHOR alone */
	host_out(n, 1, cdb, 16, data, 512);
	ck_assert_str_eq(host_result(n), "05/24/00");
	cdb[1] = 0x09; /* UNMAP, NDOB */
	ck_assert_uint_eq(host_none(n, 1, cdb, 16), SAM_GOOD);
	host_read10(n, 100, 1);
	ck_assert_mem_eq(n->in, zero, 512);
	cdb[1] = 0;
	host_out(n, 1, cdb, 16, data, 256);
	ck_assert_uint_eq(n->status, SAM_CHECK_CONDITION);
	uint8_t two[1024] = { 1 };
	host_out(n, 1, cdb, 16, two, 1024);
	ck_assert_uint_eq(n->status, SAM_CHECK_CONDITION);
	free(data);
	host_close(&h);
}
END_TEST

START_TEST(unmap_and_status)
{
	uint8_t *data = pattern(4096 * 16, 5), list[8 + 32] = { 0 }, zero[4096] = { 0 },
		cdb[16] = { 0 };

	open_host("64m,block=4k", 4096);
	host_write10(n, 0, 16, data, 16 * 4096);
	put_be16(list, sizeof(list) - 2);
	put_be16(list + 2, 32);
	put_be64(list + 8, 2);
	put_be32(list + 16, 3);
	put_be64(list + 24, 8);
	put_be32(list + 32, 1);
	host_out(n, 1, (uint8_t[]){ 0x42, 0, 0, 0, 0, 0, 0, 0, sizeof(list), 0 }, 10, list,
		 sizeof(list));
	ck_assert_str_eq(host_result(n), "good");
	host_read10(n, 0, 16);
	ck_assert_mem_eq(n->in, data, 2 * 4096);
	ck_assert_mem_eq(n->in + 2 * 4096, zero, 4096);
	ck_assert_mem_eq(n->in + 5 * 4096, data + 5 * 4096, 3 * 4096);
	ck_assert_mem_eq(n->in + 8 * 4096, zero, 4096);

	cdb[0] = 0x9e;
	cdb[1] = 0x12;
	put_be32(cdb + 10, 8 + 16 * 8);
	ck_assert_uint_eq(host_in(n, 1, cdb, 16, 8 + 16 * 8), SAM_GOOD);
	const struct {
		uint64_t lba;
		uint32_t blocks;
		uint8_t what;
	} want[] = {
		{ 0, 2, 0 }, { 2, 3, 1 }, { 5, 3, 0 },
		{ 8, 1, 1 }, { 9, 7, 0 }, { 16, 16384 - 16, 1 },
	};
	ck_assert_uint_eq(get_be32(n->in), 4 + 16 * ARRAY_SIZE(want));
	for (unsigned i = 0; i < ARRAY_SIZE(want); i++) {
		ck_assert_uint_eq(get_be64(n->in + 8 + 16 * i), want[i].lba);
		ck_assert_uint_eq(get_be32(n->in + 16 + 16 * i), want[i].blocks);
		ck_assert_uint_eq(n->in[20 + 16 * i], want[i].what);
	}
	put_be64(cdb + 2, 16385);
	host_in(n, 1, cdb, 16, 24);
	ck_assert_str_eq(host_result(n), "05/21/00");

	/* lists that lie */
	put_be16(list + 2, 64);
	host_out(n, 1, (uint8_t[]){ 0x42, 0, 0, 0, 0, 0, 0, 0, sizeof(list), 0 }, 10, list,
		 sizeof(list));
	ck_assert_str_eq(host_result(n), "05/1a/00");
	host_out(n, 1, (uint8_t[]){ 0x42, 0, 0, 0, 0, 0, 0, 0, 4, 0 }, 10, list, 4);
	ck_assert_str_eq(host_result(n), "05/1a/00");
	put_be16(list + 2, 32);
	put_be64(list + 24, UINT64_MAX);
	host_out(n, 1, (uint8_t[]){ 0x42, 0, 0, 0, 0, 0, 0, 0, sizeof(list), 0 }, 10, list,
		 sizeof(list));
	ck_assert_str_eq(host_result(n), "05/21/00");
	free(data);
	host_close(&h);
}
END_TEST

START_TEST(capacity_and_defects)
{
	open_host("8m", 512);
	ck_assert_uint_eq(host_in(n, 1, (uint8_t[10]){ 0x25 }, 10, 8), SAM_GOOD);
	ck_assert_uint_eq(get_be32(n->in), 16383);
	ck_assert_uint_eq(get_be32(n->in + 4), 512);
	for (unsigned alloc = 0; alloc < 40; alloc++) {
		uint8_t cdb[16] = { 0x9e, 0x10 };
		put_be32(cdb + 10, alloc);
		ck_assert_uint_eq(host_in(n, 1, cdb, 16, 40), SAM_GOOD);
		ck_assert_uint_eq(n->in_len, MIN(alloc, 32u));
	}
	ck_assert_uint_eq(get_be64(n->in), 16383);
	ck_assert_uint_eq(n->in[14] & 0xc0, 0xc0); /* LBPME, LBPRZ */
	ck_assert_uint_eq(host_in(n, 1, (uint8_t[]){ 0x37, 0, 0x18, 0, 0, 0, 0, 0, 32, 0 }, 10, 32),
			  SAM_GOOD);
	ck_assert_uint_eq(n->in_len, 4);
	ck_assert_uint_eq(n->in[1], 0x18);
	host_close(&h);
}
END_TEST

/* Aborting: a write whose data never comes leaves no trace; the answer comes later, not inside. */
static atomic_bool goes;
static bool gone;

static void hold(struct scsi_work *w)
{
	(void)w;
	while (!atomic_load(&goes))
		usleep(1000);
}

static void held(struct scsi_work *w)
{
	(void)w;
	gone = true;
}

/* The store becomes smaller before a thread that may block has looked at it: no status at all would
 * be an answer without an end for who asks block after block. */
START_TEST(status_of_what_has_gone)
{
	struct scsi_work first = { .work = hold, .done = held };
	struct host_cmd *c;
	uint64_t size;

	open_host("8m", 512);
	first.home = h.loop;
	first.key = (uintptr_t)h.lu;
	scsi_helper_run(&first);
	/* LBA 8192 of 16384 */
	c = host_start(n, 1ull << 48, (uint8_t[16]){ 0x9e, 0x12, [8] = 0x20, [13] = 24 }, 16, true,
		       NULL, 24);
	ck_assert(!c->completed);
	size = atomic_exchange(&h.blk->size, MiB(4));
	atomic_store(&goes, true);
	host_finish(c);
	ck_assert_str_eq(host_result(n), "05/21/00");
	atomic_store(&h.blk->size, size);
	ck_assert(host_wait(&h, &gone));
	host_close(&h);
}
END_TEST

START_TEST(abort_write)
{
	uint8_t data[1024];
	struct host_cmd *c;

	memset(data, 'x', sizeof(data));
	open_host("8m", 512);
	n->hold_fetch = true;
	c = host_start(n, 1ull << 48, (uint8_t[]){ 0x2a, 0, 0, 0, 0, 0, 0, 0, 2, 0 }, 10, false,
		       data, 1024);
	ck_assert(!c->completed);
	host_do(&h, (void (*)(void *))host_abort, c);
	host_finish(c);
	ck_assert_str_eq(host_result(n), "aborted");
	n->hold_fetch = false;
	host_read10(n, 0, 1);
	ck_assert_uint_eq(n->in[0], 0);
	host_close(&h);
}
END_TEST

UNIT_TABLE("sbc", 15, { write_then_read_in_all_sizes, 2 }, { many_segments, 2 }, { ranges },
	   { transfer_length }, { residuals }, { reserved_bits }, { verify, 2 },
	   { compare_and_write, 2 }, { orwrite, 2 }, { write_same, 2 }, { unmap_and_status },
	   { capacity_and_defects }, { abort_write }, { status_of_what_has_gone })
