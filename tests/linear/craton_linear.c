// SPDX-License-Identifier: Apache-2.0
/* craton-linear: tells whether a history of operations on names is linearizable, and where not. docs/HISTORIES.md has the form. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/base/mem.h"
#include "common/base/opt.h"
#include "tests/lib/linear_json.h"

struct settings {
	bool help, json;
	uint64_t memory;
};

#define OPTION(field) .offset = offsetof(struct settings, field)
static const struct opt table[] = {
	{.name = "memory",
		.type = OPT_BYTES,
		OPTION(memory),
		.default_ = "256M",
		.min = 1 << 16,
		.max = (uint64_t)1 << 40,
		.arg = "BYTES",
		.help = "for the search, at most; where more is needed the history is undecided"},
	{.name = "json", .type = OPT_FLAG, OPTION(json), .help = "the verdict as one object in JSON"},
	{.name = "help", .letter = 'h', .type = OPT_FLAG, OPTION(help), .help = "print this page and exit"},
	{0},
};

static void tell(const struct settings *s, const struct linear_history *h, const struct linear_result *r)
{
	static const char *const verdicts[] = {[LINEAR_YES] = "linearizable",
		[LINEAR_NO] = "not linearizable",
		[LINEAR_UNDECIDED] = "undecided",
		[LINEAR_MALFORMED] = "malformed"};
	struct buf out;

	if (s->json)
		printf("{\"verdict\": \"%s\", \"operations\": %zu, \"unknown\": %zu, \"conflicts\": %zu, \"groups\": %zu, \"widest\": %zu, "
		       "\"window\": %zu}\n",
			verdicts[r->verdict], r->checked, r->unknown, r->conflicts, r->groups, r->widest,
			r->window_count);
	buf_init(&out, (size_t)64 << 20);
	linear_describe(h, r, &out);
	fprintf(s->json ? stderr : stdout, "%.*s", (int)out.len, (const char *)out.data);
	buf_fini(&out);
	if (!s->json)
		printf("%zu operations, %zu of them without an answer, %zu in conflict with another one; %zu groups of names, at most %zu "
		       "configurations\n",
			r->checked, r->unknown, r->conflicts, r->groups, r->widest);
}

static int check(const struct settings *s, const char *path, struct err *err)
{
	struct linear_history h = {0};
	struct linear_result r = {0};
	FILE *in = strcmp(path, "-") == 0 ? stdin : fopen(path, "r");
	int rc;

	if (!in)
		return err_set(err, ERR_IO, "%s: %s", path, strerror(errno));
	rc = linear_read(in, &h, err);
	if (in != stdin)
		fclose(in);
	if (rc == 0) {
		linear_check(&h, s->memory, &r);
		tell(s, &h, &r);
		rc = r.verdict == LINEAR_YES ? 0 : r.verdict == LINEAR_NO ? 1 : 2;
		linear_result_fini(&r);
	}
	linear_fini(&h);
	return rc;
}

int main(int argc, char **argv)
{
	struct settings s = {0};
	struct opt_parser parser;
	struct err err = {0};
	const char *words[1];
	int word_count, rc;

	opt_init(&parser, table, &s);
	rc = opt_parse_cli(&parser, argc, argv, words, 1, &word_count, &err);
	if (rc == 0 && s.help) {
		char *text = opt_help(table);

		printf("Usage: craton-linear [OPTION ...] FILE\n\nIs the history of operations on names in FILE (-: standard input) linearizable?\n"
		       "Exit status: 0 it is, 1 it is not, 2 undecided or no history.\n\nOptions:\n%s\nExample:\n"
		       "  tests/sim/craton-sim --metads 3 --seed 7 --history /tmp/h && tests/linear/craton-linear /tmp/h\n",
			text);
		mem_free(text);
		opt_fini(&parser);
		return 0;
	}
	if (rc == 0 && word_count != 1)
		rc = err_set(&err, ERR_INVAL, "one FILE is needed: see --help");
	if (rc == 0)
		rc = check(&s, words[0], &err);
	opt_fini(&parser);
	if (rc < 0) {
		fprintf(stderr, "craton-linear: %s\n", err.text);
		return 2;
	}
	return rc;
}
