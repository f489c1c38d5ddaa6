/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * FORMAT UNIT (SBC-4 5.4): afterwards the unit reads as zeros, and a thin one takes no space. There
 * are no defects to manage and no protection information: what asks for either is refused. The work
 * is a logical unit's, as that of SANITIZE is (sanitize.c): it goes on when the command, its
 * session or the unit is reset, others hear 2/0404 meanwhile, and REQUEST SENSE tells the progress.
 */
#include "tgtd/scsi/commands/commands.h"

/* CDB, byte 1. */
enum { FMTPINFO = 0xc0, LONGLIST = 0x20, FMTDATA = 0x10, CMPLST = 0x08, DEFECT_FORMAT = 0x07 };
/* Byte 1 of the parameter list header. */
enum { FOV = 0x80, DPRY = 0x40, DCRT = 0x20, STPF = 0x10, IP = 0x08, DSP = 0x04, F_IMMED = 0x02 };

/* The first of @bits, for the field pointer. */
static int high_bit(uint8_t bits)
{
	return 31 - __builtin_clz(bits);
}

/* The parameter list has come: its header, and nothing that may follow it. */
static void format_listed(struct scsi_cmd *cmd)
{
	const uint8_t *p = cmd->heap;
	bool longlist = cmd->cdb[1] & LONGLIST;
	uint32_t head = longlist ? 8 : 4, defects;
	uint8_t bad;

	if (cmd->heap_got < head) {
		scsi_done_sense(cmd, SENSE_ILLEGAL_REQUEST, ASC_PARAMETER_LIST_LENGTH_ERROR);
		return;
	}
	/* Without FOV the options are up to us, and shall be zero. DPRY, DCRT, STPF: of lists and a
	 * certification that there are none of. IP, DSP: not offered. */
	bad = p[1] & (p[1] & FOV ? IP | DSP : DPRY | DCRT | STPF | IP | DSP);
	defects = longlist ? get_be32(p + 4) : get_be16(p + 2);
	if (p[0]) /* PROTECTION FIELD USAGE */
		scsi_bad_param(cmd, 0, high_bit(p[0]));
	else if (bad)
		scsi_bad_param(cmd, 1, high_bit(bad));
	else if (longlist && (p[2] | p[3])) /* P_I_INFORMATION, PROTECTION INTERVAL EXPONENT */
		scsi_bad_param(cmd, p[2] ? 2 : 3, high_bit(p[2] ? p[2] : p[3]));
	else if (defects)
		scsi_bad_param(cmd, longlist ? 4 : 2, -1);
	else
		scsi_format(cmd, p[1] & F_IMMED);
}

void op_format_unit(struct scsi_cmd *cmd)
{
	uint8_t byte1 = cmd->cdb[1], format = byte1 & DEFECT_FORMAT;

	if (byte1 & FMTPINFO)
		scsi_bad_cdb(cmd, 1, 7);
	else if (!(byte1 & FMTDATA) && (byte1 & (LONGLIST | CMPLST | DEFECT_FORMAT)))
		scsi_bad_cdb(cmd, 1, high_bit(byte1 & (LONGLIST | CMPLST | DEFECT_FORMAT)));
	else if (format == 1 || format == 2 || format > 5) /* reserved, vendor specific */
		scsi_bad_cdb(cmd, 1, 2);
	else if (byte1 & FMTDATA)
		scsi_data_out(cmd, byte1 & LONGLIST ? 8 : 4, format_listed);
	else
		scsi_format(cmd, false);
}
