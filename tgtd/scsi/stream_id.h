/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Identities of nexuses, by which the cache knows who asks (blk_req.stream, and account.h of the
 * engine). Never the same again. The low bits say where the nexus has its accounts. Others say
 * from which host it comes and under which name its initiator has logged in, since what all
 * sessions of one host, or of one initiator, are to send has a bound.
 *
 * Hosts and names have numbers while any of their nexuses is there. An IPv6 host has a whole /64.
 * Those of 255 hosts are told apart, and 255 names; more share numbers, and what these may owe. So
 * nobody is without a bound, however many names are made up. A name that shares a number has always
 * the same one, which no initiator can find out. (One that had to share, and logs in again when
 * there are free numbers, has two until the first session ends.)
 *
 * Any thread. There is always an identity to be had.
 */
#ifndef TGTD_SCSI_STREAM_ID_H
#define TGTD_SCSI_STREAM_ID_H

#include <stdint.h>

/* @address: as text; @name: the initiator's. */
uint64_t scsi_stream_take(const char *address, const char *name);
/* Its nexus has ended. */
void scsi_stream_give_back(uint64_t id);

#endif
