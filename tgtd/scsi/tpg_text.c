/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Target port groups as the administrator writes them, and reads them back:
 *
 *     alua_groups           2=3,4;5=9      group 2 has ports 3 and 4; others are in group 1
 *     alua_state            standby        all groups; or 1=standby;2=unavailable, and
 *                                          active-optimized those that are not named
 *     alua_preferred        2              0: none is
 *     alua_state            transitioning-to-standby    when the time of a transition has passed
 *     alua_transition_time  30             seconds, 0: not said
 *
 * Each may be said before the others: states and preference are kept by the group's number.
 */
#include <stdio.h>
#include <stdlib.h>
#include "tgtd/scsi/tpg.h"

const char *const scsi_alua_names[SCSI_ALUA_NAMES] = {
	[SCSI_ALUA_ACTIVE_OPTIMIZED] = "active-optimized",
	[SCSI_ALUA_ACTIVE_NON_OPTIMIZED] = "active-non-optimized",
	[SCSI_ALUA_STANDBY] = "standby",
	[SCSI_ALUA_UNAVAILABLE] = "unavailable",
	[SCSI_ALUA_TRANSITIONING] = "transitioning",
};

void scsi_tpgs_init(struct scsi_tpgs *g)
{
	memset(g, 0, sizeof(*g));
	g->n = 1;
	g->id[0] = SCSI_TPG_FIRST;
}

/* A number from @min to @max at *text, which moves behind it. */
static bool group_number(const char **text, unsigned long min, unsigned long max, uint16_t *out)
{
	char *end;
	unsigned long v;

	if (**text < '0' || **text > '9')
		return false;
	v = strtoul(*text, &end, 10);
	*text = end;
	*out = (uint16_t)v;
	return v >= min && v <= max;
}

static bool skip_char(const char **text, char c)
{
	const bool is = **text == c;

	*text += is;
	return is;
}

static int group_at(struct scsi_tpgs *g, uint16_t id)
{
	for (unsigned i = 0; i < g->n; i++)
		if (g->id[i] == id)
			return (int)i;
	if (g->n == SCSI_TPG_MAX)
		return -1;
	g->id[g->n] = id;
	return (int)g->n++;
}

static bool has_port(const struct scsi_tpgs *g, uint16_t rtpi)
{
	for (unsigned i = 0; i < g->nports; i++)
		if (g->port[i].rtpi == rtpi)
			return true;
	return false;
}

static int parse_groups(struct scsi_tpgs *g, const char *s)
{
	uint16_t id, rtpi;
	int at;

	g->n = 1;
	g->nports = 0;
	if (!*s)
		return 0;
	do {
		if (!group_number(&s, 1, 65535, &id) || !skip_char(&s, '=') ||
		    (at = group_at(g, id)) < 0)
			return -EINVAL;
		do {
			if (!group_number(&s, 1, 65535, &rtpi) || has_port(g, rtpi) ||
			    g->nports == SCSI_PORTS_MAX)
				return -EINVAL;
			g->port[g->nports].rtpi = rtpi;
			g->port[g->nports++].group = (uint16_t)at;
		} while (skip_char(&s, ','));
	} while (skip_char(&s, ';'));
	return *s ? -EINVAL : 0;
}

static const char going[] = "transitioning-to-";

/* The name at *text, which moves behind it. */
static bool state_name(const char **text, uint8_t *state, uint8_t *then)
{
	const bool goes = !strncmp(*text, going, sizeof(going) - 1);
	const char *name = *text + (goes ? sizeof(going) - 1 : 0);
	const size_t len = strcspn(name, ";");

	for (unsigned i = 0; i < (goes ? SCSI_ALUA_STATES : SCSI_ALUA_NAMES); i++)
		if (scsi_alua_names[i] && strlen(scsi_alua_names[i]) == len &&
		    !strncmp(scsi_alua_names[i], name, len)) {
			*text = name + len;
			*state = goes ? SCSI_ALUA_TRANSITIONING : (uint8_t)i;
			*then = (uint8_t)i;
			return true;
		}
	return false;
}

static int parse_states(struct scsi_tpgs *g, const char *s)
{
	g->others = SCSI_ALUA_ACTIVE_OPTIMIZED;
	g->nstates = 0;
	if (!*s)
		return 0;
	if (*s < '0' || *s > '9')
		return state_name(&s, &g->others, &g->others_then) && !*s ? 0 : -EINVAL;
	do {
		if (g->nstates == SCSI_TPG_MAX ||
		    !group_number(&s, 1, 65535, &g->state[g->nstates].id) || !skip_char(&s, '=') ||
		    !state_name(&s, &g->state[g->nstates].state, &g->state[g->nstates].then))
			return -EINVAL;
		for (unsigned i = 0; i < g->nstates; i++)
			if (g->state[i].id == g->state[g->nstates].id)
				return -EINVAL;
		g->nstates++;
	} while (skip_char(&s, ';'));
	return *s ? -EINVAL : 0;
}

int scsi_tpgs_parse(struct scsi_tpgs *g, const char *key, const char *value)
{
	uint16_t n;

	if (!strcmp(key, "alua_groups"))
		return parse_groups(g, value);
	if (!strcmp(key, "alua_state"))
		return parse_states(g, value);
	if (!strcmp(key, "alua_preferred")) {
		if (!group_number(&value, 0, 65535, &g->preferred) || *value)
			return -EINVAL;
		return 0;
	}
	if (strcmp(key, "alua_transition_time"))
		return -ENOENT;
	if (!group_number(&value, 0, 255, &n) || *value)
		return -EINVAL;
	g->transition_s = (uint8_t)n;
	return 0;
}

static void print_groups(const struct scsi_tpgs *g, FILE *f)
{
	const char *between = "";

	for (unsigned i = 0; i < g->n; i++) {
		bool any = false;

		for (unsigned k = 0; k < g->nports; k++) {
			if (g->port[k].group != i)
				continue;
			if (any)
				fprintf(f, ",%u", g->port[k].rtpi);
			else
				fprintf(f, "%s%u=%u", between, g->id[i], g->port[k].rtpi);
			any = true;
			between = ";";
		}
	}
}

static void print_state(FILE *f, uint8_t state, uint8_t then)
{
	if (state == SCSI_ALUA_TRANSITIONING && then != state)
		fprintf(f, "%s%s", going, scsi_alua_names[then]);
	else
		fputs(scsi_alua_names[state], f);
}

void scsi_alua_print(const struct scsi_tpgs *g, const uint8_t *state, char *out, size_t len)
{
	bool same = true;
	FILE *f = fmemopen(out, len, "w");

	for (unsigned i = 1; i < g->n; i++)
		same &= state[i] == state[0];
	*out = 0;
	if (!f)
		return;
	if (same)
		fputs(scsi_alua_names[state[0]], f);
	for (unsigned i = 0; !same && i < g->n; i++)
		fprintf(f, "%s%u=%s", i ? ";" : "", g->id[i], scsi_alua_names[state[i]]);
	fclose(f);
}

void scsi_tpgs_print(const struct scsi_tpgs *g, const char *key, char *out, size_t len)
{
	FILE *f = fmemopen(out, len, "w");

	*out = 0;
	if (!f)
		return;
	if (!strcmp(key, "alua_groups"))
		print_groups(g, f);
	else if (!strcmp(key, "alua_state") && !g->nstates)
		print_state(f, g->others, g->others_then);
	else if (!strcmp(key, "alua_state"))
		for (unsigned i = 0; i < g->nstates; i++) {
			fprintf(f, "%s%u=", i ? ";" : "", g->state[i].id);
			print_state(f, g->state[i].state, g->state[i].then);
		}
	else if (!strcmp(key, "alua_preferred"))
		fprintf(f, "%u", g->preferred);
	else if (!strcmp(key, "alua_transition_time"))
		fprintf(f, "%u", g->transition_s);
	fclose(f);
}
