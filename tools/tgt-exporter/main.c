/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * tgt-exporter: shows the daemon to those who only look. Over HTTP: /metrics for Prometheus, / for
 * a person's browser, /machine.json for the page. It asks the daemon by the admin socket, which a
 * member of the read-only group may do (tgtd --admin-ro-group), and can change nothing there.
 *
 * One thread. Answers are made of one snapshot, which is at most SNAPSHOT_NS old: however many look
 * at it, the daemon is asked five times a second at most.
 */
#include <arpa/inet.h>
#include <getopt.h>
#include <malloc.h>
#include <microhttpd.h>
#include <netdb.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "events/clock.h"
#include "tools/tgt-exporter/exporter.h"

#define DEFAULT_LISTEN "127.0.0.1:9260"
#define SNAPSHOT_NS (200 * NSEC_PER_MSEC)
#define DAEMON_TIMEOUT_S 5 /* for an answer: then it counts as not there */
#define CLIENTS_MAX 64
#define CLIENTS_OF_ADDRESS 32
#define CLIENT_TIMEOUT_S 15
#define CLIENT_MEMORY (16 * 1024) /* of a request, with its headers */

static struct {
	struct adm_client client;
	struct machine machine;
	bool known;	   /* @machine and @json are what the daemon said at @asked_ns */
	char *json, err[200];
	struct MHD_Response *metrics; /* of @machine; NULL: nobody has asked for them yet */
	uint64_t asked_ns; /* 0: never */
	bool initiators, unreachable;
} g = { .client = { .fd = -1, .timeout_s = DAEMON_TIMEOUT_S } };

static void say(const char *fmt, ...) printf_like(1, 2);
static void say(const char *fmt, ...)
{
	va_list ap;

	fputs("tgt-exporter: ", stderr);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
}

/* ---- the daemon ------------------------------------------------------------------------------ */

static int ask_daemon(void)
{
	int rc = g.client.fd < 0 ? adm_connect(&g.client, g.client.port) : 0;

	if (rc) {
		snprintf(g.err, sizeof(g.err), "no tgtd answers: %s", strerror(-rc));
		return rc;
	}
	return machine_read(&g.client, &g.machine, &g.json, g.err, sizeof(g.err));
}

/* Who is still being sent the metrics keeps them. */
static void forget(void)
{
	if (g.known)
		machine_free(&g.machine);
	g.known = false;
	free(g.json);
	g.json = NULL;
	if (g.metrics)
		MHD_destroy_response(g.metrics);
	g.metrics = NULL;
}

static void refresh(void)
{
	const uint64_t now = clock_now_ns();
	const bool connected = g.client.fd >= 0;
	int rc;

	if (g.asked_ns && now - g.asked_ns < SNAPSHOT_NS)
		return;
	forget();
	rc = ask_daemon();
	/* it may have closed a connection on which nobody asked, or be another one by now */
	if (rc == -ENOTCONN && connected)
		rc = ask_daemon();
	g.known = !rc;
	g.asked_ns = clock_now_ns();
	if (rc && !g.unreachable)
		say("%s", g.err);
	if (!rc && g.unreachable)
		say("tgtd answers again");
	g.unreachable = rc;
}

/* ---- HTTP ------------------------------------------------------------------------------------ */

/* Nothing here is for other sites' scripts, frames, or caches on the way. */
static void add_headers(struct MHD_Response *response, const char *type)
{
	MHD_add_response_header(response, "Content-Type", type);
	MHD_add_response_header(response, "Cache-Control", "no-store");
	MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
	MHD_add_response_header(response, "Referrer-Policy", "no-referrer");
	MHD_add_response_header(response, "Content-Security-Policy",
				"default-src 'none'; script-src 'self'; style-src 'self'; "
				"connect-src 'self'; base-uri 'none'; frame-ancestors 'none'");
}

/* Takes @response. */
static enum MHD_Result answer(struct MHD_Connection *c, unsigned status, const char *type,
			      struct MHD_Response *response)
{
	enum MHD_Result rc;

	if (!response)
		return MHD_NO;
	add_headers(response, type);
	if (status == MHD_HTTP_METHOD_NOT_ALLOWED)
		MHD_add_response_header(response, "Allow", "GET, HEAD");
	rc = MHD_queue_response(c, status, response);
	MHD_destroy_response(response);
	return rc;
}

static enum MHD_Result sentence(struct MHD_Connection *c, unsigned status, const char *text)
{
	return answer(c, status, "text/plain; charset=utf-8",
		      MHD_create_response_from_buffer(strlen(text), (void *)(uintptr_t)text,
						      MHD_RESPMEM_MUST_COPY));
}

/* Many who scrape at once get one text: a thousand LUs have megabytes of it. */
static enum MHD_Result answer_metrics(struct MHD_Connection *c)
{
	struct text text;

	refresh();
	if (!g.metrics) {
		openmetrics(g.known ? &g.machine : NULL, g.initiators, &text);
		if (!text.failed)
			g.metrics = MHD_create_response_from_buffer(text.len, text.buf,
								    MHD_RESPMEM_MUST_FREE);
		if (!g.metrics) {
			free(text.buf);
			return sentence(c, MHD_HTTP_INTERNAL_SERVER_ERROR, "out of memory\n");
		}
		add_headers(g.metrics,
			    "application/openmetrics-text; version=1.0.0; charset=utf-8");
	}
	return MHD_queue_response(c, MHD_HTTP_OK, g.metrics);
}

static enum MHD_Result answer_machine(struct MHD_Connection *c)
{
	refresh();
	if (!g.known)
		return sentence(c, MHD_HTTP_SERVICE_UNAVAILABLE, g.err);
	return answer(c, MHD_HTTP_OK, "application/json",
		      MHD_create_response_from_buffer(strlen(g.json), g.json,
						      MHD_RESPMEM_MUST_COPY));
}

static enum MHD_Result request(void *cls, struct MHD_Connection *c, const char *url,
			       const char *method, const char *version, const char *body,
			       size_t *body_len, void **seen)
{
	static int headers_seen;
	const struct page_file *file;

	/* first the headers, then the rest: of a body nothing is wanted */
	if (!*seen) {
		*seen = &headers_seen;
		return MHD_YES;
	}
	if (*body_len) {
		*body_len = 0;
		return MHD_YES;
	}
	if (strcmp(method, "GET") && strcmp(method, "HEAD"))
		return sentence(c, MHD_HTTP_METHOD_NOT_ALLOWED, "GET and HEAD only\n");
	if (!strcmp(url, "/metrics"))
		return answer_metrics(c);
	if (!strcmp(url, "/machine.json"))
		return answer_machine(c);
	file = page_find(url);
	if (!file)
		return sentence(c, MHD_HTTP_NOT_FOUND, "try / or /metrics\n");
	return answer(c, MHD_HTTP_OK, file->type,
		      MHD_create_response_from_buffer((size_t)(file->end - file->begin),
						      (void *)(uintptr_t)file->begin,
						      MHD_RESPMEM_PERSISTENT));
}

/* "host:port", "[v6]:port" or ":port". A listening socket, or -1 and a sentence. */
static int listen_on(const char *text)
{
	const struct addrinfo hints = { .ai_socktype = SOCK_STREAM,
					.ai_flags = AI_PASSIVE | AI_NUMERICSERV };
	const char *colon = strrchr(text, ':');
	struct addrinfo *found = NULL;
	const int yes = 1;
	char host[256];
	int fd = -1, rc;
	size_t n = colon ? (size_t)(colon - text) : 0;

	if (!colon || n >= sizeof(host)) {
		say("'%s' is not <address>:<port>", text);
		return -1;
	}
	if (n > 1 && text[0] == '[' && text[n - 1] == ']')
		snprintf(host, sizeof(host), "%.*s", (int)n - 2, text + 1);
	else
		snprintf(host, sizeof(host), "%.*s", (int)n, text);
	rc = getaddrinfo(*host ? host : NULL, colon + 1, &hints, &found);
	if (rc) {
		say("%s: %s", text, gai_strerror(rc));
		return -1;
	}
	fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) ||
	    bind(fd, found->ai_addr, found->ai_addrlen) || listen(fd, CLIENTS_MAX)) {
		say("cannot listen on %s: %s", text, strerror(errno));
		if (fd >= 0)
			close(fd);
		fd = -1;
	}
	freeaddrinfo(found);
	return fd;
}

static void log_http(void *arg, const char *fmt, va_list ap)
{
	(void)arg;
	(void)fmt;
	(void)ap; /* what clients do wrong fills no log */
}

/* Until SIGTERM or SIGINT. */
static int serve(int fd)
{
	sigset_t set;
	struct MHD_Daemon *daemon;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
	daemon = MHD_start_daemon(
		MHD_USE_ERROR_LOG | MHD_USE_EPOLL, 0, NULL, NULL, request, NULL,
		MHD_OPTION_EXTERNAL_LOGGER, log_http, NULL, MHD_OPTION_LISTEN_SOCKET, fd,
		MHD_OPTION_CONNECTION_LIMIT, (unsigned)CLIENTS_MAX,
		MHD_OPTION_PER_IP_CONNECTION_LIMIT, (unsigned)CLIENTS_OF_ADDRESS,
		MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)CLIENT_TIMEOUT_S,
		MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CLIENT_MEMORY, MHD_OPTION_END);
	if (!daemon) {
		say("cannot start the HTTP server");
		return 1;
	}
	const union MHD_DaemonInfo *info = MHD_get_daemon_info(daemon, MHD_DAEMON_INFO_EPOLL_FD);
	struct pollfd wait[2] = { { .fd = signalfd(-1, &set, SFD_CLOEXEC), .events = POLLIN },
				  { .fd = info->epoll_fd, .events = POLLIN } };

	while (!(wait[0].revents & POLLIN)) {
		MHD_UNSIGNED_LONG_LONG ms;
		const bool timed = MHD_get_timeout(daemon, &ms) == MHD_YES;

		if (poll(wait, 2, timed ? (int)MIN(ms, 60000ull) : -1) < 0 && errno != EINTR)
			break;
		MHD_run(daemon);
	}
	MHD_stop_daemon(daemon);
	close(wait[0].fd);
	return 0;
}

__attribute__((noreturn)) static void help(void)
{
	printf("tgt-exporter %s - shows tgtd over HTTP: /metrics (OpenMetrics), / (a page)\n\n"
	       "Usage: tgt-exporter [OPTION...]\n\n"
	       "  -l, --listen <address>:<port>  default " DEFAULT_LISTEN "\n"
	       "  -C, --control-port <port>      which daemon (tgtd --control-port)\n"
	       "  -i, --initiators               a series for each session, too\n"
	       "  -h, --help\n"
	       "  -V, --version\n\n"
	       "See tgt-exporter(8).\n",
	       TGT_VERSION);
	exit(0);
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "listen", required_argument, NULL, 'l' },
		{ "control-port", required_argument, NULL, 'C' },
		{ "initiators", no_argument, NULL, 'i' },
		{ "help", no_argument, NULL, 'h' },
		{ "version", no_argument, NULL, 'V' },
		{ NULL, 0, NULL, 0 },
	};
	const char *where = DEFAULT_LISTEN;
	char *end;
	long port;
	int ch, fd, rc;

	while ((ch = getopt_long(argc, argv, "l:C:ihV", options, NULL)) >= 0) {
		switch (ch) {
		case 'l':
			where = optarg;
			break;
		case 'C':
			port = strtol(optarg, &end, 10);
			if (*end || end == optarg || port < 0 || port > INT16_MAX) {
				say("'%s' is not a control port", optarg);
				return EINVAL;
			}
			g.client.port = (int)port;
			break;
		case 'i':
			g.initiators = true;
			break;
		case 'h':
			help();
		case 'V':
			printf("%s\n", TGT_VERSION);
			return 0;
		default:
			fputs("Try `tgt-exporter --help' for more information.\n", stderr);
			return EINVAL;
		}
	}
	if (optind < argc) {
		say("unexpected argument '%s'", argv[optind]);
		return EINVAL;
	}
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	/* what one answer takes, the next one takes again */
	mallopt(M_TRIM_THRESHOLD, 64 << 20);
	mallopt(M_MMAP_THRESHOLD, 64 << 20);
	fd = listen_on(where);
	if (fd < 0)
		return 1;
	rc = serve(fd);
	forget();
	adm_disconnect(&g.client);
	return rc;
}
