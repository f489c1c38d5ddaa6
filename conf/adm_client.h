/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The tools' end of the admin socket: one blocking connection, one request at a time. For
 * single-threaded programs.
 */
#ifndef CONF_ADM_CLIENT_H
#define CONF_ADM_CLIENT_H

#include "conf/adm_proto.h"

struct adm_client {
	int fd; /* -1: not connected */
	int port;
	unsigned timeout_s; /* of a whole call, however it trickles; 0: it takes its time */
	uint64_t until_ns;  /* ours */
};

struct adm_reply {
	enum adm_status status;
	char *text;   /* NUL-terminated output, "" when none */
	char *detail; /* NUL-terminated reason of a refusal, or lines of warnings; "" when none */
};

/* 0 or -errno: what socket(2) or connect(2) say, -ENAMETOOLONG, -ETIMEDOUT. */
int adm_connect(struct adm_client *c, int port) must_check;
/* Connects first when there is no connection, and again when the other end has gone without having
 * read the request: the next worker has it then. 0: @reply is filled, whatever its status is, and
 * the caller frees it with adm_reply_free(). A store that the daemon is not allowed to open is
 * opened here, see ADM_NEEDS_FILE. -E2BIG: the request is too large. -ENOTCONN: no daemon, or it
 * went away before it answered. -ETIMEDOUT: it has not taken the request, or not answered.
 * -ECONNRESET: a request that may have changed something was sent, and its answer is lost, late or
 * no answer: whether it did is not known. -EPROTO, -ENOMEM. After an error the connection is
 * closed. */
int adm_call(struct adm_client *c, const struct adm_req *req, struct adm_reply *reply) must_check;
/* The next answer to a request that has more than one (ADM_WATCH); waits for it. As adm_call(). */
int adm_next(struct adm_client *c, struct adm_reply *reply) must_check;
void adm_reply_free(struct adm_reply *reply);
/* After a granted `system delete`: waits until the daemon's process has ended. */
void adm_wait_exit(struct adm_client *c);
/* Waits until the daemon closes the connection, and closes it. */
void adm_wait_end(struct adm_client *c);
void adm_disconnect(struct adm_client *c);

#endif
