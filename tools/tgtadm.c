/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * tgtadm: one administrative request on the command line. Options, texts and exit codes are those
 * of tgt's tool of the same name, because scripts depend on them:
 *
 *     0    done
 *     22   refused, here or by the daemon; "tgtadm: <text>" on stderr
 *     1    unknown mode or operation
 *     107  no daemon
 *
 * Why the daemon refused is more than tgt's texts can say: that goes to a second line, when stderr
 * is a terminal or with --debug.
 */
#include <dirent.h>
#include <getopt.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "conf/adm_client.h"
#include "conf/model.h"
#include "conf/secret_file.h"
#include "events/secret.h"

static const char program[] = "tgtadm";

enum {
	EXIT_REFUSED = EINVAL,
	EXIT_UNKNOWN = 1,
	EXIT_NO_DAEMON = ENOTCONN,
	EXIT_NO_ANSWER = ECONNRESET,
};

enum { OPT_PASSWORD_FILE = 256, OPT_JSON };

static const struct option long_options[] = {
	{ "debug", no_argument, NULL, 'd' },
	{ "help", no_argument, NULL, 'h' },
	{ "version", no_argument, NULL, 'V' },
	{ "lld", required_argument, NULL, 'L' },
	{ "op", required_argument, NULL, 'o' },
	{ "mode", required_argument, NULL, 'm' },
	{ "tid", required_argument, NULL, 't' },
	{ "sid", required_argument, NULL, 's' },
	{ "cid", required_argument, NULL, 'c' },
	{ "lun", required_argument, NULL, 'l' },
	{ "name", required_argument, NULL, 'n' },
	{ "value", required_argument, NULL, 'v' },
	{ "backing-store", required_argument, NULL, 'b' },
	{ "bstype", required_argument, NULL, 'E' },
	{ "bsopts", required_argument, NULL, 'S' },
	{ "bsoflags", required_argument, NULL, 'f' },
	{ "blocksize", required_argument, NULL, 'y' },
	{ "targetname", required_argument, NULL, 'T' },
	{ "initiator-address", required_argument, NULL, 'I' },
	{ "initiator-name", required_argument, NULL, 'Q' },
	{ "user", required_argument, NULL, 'u' },
	{ "password", required_argument, NULL, 'p' },
	{ "password-file", required_argument, NULL, OPT_PASSWORD_FILE },
	{ "host", required_argument, NULL, 'H' },
	{ "force", no_argument, NULL, 'F' },
	{ "params", required_argument, NULL, 'P' },
	{ "bus", required_argument, NULL, 'B' },
	{ "device-type", required_argument, NULL, 'Y' },
	{ "outgoing", no_argument, NULL, 'O' },
	{ "control-port", required_argument, NULL, 'C' },
	{ "expose", required_argument, NULL, 'X' },
	{ "portal", required_argument, NULL, 'A' },
	{ "json", no_argument, NULL, OPT_JSON },
	{ NULL, 0, NULL, 0 },
};
static const char short_options[] = "dhVL:o:m:t:s:c:l:n:v:b:E:f:y:T:I:Q:u:p:H:FP:B:Y:OC:S:X:";

static void complain(const char *fmt, ...) printf_like(1, 2);
static void complain(const char *fmt, ...)
{
	va_list ap;

	fprintf(stderr, "%s: ", program);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
}

__attribute__((noreturn)) static void refuse_usage(void)
{
	fprintf(stderr, "Try `%s --help' for more information.\n", program);
	exit(EXIT_REFUSED);
}

__attribute__((noreturn)) static void help(void)
{
	printf("tgtadm %s - administration of the SCSI target daemon tgtd\n\n"
	       "Usage: tgtadm --mode <mode> --op <operation> [OPTION...]\n\n"
	       "  --mode system --op show "
	       "[--name config|counters|stores|failed-logins|work|threads|nodes]\n"
	       "  --mode system --op stat|latency|delete\n"
	       "  --mode system --op stat --name machine --json\n"
	       "  --mode system --op watch "
	       "[--name login,logout,login_failed,change,access,store,message,restart]\n"
	       "  --mode system --op stat --name all|cache_|iscsi_|tcp_|iser_...\n"
	       "  --mode system --op update --name State|debug|iSNS... --value <value>\n"
	       "  --mode system --op update --name restart [--value if-new|keeper]\n"
	       "  --mode target --op new --tid <id> --targetname <name>\n"
	       "  --mode target --op delete --tid <id> [--force]\n"
	       "  --mode target --op show|stat|latency [--tid <id>]\n"
	       "  --mode target --op update --tid <id> --name <param> --value <value>\n"
	       "  --mode target --op update --tid <id> --initiator-name <name> --params <name>=<value>[,...]\n"
	       "  --mode target --op bind|unbind --tid <id> --initiator-address <address>|ALL\n"
	       "  --mode target --op bind|unbind --tid <id> --initiator-name <name> [--expose <luns>]\n"
	       "  --mode target --op bind|unbind --tid <id> --portal <ip>[:<port>]\n"
	       "  --mode logicalunit --op new --tid <id> --lun <lun> --backing-store <path>\n"
	       "         [--bstype aio|rdwr|ram|null|nbd|rbd] [--bsopts <options>] [--bsoflags sync|direct|sync:direct]\n"
	       "         [--blocksize <bytes>] [--device-type disk] [--params <name>=<value>[,...]]\n"
	       "  --mode logicalunit --op update --tid <id> --lun <lun> --params <name>=<value>[,...]\n"
	       "  --mode logicalunit --op delete|stat|latency|slow|explain --tid <id> --lun <lun>\n"
	       "  --mode account --op new|update --user <name> --password <secret>|-\n"
	       "  --mode account --op new|update --user <name> --password-file <file>\n"
	       "  --mode account --op delete --user <name>\n"
	       "  --mode account --op bind|unbind --user <name> [--tid <id>] [--outgoing]\n"
	       "  --mode account --op bind|unbind --user <name> --tid <id> --initiator-name <name>\n"
	       "  --mode account --op show\n"
	       "  --mode portal --op new|delete --params portal=<ip>[:<port>]\n"
	       "  --mode portal --op show\n"
	       "  --mode session --op show|stat --tid <id> [--sid <id>]\n"
	       "  --mode conn --op show|stat|delete --tid <id> [--sid <id> --cid <id>]\n"
	       "  --mode lld --op start|stop|show\n"
	       "  --mode cache --op show|stat|update [--name <param> --value <value>]\n"
	       "  --mode cluster --op show\n\n"
	       "  --lld <driver>          iscsi or iser; may be left out\n"
	       "  --host, --bus           of Fibre Channel targets: refused\n"
	       "  --control-port <port>   which daemon (tgtd --control-port)\n"
	       "  --json                  what is shown as JSON: show, stat, latency ...\n"
	       "  --debug                 say why the daemon refused\n"
	       "  --help, --version\n\n"
	       "See tgtadm(8).\n",
	       TGT_VERSION);
	exit(0);
}

/* As strtoull reads it (0x.. too), up to @rest. 0, EINVAL or ERANGE. */
static int parse_number(const char *text, uint64_t max, uint64_t *out, const char **rest)
{
	char *end;

	errno = 0;
	*out = strtoull(text, &end, 0);
	*rest = end;
	/* "-1" becomes the largest number, and is none for tgt either */
	if (end == text || errno || *out == UINT64_MAX)
		return EINVAL;
	return *out > max ? ERANGE : 0;
}

/* tgt reads no further than the digits, and scripts cut "1:" out of "Target 1: iqn...". */
static uint64_t number_arg(int ch, const char *text, uint64_t max)
{
	const char *rest;
	uint64_t v;
	int err = parse_number(text, max, &v, &rest);

	if (err) {
		fprintf(stderr, "-%c argument value '%s' %s\n", ch, text,
			err == ERANGE ? "out of range" : "invalid");
		refuse_usage();
	}
	if (*rest)
		complain("warning: -%c argument '%s' is taken for %llu", ch, text,
			 (unsigned long long)v);
	return v;
}

/* Sent as a text, which the daemon reads strictly: the digits of it, "4096x" is tgt's 4096. */
static const char *digits_arg(int ch, char *text)
{
	const char *rest;
	uint64_t v;

	if (parse_number(text, UINT32_MAX, &v, &rest) || !*rest)
		return text;
	complain("warning: -%c argument '%s' is taken for %llu", ch, text, (unsigned long long)v);
	text[rest - text] = 0;
	return text;
}

/* "bus,device" -> number of the SCSI host below it. */
static uint32_t host_of_bus(const char *bus)
{
	char path[PATH_MAX];
	const char *comma = strchr(bus, ',');
	int host = -1;

	if (comma && snprintf(path, sizeof(path), "/sys/bus/%.*s/devices/%s", (int)(comma - bus),
			      bus, comma + 1) < (int)sizeof(path)) {
		DIR *dir = opendir(path);
		struct dirent *e;

		while (dir && (e = readdir(dir)))
			if (sscanf(e->d_name, "host%d", &host) == 1)
				break;
		if (dir)
			closedir(dir);
	}
	if (host < 0) {
		complain("can't find bus: %s", bus);
		exit(EXIT_REFUSED);
	}
	return (uint32_t)host;
}

/* ---- what each mode and operation demands and allows ----------------------------------------- */

enum need {
	NEED_TID = 1 << 0,	 /* checked before everything else of the mode */
	NEED_LUN = 1 << 1,
	NEED_NAME_VALUE = 1 << 2,
	NEED_TARGETNAME = 1 << 3,
	NEED_INITIATOR = 1 << 4,
	NEED_USER = 1 << 5,
	NEED_PASSWORD = 1 << 6,
	NEED_STORE = 1 << 7,
	NEED_PORTAL = 1 << 8,
};

struct rule {
	uint8_t mode, op;
	const char *allowed; /* NULL: any option */
	unsigned need;
	bool other_words; /* about an option that is not allowed: tgt has two wordings */
};

static const struct rule rules[] = {
	{ ADM_SYSTEM, ADM_SHOW, NULL, 0, false },
	{ ADM_SYSTEM, ADM_STAT, NULL, 0, false },
	{ ADM_SYSTEM, ADM_DELETE, NULL, 0, false },
	{ ADM_SYSTEM, ADM_WATCH, "LmonvC", 0, false },
	{ ADM_SYSTEM, ADM_LATENCY, "moC", 0, false },
	{ ADM_SYSTEM, ADM_UPDATE, "LmonvC", NEED_NAME_VALUE, false },

	{ ADM_TARGET, ADM_NEW, "LmotTC", NEED_TID | NEED_TARGETNAME, false },
	{ ADM_TARGET, ADM_DELETE, "LmotCF", NEED_TID, false },
	{ ADM_TARGET, ADM_SHOW, "LmotC", 0, false },
	{ ADM_TARGET, ADM_STAT, "LmotC", NEED_TID, false },
	{ ADM_TARGET, ADM_LATENCY, "LmotC", NEED_TID, false },
	{ ADM_TARGET, ADM_BIND, "LmotIQBHCXA", NEED_TID | NEED_INITIATOR, false },
	{ ADM_TARGET, ADM_UNBIND, "LmotIQBHCA", NEED_TID | NEED_INITIATOR, false },
	{ ADM_TARGET, ADM_UPDATE, "LmotnvCQXP", NEED_TID | NEED_NAME_VALUE, false },

	{ ADM_LU, ADM_NEW, "LmofytlbEYPCS", NEED_TID | NEED_LUN | NEED_STORE, false },
	{ ADM_LU, ADM_DELETE, "LmotlC", NEED_TID | NEED_LUN, false },
	{ ADM_LU, ADM_STAT, "LmotlC", NEED_TID | NEED_LUN, false },
	{ ADM_LU, ADM_LATENCY, "LmotlC", NEED_TID | NEED_LUN, false },
	{ ADM_LU, ADM_SLOW, "LmotlC", NEED_TID | NEED_LUN, false },
	{ ADM_LU, ADM_EXPLAIN, "LmotlC", NEED_TID | NEED_LUN, false },
	{ ADM_LU, ADM_UPDATE, "LmofytlPC", NEED_TID | NEED_LUN, true },

	{ ADM_ACCOUNT, ADM_NEW, "LmoupfC", NEED_USER | NEED_PASSWORD, false },
	{ ADM_ACCOUNT, ADM_UPDATE, "LmoupC", NEED_USER | NEED_PASSWORD, false },
	{ ADM_ACCOUNT, ADM_SHOW, "LmoC", 0, false },
	{ ADM_ACCOUNT, ADM_DELETE, "LmouC", 0, false },
	{ ADM_ACCOUNT, ADM_BIND, "LmotuOCQ", NEED_USER, false },
	{ ADM_ACCOUNT, ADM_UNBIND, "LmotuOCQ", NEED_USER, false },

	{ ADM_PORTAL, ADM_NEW, "LmoCP", NEED_PORTAL, false },
	{ ADM_PORTAL, ADM_DELETE, "LmoCP", NEED_PORTAL, false },
	{ ADM_PORTAL, ADM_SHOW, "LmoC", 0, true },

	{ ADM_LLD, ADM_START, "LmoC", 0, false },
	{ ADM_LLD, ADM_STOP, "LmoC", 0, false },
	{ ADM_LLD, ADM_SHOW, "LmoC", 0, false },

	{ ADM_CACHE, ADM_SHOW, "moC", 0, false },
	{ ADM_CLUSTER, ADM_SHOW, "moC", 0, false },
	{ ADM_CACHE, ADM_STAT, "motlC", 0, false },
	{ ADM_CACHE, ADM_UPDATE, "monvPC", 0, false }, /* --name and --value, or --params */
};

/* Modes session and conn are checked by the daemon alone. */
static bool daemon_checks(int mode)
{
	return mode == ADM_SESSION || mode == ADM_CONN;
}

static const struct rule *find_rule(int mode, int op)
{
	for (size_t i = 0; i < ARRAY_SIZE(rules); i++)
		if (rules[i].mode == mode && rules[i].op == op)
			return &rules[i];
	return NULL;
}

struct cmdline {
	struct adm_req req;
	int mode, op; /* -1: not given */
	const char *op_text, *portal;
	int control_port;
	bool debug;
	time_t began;	/* the request was sent after that */
	char given[64]; /* option letters in order, the first of each */
};

static void require(bool ok, const char *complaint)
{
	if (!ok) {
		complain("%s", complaint);
		exit(EXIT_REFUSED);
	}
}

static void check_tid(const struct cmdline *cl)
{
	if (cl->req.has_tid && cl->req.tid > 0)
		return;
	if (!cl->req.has_tid)
		complain("'tid' option is necessary");
	else
		complain(cl->mode == ADM_LU ? "'tid' must not be 0" : "'tid' cannot be 0");
	exit(EXIT_REFUSED);
}

static bool is_restart(const struct cmdline *cl)
{
	const char *name = cl->req.text[ADM_T_NAME];

	return cl->mode == ADM_SYSTEM && cl->op == ADM_UPDATE && name && !strcmp(name, "restart");
}

static void check(const struct cmdline *cl)
{
	const struct adm_req *r = &cl->req;
	const struct rule *rule = find_rule(cl->mode, cl->op);
	const char *mode = adm_mode_name((enum adm_mode)cl->mode);
	unsigned need = rule ? rule->need : 0;

	require(!r->json || (cl->op >= 0 && adm_op_looks((enum adm_op)cl->op)),
		"'json' is an option of show, stat, latency, slow, explain and watch");
	if (daemon_checks(cl->mode))
		return;
	/* these two come before the operation is looked at */
	if (cl->mode == ADM_LU || (cl->mode == ADM_TARGET && cl->op != ADM_SHOW))
		check_tid(cl);
	if (cl->mode == ADM_LU)
		require(r->has_lun, "'lun' option is necessary");
	if (!rule) {
		if (cl->mode == ADM_LLD)
			complain("option %d not supported in lld mode", cl->op);
		else
			complain("operation %s not supported in %s mode", cl->op_text, mode);
		exit(EXIT_REFUSED);
	}
	for (const char *p = rule->allowed ? cl->given : ""; *p; p++) {
		if (strchr(rule->allowed, *p) || *p == 'd')
			continue;
		if (rule->other_words)
			complain("option '-%c' not supported in %s mode", *p, mode);
		else
			complain("%s mode: option '-%c' is not allowed/supported", mode, *p);
		exit(EXIT_REFUSED);
	}
	/* changing what an initiator sees names the initiator instead */
	if (cl->mode == ADM_TARGET && cl->op == ADM_UPDATE && r->text[ADM_T_EXPOSE]) {
		require(r->text[ADM_T_INITIATOR], "'expose' requires 'initiator-name'");
		return;
	}
	/* and so does limiting it */
	if (cl->mode == ADM_TARGET && cl->op == ADM_UPDATE && r->text[ADM_T_PARAMS]) {
		require(r->text[ADM_T_INITIATOR], "'params' requires 'initiator-name'");
		return;
	}
	if (need & NEED_NAME_VALUE && !is_restart(cl))
		require(r->text[ADM_T_NAME] && r->text[ADM_T_VALUE],
			"update operation requires 'name' and 'value' options");
	if (need & NEED_TARGETNAME)
		require(r->text[ADM_T_TARGETNAME],
			"creating new target requires a name, use --targetname");
	if ((need & NEED_INITIATOR) && !r->text[ADM_T_NAME] && !r->text[ADM_T_ADDRESS] &&
	    !r->text[ADM_T_INITIATOR] && !r->has_host) {
		complain("%s operation requires initiator-address, initiator-nameor bus",
			 cl->op_text);
		exit(EXIT_REFUSED);
	}
	if (r->text[ADM_T_EXPOSE])
		require(r->text[ADM_T_INITIATOR], "'expose' requires 'initiator-name'");
	if (need & NEED_PASSWORD)
		require(r->text[ADM_T_USER] && r->text[ADM_T_PASSWORD],
			"'user' and 'password' options are required");
	else if (need & NEED_USER)
		require(r->text[ADM_T_USER], "'user' option is necessary");
	if (cl->mode == ADM_ACCOUNT && r->text[ADM_T_INITIATOR])
		require(r->has_tid && !r->outgoing,
			"'initiator-name' requires 'tid', and an incoming account");
	if (need & NEED_STORE)
		require(r->text[ADM_T_PATH] || r->device_type == ADM_TYPE_DISK ||
				r->device_type == ADM_TYPE_CD || r->device_type == ADM_TYPE_TAPE,
			"'backing-store' option is necessary");
	if (need & NEED_PORTAL)
		require(cl->portal, "you must specify --param portal=<portal>");
}

static char *password, *password_file; /* what the request says */

/* Of the command line, which ps(1) shows: it is wiped off there at once. "-" is the first line of
 * standard input. */
static void take_password(struct cmdline *cl, char *arg, bool is_file)
{
	char err[400];
	bool exposed;

	require(!cl->req.text[ADM_T_PASSWORD], "one password at a time");
	if (!is_file && strcmp(arg, "-") != 0) {
		password = secret_strdup(arg);
		require(password, strerror(ENOMEM));
		secret_cleanse(arg, strlen(arg));
	} else if (conf_read_password(arg, true, &password, &exposed, err, sizeof(err))) {
		complain("%s", err);
		exit(EXIT_REFUSED);
	} else if (exposed) {
		complain("warning: %s can be read by others", arg);
	}
	if (is_file && strcmp(arg, "-") != 0)
		password_file = realpath(arg, NULL);
	cl->req.text[ADM_T_FILE] = password_file;
	cl->req.text[ADM_T_PASSWORD] = password;
}

static void forget_password(void)
{
	secret_strfree(password);
	free(password_file);
}

static void parse_option(struct cmdline *cl, int ch)
{
	struct adm_req *r = &cl->req;
	int type;

	switch (ch) {
	case 'L': r->text[ADM_T_LLD] = optarg; break;
	case 'o':
		cl->op = adm_op_parse(optarg);
		cl->op_text = optarg;
		if (cl->op < 0) {
			complain("unknown operation: %s", optarg);
			exit(EXIT_UNKNOWN);
		}
		break;
	case 'm':
		cl->mode = adm_mode_parse(optarg);
		if (cl->mode < 0) {
			complain("unknown mode: %s", optarg);
			exit(EXIT_UNKNOWN);
		}
		break;
	case 't':
		r->tid = (uint32_t)number_arg(ch, optarg, INT32_MAX);
		r->has_tid = true;
		break;
	case 's':
		r->sid = number_arg(ch, optarg, UINT64_MAX);
		r->has_sid = true;
		break;
	case 'c':
		r->cid = (uint32_t)number_arg(ch, optarg, UINT32_MAX);
		r->has_cid = true;
		break;
	case 'l':
		r->lun = number_arg(ch, optarg, UINT64_MAX);
		r->has_lun = true;
		break;
	case 'P':
		/* for a portal the mode must have been said before */
		if (cl->mode == ADM_PORTAL)
			cl->portal = optarg;
		r->text[ADM_T_PARAMS] = optarg;
		break;
	case 'n': r->text[ADM_T_NAME] = optarg; break;
	case 'v': r->text[ADM_T_VALUE] = optarg; break;
	case 'b': r->text[ADM_T_PATH] = optarg; break;
	case 'T': r->text[ADM_T_TARGETNAME] = optarg; break;
	case 'I': r->text[ADM_T_ADDRESS] = optarg; break;
	case 'Q': r->text[ADM_T_INITIATOR] = optarg; break;
	case 'u': r->text[ADM_T_USER] = optarg; break;
	case 'p': take_password(cl, optarg, false); break;
	case OPT_PASSWORD_FILE: take_password(cl, optarg, true); break;
	case OPT_JSON: r->json = true; break;
	case 'f': r->text[ADM_T_BSOFLAGS] = optarg; break;
	case 'y': r->text[ADM_T_BLOCKSIZE] = digits_arg(ch, optarg); break;
	case 'E': r->text[ADM_T_BSTYPE] = optarg; break;
	case 'S': r->text[ADM_T_BSOPTS] = optarg; break;
	case 'X': r->text[ADM_T_EXPOSE] = optarg; break;
	case 'A':
		r->text[ADM_T_NAME] = "portal";
		r->text[ADM_T_VALUE] = optarg;
		break;
	case 'B':
		r->host = host_of_bus(optarg);
		r->has_host = true;
		break;
	case 'H':
		r->host = (uint32_t)number_arg(ch, optarg, INT32_MAX);
		r->has_host = true;
		break;
	case 'F': r->force = true; break;
	case 'O': r->outgoing = true; break;
	case 'Y':
		type = adm_device_type_parse(optarg);
		if (type < 0) {
			complain("unknown target type: %s", optarg);
			exit(EXIT_REFUSED);
		}
		r->device_type = (uint8_t)type;
		break;
	case 'C': cl->control_port = (int)number_arg(ch, optarg, INT16_MAX); break;
	case 'd': cl->debug = true; break;
	case 'V': printf("%s\n", TGT_VERSION); exit(0);
	case 'h': help();
	default: refuse_usage();
	}
}

static bool show_events(struct adm_reply *reply)
{
	const bool written = fputs(reply->text, stdout) >= 0 && !fflush(stdout);

	adm_reply_free(reply);
	return written;
}

/* The worker that takes over answers when it serves. It tells of a restart since *began, when we
 * asked the one before. */
static bool watch_again(struct adm_client *client, struct adm_req *req, struct adm_reply *reply,
			time_t *began)
{
	char since[24];

	snprintf(since, sizeof(since), "%lld", (long long)*began);
	*began = time(NULL);
	req->text[ADM_T_VALUE] = since;
	if (adm_call(client, req, reply))
		return false;
	if (reply->status == ADM_OK)
		return true;
	adm_reply_free(reply);
	return false;
}

/* Until no daemon is left, or nobody reads any more. */
static int go_on_watching(struct adm_client *client, struct adm_req req, time_t began)
{
	struct adm_reply reply;
	bool written = true;

	do {
		while (written && !adm_next(client, &reply))
			written = show_events(&reply);
		if (!written || !watch_again(client, &req, &reply, &began))
			break;
		written = show_events(&reply);
	} while (written);
	if (!written) {
		complain("cannot write what happens, %s", strerror(errno));
		return EXIT_REFUSED;
	}
	complain("the daemon has ended, or has closed the connection");
	return EXIT_NO_DAEMON;
}

/* The one that takes over answers when it serves; until then we wait in its queue. */
static int await_return(struct adm_client *client)
{
	struct adm_req show = { .mode = ADM_SYSTEM, .op = ADM_SHOW };
	struct adm_reply reply;
	int err;

	adm_wait_end(client);
	err = adm_call(client, &show, &reply);
	if (err) {
		complain("the daemon has ended to be restarted, and does not come back");
		return EXIT_NO_DAEMON;
	}
	adm_reply_free(&reply);
	return 0;
}

static int report(const struct cmdline *cl, struct adm_client *client, struct adm_reply *reply)
{
	if (reply->status != ADM_OK) {
		complain("%s", adm_status_text(reply->status));
		if (*reply->detail && (cl->debug || isatty(STDERR_FILENO)))
			complain("%s", reply->detail);
		return EXIT_REFUSED;
	}
	/* done, but not quite as it was said */
	for (char *line = strtok(reply->detail, "\n"); line; line = strtok(NULL, "\n"))
		complain("warning: %s", line);
	fputs(reply->text, stdout);
	if (fflush(stdout)) {
		complain("cannot write the answer, %s", strerror(errno));
		return EXIT_REFUSED;
	}
	if (cl->mode == ADM_SYSTEM && cl->op == ADM_DELETE)
		adm_wait_exit(client);
	if (is_restart(cl) && *reply->text) /* it says so when it does it */
		return await_return(client);
	return cl->op == ADM_WATCH ? go_on_watching(client, cl->req, cl->began) : 0;
}

int main(int argc, char **argv)
{
	struct cmdline cl = { .mode = -1, .op = -1 };
	struct adm_client client = { .fd = -1 };
	struct adm_reply reply;
	size_t given = 0;
	int ch, err, rc;

	prctl(PR_SET_DUMPABLE, 0); /* no core: a password may be in our memory */
	while ((ch = getopt_long(argc, argv, short_options, long_options, NULL)) >= 0) {
		parse_option(&cl, ch);
		if (ch == OPT_PASSWORD_FILE)
			ch = 'p'; /* where one may stand, the other may */
		if (ch == OPT_JSON)
			continue;
		if (!strchr(cl.given, ch) && given < sizeof(cl.given) - 1)
			cl.given[given++] = (char)ch;
	}
	if (optind < argc) {
		complain("unrecognized option '%s'", argv[optind]);
		refuse_usage();
	}
	require(cl.op >= 0, "specify the operation type");
	require(cl.mode >= 0, "specify the mode");
	check(&cl);

	cl.req.mode = (uint8_t)cl.mode;
	cl.req.op = (uint8_t)cl.op;
	client.port = cl.control_port;
	cl.began = time(NULL);
	err = adm_call(&client, &cl.req, &reply);
	switch (err) {
	case 0:
		break;
	case -ENOTCONN:
		complain("failed to send request hdr to tgt daemon, %s", strerror(ENOTCONN));
		return EXIT_NO_DAEMON;
	case -ECONNRESET:
		complain("outcome unknown: the daemon has not answered, and may have done it or "
			 "not");
		return EXIT_NO_ANSWER;
	case -E2BIG:
		complain("the request is longer than %d bytes", ADM_REQ_MAX);
		return EXIT_REFUSED;
	default:
		complain("can't get the response, %s", strerror(-err));
		return EXIT_REFUSED;
	}
	rc = report(&cl, &client, &reply);
	adm_reply_free(&reply);
	forget_password();
	adm_disconnect(&client);
	return rc;
}
