/* SPDX-License-Identifier: GPL-2.0-or-later */
/* conf/parse.c, model.c, verify.c: from targets.conf to a resolved, checked model and back. */
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "conf/model.h"
#include "tests/support/unit.h"

static struct conf c;
static struct conf_error err;
static char faults[8192];

static int parse(const char *text)
{
	conf_init(&c);
	return conf_parse_text(&c, "t", text, strlen(text), true, &err);
}

static void note_fault(void *arg, const char *text)
{
	strcat(faults, text);
	strcat(faults, "\n");
}

static unsigned verify(const char *text)
{
	unsigned n;

	ck_assert_msg(!parse(text), "%s", err.text);
	conf_resolve(&c);
	*faults = 0;
	n = conf_verify(&c, note_fault, NULL);
	conf_free(&c);
	return n;
}

static void append(void *arg, const char *text)
{
	strcat(arg, text);
}

START_TEST(whole_file)
{
	const char *text = "# comment\n"
			   "default-driver iser\n"
			   "ignore-errors yes\n"
			   "control-port 3\n"
			   "iSNSServerIP 192.168.1.1\n"
			   "incomingdiscoveryuser du dpass\n"
			   "\n"
			   "<target iqn.2008-09.com.example:a>\n"
			   "    backing-store /dev/a # Becomes LUN 1\n"
			   "    write-cache off\n"
			   "    vendor_id MyCompany Inc.\n"
			   "    incominguser user1 secretpass12\n"
			   "    incominguser user2 \"secret pass\"\n"
			   "    outgoinguser userA secretpassA\n"
			   "    initiator-address 192.168.100.1\n"
			   "    initiator-name = iqn.init\n"
			   "    expose iqn.init 1,3-5\n"
			   "    MaxBurstLength 65536\n"
			   "    controller_tid 10\n"
			   "</target>\n"
			   "<target \"iqn.b\">\n"
			   "\t<direct-store /dev/sdd>\n"
			   "\t\tvendor_id V1\n"
			   "\t\tlun 5\n"
			   "\t\tmode_page 8:0\n"
			   "\t\tmode_page 10:0\n"
			   "\t</direct-store>\n"
			   "</target>\n";
	struct conf_target *t;
	struct conf_lu *lu;
	struct conf_user *u;
	struct conf_rule *r;

	ck_assert_msg(!parse(text), "%s", err.text);
	ck_assert_str_eq(c.default_driver, "iser");
	ck_assert(c.ignore_errors);
	ck_assert_int_eq(c.control_port, 3);
	ck_assert_str_eq(conf_get(&c.system, "iSNSServerIP"), "192.168.1.1");
	u = list_first(&c.users, struct conf_user, link);
	ck_assert_str_eq(u->user, "du");
	ck_assert_str_eq(u->password, "dpass");
	ck_assert_uint_eq(c.ntargets, 2);
	conf_resolve(&c);
	t = conf_find_tid(&c, 10);
	ck_assert_ptr_nonnull(t);
	ck_assert_ptr_eq(t, conf_find_target(&c, "iqn.2008-09.com.example:a"));
	ck_assert_str_eq(t->driver, "iser");
	lu = conf_find_lun(t, 1);
	ck_assert_ptr_nonnull(lu);
	ck_assert_str_eq(lu->path, "/dev/a");
	ck_assert_str_eq(conf_get(&lu->options, "write-cache"), "off");
	ck_assert_str_eq(conf_get(&lu->options, "vendor_id"), "MyCompany Inc.");
	ck_assert_str_eq(conf_get(&t->keys, "MaxBurstLength"), "65536");
	u = list_entry(t->users.next->next, struct conf_user, link);
	ck_assert_str_eq(u->user, "user2");
	r = list_entry(t->rules.next->next, struct conf_rule, link);
	ck_assert(r->is_name);
	ck_assert_str_eq(r->text, "iqn.init");
	ck_assert_str_eq(r->luns, "1,3-5");
	t = conf_find_target(&c, "iqn.b");
	lu = conf_find_lun(t, 5);
	ck_assert(lu && lu->direct);
	ck_assert_str_eq(conf_get(&lu->options, "mode_page"), "8:0");
	conf_free(&c);
}
END_TEST

/* tgt numbers by path, backing-stores before direct-stores, around the numbers that are given. */
START_TEST(lun_numbers)
{
	struct conf_target *t;

	ck_assert(!parse("<target iqn.a>\n"
			 "direct-store /dev/a\n"
			 "backing-store /dev/z\n"
			 "backing-store /dev/b\n"
			 "<backing-store /dev/c>\nlun 2\n</backing-store>\n"
			 "</target>\n"
			 "<target iqn.one>\nbacking-store /x\nlun 10\n</target>\n"));
	conf_resolve(&c);
	conf_resolve(&c); /* idempotent */
	t = conf_find_target(&c, "iqn.a");
	ck_assert_str_eq(conf_find_lun(t, 1)->path, "/dev/b");
	ck_assert_str_eq(conf_find_lun(t, 2)->path, "/dev/c");
	ck_assert_str_eq(conf_find_lun(t, 3)->path, "/dev/z");
	ck_assert_str_eq(conf_find_lun(t, 4)->path, "/dev/a");
	ck_assert_ptr_nonnull(conf_find_lun(conf_find_target(&c, "iqn.one"), 10));
	conf_free(&c);
}
END_TEST

START_TEST(inheritance)
{
	struct conf_target *t;
	struct conf_lu *lu;
	struct conf_kv *kv;
	unsigned pages = 0;

	ck_assert(!parse("<target iqn.a>\nscsi_sn global\nwrite-cache off\nmode_page 1:0\n"
			 "<backing-store /a>\nlun 1\nscsi_sn own\nmode_page 2:0\nwrite-cache on\n</backing-store>\n"
			 "backing-store /b\n</target>\n"));
	conf_resolve(&c);
	t = conf_find_target(&c, "iqn.a");
	lu = conf_find_lun(t, 1);
	ck_assert_str_eq(conf_get(&lu->options, "scsi_sn"), "own");
	ck_assert_str_eq(conf_get(&lu->options, "write-cache"), "on");
	list_for_each(kv, &lu->options, link)
		pages += !strcmp(kv->key, "mode_page");
	ck_assert_uint_eq(pages, 2);
	lu = conf_find_lun(t, 2);
	ck_assert_str_eq(conf_get(&lu->options, "scsi_sn"), "global");
	ck_assert_str_eq(conf_get(&lu->options, "write-cache"), "off");
	conf_free(&c);
}
END_TEST

START_TEST(lexing)
{
	struct conf_target *t;

	ck_assert(!parse("<target iqn.a>\r\n"
			 "backing-store /a\\#1\r\n"
			 "backing-store \\\n"
			 "   /b # with a comment\n"
			 "backing-store \"/with space\"\n"
			 "product_id\tx\\\\y\n"
			 "</target>"));
	conf_resolve(&c);
	t = conf_find_target(&c, "iqn.a");
	ck_assert_str_eq(conf_find_lun(t, 1)->path, "/a#1");
	ck_assert_str_eq(conf_find_lun(t, 2)->path, "/b");
	ck_assert_str_eq(conf_find_lun(t, 3)->path, "/with space");
	ck_assert_str_eq(conf_get(&t->options, "product_id"), "x\\y");
	conf_free(&c);
}
END_TEST

START_TEST(blocks_of_one_target_merge)
{
	ck_assert(!parse(
		"<target iqn.a>\nbacking-store /a\n</target>\n<target iqn.a>\nbacking-store /b\n</target>\n"));
	ck_assert_uint_eq(c.ntargets, 1);
	ck_assert_uint_eq(c.nlus, 2);
	conf_free(&c);
}
END_TEST

/* Each fault is found, and the message says where. */
static const struct {
	const char *text, *says;
} bad_syntax[] = {
	{ "<target iqn.a>\n",
	  "t:1: the file ends inside of <target iqn.a> of line 1: </target> is missing" },
	{ "<target iqn.a>\n<backing-store /a>\n</target>\n",
	  "t:3: </target> closes nothing, <backing-store> is open" },
	{ "</target>\n", "t:1: </target> closes nothing" },
	{ "<target>\n", "t:1: a target needs a name" },
	{ "<target iqn.a\n", "t:1: '>' is missing" },
	{ "<foo bar>\n", "t:1: unknown block <foo>" },
	{ "<backing-store /a>\n", "t:1: <backing-store> outside of targets" },
	{ "<target a>\n<target b>\n", "t:2: <target> inside of a target" },
	{ "\n\nbacking-store /a\n",
	  "t:3: unknown option 'backing-store' outside of targets: it belongs in a <target>" },
	{ "<target a>\nfoo bar\n", "t:2: unknown option 'foo' in a target" },
	{ "<target a>\n<backing-store /a>\nMaxBurstLength 1\n",
	  "t:3: unknown option 'MaxBurstLength' in a store: it belongs in a <target>" },
	{ "<target a>\nbacking-store\n", "t:2: option backing-store has a missing value" },
	{ "<target a>\nincominguser joe\n",
	  "t:2: a user needs a name and a password: 'joe' has no second word" },
	{ "<target a>\nlun 0\n", "t:2: lun is 1 to 16383, not '0'" },
	{ "<target a>\nlun 16384\n", "t:2: lun is 1 to 16383, not '16384'" },
	{ "<target a>\nlun 1\nlun 2\n", "t:3: lun is given twice" },
	{ "<target a>\ndriver iscsi\ndriver iscsi\n", "t:3: driver is given twice" },
	{ "<target a>\ncontroller_tid -1\n", "t:2: controller_tid is a number above 0, not '-1'" },
	{ "<target a>\nvendor_id a\nvendor_id b\n", "t:3: vendor_id is given twice" },
	{ "<target a>\ninitiator-address 1.1.1.1\ninitiator-address 1.1.1.1\n",
	  "t:3: 1.1.1.1 is given twice" },
	{ "<target a>\nexpose iqn.x 1\n", "t:2: expose needs an initiator-name iqn.x before it" },
	{ "<target a>\nbind-user u\n", "t:2: expected: bind-user <user> <initiator name>" },
	{ "<target a>\nbind-user u iqn.x\n", "t:2: bind-user needs an incominguser u before it" },
	{ "<target a>\noutgoinguser u p\nbind-user u iqn.x\n",
	  "t:3: bind-user needs an incominguser u before it" },
	{ "<target a>\nincominguser u p\nbind-user u iqn.x\nbind-user u iqn.x\n",
	  "t:4: bind-user u iqn.x is given twice" },
	{ "bind-user u iqn.x\n",
	  "t:1: unknown option 'bind-user' outside of targets: it belongs in a <target>" },
	{ "include /etc/passwd\n", "t:1: include is not allowed here" },
	{ "control-port 99999\n", "t:1: control-port is 0 to 32767, not '99999'" },
	{ "= x\n", "t:1: a line begins with '='" },
	{ "<target a>\nvendor_id \"abc\n", "t:2: the quote before abc is not closed" },
	{ "<target a>\nvendor_id \"\n", "t:2: the quote before  is not closed" },
	{ "<target a>\n<backing-store \"/a b>\n", "t:2: the quote before /a b is not closed" },
	{ "\033[2J\007 x\n", "t:1: unknown option '?[2J?' outside of targets" },
	{ "ignore-errors maybe\n", "t:1: ignore-errors is yes or no, not 'maybe'" },
};

START_TEST(syntax_faults)
{
	for (size_t i = 0; i < ARRAY_SIZE(bad_syntax); i++) {
		ck_assert_msg(parse(bad_syntax[i].text) < 0, "taken: %s", bad_syntax[i].text);
		ck_assert_str_eq(err.text, bad_syntax[i].says);
		conf_free(&c);
	}
}
END_TEST

START_TEST(nul_and_long_lines)
{
	char *text = malloc(20000);

	conf_init(&c);
	ck_assert_int_lt(conf_parse_text(&c, "t", "a\0b\n", 4, true, &err), 0);
	ck_assert_str_eq(err.text, "t:1: a NUL byte");
	memset(text, 'x', 20000);
	ck_assert_int_lt(conf_parse_text(&c, "t", text, 20000, true, &err), 0);
	ck_assert_str_eq(err.text, "t:1: a line is longer than 8191 bytes");
	/* also when it grows by continuation */
	for (int i = 0; i < 20000; i += 100)
		memcpy(text + i + 98, "\\\n", 2);
	ck_assert_int_lt(conf_parse_text(&c, "t", text, 20000, true, &err), 0);
	conf_free(&c);
	free(text);
}
END_TEST

/* Of a file; what the daemon has is read, however much it is. */
START_TEST(too_many_of_a_kind)
{
	static const struct {
		const char *text, *says;
	} files[] = {
		{ "account more p\n", "t:1: more than 16384 users" },
		{ "account more\n", "t:1: more than 16384 users" },
		{ "<target a>\nincominguser more p\n</target>\n", "t:2: more than 16384 users" },
		{ "<target a>\ninitiator-name more\n</target>\n",
		  "t:2: target a: more than 16384 addresses and names" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
		const size_t n = strlen(files[i].text);
		struct conf_target *t;
		char name[16];

		conf_init(&c);
		t = conf_add_target(&c, "a");
		for (unsigned k = 0; k < 16384; k++) {
			snprintf(name, sizeof(name), "n%u", k);
			conf_add_user(&c, &c.loose, name, "p", false);
			conf_add_user(&c, &t->users, name, "p", false);
			conf_add_rule(&c, t, name, true);
		}
		ck_assert_int_lt(conf_parse_text(&c, "t", files[i].text, n, false, &err), 0);
		ck_assert_str_eq(err.text, files[i].says);
		ck_assert(!conf_parse_text(&c, "t", files[i].text, n, true, &err));
		conf_free(&c);
	}
}
END_TEST

static const struct {
	const char *text, *says;
} bad_meaning[] = {
	{ "<target a_b>\n</target>\n", "a name is 1 to 223 letters" },
	{ "default-driver fc\n", "t:1: default-driver is iscsi or iser" },
	{ "<target a>\ndriver fc\n</target>\n", "t:2: target a: driver is iscsi or iser" },
	{ "<target a>\ncontroller_tid 1\n</target>\n<target b>\ncontroller_tid 1\n</target>\n",
	  "have the same controller_tid 1" },
	{ "<target a>\nbacking-store /a\nbacking-store /b\nlun 3\n</target>\n",
	  "LUN 3 is given to /a and to /b" },
	{ "<target a>\nbacking-store /a\nparams vendor_id=X,write_cache=off\n</target>\n",
	  "t:3: params: the write cache is set by write-cache on, off, mirror or through" },
	{ "<target a>\nbacking-store /a\nwrite-cache mirror\n</target>\n",
	  "t:2: write-cache mirror: /a is no unit of a group of gateways (bs-type rbd, bsopts "
	  "group=)" },
	{ "<target a>\n<backing-store p/i>\nbs-type rbd\nwrite-cache mirror\n</backing-store>\n"
	  "</target>\n",
	  "t:2: write-cache mirror: p/i is no unit of a group of gateways (bs-type rbd, bsopts "
	  "group=)" },
	{ "<target a>\n<backing-store p/i>\nbs-type rbd\nbsopts group=g;cache=none\n"
	  "write-cache mirror\n</backing-store>\n</target>\n",
	  "t:2: write-cache mirror: p/i has no write-back cache (bsopts, bsoflags)" },
	{ "<target a>\n<backing-store p/i>\nbs-type rbd\nbsopts group=g\nbsoflags sync\n"
	  "write-cache mirror\n</backing-store>\n</target>\n",
	  "t:2: write-cache mirror: p/i has no write-back cache (bsopts, bsoflags)" },
	{ "<target a>\nbacking-store /a\nwrite-cache maybe\n</target>\n",
	  "t:3: write-cache is on, off, mirror or through, not 'maybe'" },
	{ "<target a>\nbacking-store /a\nreadonly 2\n</target>\n", "readonly is 0 or 1" },
	{ "<target a>\nbacking-store /a\nblock-size 513\n</target>\n",
	  "block-size is 512 or 4096" },
	{ "<target a>\nbacking-store /a\nlbppbe 16\n</target>\n", "lbppbe is 0 to 15" },
	{ "<target a>\nbacking-store /a\nvendor_id a,readonly=1\n</target>\n",
	  "must not contain a comma" },
	{ "<target a>\nbacking-store /a\nparams foo\n</target>\n", "params is name=value" },
	{ "<target a>\ninitiator-address 1.2.3\n</target>\n", "initiator-address is ALL" },
	{ "<target a>\ninitiator-address 10.0.0.0/33\n</target>\n", "initiator-address is ALL" },
	{ "<target a>\ninitiator-address [fe80::1\n</target>\n", "initiator-address is ALL" },
	{ "<target a>\ninitiator-address [::/0]\n</target>\n", "initiator-address is ALL" },
	{ "<target a>\ninitiator-address []\n</target>\n", "initiator-address is ALL" },
	{ "<target a>\ninitiator-name iqn.x\nexpose iqn.x 1-\n</target>\n", "expose takes LUNs" },
	{ "<target a>\ninitiator-address NONE\ninitiator-address ALL\n</target>\n",
	  "NONE beside others" },
	{ "<target a>\nstate sleepy\n</target>\n", "state is ready or offline" },
	{ "<target a>\nincominguser u PLEASE_CORRECT_THE_PASSWORD\n</target>\n",
	  "still to be filled in" },
	{ "<target a>\noutgoinguser u p\noutgoinguser v p\n</target>\n", "only one outgoing user" },
	{ "<target a>\nincominguser u p\n</target>\n<target b>\nincominguser u q\n</target>\n",
	  "user u has two passwords" },
	{ "<target a>\nincominguser u p\nbind-user u iqn.x iqn.y\n</target>\n",
	  "t:3: bind-user: 'iqn.x iqn.y' is no initiator name" },
	{ "<target a>\nincominguser u p\nbind-user u iqn.x,iqn.y\n</target>\n",
	  "t:3: bind-user: 'iqn.x,iqn.y' is no initiator name" },
	{ "iSNSServerPort 0\n", "iSNSServerPort is 1 to 65535" },
};

START_TEST(meaning_faults)
{
	for (size_t i = 0; i < ARRAY_SIZE(bad_meaning); i++) {
		ck_assert_msg(verify(bad_meaning[i].text) == 1, "%s: %s", bad_meaning[i].text,
			      faults);
		ck_assert_msg(strstr(faults, bad_meaning[i].says), "'%s' does not say '%s'", faults,
			      bad_meaning[i].says);
	}
	ck_assert_uint_eq(
		verify("<target iqn.a>\nbacking-store /a\ninitiator-address 10.0.0.0/8\n"
		       "initiator-address fe80::/10\ninitiator-address ALL\ninitiator-name x\nexpose x 1,3-5\n"
		       "initiator-address [fe80::1]\ninitiator-address [fe80::]/64\n"
		       "initiator-address [2001:db8:1111:2222:3333:4444:255.255.255.255]/128\n</target>\n"),
		0);
}
END_TEST

/* Two faults, two messages: an admin should not have to find them one by one. */
START_TEST(all_faults_are_told)
{
	ck_assert_uint_eq(
		verify("<target a_b>\nbacking-store /a\nreadonly 7\nstate x\n</target>\n"), 3);
}
END_TEST

START_TEST(printing_is_read_back)
{
	const char *text =
		"<target iqn.a>\ncontroller_tid 4\nbacking-store /a\\#1\nbacking-store /b\n"
		"initiator-name iqn.x\nexpose iqn.x 1,2\ninitiator-address 10.0.0.0/8\n"
		"incominguser u p\nbind-user u iqn.x\nbind-user u iqn.y\n"
		"MaxBurstLength 4096\n</target>\n"
		"<target iqn.b>\ndriver iser\n<backing-store /c>\nlun 7\nvendor_id \\\\ \\#\n</backing-store>\n"
		"initiator-address NONE\n</target>\n";
	char one[4096] = "", two[4096] = "";

	ck_assert_msg(!parse(text), "%s", err.text);
	conf_resolve(&c);
	c.default_driver = "iscsi";
	conf_print(&c, append, one);
	conf_free(&c);
	ck_assert_msg(!parse(one), "%s in\n%s", err.text, one);
	conf_resolve(&c);
	ck_assert_str_eq(conf_find_lun(conf_find_tid(&c, 4), 1)->path, "/a#1");
	ck_assert_str_eq(
		conf_get(&conf_find_lun(conf_find_target(&c, "iqn.b"), 7)->options, "vendor_id"),
		"\\ #");
	ck_assert(conf_find_target(&c, "iqn.b")->nobody);
	ck_assert_ptr_nonnull(strstr(one, "\tbind-user u iqn.x\n\tbind-user u iqn.y\n"));
	conf_print(&c, append, two);
	conf_free(&c);
	ck_assert_str_eq(one, two);
}
END_TEST

/* U8 */
START_TEST(the_daemon_is_read_back)
{
	static const char text[] = "default-driver iscsi\n\n"
				   "state offline\n"
				   "debug on\n"
				   "cache-affinity inline\n"
				   "cache-threshold 64k\n"
				   "stopped-driver iser\n"
				   "portal 10.0.0.1:3260,1\n"
				   "portal [fd00::1]:99,7\n"
				   "account-file loose /etc/secret\n"
				   "account other pass-word-of-it\n";
	char printed[1024] = "";

	ck_assert_msg(!parse(text), "%s", err.text);
	conf_resolve(&c);
	ck_assert_uint_eq(conf_verify(&c, note_fault, NULL), 1); /* the file is not looked at */
	conf_print(&c, append, printed);
	ck_assert_str_eq(printed, text);
	conf_free(&c);
	/* of what is not known there is the name */
	conf_init(&c);
	conf_add_user(&c, &c.loose, "typed", NULL, false);
	c.no_portal = true;
	*printed = 0;
	conf_print(&c, append, printed);
	ck_assert_str_eq(printed, "default-driver iscsi\n\nportal NONE\n"
				  "account typed\n");
	conf_free(&c);
}
END_TEST

static const char cluster[] = "<cluster store>\n"
			      "\tgateway gw-a 11\n"
			      "\tgateway gw-b.example 65535\n"
			      "\tpool p\n"
			      "\tceph-conf /etc/c.conf\n"
			      "\tceph-id tgt\n"
			      "\tceph-cluster k\n"
			      "</cluster>\n\n";

START_TEST(a_cluster)
{
	static const char as_group[] = "name=store,gateways=gw-a:11+gw-b.example:65535,pool=p,"
				       "conf=/etc/c.conf,id=tgt,cluster=k";
	static const char shorter[] = "<cluster a>\ngateway x 1\ngateway y 2\n</cluster>\n";
	static const char swapped[] = "<cluster a>\ngateway y 2\ngateway x 1\n</cluster>\n";
	char printed[1024] = "", text[CONF_CLUSTER_TEXT];
	struct conf other;

	ck_assert_msg(!parse(cluster), "%s", err.text);
	ck_assert_uint_eq(conf_cluster_text(&c, text, sizeof(text)), strlen(as_group));
	ck_assert_str_eq(text, as_group);
	ck_assert_uint_eq(conf_cluster_text(&c, text, 20), strlen(as_group));
	ck_assert_str_eq(text, "name=store,gateways");
	conf_print(&c, append, printed);
	ck_assert_ptr_nonnull(strstr(printed, cluster));
	/* What is so anyway need not be said. */
	conf_free(&c);
	ck_assert(!parse("<cluster a>\npool rbd\ngateway x 1\nceph-id admin\ngateway y 2\n"
			 "</cluster>\n"));
	conf_init(&other);
	ck_assert(!conf_cluster_same(&c, &other));
	ck_assert(!conf_parse_text(&other, "t", shorter, strlen(shorter), true, &err));
	ck_assert(conf_cluster_same(&c, &other));
	conf_free(&other);
	ck_assert(!conf_parse_text(&other, "t", swapped, strlen(swapped), true, &err));
	ck_assert(!conf_cluster_same(&c, &other)); /* by their order they are known */
	conf_free(&other);
	conf_free(&c);
}
END_TEST

static const char mirrored[] = "<cluster store>\n"
			       "\tgateway gw-a 11 192.0.2.1:7260\n"
			       "\tgateway gw-b 12 [2001:db8::1]:7000\n"
			       "\tgateway gw-c 13\n"
			       "\tmirror-secret-file /etc/tgt/mirror.secret\n"
			       "\tmirror-memory 1g\n"
			       "\tmirror-transport rdma\n"
			       "</cluster>\n\n";

START_TEST(a_cluster_with_mirrors)
{
	static const char as_group[] = "name=store,gateways=gw-a:11@192.0.2.1:7260+"
				       "gw-b:12@[2001:db8::1]:7000+gw-c:13,"
				       "secret-file=/etc/tgt/mirror.secret,memory=1g,"
				       "transport=rdma";
	static const char otherwise[] =
		"<cluster store>\ngateway gw-a 11   192.0.2.1\n"
		"gateway\tgw-b\t12\t[2001:DB8:0:0::1]:7000\ngateway gw-c 13\n"
		"mirror-transport rdma\nmirror-memory 1024M\n"
		"mirror-secret-file /etc/tgt/mirror.secret\n</cluster>\n";
	char printed[1024] = "", text[CONF_CLUSTER_TEXT];
	struct conf other;

	ck_assert_msg(!parse(mirrored), "%s", err.text);
	ck_assert_uint_eq(conf_cluster_text(&c, text, sizeof(text)), strlen(as_group));
	ck_assert_str_eq(text, as_group);
	conf_print(&c, append, printed);
	ck_assert_ptr_nonnull(strstr(printed, mirrored));
	/* The same in other words. */
	conf_init(&other);
	ck_assert_msg(!conf_parse_text(&other, "t", otherwise, strlen(otherwise), true, &err), "%s",
		      err.text);
	ck_assert(conf_cluster_same(&c, &other));
	conf_free(&other);
	ck_assert(!conf_parse_text(&other, "t", mirrored, strlen(mirrored), true, &err));
	((struct conf_kv *)list_entry(other.cluster_lines.prev, struct conf_kv, link))->value =
		"tcp";
	ck_assert(!conf_cluster_same(&c, &other));
	((struct conf_kv *)list_entry(other.cluster_lines.prev, struct conf_kv, link))->value =
		"rdma";
	ck_assert(conf_cluster_same(&c, &other));
	((struct conf_kv *)list_entry(other.cluster_lines.prev->prev, struct conf_kv, link))
		->value = "2g";
	ck_assert(!conf_cluster_same(&c, &other));
	conf_free(&other);
	conf_free(&c);
}
END_TEST

#define FORTY "aaaaaaaaaabbbbbbbbbbccccccccccdddddddddd"
START_TEST(clusters_that_are_refused)
{
	static const char *const texts[][2] = {
		{ "<cluster>\n", "letters" },
		{ "<cluster a/b>\n", "letters" },
		{ "<cluster g>\n</cluster>\n", "no gateway" },
		{ "<cluster g>\ngateway a 1\n", "</cluster> is missing" },
		{ "<cluster g>\ngateway a 1\n</target>\n", "<cluster> is open" },
		{ "<cluster g>\ngateway a\n", "a name, a number" },
		{ "<cluster g>\ngateway a 0\n", "a name, a number" },
		{ "<cluster g>\ngateway a 65536\n", "a name, a number" },
		{ "<cluster g>\ngateway a 1 2\n", "'2' is no address" },
		{ "<cluster g>\ngateway a+b 1\n", "a name, a number" },
		{ "<cluster g>\ngateway a 1\ngateway a 2\n", "twice" },
		{ "<cluster g>\ngateway a 1\ngateway b 1\n", "two gateways" },
		{ "<cluster g>\npool a\npool b\n", "twice" },
		{ "<cluster g>\npool\n", "pool" },
		{ "<cluster g>\npool \"\"\n", "missing value" },
		{ "<cluster g>\nceph-id " FORTY FORTY "\n", "ceph-id is 1 to 64 characters" },
		{ "<cluster g>\nceph-cluster " FORTY FORTY "\n", "ceph-cluster is 1 to 63" },
		{ "<cluster g>\npool " FORTY FORTY FORTY FORTY "\n", "pool is 1 to 127" },
		{ "<cluster g>\npool a,b\n", "comma" },
		{ "<cluster g>\npol a\n", "did you mean 'pool'" },
		{ "<cluster g>\nlun 1\n", "it belongs in a <target>" },
		{ "pool a\n", "it belongs in a <cluster>" },
		{ "<clustr g>\n", "did you mean <cluster>" },
		{ "<cluster g>\n<target iqn.a>\n", "inside of a cluster" },
		{ "<target iqn.a>\n<cluster g>\n", "inside of a target" },
		{ "<cluster g>\ngateway a 1\n</cluster>\n<cluster h>\n", "a second" },
		{ "<cluster g>\ngateway a 1 gw-a\n", "t:2: gateway a: 'gw-a' is no address" },
		{ "<cluster g>\ngateway a 1 192.0.2.1 x\n", "is no address" },
		{ "<cluster g>\ngateway a 1 192.0.2\n", "is no address" },
		{ "<cluster g>\ngateway a 1 192.0.2.1:\n", "is no address" },
		{ "<cluster g>\ngateway a 1 192.0.2.1:0\n", "is no address" },
		{ "<cluster g>\ngateway a 1 192.0.2.1:65536\n", "is no address" },
		{ "<cluster g>\ngateway a 1 192.0.2.1:7260+\n", "is no address" },
		{ "<cluster g>\ngateway a 1 :7260\n", "is no address" },
		{ "<cluster g>\ngateway a 1 []:7260\n", "is no address" },
		{ "<cluster g>\ngateway a 1 [::1\n", "is no address" },
		{ "<cluster g>\ngateway a 1 [::1]7260\n", "is no address" },
		{ "<cluster g>\ngateway a 1 [192.0.2.1]:7260\n", "is no address" },
		/* all, many, everybody's: nobody else could connect to them */
		{ "<cluster g>\ngateway a 1 0.0.0.0\n", "is no address that others" },
		{ "<cluster g>\ngateway a 1 255.255.255.255\n", "is no address that others" },
		{ "<cluster g>\ngateway a 1 224.0.0.1\n", "is no address that others" },
		{ "<cluster g>\ngateway a 1 ::\n", "is no address that others" },
		{ "<cluster g>\ngateway a 1 [ff02::1]:1\n", "is no address that others" },
		{ "<cluster g>\ngateway a 1 192.0.2.1\ngateway b 2 192.0.2.1:7260\n",
		  "t:3: two gateways at the address 192.0.2.1:7260" },
		{ "<cluster g>\ngateway a 1 2001:db8::1\ngateway b 2 [2001:DB8:0::1]:7260\n",
		  "t:3: two gateways at the address [2001:db8::1]:7260" },
		{ "<cluster g>\nmirror-secret-file secret\n",
		  "mirror-secret-file is a file, named from the root, not 'secret'" },
		{ "<cluster g>\nmirror-secret-file /a\nmirror-secret-file /b\n", "twice" },
		{ "<cluster g>\nmirror-secret-file /a,b\n", "comma" },
		{ "<cluster g>\nmirror-secretfile /a\n", "did you mean 'mirror-secret-file'" },
		{ "<cluster g>\nmirror-memory 15m\n", "mirror-memory is 16m to 256g bytes" },
		{ "<cluster g>\nmirror-memory 257g\n", "mirror-memory is 16m to 256g bytes" },
		{ "<cluster g>\nmirror-memory 1t\n", "mirror-memory is 16m to 256g bytes" },
		{ "<cluster g>\nmirror-memory 99999999999t\n", "mirror-memory is 16m to" },
		{ "<cluster g>\nmirror-memory 999999999999999999\n", "mirror-memory is 16m" },
		{ "<cluster g>\nmirror-memory -1g\n", "mirror-memory is 16m to 256g bytes" },
		{ "<cluster g>\nmirror-memory 1gb\n", "mirror-memory is 16m to 256g bytes" },
		{ "<cluster g>\nmirror-memory 1p\n", "mirror-memory is 16m to 256g bytes" },
		{ "<cluster g>\nmirror-memory much\n", "mirror-memory is 16m to 256g bytes" },
		{ "<cluster g>\ngateway a 1 192.0.2.1\ngateway b 2 192.0.2.2\n</cluster>\n",
		  "<cluster g> has addresses of gateways, and no mirror-secret-file" },
		{ "<cluster g>\ngateway a 1\ngateway b 2\nmirror-memory 1g\n</cluster>\n",
		  "<cluster g> has mirror-memory, and no mirror-secret-file" },
		{ "<cluster g>\ngateway a 1\nmirror-transport tcp\n</cluster>\n",
		  "<cluster g> has mirror-transport, and no mirror-secret-file" },
		{ "<cluster g>\nmirror-transport roce\n",
		  "mirror-transport is auto, tcp or rdma, not 'roce'" },
		{ "<cluster g>\ngateway a 1\ngateway b 2\nmirror-secret-file /s\n</cluster>\n",
		  "has mirror-secret-file, and fewer than two gateways have an address" },
		{ "<cluster g>\ngateway a 1 192.0.2.1\ngateway b 2\nmirror-secret-file /s\n"
		  "</cluster>\n",
		  "has mirror-secret-file, and fewer than two gateways have an address" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		ck_assert_msg(parse(texts[i][0]), "%s", texts[i][0]);
		ck_assert_msg(strstr(err.text, texts[i][1]) != NULL, "%s: %s", texts[i][0],
			      err.text);
		conf_free(&c);
	}
}
END_TEST

/* What the parser takes off a value is put around it again. */
START_TEST(values_that_want_quotes_are_read_back)
{
	static const char *const value[] = {
		"==a", "\"'a'\"", "\"\"a\"\"", "\"=a\"", "\" a \"", "'", "\"\"abc\"", "\"\"\""
	};
	char text[200], one[1024], two[1024];

	for (size_t i = 0; i < ARRAY_SIZE(value); i++) {
		*one = *two = 0;
		snprintf(text, sizeof(text),
			 "<target iqn.a>\nincominguser ==u p\n<backing-store /c>\nvendor_id %s\n"
			 "</backing-store>\n</target>\n",
			 value[i]);
		ck_assert_msg(!parse(text), "%s", err.text);
		conf_resolve(&c);
		conf_print(&c, append, one);
		conf_free(&c);
		ck_assert_msg(!parse(one), "%s in\n%s", err.text, one);
		conf_resolve(&c);
		conf_print(&c, append, two);
		conf_free(&c);
		ck_assert_str_eq(one, two);
	}
}
END_TEST

static void put_file(const char *dir, const char *name, const char *text)
{
	char path[300];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	f = fopen(path, "w");
	ck_assert_ptr_nonnull(f);
	fputs(text, f);
	fclose(f);
}

START_TEST(includes)
{
	char dir[] = "/tmp/conf-test-XXXXXX", text[512], path[300];

	ck_assert_ptr_nonnull(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/conf.d", dir);
	mkdir(path, 0700);
	put_file(dir, "conf.d/1.conf", "<target iqn.one>\nbacking-store /1\n</target>\n");
	put_file(dir, "conf.d/2.conf", "<target iqn.two>\nbacking-store /2\n</target>\n");
	put_file(dir, "conf.d/no", "garbage\n");
	snprintf(text, sizeof(text), "include %s/conf.d/*.conf\ninclude %s/empty/*.conf\n", dir,
		 dir);
	put_file(dir, "main", text);
	snprintf(path, sizeof(path), "%s/main", dir);
	conf_init(&c);
	ck_assert_msg(!conf_parse_file(&c, path, &err), "%s", err.text);
	ck_assert_uint_eq(c.ntargets, 2);
	conf_free(&c);

	/* a fault in an included file is told with that file's name */
	put_file(dir, "conf.d/3.conf", "\n\nnonsense 1\n");
	ck_assert_int_lt(conf_parse_file(&c, path, &err), 0);
	ck_assert_ptr_nonnull(strstr(err.text, "3.conf:3: unknown option 'nonsense'"));
	conf_free(&c);

	/* a file that includes itself ends */
	snprintf(text, sizeof(text), "include %s/main\n", dir);
	put_file(dir, "main", text);
	ck_assert_int_lt(conf_parse_file(&c, path, &err), 0);
	ck_assert_ptr_nonnull(strstr(err.text, "nested deeper"));
	conf_free(&c);

	/* a block may not end in another file */
	put_file(dir, "half", "<target iqn.half>\n");
	snprintf(text, sizeof(text), "include %s/half\n</target>\n", dir);
	put_file(dir, "main", text);
	ck_assert_int_lt(conf_parse_file(&c, path, &err), 0);
	ck_assert_ptr_nonnull(strstr(err.text, "must end there"));
	conf_free(&c);

	/* a named file must be there */
	snprintf(text, sizeof(text), "include %s/missing.conf\n", dir);
	put_file(dir, "main", text);
	ck_assert_int_lt(conf_parse_file(&c, path, &err), 0);
	ck_assert_ptr_nonnull(strstr(err.text, "no such file"));
	conf_free(&c);
	snprintf(text, sizeof(text), "rm -rf %s", dir);
	ck_assert_int_eq(system(text), 0);
}
END_TEST

UNIT_MAIN("conf", 10, whole_file, the_daemon_is_read_back, a_cluster, a_cluster_with_mirrors,
	  clusters_that_are_refused, lun_numbers, inheritance, lexing,
	  values_that_want_quotes_are_read_back, blocks_of_one_target_merge, syntax_faults,
	  nul_and_long_lines, too_many_of_a_kind, meaning_faults, all_faults_are_told,
	  printing_is_read_back, includes)
