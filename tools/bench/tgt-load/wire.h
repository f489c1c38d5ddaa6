/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The iSCSI wire as an initiator sees it: opcodes, flags and field places of RFC 7143 section 11,
 * and big-endian access. Shared by the load generator and the bare loop. The target has its own,
 * richer description. These programs stay independent of it, so that a mistake there shows here.
 */
#ifndef TOOLS_BENCH_TGT_LOAD_WIRE_H
#define TOOLS_BENCH_TGT_LOAD_WIRE_H

#include <stdint.h>
#include <string.h>
#include <isa-l/crc.h>

enum {
	BHS = 48,

	OP_NOP_OUT = 0x00,
	OP_SCSI_CMD = 0x01,
	OP_TMF_REQ = 0x02,
	OP_LOGIN_REQ = 0x03,
	OP_TEXT_REQ = 0x04,
	OP_DATA_OUT = 0x05,
	OP_LOGOUT_REQ = 0x06,
	OP_NOP_IN = 0x20,
	OP_SCSI_RSP = 0x21,
	OP_TMF_RSP = 0x22,
	OP_LOGIN_RSP = 0x23,
	OP_TEXT_RSP = 0x24,
	OP_DATA_IN = 0x25,
	OP_LOGOUT_RSP = 0x26,
	OP_R2T = 0x31,
	OP_ASYNC = 0x32,
	OP_REJECT = 0x3f,
	OP_MASK = 0x3f,
	OP_IMMEDIATE = 0x40,

	FL_FINAL = 0x80,
	CMD_READ = 0x40,
	CMD_WRITE = 0x20,
	CMD_SIMPLE = 0x01,
	RSP_OVERFLOW = 0x04,
	RSP_UNDERFLOW = 0x02,
	DIN_STATUS = 0x01,
	LOGIN_TRANSIT = 0x80,
	LOGIN_CONTINUE = 0x40,

	CDB_READ_10 = 0x28,
	CDB_WRITE_10 = 0x2a,
	CDB_READ_16 = 0x88,
	CDB_WRITE_16 = 0x8a,
};

#define TAG_NONE 0xffffffffu

static inline uint16_t get16(const uint8_t *p)
{
	uint16_t v;

	memcpy(&v, p, sizeof(v));
	return __builtin_bswap16(v);
}

static inline uint32_t get24(const uint8_t *p)
{
	return (uint32_t)p[0] << 16 | (uint32_t)p[1] << 8 | p[2];
}

static inline uint32_t get32(const uint8_t *p)
{
	uint32_t v;

	memcpy(&v, p, sizeof(v));
	return __builtin_bswap32(v);
}

static inline uint64_t get64(const uint8_t *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof(v));
	return __builtin_bswap64(v);
}

static inline void put16(uint8_t *p, uint16_t v)
{
	v = __builtin_bswap16(v);
	memcpy(p, &v, sizeof(v));
}

static inline void put24(uint8_t *p, uint32_t v)
{
	p[0] = (uint8_t)(v >> 16);
	p[1] = (uint8_t)(v >> 8);
	p[2] = (uint8_t)v;
}

static inline void put32(uint8_t *p, uint32_t v)
{
	v = __builtin_bswap32(v);
	memcpy(p, &v, sizeof(v));
}

static inline void put64(uint8_t *p, uint64_t v)
{
	v = __builtin_bswap64(v);
	memcpy(p, &v, sizeof(v));
}

/* Bytes to the next multiple of four: every segment is padded on the wire (RFC 7143, 11.2). */
static inline uint32_t pad4(uint32_t n)
{
	return -n & 3;
}

/* CRC32C in pieces: start with CRC_START, feed bytes, finish; the digest lies little-endian. */
#define CRC_START 0xffffffffu

static inline uint32_t crc_feed(uint32_t crc, const void *p, size_t n)
{
	return crc32_iscsi((unsigned char *)(uintptr_t)p, (int)n, crc);
}

static inline void crc_store(uint8_t *p, uint32_t crc)
{
	crc = ~crc;
	memcpy(p, &crc, sizeof(crc));
}

/* True when the four bytes at p are the digest of what was fed. */
static inline int crc_equal(const uint8_t *p, uint32_t crc)
{
	uint32_t seen;

	memcpy(&seen, p, sizeof(seen));
	return seen == (uint32_t)~crc;
}

/* The eight bytes of a LUN (SAM-5, 4.7): peripheral addressing below 256, else flat space. */
static inline void put_lun(uint8_t *p, unsigned lun)
{
	memset(p, 0, 8);
	put16(p, (uint16_t)(lun < 256 ? lun : 0x4000 | (lun & 0x3fff)));
}

#endif
