/* SPDX-License-Identifier: Apache-2.0 */
/*
 * opt: a value travels text -> parsed -> stored. Parsing checks everything and touches nothing; storing cannot fail. A value of
 * a file that the command line overrides is still parsed, so that a broken file is reported and not hidden.
 *
 * Strings are copied into an arena, a chain of allocations that opt_fini frees. Lists: the first item that a source gives
 * replaces the items of earlier sources, the following ones are added.
 */
#include "common/base/opt.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "common/base/buf.h"
#include "common/base/check.h"
#include "common/base/mem.h"
#include "common/base/units.h"

enum {
	MAX_OPTIONS = 256,
	MAX_FILE_BYTES = 64 << 10,
	MAX_LIST_ITEMS = 4096,
	MAX_SUGGEST_BYTES = 48, /* nobody mistypes a name that long */
	MAX_HELP_BYTES = 256 << 10,
	HELP_COLUMN = 32,
};

struct arena_piece {
	struct arena_piece *next;
	max_align_t data[];
};

union opt_value {
	bool flag;
	uint64_t number;
	const char *text;
};

/* One reading of a command line or file: which options it gave already. */
struct source {
	uint64_t seen[MAX_OPTIONS / 64];
};

static void *arena_alloc(struct opt_parser *p, size_t bytes)
{
	struct arena_piece *piece = mem_zalloc(sizeof(*piece) + bytes);

	piece->next = p->arena;
	p->arena = piece;
	return piece->data;
}

static const char *arena_copy(struct opt_parser *p, const char *text)
{
	size_t bytes = strlen(text) + 1;

	return memcpy(arena_alloc(p, bytes), text, bytes);
}

static bool bit_get(const uint64_t *bits, size_t i)
{
	return bits[i / 64] >> i % 64 & 1;
}

static void bit_set(uint64_t *bits, size_t i)
{
	bits[i / 64] |= 1ull << i % 64;
}

/* ---- names ---- */

static size_t table_count(const struct opt *table)
{
	size_t n = 0;

	while (table[n].name)
		n++;
	return n;
}

static const struct opt *find_name(const struct opt *table, const char *name, size_t len)
{
	for (; table->name; table++)
		if (strlen(table->name) == len && !memcmp(table->name, name, len))
			return table;
	return NULL;
}

static const struct opt *find_letter(const struct opt *table, char letter)
{
	for (; table->name; table++)
		if (letter && table->letter == letter)
			return table;
	return NULL;
}

/* Levenshtein: insertions, deletions and replacements from a to b. */
static size_t distance(const char *a, size_t a_len, const char *b, size_t b_len)
{
	size_t row[MAX_SUGGEST_BYTES + 1];

	for (size_t j = 0; j <= b_len; j++)
		row[j] = j;
	for (size_t i = 1; i <= a_len; i++) {
		size_t diagonal = row[0];

		row[0] = i;
		for (size_t j = 1; j <= b_len; j++) {
			size_t replace = diagonal + (a[i - 1] != b[j - 1]),
			       best = row[j] < row[j - 1] ? row[j] + 1 : row[j - 1] + 1;

			diagonal = row[j];
			row[j] = replace < best ? replace : best;
		}
	}
	return row[b_len];
}

const char *opt_nearest(const struct opt *table, const char *name, size_t len)
{
	const char *nearest = NULL;
	size_t least = len / 3 + 2;

	if (len > MAX_SUGGEST_BYTES)
		return NULL;
	for (; table->name; table++) {
		size_t name_len = strlen(table->name), d;

		if (name_len > MAX_SUGGEST_BYTES)
			continue;
		d = distance(name, len, table->name, name_len);
		if (d < least && d < name_len) { /* as many changes as letters: it is another name */
			least = d;
			nearest = table->name;
		}
	}
	return nearest;
}

static int unknown_name(
	const struct opt *table, const char *what, const char *dashes, const char *name, size_t len, struct err *err)
{
	const char *nearest = opt_nearest(table, name, len);
	int shown = len < 64 ? (int)len : 64;

	if (nearest)
		return err_set(err, ERR_INVAL, "%s%.*s: unknown %s; did you mean %s%s?", dashes, shown, name, what,
			dashes, nearest);
	return err_set(err, ERR_INVAL, "%s%.*s: unknown %s%s", dashes, shown, name, what,
		*dashes ? "; --help lists them" : "");
}

/* ---- values ---- */

static int range_error(const struct opt *o, const char *text, struct err *err)
{
	char lo[UNITS_TEXT_BYTES], hi[UNITS_TEXT_BYTES];

	if (o->min == 0 && o->max == 0)
		return err_set(err, ERR_INVAL, "%s: '%s' is too large", o->name, text);
	if (o->type == OPT_BYTES)
		return err_set(err, ERR_INVAL, "%s: '%s' is out of range: give %s to %s", o->name, text,
			units_format_bytes(o->min, lo), units_format_bytes(o->max, hi));
	if (o->type == OPT_MS)
		return err_set(err, ERR_INVAL, "%s: '%s' is out of range: give %s to %s", o->name, text,
			units_format_ms(o->min, lo), units_format_ms(o->max, hi));
	return err_set(err, ERR_INVAL, "%s: '%s' is out of range: give %" PRIu64 " to %" PRIu64, o->name, text, o->min,
		o->max);
}

static int parse_number(const struct opt *o, const char *text, uint64_t *ret_number, struct err *err)
{
	uint64_t number;
	int rc;

	if (o->type == OPT_BYTES)
		rc = units_parse_bytes(text, &number);
	else if (o->type == OPT_MS)
		rc = units_parse_ms(text, &number);
	else
		rc = units_parse_u64(text, 0, UINT64_MAX, &number);
	if (rc == ERR_RANGE || (rc == 0 && (o->min || o->max) && (number < o->min || number > o->max)))
		return range_error(o, text, err);
	if (rc)
		return err_set(err, ERR_INVAL, "%s: '%s' is not a %s", o->name, text,
			o->type == OPT_BYTES        ? "size: give a number with K, M, G or T, as in 64M"
				: o->type == OPT_MS ? "duration: give a number with ms, s, m or h, as in 30s"
						    : "whole number");
	*ret_number = number;
	return 0;
}

static int parse_value(const struct opt *o, const char *text, union opt_value *ret_value, struct err *err)
{
	switch (o->type) {
	case OPT_FLAG:
		if (strcmp(text, "yes") && strcmp(text, "no"))
			return err_set(err, ERR_INVAL, "%s: '%s' is neither yes nor no", o->name, text);
		ret_value->flag = !strcmp(text, "yes");
		return 0;
	case OPT_STRING:
	case OPT_LIST:
		ret_value->text = text;
		return 0;
	default:
		return parse_number(o, text, &ret_value->number, err);
	}
}

static int list_add(struct opt_parser *p, const struct opt *o, bool first, const char *text, struct err *err)
{
	struct opt_list *list = (struct opt_list *)(void *)((char *)p->values + o->offset);
	const char **items;

	if (first)
		*list = (struct opt_list){0};
	if (list->count == MAX_LIST_ITEMS)
		return err_set(err, ERR_INVAL, "%s: given more than %d times", o->name, MAX_LIST_ITEMS);
	if ((list->count & (list->count - 1)) == 0) { /* full at each power of two */
		items = arena_alloc(p, (list->count ? 2 * list->count : 1) * sizeof(*items));
		if (list->count)
			memcpy(items, list->items, list->count * sizeof(*items));
		list->items = items;
	}
	list->items[list->count++] = arena_copy(p, text);
	return 0;
}

static int store(struct opt_parser *p, const struct opt *o, bool first, const union opt_value *value, struct err *err)
{
	void *at = (char *)p->values + o->offset;

	switch (o->type) {
	case OPT_FLAG:
		*(bool *)at = value->flag;
		return 0;
	case OPT_STRING:
		*(const char **)at = arena_copy(p, value->text);
		return 0;
	case OPT_LIST:
		return list_add(p, o, first, value->text, err);
	default:
		*(uint64_t *)at = value->number;
		return 0;
	}
}

static int take(struct opt_parser *p, struct source *source, const struct opt *o, const char *text, bool overridden,
	struct err *err)
{
	size_t i = (size_t)(o - p->table);
	bool first = !bit_get(source->seen, i);
	union opt_value value;
	int rc = parse_value(o, text, &value, err);

	if (rc)
		return rc;
	bit_set(source->seen, i);
	return overridden ? 0 : store(p, o, first, &value, err);
}

void opt_init(struct opt_parser *p, const struct opt *table, void *values)
{
	*p = (struct opt_parser){.table = table, .values = values};
	CHECK(table_count(table) <= MAX_OPTIONS);
	for (const struct opt *o = table; o->name; o++) {
		struct source source = {0};
		void *at = (char *)values + o->offset;

		if (o->type == OPT_FLAG)
			*(bool *)at = false;
		else if (o->type == OPT_STRING)
			*(const char **)at = NULL;
		else if (o->type == OPT_LIST)
			*(struct opt_list *)at = (struct opt_list){0};
		else
			*(uint64_t *)at = 0;
		if (o->default_)
			CHECK(take(p, &source, o, o->default_, false, NULL) == 0);
	}
}

void opt_fini(struct opt_parser *p)
{
	struct arena_piece *piece = p->arena, *next;

	for (; piece; piece = next) {
		next = piece->next;
		mem_free(piece);
	}
	*p = (struct opt_parser){0};
}

/* ---- command line ---- */

struct args {
	int count, next;
	char **words;
};

static int take_cli(struct opt_parser *p, struct source *source, const struct opt *o, const char *text, struct err *err)
{
	int rc = take(p, source, o, text, false, err);
	char why[ERR_TEXT_BYTES];

	if (rc == 0)
		bit_set(p->set_in_cli, (size_t)(o - p->table));
	if (rc == 0 || !err)
		return rc;
	snprintf(why, sizeof(why), "%s", err->text);
	return err_set(err, rc, "--%s", why);
}

bool opt_given(const struct opt_parser *p, const char *name)
{
	const struct opt *o = find_name(p->table, name, strlen(name));

	CHECK(o);
	return bit_get(p->set_in_cli, (size_t)(o - p->table));
}

/* The value of an option that has none in its own word. */
static int next_value(struct args *args, const struct opt *o, const char **ret_text, struct err *err)
{
	if (args->next == args->count)
		return err_set(
			err, ERR_INVAL, "--%s: needs a value: --%s %s", o->name, o->name, o->arg ? o->arg : "VALUE");
	*ret_text = args->words[args->next++];
	return 0;
}

static int parse_long(struct opt_parser *p, struct source *source, struct args *args, const char *word, struct err *err)
{
	const char *name = word + 2, *equals = strchr(name, '='), *text = "yes";
	size_t len = equals ? (size_t)(equals - name) : strlen(name);
	const struct opt *o = find_name(p->table, name, len);
	int rc;

	if (!o)
		return unknown_name(p->table, "option", "--", name, len, err);
	if (equals) {
		text = equals + 1;
	} else if (o->type != OPT_FLAG) {
		rc = next_value(args, o, &text, err);
		if (rc)
			return rc;
	}
	return take_cli(p, source, o, text, err);
}

/* "-x", "-xVALUE", and flags together as in "-rp". */
static int parse_short(
	struct opt_parser *p, struct source *source, struct args *args, const char *word, struct err *err)
{
	for (const char *letter = word + 1; *letter; letter++) {
		const struct opt *o = find_letter(p->table, *letter);
		const char *text = letter + 1;
		int rc;

		if (!o)
			return err_set(err, ERR_INVAL, "-%c: unknown option; --help lists them", *letter);
		if (o->type == OPT_FLAG) {
			rc = take_cli(p, source, o, "yes", err);
			if (rc)
				return rc;
			continue;
		}
		rc = *text ? 0 : next_value(args, o, &text, err);
		return rc ? rc : take_cli(p, source, o, text, err);
	}
	return 0;
}

int opt_parse_cli(
	struct opt_parser *p, int argc, char **argv, const char **words, int max_words, int *ret_words, struct err *err)
{
	struct source source = {0};
	struct args args = {.count = argc, .next = 1, .words = argv};
	bool ended = false;
	int count = 0, rc;

	while (args.next < args.count) {
		const char *word = args.words[args.next++];

		if (!ended && !strcmp(word, "--")) {
			ended = true;
			continue;
		}
		if (!ended && word[0] == '-' && word[1]) {
			rc = word[1] == '-' ? parse_long(p, &source, &args, word, err)
					    : parse_short(p, &source, &args, word, err);
			if (rc)
				return rc;
			continue;
		}
		if (count == max_words)
			return err_set(err, ERR_INVAL, "'%s': one argument too many; see --help", word);
		words[count++] = word;
	}
	*ret_words = count;
	return 0;
}

/* ---- file ---- */

static bool is_space(char c)
{
	return c == ' ' || c == '\t' || c == '\r';
}

static char *trim(char *text)
{
	size_t len;

	while (is_space(*text))
		text++;
	len = strlen(text);
	while (len > 0 && is_space(text[len - 1]))
		text[--len] = 0;
	return text;
}

/* A '#' begins a comment at the start of a line or after white space, so that values may hold one. */
static void cut_comment(char *line)
{
	for (char *c = line; *c; c++)
		if (*c == '#' && (c == line || is_space(c[-1]))) {
			*c = 0;
			return;
		}
}

static bool is_others(const char *const *others, const char *name)
{
	for (; others && *others; others++)
		if (!strcmp(*others, name))
			return true;
	return false;
}

static int parse_line(struct opt_parser *p, struct source *source, char *line, const char *const *others, struct err *err)
{
	char *name, *text, *equals;
	const struct opt *o;
	size_t i;

	cut_comment(line);
	name = trim(line);
	if (!*name)
		return 0;
	equals = strchr(name, '=');
	if (!equals)
		return err_set(err, ERR_INVAL, "'%.64s' is not of the form name = value", name);
	*equals = 0;
	name = trim(name);
	text = trim(equals + 1);
	o = find_name(p->table, name, strlen(name));
	if (!o)
		return is_others(others, name) ? 0 : unknown_name(p->table, "name", "", name, strlen(name), err);
	if (o->cli_only)
		return err_set(err, ERR_INVAL, "%s: only the command line may give it", name);
	i = (size_t)(o - p->table);
	if (o->type != OPT_LIST && bit_get(source->seen, i))
		return err_set(err, ERR_INVAL, "%s: given twice; remove one of the lines", name);
	return take(p, source, o, text, bit_get(p->set_in_cli, i), err);
}

int opt_parse_text(
	struct opt_parser *p, const char *name, const char *text, size_t len, const char *const *others, struct err *err)
{
	struct source source = {0};
	unsigned number = 0;
	char *copy, *line, *end;
	int rc = 0;

	if (len > MAX_FILE_BYTES)
		return err_set(
			err, ERR_INVAL, "%s: larger than %d KiB: not a configuration file", name, MAX_FILE_BYTES >> 10);
	if (memchr(text, 0, len))
		return err_set(err, ERR_INVAL, "%s: holds zero bytes: not a configuration file", name);
	copy = mem_alloc(len + 1);
	memcpy(copy, text, len);
	copy[len] = 0;
	for (line = copy; line && rc == 0; line = end) {
		number++;
		end = strchr(line, '\n');
		if (end)
			*end++ = 0;
		rc = parse_line(p, &source, line, others, err);
	}
	mem_free(copy);
	return rc && err ? err_prefix(err, "%s:%u", name, number) : rc;
}

/* ---- help ---- */

char *opt_help(const struct opt *table)
{
	struct buf out;
	size_t start;

	buf_init(&out, MAX_HELP_BYTES);
	buf_printf(&out, "%s", "");
	for (const struct opt *o = table; o->name; o++) {
		start = out.len;
		if (o->letter)
			buf_printf(&out, "  -%c, --%s", o->letter, o->name);
		else
			buf_printf(&out, "      --%s", o->name);
		if (o->type != OPT_FLAG)
			buf_printf(&out, " %s", o->arg ? o->arg : "VALUE");
		if (out.len - start + 2 > HELP_COLUMN) {
			buf_printf(&out, "\n");
			start = out.len;
		}
		buf_printf(&out, "%*s%s%s%s", (int)(HELP_COLUMN - (out.len - start)), "", o->of ? o->of : "", o->of ? ": " : "", o->help ? o->help : "");
		if (o->default_)
			buf_printf(&out, " (default: %s)", o->default_);
		buf_printf(&out, "\n");
	}
	CHECK(!out.failed);
	return (char *)out.data;
}
