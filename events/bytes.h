/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Big-endian fields at any alignment: iSCSI, SCSI and iSER put everything on the wire this way. */
#ifndef EVENTS_BYTES_H
#define EVENTS_BYTES_H

#include <endian.h>
#include "events/base.h"

static inline uint16_t get_be16(const void *p)
{
	uint16_t v;
	memcpy(&v, p, sizeof(v));
	return be16toh(v);
}

static inline uint32_t get_be24(const void *p)
{
	const uint8_t *b = p;
	return (uint32_t)b[0] << 16 | (uint32_t)b[1] << 8 | b[2];
}

static inline uint32_t get_be32(const void *p)
{
	uint32_t v;
	memcpy(&v, p, sizeof(v));
	return be32toh(v);
}

static inline uint64_t get_be48(const void *p)
{
	return (uint64_t)get_be16(p) << 32 | get_be32((const uint8_t *)p + 2);
}

static inline uint64_t get_be64(const void *p)
{
	uint64_t v;
	memcpy(&v, p, sizeof(v));
	return be64toh(v);
}

static inline void put_be16(void *p, uint16_t v)
{
	v = htobe16(v);
	memcpy(p, &v, sizeof(v));
}

static inline void put_be24(void *p, uint32_t v)
{
	uint8_t *b = p;
	b[0] = (uint8_t)(v >> 16);
	b[1] = (uint8_t)(v >> 8);
	b[2] = (uint8_t)v;
}

static inline void put_be32(void *p, uint32_t v)
{
	v = htobe32(v);
	memcpy(p, &v, sizeof(v));
}

static inline void put_be48(void *p, uint64_t v)
{
	put_be16(p, (uint16_t)(v >> 32));
	put_be32((uint8_t *)p + 2, (uint32_t)v);
}

static inline void put_be64(void *p, uint64_t v)
{
	v = htobe64(v);
	memcpy(p, &v, sizeof(v));
}

#endif
