/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/opt.h"

#include <stdio.h>
#include <string.h>
#include "common/base/check.h"
#include "common/base/mem.h"
#include "tests/lib/unit.h"

struct values {
	bool force, recursive;
	const char *config, *listen;
	uint64_t chunkd, capacity, timeout_ms, any;
	struct opt_list disks;
};

#define AT(member) offsetof(struct values, member)

static const struct opt table[] = {
	{.name = "force", .letter = 'f', .type = OPT_FLAG, .offset = AT(force), .help = "do it"},
	{.name = "recursive", .letter = 'r', .type = OPT_FLAG, .offset = AT(recursive)},
	{.name = "config", .letter = 'c', .type = OPT_STRING, .offset = AT(config), .cli_only = true, .arg = "FILE",
		.help = "configuration file"},
	{.name = "listen", .type = OPT_STRING, .offset = AT(listen), .default_ = "127.0.0.1:0", .arg = "HOST:PORT"},
	{.name = "chunkd", .letter = 'n', .type = OPT_U64, .offset = AT(chunkd), .default_ = "6", .min = 1, .max = 64,
		.of = "up, down", .help = "chunk servers"},
	{.name = "capacity", .type = OPT_BYTES, .offset = AT(capacity), .default_ = "8G", .min = 64 << 20, .max = 1ull << 50},
	{.name = "timeout", .type = OPT_MS, .offset = AT(timeout_ms), .default_ = "30s", .min = 1, .max = 3600000},
	{.name = "any", .type = OPT_U64, .offset = AT(any)},
	{.name = "disk", .letter = 'd', .type = OPT_LIST, .offset = AT(disks), .default_ = "disk0"},
	{0},
};

static struct values v;
static struct opt_parser parser;
static struct err err;
static const char *words[4];
static int word_count;

/* "put -f a b" -> argv, good until the next call. */
static int cli(const char *line)
{
	static char copy[512];
	char *argv[32], *save = NULL;
	int argc = 0;

	strcpy(copy, line);
	for (char *word = strtok_r(copy, " ", &save); word; word = strtok_r(NULL, " ", &save))
		argv[argc++] = word;
	return opt_parse_cli(&parser, argc, argv, words, ARRAY_COUNT(words), &word_count, &err);
}

static int file(const char *text)
{
	return opt_parse_text(&parser, "craton.conf", text, strlen(text), NULL, &err);
}

static void start(void)
{
	memset(&v, 0xff, sizeof(v));
	opt_init(&parser, table, &v);
	err = (struct err){0};
	word_count = -1;
}

START_TEST(test_defaults)
{
	start();
	ck_assert(!v.force);
	ck_assert_ptr_null(v.config);
	ck_assert_str_eq(v.listen, "127.0.0.1:0");
	ck_assert_uint_eq(v.chunkd, 6);
	ck_assert_uint_eq(v.capacity, 8ull << 30);
	ck_assert_uint_eq(v.timeout_ms, 30000);
	ck_assert_uint_eq(v.any, 0);
	ck_assert_uint_eq(v.disks.count, 1);
	ck_assert_str_eq(v.disks.items[0], "disk0");
	opt_fini(&parser);
}
END_TEST

START_TEST(test_command_line)
{
	start();
	ck_assert_int_eq(cli("put a --chunkd 3 -rf --capacity=1.5G -c /x -n9 b -d one - --disk two -- --force"), 0);
	ck_assert(v.force && v.recursive);
	ck_assert_uint_eq(v.chunkd, 9); /* the last one counts */
	ck_assert_uint_eq(v.capacity, 3ull << 29);
	ck_assert_str_eq(v.config, "/x");
	ck_assert_uint_eq(v.disks.count, 2);
	ck_assert_str_eq(v.disks.items[0], "one");
	ck_assert_str_eq(v.disks.items[1], "two");
	ck_assert_int_eq(word_count, 4);
	ck_assert_str_eq(words[0], "a");
	ck_assert_str_eq(words[1], "b");
	ck_assert_str_eq(words[2], "-");
	ck_assert_str_eq(words[3], "--force");
	ck_assert_int_eq(cli("put --force=no"), 0);
	ck_assert(!v.force);
	opt_fini(&parser);
}
END_TEST

static void refused(const char *line, const char *text)
{
	start();
	ck_assert_msg(cli(line) == ERR_INVAL, "%s", line);
	ck_assert_str_eq(err.text, text);
	ck_assert_int_eq(err.code, ERR_INVAL);
	opt_fini(&parser);
}

START_TEST(test_given)
{
	char *argv[] = {"craton", "-n6", "--disk=a", NULL};
	const char *words[1];
	struct values v = {0};
	struct opt_parser p;
	struct err err = {0};
	int count;

	opt_init(&p, table, &v);
	ck_assert_int_eq(opt_parse_cli(&p, 3, argv, words, 1, &count, &err), 0);
	ck_assert_int_eq(opt_parse_text(&p, "f", "any = 5\n", 8, NULL, &err), 0);
	ck_assert(opt_given(&p, "chunkd")); /* although it is the default */
	ck_assert(opt_given(&p, "disk"));
	ck_assert(!opt_given(&p, "capacity"));
	ck_assert(!opt_given(&p, "any")); /* by the file */
	opt_fini(&p);
}
END_TEST

START_TEST(test_command_line_refused)
{
	refused("put --chunk 3", "--chunk: unknown option; did you mean --chunkd?");
	refused("put --capcity=3", "--capcity: unknown option; did you mean --capacity?");
	refused("put --zzzzzzzzzz", "--zzzzzzzzzz: unknown option; --help lists them");
	refused("put -rx", "-x: unknown option; --help lists them");
	refused("put -c", "--config: needs a value: --config FILE");
	refused("put --chunkd 0", "--chunkd: '0' is out of range: give 1 to 64");
	refused("put --chunkd -1", "--chunkd: '-1' is not a whole number");
	refused("put --any 99999999999999999999", "--any: '99999999999999999999' is too large");
	refused("put --capacity 1K", "--capacity: '1K' is out of range: give 64 MiB to 1 PiB");
	refused("put --capacity x",
		"--capacity: 'x' is not a size: give a number with K, M, G or T, as in 64M");
	refused("put --timeout 0", "--timeout: '0' is out of range: give 1ms to 1h");
	refused("put --force=maybe", "--force: 'maybe' is neither yes nor no");
	refused("put a b c d e", "'e': one argument too many; see --help");
}
END_TEST

START_TEST(test_file)
{
	start();
	ck_assert_int_eq(file("# a comment\n\n listen = 10.0.0.1:7 # here\r\nforce=yes\ncapacity = 128M\n"
			      "disk = /a\ndisk = /b#c\nany = 5"),
		0);
	ck_assert_str_eq(v.listen, "10.0.0.1:7");
	ck_assert(v.force);
	ck_assert_uint_eq(v.capacity, 128ull << 20);
	ck_assert_uint_eq(v.any, 5);
	ck_assert_uint_eq(v.disks.count, 2);
	ck_assert_str_eq(v.disks.items[1], "/b#c");
	/* A later file overrides; its list takes the place of the earlier one's. */
	ck_assert_int_eq(file("any = 6\ndisk = /z\n"), 0);
	ck_assert_uint_eq(v.any, 6);
	ck_assert_uint_eq(v.disks.count, 1);
	ck_assert_str_eq(v.listen, "10.0.0.1:7");
	opt_fini(&parser);
}
END_TEST

START_TEST(test_command_line_wins)
{
	start();
	ck_assert_int_eq(cli("x --any 7 --disk /cli"), 0);
	ck_assert_int_eq(file("any = 5\ndisk = /file\nchunkd = 2\n"), 0);
	ck_assert_uint_eq(v.any, 7);
	ck_assert_uint_eq(v.disks.count, 1);
	ck_assert_str_eq(v.disks.items[0], "/cli");
	ck_assert_uint_eq(v.chunkd, 2);
	/* But what it hides is still checked. */
	ck_assert_int_eq(file("any = five\n"), ERR_INVAL);
	opt_fini(&parser);
}
END_TEST

static void file_refused(const char *text, const char *message)
{
	start();
	ck_assert_msg(file(text) == ERR_INVAL, "%s", text);
	ck_assert_str_eq(err.text, message);
	opt_fini(&parser);
}

START_TEST(test_file_refused)
{
	static const char *const others[] = {"metad", "cluster", NULL};
	char *large = mem_zalloc((64 << 10) + 1);

	file_refused("\nlisten = a\nlistne = b\n", "craton.conf:3: listne: unknown name; did you mean listen?");
	file_refused("any = 1\nany = 1\n", "craton.conf:2: any: given twice; remove one of the lines");
	file_refused("config = x\n", "craton.conf:1: config: only the command line may give it");
	file_refused("listen\n", "craton.conf:1: 'listen' is not of the form name = value");
	file_refused("chunkd = 65\n", "craton.conf:1: chunkd: '65' is out of range: give 1 to 64");
	file_refused("chunkd =\n", "craton.conf:1: chunkd: '' is not a whole number");
	start();
	ck_assert_int_eq(opt_parse_text(&parser, "f", "any = 1\0\n", 9, NULL, &err), ERR_INVAL);
	ck_assert_str_eq(err.text, "f: holds zero bytes: not a configuration file");
	memset(large, '\n', (64 << 10) + 1);
	ck_assert_int_eq(opt_parse_text(&parser, "f", large, (64 << 10) + 1, NULL, &err), ERR_INVAL);
	ck_assert_int_eq(opt_parse_text(&parser, "f", large, 64 << 10, NULL, &err), 0);
	ck_assert_int_eq(opt_parse_text(&parser, "f", "metad = x\nany = 3\n", 18, others, &err), 0);
	ck_assert_int_eq(opt_parse_text(&parser, "f", "metadd = x\n", 11, others, &err), ERR_INVAL);
	ck_assert_uint_eq(v.any, 3);
	/* Callers that want no text give no err. */
	ck_assert_int_eq(opt_parse_text(&parser, "f", "any = x\n", 8, NULL, NULL), ERR_INVAL);
	mem_free(large);
	opt_fini(&parser);
}
END_TEST

START_TEST(test_many_list_items)
{
	char text[32];

	start();
	for (int i = 0; i < 2; i++) {
		struct err e = {0};
		char *all = mem_alloc(64 << 10), *at = all;

		for (int d = 0; d < 1000; d++)
			at += sprintf(at, "disk = /d%d\n", d);
		ck_assert_int_eq(opt_parse_text(&parser, "f", all, (size_t)(at - all), NULL, &e), 0);
		mem_free(all);
	}
	ck_assert_uint_eq(v.disks.count, 1000);
	for (int d = 0; d < 1000; d++) {
		sprintf(text, "/d%d", d);
		ck_assert_str_eq(v.disks.items[d], text);
	}
	opt_fini(&parser);
}
END_TEST

START_TEST(test_help)
{
	char *help = opt_help(table);

	ck_assert_ptr_nonnull(strstr(help, "  -f, --force                   do it\n"));
	ck_assert_ptr_nonnull(strstr(help, "  -c, --config FILE             configuration file\n"));
	ck_assert_ptr_nonnull(strstr(help, "  -n, --chunkd VALUE            up, down: chunk servers (default: 6)\n"));
	mem_free(help);
}
END_TEST

UNIT_MAIN("opt", test_defaults, test_command_line, test_given, test_command_line_refused, test_file, test_command_line_wins,
	test_file_refused, test_many_list_items, test_help)
