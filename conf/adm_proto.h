/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What tgtadm and tgt-admin say to the daemon, and what it answers, over its UNIX stream socket.
 *
 *     request   magic "TGTq" | version 1 | reserved 0 | length n (LE32) | n bytes of fields
 *     field     tag (1) | length m (LE16) | m bytes
 *     answer    magic "TGTr" | status (LE32) | length n (LE32) | n bytes of text | m of detail:
 *               the LE32 after n. The detail is why it was refused; of what was done, warnings,
 *               each a line
 *
 * Texts carry a final NUL and none inside. Numbers are eight bytes, little endian: both ends run on
 * one machine, but a fixed order makes recordings portable. A tag occurs once at most. Unknown
 * tags, wrong lengths and missing NULs end the connection: there is no older version to support. A
 * connection carries any number of requests, one at a time.
 *
 * ADM_WATCH is answered by any number of answers, each with some lines of text, until one of both
 * ends the connection. The first one, or a refusal, comes at once.
 *
 * Statuses are tgt's set of outcomes; their texts are what scripts grep for.
 */
#ifndef CONF_ADM_PROTO_H
#define CONF_ADM_PROTO_H

#include "events/base.h"

#define ADM_SOCKET_PREFIX "/var/run/tgtd/socket"
#define ADM_SOCKET_ENV "TGT_IPC_SOCKET"

#define ADM_REQ_HEADER 12
#define ADM_RSP_HEADER 16
#define ADM_REQ_MAX 65536		    /* all fields of one request */
#define ADM_RSP_MAX (256u * 1024 * 1024) /* `show` of everything; a bound for the reader */

enum adm_mode {
	ADM_SYSTEM,
	ADM_TARGET,
	ADM_LU,
	ADM_PORTAL,
	ADM_SESSION,
	ADM_CONN,
	ADM_ACCOUNT,
	ADM_LLD,
	ADM_CACHE,   /* not in tgt */
	ADM_CLUSTER, /* the same */
	ADM_MODES
};

/* Order as tgt numbers them: "option N not supported in lld mode" prints it. */
enum adm_op {
	ADM_NEW,
	ADM_DELETE,
	ADM_SHOW,
	ADM_BIND,
	ADM_UNBIND,
	ADM_UPDATE,
	ADM_STAT,
	ADM_START,
	ADM_STOP,
	ADM_WATCH, /* not in tgt; answered again and again, see below */
	ADM_LATENCY,
	ADM_SLOW,
	ADM_EXPLAIN,
	ADM_OPS
};

enum adm_status {
	ADM_OK,
	ADM_UNKNOWN_ERR,
	ADM_NOMEM,
	ADM_NO_DRIVER,
	ADM_NO_TARGET,
	ADM_NO_LUN,
	ADM_NO_SESSION,
	ADM_NO_CONNECTION,
	ADM_NO_BINDING,
	ADM_TARGET_EXIST,
	ADM_BINDING_EXIST,
	ADM_LUN_EXIST,
	ADM_ACL_EXIST,
	ADM_ACL_NOEXIST,
	ADM_USER_EXIST,
	ADM_NO_USER,
	ADM_TOO_MANY_USER,
	ADM_INVALID_REQUEST,
	ADM_OUTACCOUNT_EXIST,
	ADM_TARGET_ACTIVE,
	ADM_LUN_ACTIVE,
	ADM_DRIVER_ACTIVE,
	ADM_UNSUPPORTED,
	ADM_UNKNOWN_PARAM,
	ADM_PREVENT_REMOVAL,
	ADM_NEEDS_FILE, /* the daemon may not open the store: see adm_store_path() */
	ADM_STATUSES
};

/* The peripheral device types that --device-type names (SPC-4 table 138, and tgt's 0xff for pt). */
enum adm_device_type {
	ADM_TYPE_DISK = 0x00,
	ADM_TYPE_TAPE = 0x01,
	ADM_TYPE_CD = 0x05,
	ADM_TYPE_CHANGER = 0x08,
	ADM_TYPE_CONTROLLER = 0x0c,
	ADM_TYPE_OSD = 0x11,
	ADM_TYPE_PT = 0xff,
};

/* Text fields, by index into adm_req.text[]. */
enum adm_text {
	ADM_T_LLD,
	ADM_T_NAME,
	ADM_T_VALUE,
	ADM_T_PATH,	  /* --backing-store */
	ADM_T_BSTYPE,
	ADM_T_BSOPTS,
	ADM_T_BSOFLAGS,
	ADM_T_BLOCKSIZE,
	ADM_T_TARGETNAME,
	ADM_T_ADDRESS,	  /* --initiator-address */
	ADM_T_INITIATOR,  /* --initiator-name */
	ADM_T_USER,
	ADM_T_PASSWORD,
	ADM_T_PARAMS,	  /* --params, as given */
	ADM_T_EXPOSE,	  /* --expose: LUNs that an initiator may see */
	ADM_T_FILE,	  /* --password-file: where the password is kept */
	ADM_TEXTS
};

struct adm_req {
	uint8_t mode, op;
	uint8_t device_type;
	bool force, outgoing;
	bool check; /* change nothing: would this be refused for what it says,
		     * whatever is there by then? */
	bool json; /* of what is shown: as JSON, not as text */
	bool has_tid, has_sid, has_cid, has_lun, has_host;
	uint32_t tid, cid, host;
	uint64_t sid, lun;
	const char *text[ADM_TEXTS]; /* NULL: not given. Into the caller's strings or the buffer */
};

/* Nothing given but mode and operation. */
void adm_req_init(struct adm_req *req, enum adm_mode mode, enum adm_op op);
/* Bytes written to @buf, header included; 0 when they do not fit into @cap or ADM_REQ_MAX. */
size_t adm_req_encode(const struct adm_req *req, uint8_t *buf, size_t cap) must_check;
/* Length of the fields that follow a request header, or -EPROTO. */
int adm_req_header(const uint8_t head[ADM_REQ_HEADER]) must_check;
/* @fields, @len: what follows the header. Texts of @req point into @fields. 0 or -EPROTO. */
int adm_req_decode(struct adm_req *req, const uint8_t *fields, size_t len) must_check;

/*
 * A daemon without privileges (tgtd --user) answers ADM_NEEDS_FILE where it is not allowed to open
 * a store. The tools then open it, with the administrator's rights, and send the request again with
 * the descriptor (SCM_RIGHTS, with its first byte). What is opened is what the request itself
 * names, never what the daemon says: a daemon that somebody has taken over gets nothing else by
 * it. All that it may say is how, by a detail that begins with ADM_NEEDS_SYNC: with O_SYNC.
 *
 * Into @path the store that @req names, as `--backing-store` or as the parameter `path`. 0;
 * -ENOENT: none, or more than one; -ENAMETOOLONG.
 */
#define ADM_NEEDS_SYNC "sync: "
int adm_store_path(const struct adm_req *req, char *path, size_t len) must_check;

/* The header of an answer with @text_len bytes of output and
 * @detail_len of explanation after it. */
void adm_rsp_encode(uint8_t head[ADM_RSP_HEADER], enum adm_status status, uint32_t text_len,
		    uint32_t detail_len);
/* 0 or -EPROTO (also when the lengths exceed ADM_RSP_MAX). */
int adm_rsp_decode(const uint8_t head[ADM_RSP_HEADER], enum adm_status *status, uint32_t *text_len,
		   uint32_t *detail_len) must_check;

/* In tgt's words; never NULL. */
const char *adm_status_text(enum adm_status status);

/* Names of the command line. -1 when unknown. */
int adm_mode_parse(const char *text);
int adm_op_parse(const char *text);
int adm_device_type_parse(const char *text);
const char *adm_mode_name(enum adm_mode mode); /* the long one */
const char *adm_op_name(enum adm_op op);
/* Does it show something, and change nothing? */
bool adm_op_looks(enum adm_op op);

/* Path of the socket of @port: "$TGT_IPC_SOCKET.<port>", or below ADM_SOCKET_PREFIX. 0 or
 * -ENAMETOOLONG. @suffix: "" or ".lock". */
int adm_socket_path(char *buf, size_t cap, int port, const char *suffix) must_check;

#endif
