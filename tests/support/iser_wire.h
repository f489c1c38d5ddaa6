/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A handmade iSER initiator: wire.h's target, reached through rdmafake.h's adapter. Everything runs
 * on the one loop that the test steps, unless the test says otherwise.
 */
#ifndef TESTS_SUPPORT_ISER_WIRE_H
#define TESTS_SUPPORT_ISER_WIRE_H
#ifdef HAVE_RDMA

#include "iser/iser_spec.h"
#include "tests/support/rdmafake.h"
#include "tests/support/wire.h"

struct topology;

struct ini {
	struct fake_peer peer;
	uint32_t itt, cmd_sn, exp_stat_sn, max_cmd_sn;
	uint32_t dsl; /* TargetRecvDataSegmentLength offered; 0: 8192 */
	/* Of the session to join, set between ini_connect() and ini_login(); tsih 0: a session of
	 * its own. Afterwards what the target gave. */
	uint16_t tsih, cid;
};

/* A tagged buffer of a command. */
struct ini_tag {
	uint32_t rkey;
	uint64_t va;
};

struct ini_pdu {
	struct fake_msg *msg; /* free it */
	const uint8_t *bhs, *data;
	uint32_t len;
};

/* Called again and again while something is awaited, ini_patience times at most: steps the loop. A
 * test whose target runs on threads of its own puts something else there. */
extern void (*ini_pause)(void);
extern unsigned ini_patience;
/* Whom this thread logs in to; WIRE_IQN. */
extern _Thread_local const char *ini_iqn;
/* For iser_register(); NULL. */
extern const struct topology *ini_topology;
/* wire_target_start(), the stand-in, iser_register(@options) and a portal. */
void ini_target_start(const char *options);
/* All down again; checks that nothing is left. */
void ini_target_stop(void);
/* Connection request with an iSER CM header (@header: its flags; < 0 none), accepted and
 * established. False: rejected. */
bool ini_connect(struct ini *i, int header);
void ini_send(struct ini *i, const uint8_t *bhs, const struct ini_tag *w, const struct ini_tag *r,
	      const void *data, uint32_t len);
/* Steps until a PDU is there; false: nothing came. */
bool ini_recv(struct ini *i, struct ini_pdu *pdu);
/* The login status, 0xffff when there was no answer. */
unsigned ini_login(struct ini *i, uint16_t isid, const char *keys);
/* Sends the login request, and does not wait. */
void ini_login_start(struct ini *i, uint16_t isid, const char *keys);
/* Connects, logs in, clears unit attentions. */
void ini_up(struct ini *i, uint16_t isid, int header);
/* ... with further keys, separated by newlines. */
void ini_up_keys(struct ini *i, uint16_t isid, int header, const char *keys);
/* Sends READ(10) or WRITE(10) with @imm bytes of immediate data; tags cover @data.
 * The tag's key is returned. */
uint32_t ini_rw_start(struct ini *i, bool write, uint32_t lba, uint16_t blocks, void *data,
		      uint32_t imm);
/* WRITE(10) with @imm bytes of immediate data and @unsol bytes of unsolicited Data-Out in PDUs of
 * @dsl, the rest by tag: its key, or 0. All is sent at once. */
uint32_t ini_unsol_start(struct ini *i, uint32_t lba, uint16_t blocks, const void *data,
			 uint32_t imm, uint32_t unsol, uint32_t dsl);
/* ... and waits: the SCSI status, 0xff when the connection ended. */
unsigned ini_rw(struct ini *i, bool write, uint32_t lba, uint16_t blocks, void *data, uint32_t imm);
/* Writes and reads the store's first 4 MiB twice: what was registered as it came
 * into use is registered then. */
void ini_prime(struct ini *i);
/* A command without data: the status. */
unsigned ini_simple(struct ini *i, uint8_t opcode);
/* The status of the next PDU, which is a SCSI Response. */
unsigned ini_status(struct ini *i);
/* The target's end. */
struct iser_conn;
struct iser_conn *ini_conn(struct ini *i);
#define INI_UNSOL_KEYS                                                                             \
	"InitialR2T=No\nImmediateData=Yes\nFirstBurstLength=262144\nMaxBurstLength=1048576"
/* The target has given the connection up entirely. */
bool ini_closed(struct ini *i);
void ini_hang_up(struct ini *i);

#endif
#endif
