/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Asymmetric logical unit access (SPC-4 5.15). The ports of a target are those configured for all
 * targets, or those that it is bound to, whether or not a session uses them. Each is in one target
 * port group: number 1, unless the administrator says another. A group's state is kept per logical
 * unit. The administrator sets it for all of them, which initiators see as implicit; SET TARGET
 * PORT GROUPS for one, where that is allowed. Texts of both are in tpg_text.c.
 */
#include "tgtd/scsi/tpg.h"

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

/* The ports that @t has, used or not: those it is bound to, else @all. */
static unsigned known_ports(struct scsi_target *t, const uint16_t *all, unsigned nall,
			    uint16_t *port)
{
	unsigned n;

	pthread_mutex_lock(&t->tpg_lock);
	n = t->bound ? t->nbound : nall;
	memcpy(port, t->bound ? t->bound_port : all, n * sizeof(*port));
	pthread_mutex_unlock(&t->tpg_lock);
	return n;
}

static unsigned configured_ports(uint16_t *port)
{
	unsigned n;

	pthread_mutex_lock(&configured.lock);
	n = configured.n;
	memcpy(port, configured.rtpi, n * sizeof(*port));
	pthread_mutex_unlock(&configured.lock);
	return n;
}

/* What everybody at @t is told: its known ports, and those that sessions still use. Under
 * t->lock. */
static unsigned tpg_told(struct scsi_target *t, const uint16_t *all, unsigned nall, uint16_t *port)
{
	uint16_t known[SCSI_PORTS_MAX];
	unsigned nknown = known_ports(t, all, nall, known), count = 0;
	struct scsi_nexus *n;

	for (unsigned i = 0; i < nknown; i++)
		count = add_port(port, count, known[i]);
	list_for_each(n, &t->nexuses, link)
		count = add_port(port, count, n->rtpi);
	return count;
}

/* Under t->lock. */
static void raise_all(struct scsi_target *t, uint16_t asc)
{
	for (uint32_t i = 0; i < t->nlu; i++)
		if (t->lu[i])
			scsi_ua_raise(t->lu[i], NULL, asc);
}

/* SPC-4 6.6.1: INQUIRY or VPD data that has changed, here TPGS or the SCSI Ports page. No port
 * changed its access state. Under t->lock. */
static void raise_changed(struct scsi_target *t)
{
	raise_all(t, UA_INQUIRY);
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

void scsi_target_bind_ports(struct scsi_target *t, const uint16_t *rtpi, unsigned n, bool bound)
{
	uint16_t all[SCSI_PORTS_MAX], x[SCSI_PORTS_MAX], y[SCSI_PORTS_MAX];
	unsigned nall = configured_ports(all), nx, nport = 0;

	pthread_mutex_lock(&t->lock);
	nx = tpg_told(t, all, nall, x);
	pthread_mutex_lock(&t->tpg_lock);
	for (unsigned i = 0; i < n; i++)
		nport = add_port(t->bound_port, nport, rtpi[i]);
	t->nbound = nport;
	t->bound = bound;
	pthread_mutex_unlock(&t->tpg_lock);
	if (tpg_told(t, all, nall, y) != nx || memcmp(x, y, nx * sizeof(*x)))
		raise_changed(t);
	pthread_mutex_unlock(&t->lock);
}

void scsi_port_left_locked(struct scsi_target *t, uint16_t rtpi)
{
	uint16_t all[SCSI_PORTS_MAX], port[SCSI_PORTS_MAX];
	unsigned n = known_ports(t, all, configured_ports(all), port);
	bool known = !n || !rtpi;
	struct scsi_nexus *nexus;

	for (unsigned i = 0; i < n && !known; i++)
		known = port[i] == rtpi;
	if (known)
		return;
	list_for_each(nexus, &t->nexuses, link)
		if (nexus->rtpi == rtpi)
			return;
	raise_changed(t);
}

/* Is port @rtpi another gateway's? */
static bool elsewhere(const struct scsi_gateways *g, uint16_t rtpi)
{
	for (unsigned i = 0; g && i < g->n; i++)
		if (i != g->self && g->id[i] == rtpi)
			return true;
	return false;
}

unsigned scsi_ports(const struct scsi_cmd *cmd, uint16_t *port)
{
	const struct scsi_gateways *g = cmd->lu ? cmd->lu->gateways : NULL;
	struct scsi_target *t = cmd->nexus->target;
	uint16_t all[SCSI_PORTS_MAX];
	unsigned n = configured_ports(all);

	/* One that is closed to newcomers may still serve sessions. */
	pthread_mutex_lock(&t->lock);
	n = tpg_told(t, all, n, port);
	pthread_mutex_unlock(&t->lock);
	n = add_port(port, n, cmd->nexus->rtpi);
	for (unsigned i = 0; g && i < g->n; i++)
		if (i != g->self)
			n = add_port(port, n, g->id[i]);
	return n;
}

/* ---- groups ---------------------------------------------------------------------------------- */

/* Which of @g's groups port @rtpi is in: the first one has all that are named nowhere. */
static unsigned group_of(const struct scsi_tpgs *g, uint16_t rtpi)
{
	for (unsigned i = 0; i < g->nports; i++)
		if (g->port[i].rtpi == rtpi)
			return g->port[i].group;
	return 0;
}

static int find_group(const struct scsi_tpgs *g, uint16_t id)
{
	for (unsigned i = 0; i < g->n; i++)
		if (g->id[i] == id)
			return (int)i;
	return -1;
}

/* As the administrator has it. */
static uint8_t state_of(const struct scsi_tpgs *g, unsigned group)
{
	for (unsigned i = 0; i < g->nstates; i++)
		if (g->state[i].id == g->id[group])
			return g->state[i].state;
	return g->others;
}

/* Which group @itl came by. A copy's nexus came by none: it works where anybody could. lu->lock and
 * tpg_lock held. */
static unsigned group_of_itl(const struct scsi_itl *itl, const struct scsi_tpgs *g)
{
	unsigned best = 0;

	if (itl->nexus->rtpi)
		return group_of(g, itl->nexus->rtpi);
	for (unsigned i = 1; i < g->n; i++)
		if (itl->lu->alua[i].state < itl->lu->alua[best].state)
			best = i;
	return best;
}

/* The access state by which @itl came: of its port's group, or of its gateway. */
static uint8_t state_of_itl(const struct scsi_itl *itl, const struct scsi_tpgs *g)
{
	const struct scsi_lu *lu = itl->lu;

	return lu->gateways ? lu->gateway_state[lu->gateways->self] :
			      lu->alua[group_of_itl(itl, g)].state;
}

static void gate_itl(struct scsi_itl *itl, const struct scsi_tpgs *g)
{
	const uint8_t state = state_of_itl(itl, g);
	const uint32_t bits = state < SCSI_ALUA_STANDBY	 ? 0 :
			      state == SCSI_ALUA_STANDBY ? GATE_ALUA :
							   GATE_ALUA | GATE_ALUA_OFF;

	atomic_fetch_and_explicit(&itl->gate, bits | ~(uint32_t)(GATE_ALUA | GATE_ALUA_OFF),
				  memory_order_release);
	atomic_fetch_or_explicit(&itl->gate, bits, memory_order_release);
}

static void gate_lu(struct scsi_lu *lu, const struct scsi_tpgs *g)
{
	struct scsi_itl *itl;

	list_for_each(itl, &lu->itls, link)
		gate_itl(itl, g);
}

void scsi_alua_init_locked(struct scsi_lu *lu)
{
	struct scsi_target *t = lu->target;

	pthread_mutex_lock(&t->tpg_lock);
	for (unsigned i = 0; i < t->tpgs.n; i++) {
		lu->alua[i].state = state_of(&t->tpgs, i);
		lu->alua[i].status = lu->alua[i].state ? ALUA_STATUS_IMPLICIT : ALUA_STATUS_NONE;
	}
	pthread_mutex_unlock(&t->tpg_lock);
}

void scsi_alua_attach_locked(struct scsi_itl *itl)
{
	struct scsi_target *t = itl->lu->target;

	pthread_mutex_lock(&t->tpg_lock);
	gate_itl(itl, &t->tpgs);
	pthread_mutex_unlock(&t->tpg_lock);
}

bool scsi_alua_set_locked(struct scsi_lu *lu, uint16_t id, uint8_t state,
			  const struct scsi_itl *by)
{
	struct scsi_target *t = lu->target;
	bool changed = false;
	int i;

	pthread_mutex_lock(&t->tpg_lock);
	i = lu->gateways ? -1 : find_group(&t->tpgs, id); /* the gateways know better */
	if (i >= 0) {
		changed = lu->alua[i].state != state;
		lu->alua[i].state = state;
		lu->alua[i].status = ALUA_STATUS_EXPLICIT;
		gate_lu(lu, &t->tpgs);
	}
	pthread_mutex_unlock(&t->tpg_lock);
	if (changed)
		scsi_ua_raise_locked(lu, by, UA_ALUA_CHANGED);
	return i >= 0;
}

bool scsi_tpg_known(struct scsi_target *t, uint16_t id)
{
	bool known;

	pthread_mutex_lock(&t->tpg_lock);
	known = find_group(&t->tpgs, id) >= 0;
	pthread_mutex_unlock(&t->tpg_lock);
	return known;
}

uint16_t scsi_tpg_id_locked(const struct scsi_itl *itl)
{
	struct scsi_target *t = itl->lu->target;
	uint16_t id;

	pthread_mutex_lock(&t->tpg_lock);
	id = itl->lu->gateways ? itl->lu->gateways->id[itl->lu->gateways->self] :
				 t->tpgs.id[group_of_itl(itl, &t->tpgs)];
	pthread_mutex_unlock(&t->tpg_lock);
	return id;
}

uint8_t scsi_alua_state_locked(const struct scsi_itl *itl)
{
	struct scsi_target *t = itl->lu->target;
	uint8_t state;

	pthread_mutex_lock(&t->tpg_lock);
	state = state_of_itl(itl, &t->tpgs);
	pthread_mutex_unlock(&t->tpg_lock);
	if (itl->lu->gateways && !scsi_lease_holds(itl->lu))
		state = SCSI_ALUA_TRANSITIONING;
	return state;
}

/* Of a gateway group: each gateway is one. lu->lock held. */
static unsigned gateways_view(struct scsi_lu *lu, const uint16_t *port, unsigned nports,
			      struct scsi_tpg_view *view)
{
	const struct scsi_gateways *g = lu->gateways;
	const bool known = scsi_lease_holds(lu);

	for (unsigned i = 0; i < g->n; i++) {
		struct scsi_tpg_view *v = &view[i];

		v->id = g->id[i];
		v->state = known ? lu->gateway_state[i] : SCSI_ALUA_TRANSITIONING;
		v->status = ALUA_STATUS_IMPLICIT;
		/* Nobody can be served there otherwise, and no initiator can make it active. Linux
		 * would try again and again: it ranks a preferred standby above who serves. */
		v->preferred = i == lu->gateway_home && v->state == SCSI_ALUA_ACTIVE_OPTIMIZED;
		v->nports = 0;
		if (i != g->self)
			v->port[v->nports++] = g->id[i];
		for (unsigned k = 0; i == g->self && k < nports; k++)
			if (!elsewhere(g, port[k]))
				v->port[v->nports++] = port[k];
	}
	return g->n;
}

unsigned scsi_tpgs(const struct scsi_cmd *cmd, struct scsi_tpg_view *view, uint8_t *transition_s)
{
	struct scsi_lu *lu = cmd->lu;
	uint16_t port[SCSI_PORTS_MAX];
	unsigned nports = scsi_ports(cmd, port), n = 0;
	const struct scsi_tpgs *g = &lu->target->tpgs;

	pthread_mutex_lock(&lu->lock);
	if (lu->gateways) {
		*transition_s = lu->gateways->transition_s;
		n = gateways_view(lu, port, nports, view);
		pthread_mutex_unlock(&lu->lock);
		return n;
	}
	pthread_mutex_lock(&lu->target->tpg_lock);
	*transition_s = g->transition_s;
	for (unsigned i = 0; i < g->n; i++) {
		struct scsi_tpg_view *v = &view[n];

		v->nports = 0;
		for (unsigned k = 0; k < nports; k++)
			if (group_of(g, port[k]) == i)
				v->port[v->nports++] = port[k];
		if (!v->nports)
			continue;
		v->id = g->id[i];
		v->state = lu->alua[i].state;
		v->status = lu->alua[i].status;
		v->preferred = g->preferred == g->id[i];
		n++;
	}
	pthread_mutex_unlock(&lu->target->tpg_lock);
	pthread_mutex_unlock(&lu->lock);
	return n;
}

void scsi_alua_gateways_locked(struct scsi_lu *lu)
{
	pthread_mutex_lock(&lu->target->tpg_lock);
	gate_lu(lu, &lu->target->tpgs);
	pthread_mutex_unlock(&lu->target->tpg_lock);
}

/* ---- the administrator ----------------------------------------------------------------------- */

void scsi_target_tpgs(struct scsi_target *t, struct scsi_tpgs *g)
{
	pthread_mutex_lock(&t->tpg_lock);
	*g = t->tpgs;
	pthread_mutex_unlock(&t->tpg_lock);
}

/* Its groups' states become @now's, whatever initiators have set. True: some are others. */
static bool set_states(struct scsi_lu *lu, const struct scsi_tpgs *now)
{
	bool changed = false;

	for (unsigned i = 0; i < now->n; i++) {
		const uint8_t state = state_of(now, i);

		if (lu->alua[i].state == state)
			continue;
		lu->alua[i].state = state;
		lu->alua[i].status = ALUA_STATUS_IMPLICIT;
		changed = true;
	}
	return changed;
}

static bool same_groups(const struct scsi_tpgs *a, const struct scsi_tpgs *b)
{
	return a->n == b->n && a->nports == b->nports &&
	       !memcmp(a->id, b->id, a->n * sizeof(*a->id)) &&
	       !memcmp(a->port, b->port, a->nports * sizeof(*a->port));
}

/* ---- transitions ----------------------------------------------------------------------------- */

static bool in_transition(const struct scsi_tpgs *g)
{
	bool any = g->others == SCSI_ALUA_TRANSITIONING;

	for (unsigned i = 0; i < g->nstates; i++)
		any |= g->state[i].state == SCSI_ALUA_TRANSITIONING;
	return any;
}

static void arrive_one(uint8_t *state, uint8_t then)
{
	if (*state == SCSI_ALUA_TRANSITIONING)
		*state = then == SCSI_ALUA_TRANSITIONING ? SCSI_ALUA_STANDBY : then;
}

void scsi_tpg_stay(struct scsi_target *t)
{
	if (t->transition_on)
		loop_timer_cancel(t->transition_on, &t->transition);
	t->transition_on = NULL;
}

/* @begins: its state has just been set. What is left of its time counts. */
static void time_transition(struct scsi_target *t, const struct scsi_tpgs *g, bool begins)
{
	struct loop *loop = loop_current();
	uint64_t past;

	scsi_tpg_stay(t);
	if (!loop || !in_transition(g))
		return;
	if (begins)
		t->transition_ns = loop_now(loop);
	if (!g->transition_s)
		return;
	past = loop_now(loop) - t->transition_ns;
	loop_timer_arm(loop, &t->transition,
		       g->transition_s * NSEC_PER_SEC - MIN(past, g->transition_s * NSEC_PER_SEC));
	t->transition_on = loop;
}

/* LUs of which an initiator has set another state meanwhile are left alone. Target locked. */
static void arrive_lu(struct scsi_lu *lu, const struct scsi_tpgs *g)
{
	bool changed = false;

	pthread_mutex_lock(&lu->lock);
	for (unsigned i = 0; i < g->n; i++) {
		if (lu->alua[i].state != SCSI_ALUA_TRANSITIONING)
			continue;
		lu->alua[i].state = state_of(g, i);
		lu->alua[i].status = ALUA_STATUS_IMPLICIT;
		changed = true;
	}
	if (changed)
		scsi_ua_raise_locked(lu, NULL, UA_ALUA_CHANGED);
	gate_lu(lu, g);
	pthread_mutex_unlock(&lu->lock);
}

void scsi_tpg_arrive(struct timer *timer)
{
	struct scsi_target *t = container_of(timer, struct scsi_target, transition);
	struct scsi_tpgs *g = &t->tpgs, now;

	t->transition_on = NULL;
	pthread_mutex_lock(&t->lock);
	pthread_mutex_lock(&t->tpg_lock);
	arrive_one(&g->others, g->others_then);
	for (unsigned i = 0; i < g->nstates; i++)
		arrive_one(&g->state[i].state, g->state[i].then);
	now = *g;
	pthread_mutex_unlock(&t->tpg_lock);
	for (uint32_t i = 0; i < t->nlu; i++)
		if (t->lu[i])
			arrive_lu(t->lu[i], &now);
	pthread_mutex_unlock(&t->lock);
	log_notice("target %u: the transition of its target port groups has ended after %u s",
		   t->tid, now.transition_s);
}

void scsi_target_set_tpgs(struct scsi_target *t, const struct scsi_tpgs *g, bool states)
{
	bool others, preferred;

	pthread_mutex_lock(&t->lock);
	pthread_mutex_lock(&t->tpg_lock);
	others = !same_groups(&t->tpgs, g);
	preferred = t->tpgs.preferred != g->preferred;
	t->tpgs = *g;
	pthread_mutex_unlock(&t->tpg_lock);
	for (uint32_t i = 0; i < t->nlu; i++) {
		struct scsi_lu *lu = t->lu[i];

		if (!lu)
			continue;
		pthread_mutex_lock(&lu->lock);
		if (((states || others) && set_states(lu, g)) || others || preferred)
			scsi_ua_raise_locked(lu, NULL, UA_ALUA_CHANGED);
		gate_lu(lu, g);
		pthread_mutex_unlock(&lu->lock);
	}
	if (others)
		raise_changed(t); /* VPD page 83h names the group of a port */
	pthread_mutex_unlock(&t->lock);
	time_transition(t, g, states);
}

bool scsi_lu_alua(const struct scsi_lu *lu, uint8_t state[SCSI_TPG_MAX])
{
	struct scsi_lu *m = (struct scsi_lu *)(uintptr_t)lu;
	struct scsi_target *t = m->target;
	bool differs = false;

	pthread_mutex_lock(&m->lock);
	pthread_mutex_lock(&t->tpg_lock);
	for (unsigned i = 0; i < t->tpgs.n; i++) {
		state[i] = m->alua[i].state;
		differs |= state[i] != state_of(&t->tpgs, i);
	}
	pthread_mutex_unlock(&t->tpg_lock);
	pthread_mutex_unlock(&m->lock);
	return differs;
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
