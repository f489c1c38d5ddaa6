/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The one target port group of a target (SPC-4 5.15). It has ports, and an access state for each
 * logical unit, which initiators may change if allowed. The administrator's side is in target.h.
 */
#ifndef SCSI_TPG_H
#define SCSI_TPG_H

#include "tgtd/scsi/lu.h"

#define SCSI_TPG 1 /* its number */
#define SCSI_PORTS_MAX 64

/* STATUS CODE of REPORT TARGET PORT GROUPS (SPC-4 table 317): who brought the state about. */
enum { ALUA_STATUS_NONE, ALUA_STATUS_EXPLICIT, ALUA_STATUS_IMPLICIT };

/* A new LU begins with its target's state. lu->lock held. */
void scsi_alua_init_locked(struct scsi_lu *lu);
/* Sets the state. All nexuses but @except are told when it changes. lu->lock held. */
void scsi_alua_set_locked(struct scsi_lu *lu, uint8_t state, uint8_t status,
			  const struct scsi_itl *except);
/* Relative identifiers of the target's ports, ascending: those configured, and those in use. Takes
 * target->lock. At most SCSI_PORTS_MAX. */
unsigned scsi_ports(const struct scsi_cmd *cmd, uint16_t *port);
/* A nexus that came by port @rtpi has gone from @t. If the port is no longer listed without it, the
 * other nexuses are told. Under t->lock. */
void scsi_port_left_locked(struct scsi_target *t, uint16_t rtpi);

#endif
