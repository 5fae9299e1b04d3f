// SPDX-License-Identifier: Apache-2.0
/* daemon_options: the options that both daemons have: files, meaning, complaints. */
#include "common/base/mem.h"
#include "common/daemon/daemon_options.h"
#include "tests/lib/real_loop.h"
#include "tests/lib/unit.h"

#define UUID "11111111-2222-3333-4444-555555555555"

struct values {
	struct daemon_options common;
	const char *own;
};

static const struct opt table[] = {
	DAEMON_SERVER_OPTS(struct values, "a directory", "test-1", NULL, "an address"),
	{.name = "own", .type = OPT_STRING, .offset = offsetof(struct values, own), .default_ = "mine", .help = "own"},
	DAEMON_STORE_OPTS(struct values, "the metadata server"),
	{0},
};

static const struct daemon_usage usage = {.program = "craton-test",
	.address = "127.0.0.1:7777",
	.intro = "Usage: craton-test\n",
	.examples = "  craton-test\n",
	.table = table};

struct bed {
	struct real_loop loop;
	struct values values;
	struct err err;
	char conf[96];
};

static void write_text(struct bed *b, const char *name, const char *text)
{
	char path[96];

	snprintf(path, sizeof(path), "%s/%s", b->loop.dir, name);
	ck_assert_int_eq(io_write_file(b->loop.io, path, text, strlen(text), 0600), 0);
}

static void bed_init(struct bed *b)
{
	char secret[80];

	real_loop_init(&b->loop);
	b->values = (struct values){.common.usage = &usage};
	snprintf(b->conf, sizeof(b->conf), "%s/craton.conf", b->loop.dir);
	snprintf(secret, sizeof(secret), "%064d\n", 7);
	write_text(b, "secret", secret);
	write_text(
		b, "craton.conf", "cluster = " UUID "\nsecret-file = secret\nmetad = 127.0.0.1:7000\ntimeout = 5s\n");
}

static void bed_fini(struct bed *b)
{
	daemon_options_fini(&b->values.common);
	real_loop_fini(&b->loop);
}

/* Parses and loads `--dir d -c CONF` and up to two words more. */
static int load(struct bed *b, const char *word, const char *value)
{
	char *argv[] = {"craton-test", "--dir", "d", "-c", b->conf, (char *)word, (char *)value, NULL};
	int argc = 5 + (word != NULL) + (value != NULL), rc;

	rc = daemon_options_parse(&b->values.common, argc, argv, &b->err);
	return rc < 0 ? rc : daemon_options_load(&b->values.common, b->loop.io, &b->err);
}

static void expect_refusal(const char *word, const char *value, const char *text)
{
	struct bed b = {0};

	bed_init(&b);
	ck_assert_int_eq(load(&b, word, value), ERR_INVAL);
	ck_assert_msg(strstr(b.err.text, text) != NULL, "%s", b.err.text);
	bed_fini(&b);
}

START_TEST(test_load)
{
	static const uint8_t wiped[AUTH_SECRET_BYTES];
	struct bed b = {0};
	struct daemon_options *o = &b.values.common;
	char text[IO_ADDR_TEXT_BYTES];

	bed_init(&b);
	ck_assert_int_eq(load(&b, NULL, NULL), 0);
	ck_assert_str_eq(o->name, "test-1");
	ck_assert_str_eq(b.values.own, "mine");
	ck_assert_str_eq(io_addr_format(&o->listen_addr, text), "127.0.0.1:7000"); /* that of metad */
	ck_assert_uint_eq(o->cluster_uuid.bytes[0], 0x11);
	ck_assert_uint_eq(o->secret[AUTH_SECRET_BYTES - 1], 7); /* found beside the configuration file */
	daemon_options_fini(o);
	ck_assert_mem_eq(o->secret, wiped, sizeof(wiped));
	ck_assert_int_eq(load(&b, "--listen", "127.0.0.1:0"), 0);
	ck_assert_str_eq(io_addr_format(&o->listen_addr, text), "127.0.0.1:0");
	bed_fini(&b);
}
END_TEST

START_TEST(test_complaints)
{
	expect_refusal("--dir=", NULL, "dir is missing: give --dir DIR (craton-test --help)");
	expect_refusal("--cluster=", NULL, "cluster is missing: give --cluster, or name the configuration file");
	expect_refusal("--secret-file=", NULL, "secret-file is missing");
	expect_refusal("--metad=", NULL, "listen is missing: give --listen IP:PORT");
	expect_refusal("--name=", NULL, "--name has 1 to 63 bytes");
	expect_refusal("--cluster", "x", "cluster = x is not a uuid");
	expect_refusal(
		"--listen", "localhost:1", "--listen localhost:1: not an address: write IP:PORT, say 127.0.0.1:7777");
	expect_refusal("--metad", "localhost:1", "--metad localhost:1: not an address");
	expect_refusal("--listen", "0.0.0.0:0", "set plaintext = yes");
	expect_refusal("--transform", "rot13", "transform = rot13 is not known");
	expect_refusal("--secret-file", "craton.conf", "craton.conf does not hold a cluster secret");
	expect_refusal("word", NULL, "one argument too many");
}
END_TEST

START_TEST(test_plaintext)
{
	struct bed b = {0};

	bed_init(&b);
	ck_assert_int_eq(load(&b, "--listen=0.0.0.0:0", "--plaintext"), 0);
	bed_fini(&b);
}
END_TEST

START_TEST(test_files_that_are_not_there)
{
	struct bed b = {0};

	bed_init(&b);
	ck_assert_int_eq(load(&b, "--secret-file", "absent"), ERR_NOENT);
	ck_assert_ptr_nonnull(strstr(b.err.text, "cannot read the secret file unit-"));
	daemon_options_fini(&b.values.common);
	strcpy(b.conf, "absent");
	ck_assert_int_eq(load(&b, NULL, NULL), ERR_NOENT);
	ck_assert_ptr_nonnull(strstr(b.err.text, "cannot read the configuration absent"));
	bed_fini(&b);
}
END_TEST

/* What no program knows is a slip of the pen; what another one knows is not ours to judge. */
START_TEST(test_names_of_nobody)
{
	struct bed b = {0};

	bed_init(&b);
	write_text(&b, "craton.conf", "cluster = " UUID "\nsecret-file = secret\nmetad = 127.0.0.1:7000\nplaintxt = yes\n");
	ck_assert_int_eq(load(&b, NULL, NULL), ERR_INVAL);
	ck_assert_ptr_nonnull(strstr(b.err.text, "craton.conf:4: plaintxt: unknown name; did you mean plaintext?"));
	bed_fini(&b);
}
END_TEST

START_TEST(test_cluster_alone)
{
	struct bed b = {0};
	char *argv[] = {"craton-test", "-c", b.conf, NULL};

	bed_init(&b);
	write_text(&b, "craton.conf", "cluster = " UUID "\n");
	ck_assert_int_eq(daemon_options_parse(&b.values.common, 3, argv, &b.err), 0);
	ck_assert_int_eq(daemon_options_load_cluster(&b.values.common, b.loop.io, &b.err), 0);
	ck_assert_uint_eq(b.values.common.cluster_uuid.bytes[0], 0x11);
	daemon_options_fini(&b.values.common);
	write_text(&b, "craton.conf", "cluster = 00000000-0000-0000-0000-000000000000\n");
	ck_assert_int_eq(daemon_options_parse(&b.values.common, 3, argv, &b.err), 0);
	ck_assert_int_eq(daemon_options_load_cluster(&b.values.common, b.loop.io, &b.err), ERR_INVAL);
	bed_fini(&b);
}
END_TEST

START_TEST(test_help)
{
	char *text = daemon_options_help(&usage);

	ck_assert_ptr_eq(strstr(text, "Usage: craton-test\n\nOptions:\n"), text);
	ck_assert_ptr_nonnull(strstr(text, "--secret-file FILE"));
	ck_assert_ptr_nonnull(strstr(text, "\nExamples:\n  craton-test\n\nExit status: 0"));
	mem_free(text);
}
END_TEST

UNIT_MAIN("daemon_options", test_load, test_complaints, test_plaintext, test_files_that_are_not_there, test_names_of_nobody,
	test_cluster_alone, test_help)
