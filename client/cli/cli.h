/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cli: the frame of the `craton` program: a table of commands, each with its option table, from which parsing and --help come.
 *
 * Exit codes: 0 done, 1 failed, 2 wrong usage; `craton status` also 3 (warn) and 4 (error). Every failure is one line on stderr that names
 * cause and next step; with --json it is {"error": "..."} on stdout as well. With --json a command that has nothing to tell says {}.
 */
#ifndef CLIENT_CLI_CLI_H
#define CLIENT_CLI_CLI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "client/craton.h"
#include "common/base/buf.h"
#include "common/base/json.h"
#include "common/base/opt.h"

enum { CLI_OK = 0, CLI_FAILED = 1, CLI_USAGE = 2 };
enum { CLI_WORDS = 1024 };

struct cli {
	const char *command;     /* "put" */
	const char *config;      /* -c */
	bool json;
	bool drawn;              /* a line that is redrawn stands on stderr, a terminal: an error takes its place */
	uint64_t timeout_ms;
	uint32_t ignore_servers; /* cr_options, for cli_connect */
	bool no_hello;           /* likewise */
	struct cr_store *store;  /* after cli_connect */
	bool away;               /* it did not answer (cli_fail_store): who has more to ask leaves it */
	uint32_t silences;       /* files in a row that failed as if it did not (transfer.h) */
	bool full;               /* it refused something for want of room (cli_fail_store), or who gets something has none: so would it the next */
	const char **words;
	int word_count;
	void *values;            /* of the command's option table */
	const struct opt_parser *options;
};

/* Options that every command has stand first in each command's values. */
struct cli_common {
	const char *config;
	bool json;
	uint64_t timeout_ms;
	bool help;
};
#define CLI_COMMON_OPTS(values_struct)                                                                                           \
	{.name = "config", .letter = 'c', .type = OPT_STRING, .offset = offsetof(values_struct, common.config), .arg = "FILE",   \
	 .help = "configuration of the store; else CRATON_CONF, ~/.config/craton/craton.conf, /etc/craton/craton.conf"}, \
	{.name = "json", .type = OPT_FLAG, .offset = offsetof(values_struct, common.json), .help = "print JSON"},                \
	{.name = "timeout", .type = OPT_MS, .offset = offsetof(values_struct, common.timeout_ms), .min = 100, .max = 3600000, \
	 .arg = "TIME", .help = "how long to wait for the store before giving up; else as in the configuration, 30s, but 3s for metad's first answer, 10s if there are several"},                     \
	{.name = "help", .letter = 'h', .type = OPT_FLAG, .offset = offsetof(values_struct, common.help), .help = "show this help"}

struct cli_command {
	const char *name;
	const char *args;        /* "SOURCE... DEST" */
	const char *summary;     /* one line */
	const char *details;     /* paragraphs and examples for --help */
	const struct opt *opts;
	size_t values_bytes;
	int min_words, max_words;
	bool silent;             /* it says nothing when all went well; with --json an empty object */
	int (*run)(struct cli *cli);
};

extern const struct cli_command cmd_put, cmd_get, cmd_cat, cmd_ls, cmd_stat, cmd_mkdir, cmd_mv, cmd_ln, cmd_rm, cmd_truncate, cmd_inspect, cmd_df, cmd_policy,
	cmd_gc, cmd_status, cmd_config, cmd_doctor, cmd_local, cmd_bench, cmd_dataset,
	cmd_mount, cmd_umount;
extern const struct cli_command cmd_cluster, cmd_disk, cmd_meta, cmd_server;

/* Says what went wrong; returns CLI_FAILED (CLI_USAGE for cli_usage). */
int cli_fail(const struct cli *cli, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int cli_usage(const struct cli *cli, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* True: that result of the library means that the store does not answer. */
bool cli_is_away(int r);
/* Whoever asked for more would wait for a store that does not answer, or for room, in vain. */
static inline bool cli_gives_up(const struct cli *cli)
{
	return cli->away || cli->full;
}
/* cli_fail with what the library says of its last call, which returned r. */
int cli_fail_store(struct cli *cli, int r);

/*
 * `one` with each word, with the others also after one has failed and said so, as GNU's tools do: that there is no room for one says nothing of
 * the next, which may be cut or removed. A store that does not answer ends it: each word would wait for it in vain. CLI_FAILED if any has failed.
 */
int cli_each_word(struct cli *cli, int (*one)(struct cli *cli, const char *word));

/* Connects cli->store; 0 or an exit code, the line already printed. */
int cli_connect(struct cli *cli);

/* The answer of a command: an object that is filled by json_* and then printed as one line on stdout. */
void cli_json_begin(struct buf *out, struct json *j);
void cli_json_end(struct buf *out, struct json *j);
/* With --json the object of who has nothing to tell; returns CLI_OK. */
int cli_done(const struct cli *cli);
/* One JSON line on stdout from what `out` holds, and empties it. */
void cli_print_json(struct buf *out);

/* Of a directory that is made, as the caller's umask wants it. */
uint32_t cli_dir_mode(void);
/* "rwxr-x---" */
void cli_format_mode(uint32_t mode, char ret_text[10]);
/* "2026-01-02 03:04:05" local time */
void cli_format_time(int64_t ns, char ret_text[32]);
/* A name for a terminal: control bytes become \xNN. mem_free() it. */
char *cli_printable(const char *name);
/* The last name of a path, without '/' at its end; "" of the root. mem_free() it. */
char *cli_last_name(const char *path);
/* A word that a shell takes as it is here: in quotes where it needs them. mem_free() it. */
char *cli_quoted(const char *word);

#endif
