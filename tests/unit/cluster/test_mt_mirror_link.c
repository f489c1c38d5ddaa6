/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Links between gateways, on threads: frames of any thread arrive whole and in order; strangers,
 * wrong secrets, changed, repeated and cut frames end what they came by, and nothing else; who does
 * not read costs MIRROR_BACKLOG; both orders of an end; channels move to who alone sends by them,
 * whatever is cut meanwhile.
 */
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "events/bug.h"
#include "events/bytes.h"
#include "events/clock.h"
#include "tests/support/mirrorlinks.h"
#include "tests/support/unit.h"
#include "tgtd/cluster/live/mirror_auth.h"
#include "tgtd/cluster/live/mirror_buf.h"
#include "tgtd/cluster/live/mirror_link_impl.h"

#define SECRET "sixteen bytes or more"

#define STORMS 100u /* LUs from that on: a_storm */

struct gateway {
	unsigned self;
	struct mirror_links *links;
	_Atomic unsigned opens, welcomes, batches, acks, downs, rooms, ended;
	_Atomic uint64_t last[MIRROR_CHANNELS], disorder, wrong;
	_Atomic bool silent, keeps_down;
	_Atomic unsigned slow_us, answers_slow_us;
	struct loop *_Atomic answered; /* where the last ACK came */
};
static struct gateway a = { .self = 0 }, b = { .self = 1 };

/* ---- two gateways ---------------------------------------------------------------------------- */
static void frame_of(struct mirror_frame *f, unsigned from, enum mirror_kind kind, uint64_t serial)
{
	memset(f, 0, sizeof(*f));
	f->kind = (uint8_t)kind;
	f->from = (uint8_t)from;
	f->shift = 9;
	f->lu = 5;
	f->session = (struct mirror_session){ 1, 1, 1 };
	f->mirror = 1;
	f->serial = serial;
	f->peer = kind == MIRROR_WELCOME ? 7 : 0;
}

static void take_answer(void *arg, unsigned from, unsigned channel, const struct mirror_frame *f)
{
	struct gateway *g = arg;

	g->wrong += from != !g->self;
	if (f->kind == MIRROR_WELCOME) {
		g->welcomes++;
		return;
	}
	g->answered = loop_current();
	g->acks++;
	if (g->answers_slow_us && !(f->serial % 61))
		usleep(g->answers_slow_us);
}

static void storm_frame(struct gateway *g, unsigned channel, const struct mirror_frame *f);

static void take_asked(void *arg, unsigned from, unsigned channel, const struct mirror_frame *f)
{
	struct gateway *g = arg;
	struct mirror_frame answer;

	g->wrong += from != !g->self;
	if (f->kind == MIRROR_OPEN) {
		g->opens++;
	} else {
		g->batches++;
		if (f->lu >= STORMS) {
			storm_frame(g, channel, f);
		} else {
			g->disorder += f->serial != g->last[channel] + 1;
			g->last[channel] = f->serial;
		}
		for (size_t i = 0; i < f->data_len; i++)
			g->wrong += f->data[i] != (uint8_t)(f->serial * 7 + i);
	}
	if (g->slow_us)
		usleep(g->slow_us);
	if (g->silent)
		return;
	frame_of(&answer, g->self, f->kind == MIRROR_OPEN ? MIRROR_WELCOME : MIRROR_ACK, f->serial);
	mirror_links_answer(g->links, from, channel, &answer);
}

static void take_down(void *arg, unsigned peer)
{
	struct gateway *g = arg;

	g->wrong += peer != !g->self;
	g->downs++;
	while (g->keeps_down)
		nap(1);
}

static void take_room(void *arg, unsigned peer, unsigned channel)
{
	((struct gateway *)arg)->rooms++;
}

static const struct mirror_link_ops ops = {
	.to_owner = take_answer, .to_peer = take_asked, .down = take_down, .room = take_room
};

struct start {
	struct gateway *g;
	const char *secret, *group;
	unsigned loops;
};

static void start_on_main(void *arg)
{
	const struct start *s = arg;
	struct mirror_links_conf conf = mirrorlinks_conf(s->g->self, s->secret);

	conf.group = s->group;
	conf.loops = s->loops;
	s->g->links = mirror_links_start(&conf, &ops, s->g);
}

static void meet_on_main(void *arg)
{
	mirrorlinks_meet(a.links, b.links);
}

static void start_one(struct gateway *g, const char *secret, const char *group, unsigned loops)
{
	struct start s = { g, secret, group, loops };

	loop_call(main_loop, start_on_main, &s);
	ck_assert_ptr_nonnull(g->links);
}

static void start_both(const char *secret_a, const char *secret_b)
{
	mirrorlinks_loops_start();
	start_one(&a, secret_a, "g", LOOPS);
	start_one(&b, secret_b, "g", LOOPS);
	loop_call(main_loop, meet_on_main, NULL);
}

static void has_ended(void *arg)
{
	((struct gateway *)arg)->ended++;
}

static void stop_on_main(void *arg)
{
	struct gateway *g = arg;

	mirror_links_stop(g->links, has_ended, g);
}

static void begin_stop(struct gateway *g)
{
	loop_call(main_loop, stop_on_main, g);
}

static void await_stopped(struct gateway *g)
{
	await(g->ended == 1);
	g->links = NULL;
	g->ended = 0;
}

static void stop_one(struct gateway *g)
{
	begin_stop(g);
	await_stopped(g);
}

static void stop_both(void)
{
	if (a.links)
		stop_one(&a);
	if (b.links)
		stop_one(&b);
	ck_assert_uint_eq(a.wrong + b.wrong + a.disorder + b.disorder, 0);
	mirrorlinks_loops_end();
}

/* Does @g take it? */
static bool say(struct gateway *g, unsigned channel, enum mirror_kind kind, uint64_t serial,
		unsigned sectors)
{
	struct mirror_frame f;
	struct mirror_out *out;

	frame_of(&f, g->self, kind, serial);
	if (sectors) {
		f.n = 1;
		f.record[0] =
			(struct mirror_record){ .op = MIRROR_WRITE,
						.block = serial,
						.gen = serial,
						.map = sectors == 64 ? UINT64_MAX :
								       (1ull << sectors) - 1 };
	}
	out = mirror_links_begin(g->links, !g->self, channel, &f);
	if (!out)
		return false;
	ck_assert_uint_eq(out->len, sectors * 512);
	for (size_t i = 0; i < out->len; i++)
		out->data[i] = (uint8_t)(serial * 7 + i);
	mirror_links_send(out, &f);
	return true;
}

static void connect_both(void)
{
	ck_assert(say(&a, 0, MIRROR_OPEN, 0, 0));
	await(a.welcomes == 1);
	ck_assert(mirror_links_up(a.links, 1));
	ck_assert_uint_eq(b.opens, 1);
}

/* ---- frames ---------------------------------------------------------------------------------- */
START_TEST(both_directions)
{
	struct mirror_links_show show;

	start_both(SECRET, SECRET);
	ck_assert_uint_eq(mirror_links_channels(a.links), LOOPS);
	ck_assert(!say(&a, 0, MIRROR_BATCHED, 1, 1)); /* there is no session */
	connect_both();
	for (uint64_t i = 1; i <= 200; i++)
		ck_assert(say(&a, i % 2, MIRROR_BATCHED, (i + 1) / 2, i % 64 + 1));
	await(a.acks == 200);
	/* The other way: a link of its own. */
	ck_assert(say(&b, 0, MIRROR_OPEN, 0, 0));
	await(b.welcomes == 1);
	mirror_links_show(a.links, &show);
	ck_assert_uint_eq(show.made, 1);
	ck_assert_uint_eq(show.taken, 1);
	ck_assert_uint_eq(show.refused, 0);
	ck_assert_uint_ge(show.frames_out, 202);
	ck_assert_uint_eq(a.downs + b.downs, 0);
	/* Between these two it is the same, and with a third there is nothing. */
	struct mirror_pair_show pair;

	mirror_links_show_pair(a.links, 1, &pair);
	ck_assert(pair.up && pair.taken);
	ck_assert_uint_eq(pair.sum.made, 1);
	ck_assert_uint_eq(pair.sum.taken, 1);
	ck_assert_uint_eq(pair.sum.ended, 0);
	ck_assert_uint_ge(pair.sum.frames_out, show.frames_out);
	ck_assert_uint_ge(pair.sum.bytes_in, show.bytes_in);
	ck_assert_str_eq(pair.why, "");
	mirror_links_show_pair(a.links, 2, &pair);
	ck_assert(!pair.up && !pair.taken && !pair.sum.made && !pair.sum.frames_out);
	stop_both();
}
END_TEST

#define SENDERS LOOPS
#define EACH 3000

static void *sends(void *arg)
{
	const unsigned channel = (unsigned)(uintptr_t)arg;

	for (uint64_t i = 1; i <= EACH; i++) {
		while (mirror_links_backlog(a.links, 1, channel) > MIRROR_BACKLOG / 2)
			nap(1);
		if (!say(&a, channel, MIRROR_BATCHED, i, i % 9))
			return "refused";
	}
	return NULL;
}

START_TEST(threads_send)
{
	pthread_t t[SENDERS];
	void *why;

	start_both(SECRET, SECRET);
	connect_both();
	for (uintptr_t i = 0; i < SENDERS; i++)
		ck_assert_int_eq(pthread_create(&t[i], NULL, sends, (void *)i), 0);
	for (unsigned i = 0; i < SENDERS; i++) {
		pthread_join(t[i], &why);
		ck_assert_ptr_null(why);
	}
	await(a.acks == SENDERS * EACH);
	ck_assert_uint_eq(b.batches, SENDERS * EACH);
	stop_both();
}
END_TEST

/* The largest frame there is. */
START_TEST(largest_frame)
{
	struct mirror_frame f;
	struct mirror_out *out;

	start_both(SECRET, SECRET);
	connect_both();
	frame_of(&f, 0, MIRROR_BATCHED, 1);
	f.shift = MIRROR_SHIFT_MAX;
	f.n = MIRROR_BATCH;
	for (unsigned i = 0; i < MIRROR_BATCH; i++)
		f.record[i] = (struct mirror_record){
			.op = MIRROR_WRITE, .block = i, .gen = i + 1, .map = UINT64_MAX
		};
	out = mirror_links_begin(a.links, 1, 2, &f);
	ck_assert_ptr_nonnull(out);
	ck_assert_uint_eq(out->len, MIRROR_DATA_MAX);
	for (size_t i = 0; i < out->len; i++)
		out->data[i] = (uint8_t)(7 + i);
	mirror_links_send(out, &f);
	await(a.acks == 1);
	stop_both();
}
END_TEST

/* ---- ends ------------------------------------------------------------------------------------ */
START_TEST(peer_ends_first)
{
	start_both(SECRET, SECRET);
	connect_both();
	stop_one(&b);
	await(a.downs == 1);
	ck_assert(!mirror_links_up(a.links, 1));
	ck_assert(!say(&a, 1, MIRROR_BATCHED, 1, 1));
	/* Nobody is there: each attempt is told. */
	ck_assert(say(&a, 0, MIRROR_OPEN, 0, 0));
	await(a.downs == 2);
	/* And then somebody is. */
	b = (struct gateway){ .self = 1 };
	start_one(&b, SECRET, "g", LOOPS);
	loop_call(main_loop, meet_on_main, NULL);
	a.welcomes = 0;
	connect_both();
	stop_both();
}
END_TEST

START_TEST(owner_ends_first)
{
	start_both(SECRET, SECRET);
	connect_both();
	stop_one(&a);
	a = (struct gateway){ .self = 0 };
	start_one(&a, SECRET, "g", 2); /* with fewer channels, even */
	loop_call(main_loop, meet_on_main, NULL);
	b.opens = 0;
	connect_both();
	ck_assert(say(&a, 1, MIRROR_BATCHED, 1, 8));
	await(a.acks == 1);
	ck_assert_uint_eq(b.downs, 0); /* b has made no link */
	stop_both();
}
END_TEST

/* Until all owners have heard that a link has ended, only OPEN is kept for the next one. */
START_TEST(down_is_told_first)
{
	start_both(SECRET, SECRET);
	connect_both();
	a.keeps_down = true;
	/* Both have one main thread: what tells @a may come first, and keeps @b from its end. */
	begin_stop(&b);
	await(a.downs == 1);
	ck_assert(!say(&a, 0, MIRROR_BATCHED, 1, 1));
	ck_assert(say(&a, 0, MIRROR_OPEN, 9, 0));
	a.keeps_down = false;
	await_stopped(&b);
	/* It is tried with it, and fails. */
	await(a.downs == 2);
	stop_both();
}
END_TEST

START_TEST(stopped_meanwhile)
{
	start_both(SECRET, SECRET);
	for (unsigned i = 0; i < 20; i++)
		(void)say(&a, 0, MIRROR_OPEN, i, 0);
	stop_both();
}
END_TEST

/* ---- strangers ------------------------------------------------------------------------------- */
static char refused_why[100];
static void refused_look(void *arg)
{
	snprintf(refused_why, sizeof(refused_why), "%s", mirror_links_refused(b.links));
}

START_TEST(another_secret)
{
	struct mirror_links_show show;
	struct mirror_pair_show pair;

	start_both(SECRET, SECRET "!");
	ck_assert(say(&a, 0, MIRROR_OPEN, 0, 0));
	await(a.downs == 1);
	mirror_links_show(b.links, &show);
	ck_assert_uint_ge(show.refused, 1);
	ck_assert_uint_eq(show.taken, 0);
	ck_assert_uint_eq(b.opens + a.welcomes, 0);
	mirror_links_show_pair(a.links, 1, &pair);
	ck_assert(!pair.up && !pair.taken);
	ck_assert_uint_eq(pair.sum.made, 0);
	ck_assert_uint_ge(pair.sum.ended, 1);
	ck_assert_str_ne(pair.why, "");
	ck_assert_uint_gt(pair.ended_at, 0);
	loop_call(main_loop, refused_look, NULL);
	ck_assert_str_ne(refused_why, "");
	stop_both();
}
END_TEST

START_TEST(what_conf_may_not_say)
{
	struct loop_conf lc = { .name = "x", .node = -1, .cpu = -1 };
	struct loop *loop = loop_create(&lc);
	struct mirror_links_conf good = { .gateways = 2,
					  .group = "g",
					  .secret = SECRET,
					  .secret_len = strlen(SECRET),
					  .main = loop,
					  .loop = &loop,
					  .loops = 1 },
				 c;

	for (unsigned i = 0; i < 5; i++) {
		c = good;
		if (i == 0)
			c.secret_len = MIRROR_SECRET_MIN - 1;
		else if (i == 1)
			c.loops = 0;
		else if (i == 2)
			c.self = 2;
		else if (i == 3)
			c.group = "";
		else
			c.gateways = GW_GATEWAYS + 1;
		errno = 0;
		ck_assert_ptr_null(mirror_links_start(&c, &ops, NULL));
		ck_assert_int_eq(errno, EINVAL);
	}
	loop_destroy(loop);
}
END_TEST

static unsigned port_of_b;

static void port_on_main(void *arg)
{
	port_of_b = mirror_links_port(b.links);
}

static int dial_b(void)
{
	struct sockaddr_in at;
	const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	loop_call(main_loop, port_on_main, NULL);
	at = mirrorlinks_loopback(port_of_b);
	ck_assert_int_eq(connect(fd, (struct sockaddr *)&at, sizeof(at)), 0);
	return fd;
}

/* The other side has ended it: nothing but its end comes. */
static void await_end(int fd)
{
	struct pollfd p = { fd, POLLIN, 0 };
	char c[4096];
	ssize_t n;

	do {
		ck_assert_int_gt(poll(&p, 1, PATIENCE_S * 1000), 0);
		n = recv(fd, c, sizeof(c), 0);
	} while (n > 0);
	close(fd);
}

static void receive(int fd, void *to, size_t len)
{
	ck_assert_int_eq(recv(fd, to, len, MSG_WAITALL), (ssize_t)len);
}

static struct mirror_auth auth_of(unsigned self, const char *secret, const char *group)
{
	return (struct mirror_auth){ .secret = secret,
				     .secret_len = strlen(secret),
				     .group = group,
				     .self = self,
				     .gateways = 2 };
}

static const struct mirror_hello hello = { .from = 0, .to = 1, .channels = 1, .link = 77 };

/* Nothing that somebody says before the proof costs more than his connection. */
START_TEST(strangers)
{
	uint8_t m[MIRROR_HANDSHAKE], in[MIRROR_HANDSHAKE];
	struct mirror_auth auth;
	size_t len;

	start_both(SECRET, SECRET);
	connect_both();
	for (unsigned i = 0; i < 2 + MIRROR_HANDSHAKE; i++) {
		struct mirror_hello h = hello;
		const int fd = dial_b();
		bool challenged;

		auth = auth_of(0, SECRET, "g");
		ck_assert(mirror_auth_dial(&auth, &h, m));
		if (i < MIRROR_HANDSHAKE)
			m[i] ^= 0x81;
		else if (i == MIRROR_HANDSHAKE)
			m[6] = 1; /* it says that it is b */
		/* else: all is right, and no answer follows */
		ck_assert_int_eq(send(fd, m, sizeof(m), MSG_NOSIGNAL), sizeof(m));
		/* Another nonce or link is as good, until the proof; so is another channel. */
		challenged = recv(fd, in, sizeof(in), MSG_WAITALL) == sizeof(in);
		if (challenged) {
			ck_assert_ptr_null(mirror_auth_next(&auth, in, m, &len));
			m[MIRROR_HANDSHAKE - 1] ^= 1;
			ck_assert_int_eq(send(fd, m, i ? sizeof(m) : 3, MSG_NOSIGNAL),
					 i ? sizeof(m) : 3);
		}
		ck_assert(challenged == (i >= 16 && i < 24) || challenged == (i >= 32));
		shutdown(fd, SHUT_WR);
		await_end(fd);
	}
	/* Many at once: those of before go. */
	for (unsigned i = 0; i < 200; i++)
		close(dial_b());
	ck_assert(say(&a, 0, MIRROR_BATCHED, 1, 3));
	await(a.acks == 1);
	ck_assert_uint_eq(a.downs, 0);
	stop_both();
}
END_TEST

/* Who says nothing is not waited for. */
START_TEST(silent_stranger)
{
	int fd;

	start_both(SECRET, SECRET);
	fd = dial_b();
	await_end(fd);
	stop_both();
}
END_TEST

/* ---- one of the group, with bytes that are wrong --------------------------------------------- */
struct insider {
	int fd;
	struct mirror_coder out, in;
};

static void insider_joins(struct insider *x, unsigned channel, unsigned channels, uint64_t link)
{
	struct mirror_auth auth = auth_of(0, SECRET, "g");
	struct mirror_hello h = hello;
	uint8_t m[MIRROR_HANDSHAKE], in[MIRROR_HANDSHAKE], key[MIRROR_KEY];
	size_t len;

	h.channel = (uint8_t)channel;
	h.channels = (uint8_t)channels;
	h.link = link;
	x->fd = dial_b();
	ck_assert(mirror_auth_dial(&auth, &h, m));
	ck_assert_int_eq(send(x->fd, m, sizeof(m), MSG_NOSIGNAL), sizeof(m));
	receive(x->fd, in, sizeof(in));
	ck_assert_ptr_null(mirror_auth_next(&auth, in, m, &len));
	ck_assert_int_eq(send(x->fd, m, len, MSG_NOSIGNAL), sizeof(m));
	receive(x->fd, in, sizeof(in));
	ck_assert_ptr_null(mirror_auth_next(&auth, in, m, &len));
	ck_assert_int_eq(auth.step, AUTH_DONE);
	ck_assert(mirror_auth_key(&auth, true, key) && mirror_coder_init(&x->out, key));
	ck_assert(mirror_auth_key(&auth, false, key) && mirror_coder_init(&x->in, key));
}

static void insider_leaves(struct insider *x)
{
	close(x->fd);
	mirror_coder_free(&x->out);
	mirror_coder_free(&x->in);
}

/* An OPEN with its code. */
static size_t insider_open(struct insider *x, uint8_t *to, unsigned from)
{
	struct mirror_frame f;
	size_t len;

	frame_of(&f, from, MIRROR_OPEN, 0);
	len = mirror_encode(&f, to);
	ck_assert(mirror_coder_make(&x->out, to, len, to + len));
	return len + MIRROR_CODE;
}

enum evil {
	GOOD,
	CHANGED,
	CODE_CHANGED,
	REPEATED,
	LEFT_OUT,
	NO_FRAME,
	TOO_LONG,
	OF_ANOTHER,
	NOT_ITS_TURN,
	WRONG_CRC,
	CUT,
	EVILS
};

START_TEST(evil_frames)
{
	uint8_t bytes[MIRROR_HEAD_MAX + 2 * MIRROR_CODE];
	struct mirror_frame f;
	struct insider x;
	size_t len;

	start_both(SECRET, SECRET);
	insider_joins(&x, 0, 1, 78);
	len = insider_open(&x, bytes, _i == OF_ANOTHER ? 1 : 0);
	if (_i == LEFT_OUT)
		len = insider_open(&x, bytes, 0);
	if (_i == CHANGED)
		bytes[20] ^= 1;
	if (_i == CODE_CHANGED)
		bytes[len - 1] ^= 1;
	if (_i == NO_FRAME)
		bytes[0] = 'x';
	if (_i == TOO_LONG)
		put_be32(bytes + 8, UINT32_MAX);
	if (_i == NOT_ITS_TURN || _i == WRONG_CRC) {
		insider_leaves(&x);
		insider_joins(&x, 0, 1, 79);
		frame_of(&f, 0, _i == WRONG_CRC ? MIRROR_OPEN : MIRROR_ACK, 0);
		len = mirror_encode(&f, bytes);
		if (_i == WRONG_CRC)
			bytes[MIRROR_HEAD - 1] ^= 1;
		ck_assert(mirror_coder_make(&x.out, bytes, len, bytes + len));
		len += MIRROR_CODE;
	}
	if (_i == CUT)
		len -= 5;
	ck_assert_int_eq(send(x.fd, bytes, len, MSG_NOSIGNAL), (ssize_t)len);
	if (_i == GOOD || _i == REPEATED) {
		receive(x.fd, bytes + len, 1);
		await(b.opens == 1);
	}
	if (_i == REPEATED)
		ck_assert_int_eq(send(x.fd, bytes, len, MSG_NOSIGNAL), (ssize_t)len);
	if (_i == GOOD || _i == CUT)
		shutdown(x.fd, SHUT_WR);
	await_end(dup(x.fd));
	ck_assert_uint_eq(b.opens, _i == GOOD || _i == REPEATED);
	insider_leaves(&x);
	/* Nobody else has noticed. */
	b.opens = 0;
	connect_both();
	stop_both();
}
END_TEST

/* Byte by byte, and two at once. */
START_TEST(in_pieces)
{
	uint8_t bytes[3 * (MIRROR_HEAD + MIRROR_CODE)];
	struct insider x;
	size_t len = 0;

	start_both(SECRET, SECRET);
	insider_joins(&x, 0, 1, 78);
	for (unsigned i = 0; i < 3; i++)
		len += insider_open(&x, bytes + len, 0);
	for (size_t i = 0; i < MIRROR_HEAD + MIRROR_CODE + 1; i++)
		ck_assert_int_eq(send(x.fd, bytes + i, 1, MSG_NOSIGNAL), 1);
	len -= MIRROR_HEAD + MIRROR_CODE + 1;
	ck_assert_int_eq(send(x.fd, bytes + MIRROR_HEAD + MIRROR_CODE + 1, len, MSG_NOSIGNAL),
			 (ssize_t)len);
	await(b.opens == 3);
	insider_leaves(&x);
	stop_both();
}
END_TEST

/* The same channel twice, another number of them, another link. */
START_TEST(channels_of_a_link)
{
	struct insider x, y;

	start_both(SECRET, SECRET);
	insider_joins(&x, 0, 2, 78);
	insider_joins(&y, 0, 2, 78);
	await_end(dup(y.fd));
	insider_leaves(&y);
	insider_joins(&y, 1, 3, 78);
	await_end(dup(y.fd));
	insider_leaves(&y);
	insider_joins(&y, 1, 2, 80); /* another link: the one of before ends */
	await_end(dup(x.fd));
	insider_leaves(&x);
	insider_leaves(&y);
	stop_both();
}
END_TEST

/* ---- who does not read ----------------------------------------------------------------------- */
/* An owner that reads no answers: the peer stops reading, and keeps little. */
START_TEST(owner_does_not_read)
{
	uint8_t bytes[MIRROR_HEAD + MIRROR_CODE];
	struct insider x;
	unsigned sent = 0, quiet = 0, seen = 0;

	start_both(SECRET, SECRET);
	insider_joins(&x, 0, 1, 78);
	(void)setsockopt(x.fd, SOL_SOCKET, SO_RCVBUF, &(int){ 4096 }, sizeof(int));
	/* Until nothing is taken for 50 ms, and nothing heard there. */
	while (quiet < 50 && sent < 1000000) {
		const size_t len = insider_open(&x, bytes, 0);
		size_t at = 0;

		while (at < len && quiet < 50) {
			const ssize_t n =
				send(x.fd, bytes + at, len - at, MSG_NOSIGNAL | MSG_DONTWAIT);

			at += n > 0 ? (size_t)n : 0;
			quiet = n > 0 || b.opens != seen ? 0 : quiet + 1;
			seen = b.opens;
			if (n <= 0)
				nap(1);
		}
		sent++;
	}
	ck_assert_uint_lt(sent, 1000000);
	insider_leaves(&x);
	stop_both();
}
END_TEST

/* A peer that stops: what waits is bounded, and the link ends. */
START_TEST(peer_does_not_read)
{
	uint64_t i;

	start_both(SECRET, SECRET);
	connect_both();
	b.slow_us = 2000;
	for (i = 1; i < 20000 && say(&a, 1, MIRROR_BATCHED, i, 64); i++)
		ck_assert_uint_le(mirror_links_backlog(a.links, 1, 1), MIRROR_BACKLOG);
	b.slow_us = 0;
	ck_assert_uint_lt(i, 20000);
	await(a.downs == 1);
	stop_both();
}
END_TEST

/* Who holds back hears when there is room. */
START_TEST(room_is_told)
{
	uint64_t i = 1;

	start_both(SECRET, SECRET);
	connect_both();
	b.slow_us = 200;
	for (; mirror_links_backlog(a.links, 1, 1) <= MIRROR_BACKLOG * 3 / 4; i++)
		ck_assert(say(&a, 1, MIRROR_BATCHED, i, 64));
	b.slow_us = 0;
	await(a.rooms >= 1);
	await(a.acks == i - 1);
	ck_assert_uint_eq(a.downs, 0);
	stop_both();
}
END_TEST

/* ---- channels that move ---------------------------------------------------------------------- */
#define GUESTS 2
#define BURST 100u /* more than it takes */

static struct guest {
	struct loop *loop;
	uint64_t next, last; /* serials */
	bool ok, busy;
} guest[GUESTS];

static void guests_begin(void)
{
	const struct loop_conf conf = { .name = "guest", .node = -1, .cpu = -1 };

	for (unsigned i = 0; i < GUESTS; i++) {
		ck_assert_ptr_nonnull(guest[i].loop = loop_create(&conf));
		ck_assert_int_eq(loop_start(guest[i].loop), 0);
	}
}

static void guest_says(void *arg)
{
	struct guest *w = arg;

	for (w->ok = true; w->next <= w->last; w->next++)
		w->ok &= say(&a, 1, MIRROR_BATCHED, w->next, w->next % 9);
}

/* Guest @i sends @n more frames, after @serial. */
static uint64_t burst(unsigned i, uint64_t serial, unsigned n)
{
	struct guest *w = &guest[i];

	w->next = serial + 1;
	w->last = serial + n;
	loop_call(w->loop, guest_says, w);
	ck_assert(w->ok);
	return w->last;
}

static void guest_looks(void *arg)
{
	struct guest *w = arg;

	w->busy = loop_busy(w->loop);
}

static bool is_busy(struct guest *w)
{
	loop_call(w->loop, guest_looks, w);
	return w->busy;
}

static void guests_end(void)
{
	for (unsigned i = 0; i < GUESTS; i++) {
		await(!is_busy(&guest[i]));
		loop_end(guest[i].loop);
	}
}

/* It goes to who sends alone, and home when that one sends no more; so its loop can end. */
START_TEST(moves_to_who_sends)
{
	uint64_t serial = 0;

	start_both(SECRET, SECRET);
	guests_begin();
	connect_both();
	serial = burst(0, serial, 1);
	await(a.acks == serial);
	ck_assert_ptr_eq(a.answered, event[1]);
	ck_assert(!is_busy(&guest[0]));
	for (unsigned i = 0; a.answered != guest[0].loop; i++) {
		ck_assert_uint_lt(i, 100);
		serial = burst(0, serial, BURST);
		await(a.acks == serial);
	}
	ck_assert(is_busy(&guest[0]));
	/* Others send as well, now and then: it stays. */
	serial = burst(1, serial, 1);
	serial = burst(0, serial, BURST / 2);
	await(a.acks == serial);
	ck_assert_ptr_eq(a.answered, guest[0].loop);
	/* Nobody sends. */
	await(!is_busy(&guest[0]));
	serial = burst(0, serial, 1);
	await(a.acks == serial);
	ck_assert_ptr_eq(a.answered, event[1]);
	guests_end();
	stop_both();
}
END_TEST

/* Not where two share it. */
START_TEST(stays_where_two_send)
{
	uint64_t serial = 0;

	start_both(SECRET, SECRET);
	guests_begin();
	connect_both();
	for (unsigned i = 0; i < 200; i++)
		serial = burst(i % 2, serial, 10);
	await(a.acks == serial);
	ck_assert_ptr_eq(a.answered, event[1]);
	ck_assert(!is_busy(&guest[0]) && !is_busy(&guest[1]));
	/* It leaves one of two. */
	while (a.answered != guest[0].loop) {
		serial = burst(0, serial, BURST);
		await(a.acks == serial);
	}
	while (a.answered != event[1]) {
		serial = burst(0, serial, 2);
		serial = burst(1, serial, 2);
		await(a.acks == serial);
	}
	guests_end();
	stop_both();
}
END_TEST

/* Whoever sends, frames are in order; and it ends wherever it is, also on the way. */
START_TEST(moves_and_ends)
{
	for (unsigned round = 0; round < 20; round++) {
		uint64_t serial = 0;

		a.acks = a.welcomes = b.opens = 0;
		b.last[1] = 0;
		start_both(SECRET, SECRET);
		guests_begin();
		connect_both();
		for (unsigned i = 0; i < 6 + round % 3; i++)
			serial = burst(i % 2, serial, BURST + 10 * (round % 7));
		if (round % 2)
			await(a.acks == serial);
		if (round % 3)
			stop_one(&b);
		stop_one(&a);
		guests_end();
		stop_both();
	}
}
END_TEST

/* ---- all at once ----------------------------------------------------------------------------- */
#define STORM_GUESTS 3
#define STORM (STORM_GUESTS + LOOPS)
#define STORM_STEPS 400u

static struct storm {
	struct loop *loop;
	struct loop_msg msg;
	uint64_t rng, serial[LOOPS];
	unsigned left;
} storm[STORM];
static struct {
	uint64_t last;
	uint32_t link;
} heard[LOOPS][STORM]; /* by the loop of that channel, at the peer */
static _Atomic unsigned storms, cuts, moved;

/* Of one sender by one channel of one link: none is missing, or comes twice, or late. */
static void storm_frame(struct gateway *g, unsigned channel, const struct mirror_frame *f)
{
	const unsigned from = (unsigned)(f->lu - STORMS);
	const bool follows = f->serial == heard[channel][from].last + 1,
		   later = f->serial > heard[channel][from].last;

	g->disorder += heard[channel][from].link == f->session.number ? !follows : !later;
	heard[channel][from].last = f->serial;
	heard[channel][from].link = f->session.number;
}

static bool storm_says(struct storm *w, unsigned channel)
{
	struct mirror_frame f;
	struct mirror_out *out;

	frame_of(&f, 0, MIRROR_BATCHED, w->serial[channel] + 1);
	f.lu = STORMS + (uint64_t)(w - storm);
	f.n = 1;
	f.record[0] = (struct mirror_record){ .op = MIRROR_WRITE, .block = 1, .gen = 1, .map = 1 };
	out = mirror_links_begin(a.links, 1, channel, &f);
	if (!out)
		return false;
	for (size_t i = 0; i < out->len; i++)
		out->data[i] = (uint8_t)(f.serial * 7 + i);
	f.session.number = (uint32_t)container_of(out, struct mirror_buf, out)->to;
	w->serial[channel]++;
	mirror_links_send(out, &f);
	return true;
}

static void storm_cuts(struct link_slot *s)
{
	uint64_t id;

	pthread_mutex_lock(&s->lock);
	id = s->link ? s->link->id : 0;
	pthread_mutex_unlock(&s->lock);
	link_slot_ends(s, id, "cut");
	cuts++;
}

static unsigned storm_dice(struct storm *w)
{
	w->rng ^= w->rng << 13;
	w->rng ^= w->rng >> 7;
	w->rng ^= w->rng << 17;
	return (unsigned)(w->rng >> 20);
}

static void storm_step(struct loop_msg *msg)
{
	struct storm *w = container_of(msg, struct storm, msg);
	const unsigned dice = storm_dice(w) % 1000,
		       channel = storm_dice(w) % LOOPS,
		       n = dice % 3 ? 1 + dice % 20 : BURST;

	for (unsigned i = LOOPS; i < STORM; i++)
		moved += a.answered == storm[i].loop;
	if (!mirror_links_up(a.links, 1)) {
		(void)(dice < 100 && say(&a, 0, MIRROR_OPEN, 0, 0));
		usleep(200);
		w->left++;
	} else if (dice < 3) {
		storm_cuts(dice % 2 ? &a.links->to[1] : &b.links->of[0]);
	} else if (mirror_links_backlog(a.links, 1, channel) < MIRROR_BACKLOG / 4) {
		for (unsigned i = 0; i < n && storm_says(w, channel); i++)
			;
	}
	if (dice > 900)
		usleep(dice);
	if (--w->left)
		loop_post(w->loop, &w->msg);
	else
		storms--;
}

/* Whoever sends by whatever channel, which is cut again and again. */
START_TEST(a_storm)
{
	const struct loop_conf conf = { .name = "guest", .node = -1, .cpu = -1 };

	start_both(SECRET, SECRET);
	connect_both();
	a.answers_slow_us = 300;
	b.slow_us = 5;
	for (unsigned round = 0; round < 3; round++) {
		storms = STORM;
		for (unsigned i = 0; i < STORM; i++) {
			storm[i].rng = 88172645463325252ull * (i + 1) + round;
			storm[i].left = STORM_STEPS;
			storm[i].msg.handle = storm_step;
			storm[i].loop = i < LOOPS ? event[i] : loop_create(&conf);
			ck_assert_ptr_nonnull(storm[i].loop);
			if (i >= LOOPS)
				ck_assert_int_eq(loop_start(storm[i].loop), 0);
		}
		for (unsigned i = 0; i < STORM; i++)
			loop_post(storm[i].loop, &storm[i].msg);
		await(!storms);
		for (unsigned i = 0; i < LOOPS; i++)
			await(!mirror_links_backlog(a.links, 1, i));
		for (unsigned i = LOOPS; i < STORM; i++) {
			struct guest w = { .loop = storm[i].loop };

			await(!is_busy(&w));
			loop_end(w.loop);
		}
	}
	printf("# %u frames heard, %u answers, %u cuts, %u links ended, away at %u of %u looks\n",
	       b.batches, a.acks, cuts, a.downs, moved, 3 * STORM * STORM_STEPS);
	ck_assert_uint_gt(cuts, 10);
	ck_assert_uint_gt(moved, 10);
	stop_both();
}
END_TEST

UNIT_TABLE("mirror_link", 120, { both_directions }, { threads_send }, { largest_frame },
	   { peer_ends_first }, { owner_ends_first }, { down_is_told_first }, { stopped_meanwhile },
	   { another_secret }, { what_conf_may_not_say }, { strangers }, { silent_stranger },
	   { evil_frames, EVILS }, { in_pieces }, { channels_of_a_link }, { owner_does_not_read },
	   { peer_does_not_read }, { room_is_told }, { moves_to_who_sends },
	   { stays_where_two_send }, { moves_and_ends },
	   { a_storm })
