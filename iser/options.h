/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The options of --iser (see iser.h for what they mean). */
#ifndef ISER_OPTIONS_H
#define ISER_OPTIONS_H

#include "events/base.h"

enum iser_completion { COMPLETION_ADAPTIVE, COMPLETION_EVENT, COMPLETION_POLL };
enum iser_gather { GATHER_AUTO, GATHER_GATHER, GATHER_MULTI, GATHER_PACK };
enum iser_path { PATH_ZEROCOPY, PATH_COPY };

struct iser_options {
	uint16_t port;	     /* 0: the portal's */
	bool nop;
	uint32_t pool_bytes_mb; /* registered memory of connections, by device */
	uint32_t slot_len;   /* bytes of a bounce slot */
	bool immediate;
	uint32_t unsolicited;/* bytes of unsolicited Data-Out a command; 0: InitialR2T stays Yes */
	int cq_vector;	     /* -1: in turn */
	uint8_t completion;  /* enum iser_completion */
	uint8_t gather;	     /* enum iser_gather */
	uint8_t path;	     /* enum iser_path */
};

/* What is in force; it does not change once there are devices. */
extern struct iser_options iser_opt;

/* 0, or -EINVAL after a line in the log that says what is wrong. @o has the defaults then. */
int iser_options_parse(struct iser_options *o, const char *text) must_check;

#endif
