/* SPDX-License-Identifier: Apache-2.0 */
/*
 * opt: option tables. One table drives the command line, the configuration file and --help: a fact stands once.
 *
 * Command line: `--name VALUE`, `--name=VALUE`, `-x VALUE` or `-xVALUE` for a short letter, `--flag`, `--flag=no`, flags
 * together as in `-rp`; `--` ends options, a lone `-` is a word. File: lines `name = value`, the same names; `#` begins a
 * comment at the start of a line or after white space. A later source overrides an earlier one; the command line wins. Unknown names,
 * doubled names in one file, values out of range: ERR_INVAL and a line that names option, source (file:line) and remedy,
 * with the nearest known name as a suggestion. A file is at most 64 KiB.
 */
#ifndef COMMON_BASE_OPT_H
#define COMMON_BASE_OPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "common/base/err.h"

enum opt_type {
	OPT_FLAG,   /* bool *; in a file yes|no */
	OPT_STRING, /* const char ** , owned by the opt_values' arena until opt_fini */
	OPT_U64,    /* uint64_t *, min..max */
	OPT_BYTES,  /* uint64_t *, units_parse_bytes, min..max */
	OPT_MS,     /* uint64_t *, units_parse_ms, min..max */
	OPT_LIST,   /* struct opt_list *; may be given several times; a later source replaces the items of an earlier one */
};

struct opt_list {
	const char **items;
	size_t count;
};

struct opt {
	const char *name;      /* "listen"; NULL ends the table */
	char letter;           /* 'c' or 0 */
	enum opt_type type;
	size_t offset;         /* of the value in the caller's struct */
	const char *default_;  /* text, parsed like input; NULL: zero */
	uint64_t min, max;     /* 0,0: any */
	bool cli_only;         /* not allowed in a configuration file */
	const char *arg;       /* "HOST:PORT" */
	const char *of;        /* "put, get": actions of the command that take it, its first words; NULL: all. Help begins with it */
	const char *help;      /* one line, lower case, with unit */
};

struct opt_parser {
	const struct opt *table;
	void *values;
	void *arena; /* private */
	uint64_t set_in_cli[4]; /* private: options set on the command line (a table has at most 256) */
};

void opt_init(struct opt_parser *p, const struct opt *table, void *values); /* sets defaults */
void opt_fini(struct opt_parser *p);
/* argv[0] is skipped. Positional words are collected in order; at most max_words. */
int opt_parse_cli(struct opt_parser *p, int argc, char **argv, const char **words, int max_words, int *ret_words, struct err *err);
/* Of the table: whether the command line gave it. */
bool opt_given(const struct opt_parser *p, const char *name);
/* `text` is the content of file `name`. Names that are not in the table but in `others` (NULL: none; else it ends with NULL) are those
   of other programs and are skipped. */
int opt_parse_text(struct opt_parser *p, const char *name, const char *text, size_t len, const char *const *others, struct err *err);
/* The name of the table that `name` may have been meant to be; NULL: none is near. */
const char *opt_nearest(const struct opt *table, const char *name, size_t len);
/* The options part of a --help page, one option a line, default shown. The caller frees it with mem_free. */
char *opt_help(const struct opt *table);

#endif
