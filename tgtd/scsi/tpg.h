/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The target port groups of a target (SPC-4 5.15): which ports there are, which group each is in,
 * the groups' access states for each logical unit, and what initiators may do to them. What the
 * administrator says of them is in target.h.
 */
#ifndef TGTD_SCSI_TPG_H
#define TGTD_SCSI_TPG_H

#include "tgtd/scsi/lu.h"

/* STATUS CODE of REPORT TARGET PORT GROUPS (SPC-4 table 317): who brought the state about. */
enum { ALUA_STATUS_NONE, ALUA_STATUS_EXPLICIT, ALUA_STATUS_IMPLICIT };

/* What REPORT TARGET PORT GROUPS says of one group. */
struct scsi_tpg_view {
	uint16_t id;
	uint8_t state, status; /* enum scsi_alua; ALUA_STATUS_* */
	bool preferred;
	unsigned nports;
	uint16_t port[SCSI_PORTS_MAX]; /* relative target port identifiers, ascending */
};

/* A new LU begins with its target's states. lu->lock held. */
void scsi_alua_init_locked(struct scsi_lu *lu);
/* A new I_T_L nexus is stopped as its port's group is. lu->lock held. */
void scsi_alua_attach_locked(struct scsi_itl *itl);
/* Groups by @id get @state, for @lu, by SET TARGET PORT GROUPS. Everybody but @by hears of what
 * changes. False: there is no group @id. lu->lock held. */
bool scsi_alua_set_locked(struct scsi_lu *lu, uint16_t id, uint8_t state,
			  const struct scsi_itl *by);
/* lu->gateway_state has changed: its I_T_L nexuses are stopped accordingly. lu->lock held. */
void scsi_alua_gateways_locked(struct scsi_lu *lu);
/* A target's timer: the transition of its groups is over. */
void scsi_tpg_arrive(struct timer *timer);
/* @t goes: no transition of it ends any more. Main loop. */
void scsi_tpg_stay(struct scsi_target *t);
/* Is there a group @id? Any thread. */
bool scsi_tpg_known(struct scsi_target *t, uint16_t id);
/* The group of the port by which @itl came, and its state. lu->lock held. */
uint16_t scsi_tpg_id_locked(const struct scsi_itl *itl);
uint8_t scsi_alua_state_locked(const struct scsi_itl *itl);
/* All groups that have a port, into @view (SCSI_TPG_MAX). Returns how many; *transition_s: IMPLICIT
 * TRANSITION TIME. Takes target->lock and lu->lock. */
unsigned scsi_tpgs(const struct scsi_cmd *cmd, struct scsi_tpg_view *view, uint8_t *transition_s);
/* Relative identifiers of the target's ports, ascending: those configured, or those that the target
 * is bound to, and those in use. Takes target->lock. At most SCSI_PORTS_MAX. */
unsigned scsi_ports(const struct scsi_cmd *cmd, uint16_t *port);
/* A nexus that came by port @rtpi has gone from @t: if that was the last reason to name the port,
 * the others hear of it. Under t->lock. */
void scsi_port_left_locked(struct scsi_target *t, uint16_t rtpi);

#endif
