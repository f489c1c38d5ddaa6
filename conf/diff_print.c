/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Steps of a plan as tgtadm command lines, as tgt-admin --pretend and --verbose print them. */
#include "conf/diff.h"
#include "events/bug.h"

/* In double quotes, as far as the shell asks for it. */
static void diff_quote(FILE *to, const char *text, bool always)
{
	bool plain = *text && !text[strcspn(text, " \t\n\"'\\$`&|;<>()*?[]#~!{}")];

	if (plain && !always) {
		fputs(text, to);
		return;
	}
	fputc('"', to);
	for (; *text; text++) {
		if (strchr("\"\\$`", *text))
			fputc('\\', to);
		fputc(*text, to);
	}
	fputc('"', to);
}

static void print_text(FILE *to, const char *option, const char *text, bool always)
{
	if (!text)
		return;
	fprintf(to, "%s", option);
	diff_quote(to, text, always);
}

static void diff_print_lu(const struct adm_req *r, FILE *to)
{
	const char *params = r->text[ADM_T_PARAMS], *eq = params ? strchr(params, '=') : NULL;

	fprintf(to, " --op %s --mode logicalunit --tid %u", adm_op_name(r->op), r->tid);
	if (r->op != ADM_UPDATE) {
		fprintf(to, " --lun %u", (unsigned)r->lun);
		print_text(to, " -b ", r->text[ADM_T_PATH], true);
		print_text(to, " --bstype ", r->text[ADM_T_BSTYPE], false);
		print_text(to, " --bsopts ", r->text[ADM_T_BSOPTS], false);
		print_text(to, " --bsoflags ", r->text[ADM_T_BSOFLAGS], false);
		print_text(to, " --blocksize ", r->text[ADM_T_BLOCKSIZE], false);
		return;
	}
	fprintf(to, " --lun=%u --params ", (unsigned)r->lun);
	if (!eq || !strncmp(params, "mode_page=8:", 12)) {
		fputs(params, to);
		return;
	}
	fprintf(to, "%.*s", (int)(eq + 1 - params), params);
	diff_quote(to, eq + 1, true);
}

void conf_step_print(const struct conf_step *step, int control_port, FILE *to)
{
	const struct adm_req *r = &step->req;

	if (step->note) {
		fprintf(to, "# %s\n", step->note);
		return;
	}
	ASSERT(r->mode == ADM_LU || r->mode == ADM_ACCOUNT || r->mode == ADM_SYSTEM ||
	       r->mode == ADM_TARGET || r->mode == ADM_PORTAL || r->mode == ADM_CACHE ||
	       r->mode == ADM_LLD);
	fprintf(to, "tgtadm -C %d", control_port);
	if (r->text[ADM_T_LLD])
		fprintf(to, " --lld %s", r->text[ADM_T_LLD]);
	switch (r->mode) {
	case ADM_LU:
		diff_print_lu(r, to);
		break;
	case ADM_ACCOUNT:
		fprintf(to, " --mode account --op %s", adm_op_name(r->op));
		if (r->has_tid)
			fprintf(to, " --tid=%u", r->tid);
		print_text(to, " --user=", r->text[ADM_T_USER], false);
		/* What is printed is written down, too: in a journal, for one. */
		if (r->text[ADM_T_FILE])
			print_text(to, " --password-file=", r->text[ADM_T_FILE], false);
		else if (r->text[ADM_T_PASSWORD])
			fputs(" --password=" CONF_NO_PASSWORD, to);
		if (r->outgoing)
			fputs(" --outgoing", to);
		print_text(to, " --initiator-name=", r->text[ADM_T_INITIATOR], false);
		break;
	case ADM_PORTAL:
		fprintf(to, " --op %s --mode portal --params ", adm_op_name(r->op));
		diff_quote(to, r->text[ADM_T_PARAMS], true);
		break;
	case ADM_LLD:
		fprintf(to, " --op %s --mode lld", adm_op_name(r->op));
		break;
	case ADM_SYSTEM:
	case ADM_CACHE:
		fprintf(to, " --op %s --mode %s --name %s -v ", adm_op_name(r->op),
			r->mode == ADM_CACHE ? "cache" : "sys", r->text[ADM_T_NAME]);
		diff_quote(to, r->text[ADM_T_VALUE], false);
		break;
	default:
		if (r->op == ADM_DELETE) {
			fprintf(to, " --mode target --op delete --tid=%u%s", r->tid,
				r->force ? " --force" : "");
			break;
		}
		fprintf(to,
			r->op == ADM_UPDATE ? " --mode target --op %s" : " --op %s --mode target",
			adm_op_name(r->op));
		fprintf(to, " --tid %u", r->tid);
		print_text(to, " -T ", r->text[ADM_T_TARGETNAME], false);
		print_text(to, " -I ", r->text[ADM_T_ADDRESS], false);
		print_text(to, " -Q ", r->text[ADM_T_INITIATOR], false);
		print_text(to, " --expose ", r->text[ADM_T_EXPOSE], false);
		print_text(to, " --params ", r->text[ADM_T_PARAMS], false);
		print_text(to, " --name ", r->text[ADM_T_NAME], false);
		print_text(to, " --value ", r->text[ADM_T_VALUE], false);
	}
	fputc('\n', to);
}
