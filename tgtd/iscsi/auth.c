/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * CHAP as a table of steps:
 *
 *     state        what the request brought        next
 *     METHOD       AuthMethod                      ALGORITHM, or DONE when None is enough
 *     ALGORITHM    CHAP_A                          RESPONSE (we send CHAP_A, CHAP_I, CHAP_C)
 *     RESPONSE     CHAP_N, CHAP_R [CHAP_I CHAP_C]  DONE (we send CHAP_N, CHAP_R when asked)
 *
 * A request without any of these keys repeats the state (a C-bit or an empty request). Everything
 * else fails the login; why exactly is logged here and not told to the peer.
 */
#include <stdlib.h>

#include "events/bug.h"
#include "events/log.h"
#include "tgtd/iscsi/auth.h"
#include "tgtd/iscsi/chap.h"
#include "tgtd/iscsi/itarget.h"
#include "tgtd/iscsi/login.h"

enum auth_state { AUTH_METHOD, AUTH_ALGORITHM, AUTH_RESPONSE, AUTH_DONE, AUTH_FAILED };

enum auth_key { AK_METHOD, AK_A, AK_N, AK_R, AK_I, AK_C, AK_COUNT };

static const char *const key_name[AK_COUNT] = { "AuthMethod", "CHAP_A", "CHAP_N",
						"CHAP_R",     "CHAP_I", "CHAP_C" };

struct iscsi_auth {
	enum auth_state state;
	bool required;
	const struct scsi_target *target; /* NULL: discovery */
	unsigned algorithm;
	uint8_t id;
	uint8_t challenge[CHAP_CHALLENGE_LEN];
	char user[TEXT_VALUE_MAX + 1]; /* proven */
	uint64_t serial;	       /* account.serial of the secret that was used; 0: none */
	char *value[AK_COUNT]; /* of the request under way */
};

struct iscsi_auth *iscsi_auth_create(struct scsi_target *t)
{
	const struct account_set *set = itarget_accounts(t);
	struct iscsi_auth *a = calloc(1, sizeof(*a));

	if (!a)
		return NULL;
	a->target = t;
	a->required = set && set->nincoming;
	a->state = AUTH_METHOD;
	return a;
}

static void forget_values(struct iscsi_auth *a)
{
	for (int k = 0; k < AK_COUNT; k++) {
		free(a->value[k]);
		a->value[k] = NULL;
	}
}

void iscsi_auth_destroy(struct iscsi_auth *a)
{
	if (!a)
		return;
	forget_values(a);
	free(a);
}

bool iscsi_auth_required(const struct iscsi_auth *a)
{
	return a->required;
}

bool iscsi_auth_done(const struct iscsi_auth *a)
{
	return a->state == AUTH_DONE || (a->state == AUTH_METHOD && !a->required);
}

bool iscsi_auth_key(struct iscsi_auth *a, const char *key, const char *value)
{
	for (int k = 0; k < AK_COUNT; k++)
		if (!strcmp(key, key_name[k])) {
			free(a->value[k]);
			a->value[k] = strdup(value);
			if (!a->value[k])
				a->state = AUTH_FAILED;
			return true;
		}
	return false;
}

static bool offers(const char *list, const char *what)
{
	size_t n = strlen(what);

	for (;;) {
		size_t len = strcspn(list, ",");

		if (len == n && !memcmp(list, what, n))
			return true;
		if (!list[len])
			return false;
		list += len + 1;
	}
}

static uint16_t auth_fail(struct iscsi_auth *a, uint16_t status, const char *why)
{
	log_ratelimited(LOG_LVL_NOTICE, "login refused: %s", why);
	a->state = AUTH_FAILED;
	return status;
}

static uint16_t step_method(struct iscsi_auth *a, struct text_out *out)
{
	const char *offered = a->value[AK_METHOD];

	if (!offered)
		return 0;
	if (a->required) {
		if (!offers(offered, "CHAP")) {
			text_out_add(out, "AuthMethod", "Reject");
			return auth_fail(
				a, LOGIN_AUTH_FAILURE,
				"the initiator does not offer CHAP, which this target demands");
		}
		a->state = AUTH_ALGORITHM;
		text_out_add(out, "AuthMethod", "CHAP");
		return 0;
	}
	/* Nobody has to prove anything; None is what saves a round trip. */
	if (offers(offered, "None")) {
		a->state = AUTH_DONE;
		text_out_add(out, "AuthMethod", "None");
		return 0;
	}
	text_out_add(out, "AuthMethod", "Reject");
	return auth_fail(a, LOGIN_AUTH_FAILURE,
			 "the initiator insists on authentication, but no account is bound here");
}

static uint16_t step_algorithm(struct iscsi_auth *a, struct text_out *out)
{
	char text[2 * CHAP_CHALLENGE_LEN + 3];

	if (!a->value[AK_A])
		return a->value[AK_R] || a->value[AK_N] ?
			       auth_fail(a, LOGIN_INITIATOR_ERROR,
					 "CHAP response before its challenge") :
			       0;
	a->algorithm = chap_choose(a->value[AK_A]);
	if (!a->algorithm) {
		text_out_add(out, "CHAP_A", "Reject");
		return auth_fail(a, LOGIN_AUTH_FAILURE, "no CHAP algorithm in common");
	}
	if (chap_random(&a->id, 1) || chap_random(a->challenge, sizeof(a->challenge)))
		return auth_fail(a, LOGIN_TARGET_ERROR, "no random numbers from the kernel");
	chap_encode(a->challenge, sizeof(a->challenge), text);
	text_out_addf(out, "CHAP_A", "%u", a->algorithm);
	text_out_addf(out, "CHAP_I", "%u", a->id);
	text_out_add(out, "CHAP_C", text);
	a->state = AUTH_RESPONSE;
	return 0;
}

/* The incoming account of this name, as it is bound now; NULL: none. */
static const struct account *incoming(const struct scsi_target *t, const char *user)
{
	const struct account_set *set = itarget_accounts(t);

	for (unsigned i = 0; set && i < set->nincoming; i++)
		if (!strcmp(set->incoming[i]->user, user))
			return set->incoming[i];
	return NULL;
}

/* Is CHAP_R what one of the bound accounts would answer? Which; NULL: none. */
static const struct account *verify(const struct iscsi_auth *a)
{
	uint8_t theirs[CHAP_CHALLENGE_MAX], ours[CHAP_DIGEST_MAX];
	const struct account *account = incoming(a->target, a->value[AK_N]);
	size_t want = chap_digest_len(a->algorithm);
	int len = chap_decode(a->value[AK_R], theirs, sizeof(theirs));

	if (len != (int)want || !account ||
	    chap_response(a->algorithm, a->id, account->password, a->challenge,
			  sizeof(a->challenge), ours))
		return NULL;
	return chap_equal(ours, theirs, want) ? account : NULL;
}

/* Mutual CHAP: prove ourselves to the initiator. */
static uint16_t auth_answer(struct iscsi_auth *a, const struct account *used, struct text_out *out)
{
	const struct account_set *set = itarget_accounts(a->target);
	const struct account *back = set ? set->outgoing : NULL;
	uint8_t challenge[CHAP_CHALLENGE_MAX], digest[CHAP_DIGEST_MAX];
	char text[2 * CHAP_DIGEST_MAX + 3];
	size_t dlen = chap_digest_len(a->algorithm);
	char *end;
	unsigned long id;
	int len;

	if (!a->value[AK_I] || !a->value[AK_C])
		return auth_fail(a, LOGIN_MISSING_PARAMETER, "half of a mutual CHAP challenge");
	id = strtoul(a->value[AK_I], &end, 0);
	if (end == a->value[AK_I] || *end || id > 255)
		return auth_fail(a, LOGIN_INITIATOR_ERROR, "CHAP_I out of range");
	len = chap_decode(a->value[AK_C], challenge, sizeof(challenge));
	if (len <= 0)
		return auth_fail(a, LOGIN_INITIATOR_ERROR, "CHAP_C is no binary value");
	if (!back)
		return auth_fail(
			a, LOGIN_AUTH_FAILURE,
			"the initiator asks for mutual CHAP, but no outgoing account is bound");
	/* RFC 7143 12.1.3: a reflected challenge would make us compute the initiator's own answer;
	 * equal secrets in both directions open the same door. */
	if ((size_t)len == sizeof(a->challenge) &&
	    !memcmp(challenge, a->challenge, sizeof(a->challenge)))
		return auth_fail(a, LOGIN_AUTH_FAILURE,
				 "the initiator reflects our own CHAP challenge");
	if (!strcmp(used->password, back->password))
		return auth_fail(a, LOGIN_AUTH_FAILURE,
				 "incoming and outgoing CHAP secrets are the same");
	if (chap_response(a->algorithm, (uint8_t)id, back->password, challenge, (size_t)len,
			  digest))
		return auth_fail(a, LOGIN_TARGET_ERROR, "libcrypto failed");
	chap_encode(digest, dlen, text);
	text_out_add(out, "CHAP_N", back->user);
	text_out_add(out, "CHAP_R", text);
	return 0;
}

static uint16_t step_response(struct iscsi_auth *a, struct text_out *out)
{
	const struct account *used;
	uint16_t status;

	if (!a->value[AK_N] && !a->value[AK_R])
		return a->value[AK_A] ? auth_fail(a, LOGIN_INITIATOR_ERROR, "CHAP_A twice") : 0;
	if (!a->value[AK_N] || !a->value[AK_R])
		return auth_fail(a, LOGIN_MISSING_PARAMETER, "CHAP_N and CHAP_R belong together");
	used = verify(a);
	if (!used)
		return auth_fail(a, LOGIN_AUTH_FAILURE, "wrong CHAP name or secret");
	if (a->value[AK_I] || a->value[AK_C]) {
		status = auth_answer(a, used, out);
		if (status)
			return status;
	}
	strcpy(a->user, used->user);
	a->serial = used->serial;
	a->state = AUTH_DONE;
	return 0;
}

const char *iscsi_auth_user(const struct iscsi_auth *a)
{
	return a->state == AUTH_DONE ? a->user : "";
}

bool iscsi_auth_holds(const struct iscsi_auth *a, const struct scsi_target *t)
{
	const struct account_set *set = itarget_accounts(t);
	const struct account *account;

	if (!set || !set->nincoming)
		return set != NULL;
	account = a->serial ? incoming(t, a->user) : NULL;
	return account && account->serial == a->serial;
}

const char *iscsi_auth_tries(const struct iscsi_auth *a)
{
	return a->state == AUTH_RESPONSE && a->value[AK_R] ? a->value[AK_N] : NULL;
}

uint16_t iscsi_auth_step(struct iscsi_auth *a, struct text_out *out)
{
	uint16_t status;

	switch (a->state) {
	case AUTH_METHOD:
		status = step_method(a, out);
		/* Initiators may send AuthMethod and CHAP_A in separate requests only; one request
		 * with both is answered step by step all the same. */
		if (!status && a->state == AUTH_ALGORITHM && a->value[AK_A])
			status = step_algorithm(a, out);
		break;
	case AUTH_ALGORITHM:
		status = step_algorithm(a, out);
		break;
	case AUTH_RESPONSE:
		status = step_response(a, out);
		break;
	case AUTH_DONE:
		status = a->value[AK_METHOD] || a->value[AK_R] || a->value[AK_A] ?
				 auth_fail(a, LOGIN_INITIATOR_ERROR,
					   "authentication keys after authentication") :
				 0;
		break;
	default:
		status = LOGIN_AUTH_FAILURE;
		break;
	}
	forget_values(a);
	return status;
}
