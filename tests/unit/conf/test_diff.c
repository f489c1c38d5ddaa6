/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * conf/diff.c. The main test is a property: whatever two configurations are, the steps that
 * lead from one to the other, made on a model of the daemon, leave nothing to do. The model
 * refuses what the daemon would refuse, and notes if a target was ever open to more than
 * the two configurations say.
 */
#include <stdlib.h>

#include "conf/diff.h"
#include "tests/support/unit.h"

static struct conf_error err;

static void read_conf(struct conf *c, const char *text)
{
	conf_init(c);
	ck_assert_msg(!conf_parse_text(c, "t", text, strlen(text), true, &err), "%s in\n%s",
		      err.text, text);
	conf_resolve(c);
}

/* ---- a daemon made of a model ---------------------------------------------------------------- */

static void set_kv(struct conf *d, struct list *l, const char *key, const char *value)
{
	struct conf_kv *kv, *tmp;

	list_for_each_safe(kv, tmp, l, link)
		if (!strcmp(kv->key, key))
			list_del(&kv->link);
	if (value)
		conf_add_kv(d, l, key, value);
}

static void set_page(struct conf *d, struct list *l, const char *value)
{
	struct conf_kv *kv, *tmp;
	size_t n = (size_t)(strchr(strchr(value, ':') + 1, ':') - value);

	if (!strncmp(value, "8:0:", 4)) {
		/* bit 2 of the first data byte is WCE */
		set_kv(d, l, "write-cache", strncmp(value, "8:0:18:0x14", 11) ? "off" : NULL);
		return;
	}
	list_for_each_safe(kv, tmp, l, link)
		if (!strcmp(kv->key, "mode_page") && !strncmp(kv->value, value, n))
			list_del(&kv->link);
	conf_add_kv(d, l, "mode_page", value);
}

/* A store is one LU's at a time. (U5) */
static void check_free(const struct conf *d, const char *path)
{
	struct conf_target *t;
	struct conf_lu *lu;

	list_for_each(t, &d->targets, link)
		list_for_each(lu, &t->lus, link)
			ck_assert_msg(strcmp(lu->path, path), "%s is still LUN %u of %s", path,
				      lu->lun, t->name);
}

static void do_lu(struct conf *d, struct conf_target *t, const struct adm_req *r)
{
	static const struct {
		enum adm_text text;
		const char *key;
	} store[] = {
		{ ADM_T_BSTYPE, "bs-type" },
		{ ADM_T_BSOPTS, "bsopts" },
		{ ADM_T_BSOFLAGS, "bsoflags" },
		{ ADM_T_BLOCKSIZE, "block-size" },
	};
	struct conf_lu *lu = conf_find_lun(t, (uint32_t)r->lun);
	const char *p = r->text[ADM_T_PARAMS];
	char key[64];

	switch (r->op) {
	case ADM_NEW:
		ck_assert_msg(!lu, "LUN %u exists", (unsigned)r->lun);
		check_free(d, r->text[ADM_T_PATH]);
		lu = conf_add_lu(d, t, r->text[ADM_T_PATH]);
		lu->lun = (uint32_t)r->lun;
		lu->has_lun = true;
		for (unsigned i = 0; i < ARRAY_SIZE(store); i++)
			if (r->text[store[i].text])
				conf_add_kv(d, &lu->options, store[i].key, r->text[store[i].text]);
		break;
	case ADM_DELETE:
		ck_assert_ptr_nonnull(lu);
		list_del(&lu->link);
		break;
	case ADM_UPDATE:
		ck_assert_ptr_nonnull(lu);
		if (!strchr(p, '=')) {
			ck_assert_ptr_nonnull(conf_get(&lu->options, p));
			set_kv(d, &lu->options, p, NULL);
			break;
		}
		snprintf(key, sizeof(key), "%.*s", (int)(strchr(p, '=') - p), p);
		p = strchr(p, '=') + 1;
		if (!strcmp(key, "path")) {
			check_free(d, p);
			lu->path = conf_strdup(d, p);
		} else if (!strcmp(key, "mode_page")) {
			set_page(d, &lu->options, p);
		} else {
			set_kv(d, &lu->options, key, p);
		}
		break;
	default:
		ck_abort_msg("op %d on an LU", r->op);
	}
}

static void do_rule(struct conf *d, struct conf_target *t, const struct adm_req *r)
{
	bool is_name = r->text[ADM_T_INITIATOR];
	const char *text = is_name ? r->text[ADM_T_INITIATOR] : r->text[ADM_T_ADDRESS];
	struct conf_rule *rule = NULL, *each;

	list_for_each(each, &t->rules, link)
		if (each->is_name == is_name && !strcmp(each->text, text))
			rule = each;
	if (r->op == ADM_BIND) {
		ck_assert_msg(!rule, "%s is bound", text);
		rule = conf_add_rule(d, t, text, is_name);
		rule->luns = r->text[ADM_T_EXPOSE] ? conf_strdup(d, r->text[ADM_T_EXPOSE]) : NULL;
		return;
	}
	ck_assert_msg(rule != NULL, "%s is not bound", text);
	if (r->op == ADM_UNBIND)
		list_del(&rule->link);
	else
		rule->luns = strcmp(r->text[ADM_T_EXPOSE], "all") ?
				     conf_strdup(d, r->text[ADM_T_EXPOSE]) :
				     NULL;
}

static void do_account(struct conf *d, struct list *users, const struct adm_req *r)
{
	struct conf_user *u, *found = NULL;
	const char *name = r->text[ADM_T_USER];
	unsigned outgoing = 0;

	if (r->op == ADM_NEW) {
		ck_assert_ptr_null(conf_get(&d->accounts, name));
		conf_add_kv(d, &d->accounts, name, "");
		return;
	}
	if (r->op == ADM_UPDATE) {
		ck_assert_str_eq(conf_get(&d->accounts, name), CONF_STALE);
		set_kv(d, &d->accounts, name, "");
		return;
	}
	const char *iqn = r->text[ADM_T_INITIATOR];

	ck_assert_msg(conf_get(&d->accounts, name) != NULL, "no account %s", name);
	list_for_each(u, users, link) {
		outgoing += u->outgoing;
		if (!strcmp(u->user, name) && u->outgoing == r->outgoing)
			found = u;
	}
	if (iqn) {
		ck_assert(!r->outgoing);
		if (r->op == ADM_BIND && !found)
			found = conf_add_user(d, users, name, NULL, false);
		ck_assert_ptr_nonnull(found);
		ck_assert(!conf_get(&found->names, iqn) == (r->op == ADM_BIND));
		set_kv(d, &found->names, iqn, r->op == ADM_BIND ? "" : NULL);
		return;
	}
	if (r->op == ADM_BIND) {
		ck_assert_ptr_null(found);
		ck_assert_msg(!r->outgoing || !outgoing, "a second outgoing account");
		conf_add_user(d, users, name, NULL, r->outgoing);
	} else {
		ck_assert_ptr_nonnull(found);
		list_del(&found->link);
	}
}

static void do_target(struct conf *d, struct conf_target *t, const struct adm_req *r)
{
	switch (r->op) {
	case ADM_NEW:
		ck_assert_ptr_null(t);
		ck_assert_ptr_null(conf_find_target(d, r->text[ADM_T_TARGETNAME]));
		t = conf_add_target(d, r->text[ADM_T_TARGETNAME]);
		t->tid = r->tid;
		t->driver = conf_strdup(d, r->text[ADM_T_LLD]);
		break;
	case ADM_DELETE:
		ck_assert_ptr_nonnull(t);
		list_del(&t->link);
		break;
	case ADM_UPDATE:
		ck_assert_ptr_nonnull(t);
		if (r->text[ADM_T_EXPOSE])
			do_rule(d, t, r);
		else
			set_kv(d, &t->keys, r->text[ADM_T_NAME],
			       *r->text[ADM_T_VALUE] ? r->text[ADM_T_VALUE] : NULL);
		break;
	default:
		ck_assert_ptr_nonnull(t);
		do_rule(d, t, r);
	}
}

/* A target with users must never, between two steps, have none, nor
 * rules none of which are known. */
static void check_closed(const struct conf_target *t, bool had_users)
{
	bool incoming = false;
	struct conf_user *u;

	list_for_each(u, &t->users, link)
		incoming |= !u->outgoing;
	ck_assert_msg(incoming || !had_users, "%s asks for no password for a while", t->name);
}

static unsigned apply(struct conf *d, const struct list *steps, bool check_users)
{
	struct conf_step *s;
	unsigned requests = 0;

	list_for_each(s, steps, link) {
		const struct adm_req *r = &s->req;
		struct conf_target *t;

		if (s->note)
			continue;
		requests++;
		t = r->has_tid ? conf_find_tid(d, r->tid) : NULL;
		switch (r->mode) {
		case ADM_TARGET:
			do_target(d, t, r);
			break;
		case ADM_LU:
			ck_assert_ptr_nonnull(t);
			do_lu(d, t, r);
			break;
		case ADM_ACCOUNT:
			ck_assert(!r->has_tid || t);
			do_account(d, t ? &t->users : &d->users, r);
			if (t && check_users)
				check_closed(t, true);
			break;
		case ADM_SYSTEM:
			set_kv(d, &d->system, r->text[ADM_T_NAME], r->text[ADM_T_VALUE]);
			break;
		default:
			ck_abort_msg("mode %d", r->mode);
		}
	}
	return requests;
}

/* ---- examples -------------------------------------------------------------------------------- */

/* The command lines that lead from @have to @want, without notes. */
static char *plan(const char *have_text, const char *want_text, const struct conf_scope *scope)
{
	static char out[65536];
	struct list steps = LIST_INIT(steps);
	struct conf have, want;
	struct conf_step *s;
	FILE *f = fmemopen(out, sizeof(out), "w");

	read_conf(&have, have_text);
	read_conf(&want, want_text);
	conf_diff(&have, &want, scope, &steps);
	list_for_each(s, &steps, link)
		if (!s->note)
			conf_step_print(s, 0, f);
	fputc(0, f);
	fclose(f);
	conf_free(&have);
	conf_free(&want);
	return out;
}

static const struct conf_scope all = { .update = true, .remove = true };

START_TEST(new_target_as_tgt_admin_prints_it)
{
	ck_assert_str_eq(
		plan("",
		     "<target iqn.x:a>\nbacking-store /tmp/d1\nwrite-cache off\nvendor_id A B\nincominguser u p\n"
		     "outgoinguser o q\nMaxBurstLength 4096\ninitiator-address 10.0.0.1\n</target>\n",
		     &all),
		"tgtadm -C 0 --lld iscsi --op new --mode target --tid 1 -T iqn.x:a\n"
		"tgtadm -C 0 --lld iscsi --mode target --op update --tid 1 --name MaxBurstLength --value 4096\n"
		"tgtadm -C 0 --lld iscsi --op new --mode logicalunit --tid 1 --lun 1 -b \"/tmp/d1\"\n"
		"tgtadm -C 0 --lld iscsi --op update --mode logicalunit --tid 1 --lun=1 --params "
		"mode_page=8:0:18:0x10:0:0xff:0xff:0:0:0xff:0xff:0xff:0xff:0x80:0x14:0:0:0:0:0:0\n"
		"tgtadm -C 0 --lld iscsi --op update --mode logicalunit --tid 1 --lun=1 --params vendor_id=\"A B\"\n"
		"tgtadm -C 0 --lld iscsi --mode account --op new --user=u --password=PLEASE_CORRECT_THE_PASSWORD\n"
		"tgtadm -C 0 --lld iscsi --mode account --op bind --tid=1 --user=u\n"
		"tgtadm -C 0 --lld iscsi --mode account --op new --user=o --password=PLEASE_CORRECT_THE_PASSWORD\n"
		"tgtadm -C 0 --lld iscsi --mode account --op bind --tid=1 --user=o --outgoing\n"
		"tgtadm -C 0 --lld iscsi --op bind --mode target --tid 1 -I 10.0.0.1\n");
}
END_TEST

/* tgt leaves ALL bound beside names, and then the names close nothing. */
static unsigned tied_to(const char *line)
{
	const char *p = strstr(line, "--initiator-name=iqn.");

	return p ? (unsigned)p[21] : 0;
}

/* W5: a user that is tied is there with a name at every step, and never with one that neither
 * configuration has. */
START_TEST(tied_users)
{
#define USERS(more) "<target iqn.a>\ncontroller_tid 3\nincominguser u p\n" more "</target>\n"
	static const char bind[] = "tgtadm -C 0 --lld iscsi --mode account --op bind --tid=3 "
				   "--user=u --initiator-name=iqn.x\n",
			  bind_y[] = "tgtadm -C 0 --lld iscsi --mode account --op bind --tid=3 "
				     "--user=u --initiator-name=iqn.y\n",
			  unbind[] = "tgtadm -C 0 --lld iscsi --mode account --op unbind --tid=3 "
				     "--user=u --initiator-name=iqn.x\n";
	const char *p = plan("", USERS("bind-user u iqn.x\nbind-user u iqn.y\n"), &all);
	char both[400];

	/* no step binds it without a name */
	p = strstr(p, "--op bind --tid=3 --user=u");
	ck_assert_ptr_nonnull(p);
	ck_assert_uint_eq(tied_to(p), 'x');
	p = strstr(p + 1, "--op bind --tid=3 --user=u");
	ck_assert_ptr_nonnull(p);
	ck_assert_uint_eq(tied_to(p), 'y');
	ck_assert_ptr_null(strstr(p + 1, "--op bind --tid=3 --user=u"));
	/* an account that is there */
	p = plan(USERS(""), USERS("bind-user u iqn.x\n"), &all);
	ck_assert_ptr_nonnull(strstr(p, bind));
	p = plan(USERS("bind-user u iqn.x\n"), USERS("bind-user u iqn.x\n"), &all);
	ck_assert_ptr_null(strstr(p, "bind"));
	p = plan(USERS("bind-user u iqn.x\n"), USERS(""), &all);
	ck_assert_ptr_nonnull(strstr(p, unbind));
	p = plan(USERS("bind-user u iqn.x\n"), USERS("bind-user u iqn.y\n"), &all);
	snprintf(both, sizeof(both), "%s%s", bind_y, unbind);
	ck_assert_ptr_nonnull(strstr(p, both));
	/* whose line is gone is unbound as a whole */
	p = plan(USERS("bind-user u iqn.x\nincominguser v p\n"),
		 "<target iqn.a>\nincominguser v p\n</target>\n", &all);
	ck_assert_ptr_nonnull(strstr(p, "--op unbind --tid=3 --user=u\n"));
}
END_TEST

START_TEST(limits)
{
#define LIMITS(more) "<target iqn.a>\ncontroller_tid 3\n" more "</target>\n"
	static const char step[] = "tgtadm -C 0 --lld iscsi --mode target --op update --tid 3 "
				   "-Q iqn.x --params ";
	static const struct {
		const char *have, *want, *params; /* NULL: nothing to do */
	} table[] = {
		{ LIMITS(""), LIMITS("initiator-limit iqn.x iops_limit=5\n"), "iops_limit=5" },
		{ LIMITS("initiator-limit iqn.x iops_limit=5\n"),
		  LIMITS("initiator-limit iqn.x iops_limit=5\n"), NULL },
		{ LIMITS("initiator-limit iqn.x iops_limit=5,bandwidth_limit=10M\n"),
		  LIMITS("initiator-limit iqn.x bandwidth_limit=10M,iops_limit=5\n"), NULL },
		{ LIMITS("initiator-limit iqn.x iops_limit=5,bandwidth_limit=10M\n"),
		  LIMITS("initiator-limit iqn.x iops_burst=9,bandwidth_limit=11M\n"),
		  "iops_limit,iops_burst=9,bandwidth_limit=11M" },
		{ LIMITS("initiator-limit iqn.x iops_limit=5\n"), LIMITS(""), "iops_limit" },
		{ LIMITS("initiator-limit iqn.X iops_limit=5\n"),
		  LIMITS("initiator-limit iqn.x iops_limit=5\n"), NULL },
	};

	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		const char *p = plan(table[i].have, table[i].want, &all);
		char want[200];

		snprintf(want, sizeof(want), "%s%s\n", step, table[i].params);
		if (table[i].params)
			ck_assert_msg(strstr(p, want) != NULL, "%s in\n%s", want, p);
		else
			ck_assert_msg(!strstr(p, "tgtadm"), "%s", p);
	}
}
END_TEST

START_TEST(names_alone_do_not_open_to_all)
{
	const char *p =
		plan("", "<target a>\nbacking-store /a\ninitiator-name iqn.x\n</target>\n", &all);

	ck_assert_ptr_nonnull(strstr(p, "-Q iqn.x"));
	ck_assert_ptr_null(strstr(p, "ALL"));
	p = plan("", "<target a>\nbacking-store /a\n</target>\n", &all);
	ck_assert_ptr_nonnull(strstr(p, "-I ALL"));
	p = plan("", "<target a>\nbacking-store /a\ninitiator-address NONE\n</target>\n", &all);
	ck_assert_ptr_null(strstr(p, "bind"));
}
END_TEST

#define HAVE                                                                                       \
	"<target iqn.a>\ncontroller_tid 3\nbacking-store /a\nbacking-store /b\ninitiator-address ALL\n</target>\n"

START_TEST(only_what_differs)
{
	ck_assert_str_eq(
		plan(HAVE, "<target iqn.a>\nbacking-store /a\nbacking-store /b\n</target>\n", &all),
		"");
	/* a reload that adds a disk touches nothing else */
	ck_assert_str_eq(
		plan(HAVE,
		     "<target iqn.a>\nbacking-store /a\nbacking-store /b\nbacking-store /c\n</target>\n",
		     &all),
		"tgtadm -C 0 --lld iscsi --op new --mode logicalunit --tid 3 --lun 3 -b \"/c\"\n");
	ck_assert_str_eq(plan(HAVE, "<target iqn.a>\nbacking-store /a\n</target>\n", &all),
			 "tgtadm -C 0 --lld iscsi --op delete --mode logicalunit --tid 3 --lun 2\n");
	/* another file under the same LUN is a change of path */
	ck_assert_str_eq(
		plan(HAVE, "<target iqn.a>\nbacking-store /a\nbacking-store /bb\n</target>\n",
		     &all),
		"tgtadm -C 0 --lld iscsi --op update --mode logicalunit --tid 3 --lun=2 --params path=\"/bb\"\n");
	/* what is no longer said goes back to its default */
	ck_assert_str_eq(
		plan("<target iqn.a>\ncontroller_tid 3\n<backing-store /a>\nlun 1\nreadonly 1\n"
		     "</backing-store>\n"
		     "MaxBurstLength 4096\ninitiator-address ALL\n</target>\n",
		     "<target iqn.a>\nbacking-store /a\n</target>\n", &all),
		"tgtadm -C 0 --lld iscsi --mode target --op update --tid 3 --name MaxBurstLength --value \"\"\n"
		"tgtadm -C 0 --lld iscsi --op update --mode logicalunit --tid 3 --lun=1 --params readonly\n");
}
END_TEST

START_TEST(scopes)
{
	const struct conf_scope execute = { .remove = true },
				one = { .update = true, .remove = true, .target = "iqn.b" };
	const char *two =
		"<target iqn.a>\nbacking-store /z\n</target>\n<target iqn.b>\nbacking-store /q\n</target>\n";
	const char *p;

	/* -e leaves existing targets alone, adds and removes others */
	ck_assert_str_eq(plan(HAVE, "<target iqn.a>\nbacking-store /zzz\n</target>\n", &execute),
			 "");
	ck_assert_str_eq(plan(HAVE, "", &execute),
			 "tgtadm -C 0 --mode target --op delete --tid=3\n");
	p = plan(HAVE, two, &execute);
	ck_assert_ptr_nonnull(strstr(p, "--tid 4 -T iqn.b"));
	ck_assert_ptr_null(strstr(p, "/z"));
	/* --update NAME is about that one only */
	p = plan(HAVE, two, &one);
	ck_assert_ptr_nonnull(strstr(p, "-T iqn.b"));
	ck_assert_ptr_null(strstr(p, "/z"));
}
END_TEST

/* What a session would feel is a part of its own; what comes in its place needs it. */
START_TEST(parts)
{
	struct list steps = LIST_INIT(steps);
	struct conf have, want;
	const struct conf_part *gone = NULL;
	struct conf_need *n;
	struct conf_step *s;
	unsigned anew = 0;

	read_conf(&have, HAVE);
	read_conf(
		&want,
		"<target iqn.a>\n<backing-store /a>\nlun 1\nbs-type aio\nreadonly 1\n</backing-store>\n"
		"<backing-store /b>\nlun 2\nreadonly 1\n</backing-store>\n</target>\n");
	conf_diff(&have, &want, &all, &steps);
	list_for_each(s, &steps, link) {
		if (s->note)
			continue;
		ck_assert_ptr_nonnull(s->part);
		ck_assert_uint_eq(s->part->lun, s->req.lun);
		if (s->req.lun == 2) {
			ck_assert_int_eq(s->part->kind, CONF_PART_CHANGE);
			ck_assert(list_empty(&s->part->needs));
		} else if (s->req.op == ADM_DELETE) {
			ck_assert_int_eq(s->part->kind, CONF_PART_REMOVE);
			gone = s->part;
		} else {
			ck_assert_int_eq(s->part->kind, CONF_PART_NEW_LU);
			n = list_first(&s->part->needs, struct conf_need, link);
			ck_assert_ptr_eq(n->part, gone);
			anew++;
		}
	}
	ck_assert_ptr_nonnull(gone);
	ck_assert_uint_eq(anew, 2); /* new, readonly */
	conf_free(&have);
	conf_free(&want);
}
END_TEST

/* Stores change hands in one run: chains by their paths, circles by way of a LUN made anew. (U5) */
START_TEST(stores_change_hands)
{
	const char *p = plan(
		"<target a>\ncontroller_tid 1\nbacking-store /x\ninitiator-address ALL\n</target>\n"
		"<target b>\ncontroller_tid 2\nbacking-store /y\ninitiator-address ALL\n</target>\n",
		"<target a>\nbacking-store /y\n</target>\n<target b>\nbacking-store /z\n</target>\n",
		&all);

	ck_assert_str_eq(
		p,
		"tgtadm -C 0 --lld iscsi --op update --mode logicalunit --tid 2 --lun=1 --params path=\"/z\"\n"
		"tgtadm -C 0 --lld iscsi --op update --mode logicalunit --tid 1 --lun=1 --params path=\"/y\"\n");
	p = plan(
		"<target a>\ncontroller_tid 1\nbacking-store /x\ninitiator-address ALL\n</target>\n"
		"<target b>\ncontroller_tid 2\nbacking-store /y\ninitiator-address ALL\n</target>\n",
		"<target a>\nbacking-store /y\n</target>\n<target b>\nbacking-store /x\n</target>\n",
		&all);
	ck_assert_str_eq(
		p,
		"tgtadm -C 0 --lld iscsi --op delete --mode logicalunit --tid 1 --lun 1\n"
		"tgtadm -C 0 --lld iscsi --op update --mode logicalunit --tid 2 --lun=1 --params path=\"/x\"\n"
		"tgtadm -C 0 --lld iscsi --op new --mode logicalunit --tid 1 --lun 1 -b \"/y\"\n");
}
END_TEST

/* What the daemon holds otherwise than the file says it, but for the same, is not sent. (U6) */
START_TEST(equal_in_other_words)
{
#define BEGIN "<target iqn.a>\ncontroller_tid 3\n<backing-store /a>\nlun 1\n"
#define END "</backing-store>\n"
	/* cut to what INQUIRY data hold, with or without blanks at the cut */
	ck_assert_str_eq(plan(BEGIN "vendor_id MyCompan\nproduct_id 123456789012345\nscsi_sn "
				    "123456789012345678901234567890123456\n" END "</target>\n",
			      BEGIN "vendor_id MyCompany Inc.\nproduct_id 123456789012345 78\n"
				    "scsi_sn 123456789012345678901234567890123456789\n" END
				    "</target>\n",
			      &all),
			 "");
	ck_assert_str_ne(plan(BEGIN "vendor_id MyCompa\n" END "</target>\n",
			      BEGIN "vendor_id MyCompany Inc.\n" END "</target>\n", &all),
			 "");
	ck_assert_str_eq(plan(BEGIN "bsoflags sync:direct\n" END "</target>\n",
			      BEGIN "bsoflags direct:sync\nwrite-cache off\n" END
				    "state ready\n</target>\niSNS off\niSNSServerPort 3205\n",
			      &all),
			 "");
	/* the caching page and write-cache are one */
	ck_assert_str_eq(plan(BEGIN "write-cache off\n" END "</target>\n",
			      BEGIN "mode_page " CONF_WRITE_CACHE_OFF "\n" END "</target>\n",
			      &all),
			 "");
	ck_assert_str_eq(plan(BEGIN "mode_page 8:0:18:0x10:1\nwrite-cache on\n" END "</target>\n",
			      BEGIN "mode_page 8:0:18:0x14:1\n" END "</target>\n", &all),
			 "");
	ck_assert_str_eq(plan(BEGIN "mode_page 8:0:18:0x10:1\nwrite-cache off\n" END "</target>\n",
			      BEGIN END "</target>\n", &all),
			 "tgtadm -C 0 --lld iscsi --op update --mode logicalunit --tid 3 --lun=1 "
			 "--params mode_page=" CONF_WRITE_CACHE_ON "\n");
	/* a mirror is a write cache that is on, and a word more; `through` is off */
#define UPDATE "tgtadm -C 0 --lld iscsi --op update --mode logicalunit --tid 3 --lun=1 --params "
#define RBD "bs-type rbd\nbsopts group=g\n"
	ck_assert_str_eq(plan(BEGIN RBD "write-cache mirror\n" END "</target>\n",
			      BEGIN RBD "write-cache mirror\n" END "</target>\n", &all),
			 "");
	ck_assert_str_eq(plan(BEGIN RBD END "</target>\n",
			      BEGIN RBD "write-cache mirror\n" END "</target>\n", &all),
			 UPDATE "write_cache=\"mirror\"\n");
	ck_assert_str_eq(plan(BEGIN RBD "write-cache mirror\n" END "</target>\n",
			      BEGIN RBD END "</target>\n", &all),
			 UPDATE "write_cache\n");
	ck_assert_str_eq(plan(BEGIN RBD "write-cache off\n" END "</target>\n",
			      BEGIN RBD "write-cache mirror\n" END "</target>\n", &all),
			 UPDATE "mode_page=" CONF_WRITE_CACHE_ON "\n"
			 UPDATE "write_cache=\"mirror\"\n");
	ck_assert_str_eq(plan(BEGIN RBD "write-cache mirror\n" END "</target>\n",
			      BEGIN RBD "write-cache through\n" END "</target>\n", &all),
			 UPDATE "mode_page=" CONF_WRITE_CACHE_OFF "\n"
			 UPDATE "write_cache=\"off\"\n");
	ck_assert_str_eq(plan(BEGIN RBD "write-cache off\n" END "</target>\n",
			      BEGIN RBD "write-cache through\n" END "</target>\n", &all),
			 "");
#undef UPDATE
#undef RBD
#undef BEGIN
#undef END
}
END_TEST

/* Of tgt's targets.conf(5): ${tid} and ${lun} in params are the numbers, whoever gives them. */
START_TEST(numbers_in_params)
{
#define UPDATE "tgtadm -C 0 --lld iscsi --op update --mode logicalunit --tid 4 --lun="
	static const char file[] = "<target iqn.a>\nbacking-store /a\nbacking-store /b\n"
				   "params scsi_sn=S${tid}-${lun}${lun,product_id=$${lun}\n"
				   "vendor_id ${tid}\n</target>\n";
	static const char before[] = "<target iqn.b>\ncontroller_tid 3\n</target>\n";
	struct conf_scope add = { .update = true };
	const char *p = plan(before, file, &add);

	ck_assert_ptr_nonnull(strstr(p, UPDATE "1 --params scsi_sn=\"S4-1\\${lun\"\n"));
	ck_assert_ptr_nonnull(strstr(p, UPDATE "1 --params product_id=\"\\$1\"\n"));
	ck_assert_ptr_nonnull(strstr(p, UPDATE "2 --params scsi_sn=\"S4-2\\${lun\"\n"));
	ck_assert_ptr_nonnull(strstr(p, UPDATE "2 --params product_id=\"\\$2\"\n"));
	ck_assert_ptr_nonnull(strstr(p, UPDATE "2 --params vendor_id=\"\\${tid}\"\n"));
	ck_assert_str_eq(plan("<target iqn.a>\ncontroller_tid 9\nbacking-store /a\n"
			      "scsi_sn S9-1\n</target>\n",
			      "<target iqn.a>\nbacking-store /a\n"
			      "params scsi_sn=S${tid}-${lun}\n</target>\n",
			      &all),
			 "");
#undef UPDATE
}
END_TEST

static bool refuse_b(void *arg, const struct conf_lu *lu, bool taken,
		     void (*say)(void *say_arg, const char *note), void *say_arg)
{
	if (strcmp(lu->path, "/b"))
		return true;
	say(say_arg, "Skipping device: /b");
	return false;
}

START_TEST(unusable_stores_are_skipped)
{
	const struct conf_scope scope = { .update = true, .usable = refuse_b };
	const char *p = plan(
		"", "<target iqn.a>\nbacking-store /a\nbacking-store /b\nreadonly 1\n</target>\n",
		&scope);

	ck_assert_ptr_nonnull(strstr(p, "-b \"/a\""));
	ck_assert_ptr_null(strstr(p, "-b \"/b\""));
	ck_assert_ptr_null(strstr(p, "--lun=2"));
}
END_TEST

START_TEST(quoting)
{
	const char *p = plan(
		"",
		"<target iqn.a>\nbacking-store /a b$c\nvendor_id x\"y`\nincominguser u p w\n</target>\n",
		&all);

	ck_assert_ptr_nonnull(strstr(p, "-b \"/a b\\$c\""));
	ck_assert_ptr_nonnull(strstr(p, "vendor_id=\"x\\\"y\\`\""));
	/* what is printed ends up in journals */
	ck_assert_ptr_null(strstr(p, "p w"));
}
END_TEST

/* ---- the property ---------------------------------------------------------------------------- */

static unsigned seed;

static unsigned rnd(unsigned n)
{
	seed = seed * 1103515245 + 12345;
	return (seed >> 16) % n;
}

static void random_lu(char *to, unsigned lun)
{
	static const char *const option[] = {
		"readonly 1\n",		 "write-cache off\n",
		"mode_page 10:0:10:2\n", "mode_page 10:0:10:3\n",
		"mode_page 1:0:1\n",	 "bs-type aio\n",
		"bsoflags sync\n",	 "block-size 4096\n",
		"removable 1\n",	 "params scsi_sn=S1,online=0\n"
	};

	to += sprintf(to, "<backing-store /s%u>\nlun %u\n", rnd(3), lun);
	for (unsigned i = 0; i < ARRAY_SIZE(option); i++) {
		if (rnd(6))
			continue;
		to += sprintf(to, "%s", option[i]);
	}
	if (rnd(2))
		to += sprintf(to, "vendor_id V%u\n", rnd(3));
	strcpy(to, "</backing-store>\n");
}

static void random_conf(char *to, bool with_tids)
{
	*to = 0;
	if (rnd(2))
		strcat(to, "incomingdiscoveryuser d p\n");
	if (rnd(2))
		strcat(to, "iSNSServerPort 77\n");
	for (unsigned t = 0; t < 4; t++) {
		if (!rnd(3))
			continue;
		sprintf(to + strlen(to), "<target iqn.t%u>\n", t);
		if (with_tids)
			sprintf(to + strlen(to), "controller_tid %u\n", 4 - t);
		if (!rnd(5))
			strcat(to, "driver iser\n");
		for (unsigned lun = 1; lun < 4; lun++)
			if (rnd(2))
				random_lu(to + strlen(to), lun);
		/* always one: check_closed() looks at it */
		unsigned u = rnd(3);

		sprintf(to + strlen(to), "incominguser u%u p\n", u);
		for (unsigned i = 0; i < 3; i++)
			if (!rnd(4))
				sprintf(to + strlen(to), "bind-user u%u iqn.i%u\n", u, i);
		if (rnd(2))
			sprintf(to + strlen(to), "outgoinguser o%u p\n", rnd(2));
		for (unsigned i = 0; i < 3; i++) {
			if (!rnd(3))
				sprintf(to + strlen(to), "initiator-address 10.0.0.%u\n", i);
			if (!rnd(3)) {
				sprintf(to + strlen(to), "initiator-name iqn.i%u\n", i);
				if (rnd(2))
					sprintf(to + strlen(to), "expose iqn.i%u %u\n", i, rnd(3));
			}
		}
		if (rnd(2))
			sprintf(to + strlen(to), "MaxBurstLength %u\n", 512 * (1 + rnd(3)));
		if (!rnd(4))
			strcat(to, "state offline\n");
		strcat(to, "</target>\n");
	}
}

/* Options as the daemon remembers them: each once, `params` taken apart. */
static void lu_as_daemon(struct conf *d, struct conf_lu *lu)
{
	struct list said = LIST_INIT(said);
	struct conf_kv *kv;

	list_splice_tail(&said, &lu->options);
	list_for_each(kv, &said, link) {
		if (!strcmp(kv->key, "params")) {
			set_kv(d, &lu->options, "scsi_sn", "S1");
			set_kv(d, &lu->options, "online", "0");
		} else if (!strcmp(kv->key, "mode_page")) {
			set_page(d, &lu->options, kv->value);
		} else {
			set_kv(d, &lu->options, kv->key, kv->value);
		}
	}
}

/* Accounts and options as the daemon has them. */
static void as_daemon(struct conf *d)
{
	struct conf_target *t;
	struct conf_user *u;
	struct conf_lu *lu;

	list_for_each(u, &d->users, link)
		if (!conf_get(&d->accounts, u->user))
			conf_add_kv(d, &d->accounts, u->user, "");
	list_for_each(t, &d->targets, link) {
		list_for_each(lu, &t->lus, link)
			lu_as_daemon(d, lu);
		list_for_each(u, &t->users, link)
			if (!conf_get(&d->accounts, u->user))
				conf_add_kv(d, &d->accounts, u->user, rnd(2) ? "" : CONF_STALE);
	}
}

START_TEST(applied_differences_leave_nothing_to_do)
{
	static char have_text[20000], want_text[20000];
	unsigned total = 0;

	for (unsigned round = 0; round < 3000; round++) {
		struct list steps = LIST_INIT(steps), rest = LIST_INIT(rest);
		struct conf daemon, want;
		struct conf_step *s;

		seed = round;
		random_conf(have_text, true);
		random_conf(want_text, false);
		read_conf(&daemon, have_text);
		read_conf(&want, want_text);
		as_daemon(&daemon);
		conf_diff(&daemon, &want, &all, &steps);
		total += apply(&daemon, &steps, true);
		conf_diff(&daemon, &want, &all, &rest);
		list_for_each(s, &rest, link) {
			if (s->note)
				continue;
			conf_step_print(s, 0, stdout);
			ck_abort_msg("round %u: still to do after\n%s\n->\n%s", round, have_text,
				     want_text);
		}
		conf_free(&daemon);
		conf_free(&want);
	}
	ck_assert_uint_gt(total, 10000);
}
END_TEST

/* U8: portals, settings, drivers, drives without a medium. */
#define PORTAL(op, name) \
	"tgtadm -C 0 --op " op " --mode portal --params \"portal=" name "\"\n"

START_TEST(portals)
{
	static const char have[] = "portal 10.0.0.1\nportal 10.0.0.2:99,2\n";

	ck_assert_str_eq(plan(have, "portal 10.0.0.2:99,2\nportal 10.0.0.1:3260,1\n", &all), "");
	/* a file that does not speak of them */
	ck_assert_str_eq(plan(have, "", &all), "");
	ck_assert_str_eq(plan(have, "portal NONE\n", &all),
			 PORTAL("delete", "10.0.0.1:3260,1") PORTAL("delete", "10.0.0.2:99,2"));
	/* new ones first, unless the old one is in the way */
	ck_assert_str_eq(plan(have, "portal 10.0.0.2:99,2\nportal 10.0.0.3\n", &all),
			 PORTAL("new", "10.0.0.3:3260,1") PORTAL("delete", "10.0.0.1:3260,1"));
	ck_assert_str_eq(plan(have, "portal 10.0.0.2:99,2\nportal 10.0.0.1,7\n", &all),
			 PORTAL("delete", "10.0.0.1:3260,1") PORTAL("new", "10.0.0.1:3260,7"));
	ck_assert_str_eq(plan(have, "portal 10.0.0.2:99,2\nportal :3260\n", &all),
			 PORTAL("new", "[::]:3260,1") PORTAL("delete", "10.0.0.1:3260,1")
				 PORTAL("new", "0.0.0.0:3260,1"));
}
END_TEST

START_TEST(settings)
{
	const struct conf_scope execute = { .remove = true };
	static const char have[] = "cache-affinity inline\ncache-threshold 64k\n"
				   "weak_secrets refuse\nstate offline\ndebug on\nstopped-driver iser\n";

	ck_assert_str_eq(plan(have, have, &all), "");
	/* ours go back; tgt's stay */
	ck_assert_str_eq(plan(have, "", &all),
			 "tgtadm -C 0 --lld iser --op start --mode lld\n"
			 "tgtadm -C 0 --op update --mode sys --name weak_secrets -v warn\n"
			 "tgtadm -C 0 --op update --mode cache --name affinity -v \"\"\n"
			 "tgtadm -C 0 --op update --mode cache --name threshold -v \"\"\n");
	ck_assert_str_eq(plan(have, "", &execute), "");
	/* offline is first, ready and a driver that stops are last */
	ck_assert_str_eq(plan("", "<target iqn.a>\n</target>\nstopped-driver iser\nstate ready\n",
			      &all),
			 "tgtadm -C 0 --lld iscsi --op new --mode target --tid 1 -T iqn.a\n"
			 "tgtadm -C 0 --lld iscsi --op bind --mode target --tid 1 -I ALL\n"
			 "tgtadm -C 0 --lld iser --op stop --mode lld\n");
	ck_assert_str_eq(plan("", "debug off\nstate offline\niSNS On\niSNSServerIP 10.0.0.1\n",
			      &all),
			 "tgtadm -C 0 --op update --mode sys --name State -v offline\n"
			 "tgtadm -C 0 --op update --mode sys --name iSNSServerIP -v 10.0.0.1\n"
			 "tgtadm -C 0 --op update --mode sys --name debug -v off\n"
			 "tgtadm -C 0 --op update --mode sys --name iSNS -v On\n");
	ck_assert_str_eq(plan("state offline\n", "state ready\n", &all),
			 "tgtadm -C 0 --op update --mode sys --name State -v ready\n");
}
END_TEST

START_TEST(no_medium)
{
	static const char without[] = "<target iqn.a>\ncontroller_tid 3\n<backing-store NONE>\n"
				      "lun 1\n</backing-store>\n</target>\n",
			  with[] = "<target iqn.a>\ncontroller_tid 3\n<backing-store /a>\nlun 1\n"
				   "</backing-store>\n</target>\n";

	ck_assert_str_eq(plan(without, without, &all), "");
	ck_assert_str_eq(plan("<target iqn.a>\ncontroller_tid 3\n</target>\n", without, &all),
			 "tgtadm -C 0 --lld iscsi --op new --mode logicalunit --tid 3 --lun 1\n");
	ck_assert_str_eq(plan(without, with, &all),
			 "tgtadm -C 0 --lld iscsi --op update --mode logicalunit --tid 3 --lun=1 "
			 "--params path=\"/a\"\n");
	ck_assert_str_eq(plan(with, without, &all),
			 "tgtadm -C 0 --lld iscsi --op delete --mode logicalunit --tid 3 --lun 1\n"
			 "tgtadm -C 0 --lld iscsi --op new --mode logicalunit --tid 3 --lun 1\n");
}
END_TEST

UNIT_MAIN("diff", 30, portals, settings, no_medium, new_target_as_tgt_admin_prints_it,
	  names_alone_do_not_open_to_all, tied_users, limits,
	  only_what_differs, scopes, parts, stores_change_hands, equal_in_other_words,
	  numbers_in_params, unusable_stores_are_skipped, quoting,
	  applied_differences_leave_nothing_to_do)
