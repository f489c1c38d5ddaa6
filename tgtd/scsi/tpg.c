/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Asymmetric logical unit access (SPC-4 5.15): one target port group with all the target's ports in
 * it, those that are configured whether or not a session uses them. Its state is kept per
 * logical unit. The administrator sets it for all of them, which initiators see as implicit; SET
 * TARGET PORT GROUPS for one, where that is allowed. It is not PREFerred: there is no other group
 * to prefer it to.
 */
#include "tgtd/scsi/tpg.h"

const char *const scsi_alua_names[SCSI_ALUA_STATES] = {
	[SCSI_ALUA_ACTIVE_OPTIMIZED] = "active-optimized",
	[SCSI_ALUA_ACTIVE_NON_OPTIMIZED] = "active-non-optimized",
	[SCSI_ALUA_STANDBY] = "standby",
	[SCSI_ALUA_UNAVAILABLE] = "unavailable",
};

/* ---- ports ----------------------------------------------------------------------------------- */

static struct {
	pthread_mutex_t lock; /* a leaf */
	uint16_t rtpi[SCSI_PORTS_MAX];
	unsigned n;
} configured = { .lock = PTHREAD_MUTEX_INITIALIZER };

static unsigned add_port(uint16_t *port, unsigned count, uint16_t rtpi)
{
	unsigned i;

	for (i = 0; i < count && port[i] < rtpi; i++)
		;
	/* Nobody comes in by port 0: it is that of the nexuses which work for a copy. */
	if ((i < count && port[i] == rtpi) || count == SCSI_PORTS_MAX || !rtpi)
		return count;
	memmove(port + i + 1, port + i, (count - i) * sizeof(*port));
	port[i] = rtpi;
	return count + 1;
}

/* What everybody at @t is told: @known, and those that sessions still use. Under t->lock. */
static unsigned tpg_told(struct scsi_target *t, const uint16_t *known, unsigned nknown,
			 uint16_t *port)
{
	struct scsi_nexus *n;
	unsigned count = 0;

	for (unsigned i = 0; i < nknown; i++)
		count = add_port(port, count, known[i]);
	list_for_each(n, &t->nexuses, link)
		count = add_port(port, count, n->rtpi);
	return count;
}

/* SPC-4 6.6.1: INQUIRY or VPD data that has changed, here TPGS or the SCSI Ports page. No port
 * changed its access state. Under t->lock. */
static void raise_changed(struct scsi_target *t)
{
	for (uint32_t i = 0; i < t->nlu; i++)
		if (t->lu[i])
			scsi_ua_raise(t->lu[i], NULL, UA_INQUIRY);
}

void scsi_set_ports(const uint16_t *rtpi, unsigned n)
{
	uint16_t before[SCSI_PORTS_MAX], after[SCSI_PORTS_MAX], x[SCSI_PORTS_MAX],
		y[SCSI_PORTS_MAX];
	unsigned nbefore, nafter = 0, nx;
	struct scsi_target *t;

	for (unsigned i = 0; i < n; i++)
		nafter = add_port(after, nafter, rtpi[i]);
	pthread_mutex_lock(&configured.lock);
	nbefore = configured.n;
	memcpy(before, configured.rtpi, sizeof(before));
	configured.n = nafter;
	memcpy(configured.rtpi, after, nafter * sizeof(*after));
	pthread_mutex_unlock(&configured.lock);
	if (nbefore == nafter && !memcmp(before, after, nafter * sizeof(*after)))
		return;
	pthread_mutex_lock(&targets_lock);
	list_for_each(t, &targets, link) {
		pthread_mutex_lock(&t->lock);
		nx = tpg_told(t, before, nbefore, x);
		if (tpg_told(t, after, nafter, y) != nx || memcmp(x, y, nx * sizeof(*x)))
			raise_changed(t);
		pthread_mutex_unlock(&t->lock);
	}
	pthread_mutex_unlock(&targets_lock);
}

void scsi_port_left_locked(struct scsi_target *t, uint16_t rtpi)
{
	bool known;
	struct scsi_nexus *n;

	pthread_mutex_lock(&configured.lock);
	known = !configured.n || !rtpi;
	for (unsigned i = 0; i < configured.n && !known; i++)
		known = configured.rtpi[i] == rtpi;
	pthread_mutex_unlock(&configured.lock);
	if (known)
		return;
	list_for_each(n, &t->nexuses, link)
		if (n->rtpi == rtpi)
			return;
	raise_changed(t);
}

unsigned scsi_ports(const struct scsi_cmd *cmd, uint16_t *port)
{
	struct scsi_target *t = cmd->nexus->target;
	uint16_t known[SCSI_PORTS_MAX];
	unsigned n = add_port(known, 0, cmd->nexus->rtpi);

	pthread_mutex_lock(&configured.lock);
	for (unsigned i = 0; i < configured.n; i++)
		n = add_port(known, n, configured.rtpi[i]);
	pthread_mutex_unlock(&configured.lock);
	/* One that is closed to newcomers may still serve sessions. */
	pthread_mutex_lock(&t->lock);
	n = tpg_told(t, known, n, port);
	pthread_mutex_unlock(&t->lock);
	return n;
}

/* ---- states and permissions ------------------------------------------------------------------ */

void scsi_alua_set_locked(struct scsi_lu *lu, uint8_t state, uint8_t status,
			  const struct scsi_itl *except)
{
	if (lu->alua_state != state)
		scsi_ua_raise_locked(lu, except, UA_ALUA_CHANGED);
	lu->alua_state = state;
	lu->alua_status = status;
	scsi_lu_gate_locked(lu, GATE_ALUA, state >= SCSI_ALUA_STANDBY);
}

void scsi_alua_init_locked(struct scsi_lu *lu)
{
	if (lu->target->alua_state != SCSI_ALUA_ACTIVE_OPTIMIZED)
		scsi_alua_set_locked(lu, lu->target->alua_state, ALUA_STATUS_IMPLICIT, NULL);
}

void scsi_target_set_alua(struct scsi_target *t, enum scsi_alua state)
{
	struct scsi_lu *lu;

	t->alua_state = (uint8_t)state;
	pthread_mutex_lock(&t->lock);
	for (uint32_t i = 0; i < t->nlu; i++) {
		lu = t->lu[i];
		if (!lu)
			continue;
		pthread_mutex_lock(&lu->lock);
		if (lu->alua_state != state)
			scsi_alua_set_locked(lu, (uint8_t)state, ALUA_STATUS_IMPLICIT, NULL);
		pthread_mutex_unlock(&lu->lock);
	}
	pthread_mutex_unlock(&t->lock);
}

enum scsi_alua scsi_target_alua(const struct scsi_target *t)
{
	return t->alua_state;
}

void scsi_target_allow(struct scsi_target *t, unsigned what, bool on)
{
	uint32_t before = on ? atomic_fetch_or(&t->allowed, what) :
			       atomic_fetch_and(&t->allowed, ~what);

	if (!(what & SCSI_ALLOW_ALUA) || !(before & SCSI_ALLOW_ALUA) == !on)
		return;
	pthread_mutex_lock(&t->lock);
	raise_changed(t); /* TPGS */
	pthread_mutex_unlock(&t->lock);
}

bool scsi_target_allows(const struct scsi_target *t, unsigned what)
{
	return (atomic_load_explicit(&t->allowed, memory_order_relaxed) & what) == what;
}
