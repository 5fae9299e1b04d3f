/* SPDX-License-Identifier: Apache-2.0 */
/*
 * daemon_options: the options that both daemons have, on the command line and in the configuration file that all
 * programs of a store share. struct daemon_options stands first, under the name `common`, in the struct of each
 * program's option table; the rows come from DAEMON_SERVER_OPTS and DAEMON_STORE_OPTS.
 *
 * A program parses, then loads, then looks at the options that are its own. Every complaint is one line that names the
 * option and what to do; all of them are made before anything is written.
 */
#ifndef COMMON_DAEMON_DAEMON_OPTIONS_H
#define COMMON_DAEMON_DAEMON_OPTIONS_H

#include "common/base/ids.h"
#include "common/base/opt.h"
#include "common/io/io.h"
#include "common/rpc/auth.h"
#include "common/rpc/replicas.h"

/* What a program says of itself. */
struct daemon_usage {
	const char *program;     /* "craton-metad" */
	const char *address;     /* an IP:PORT that hints give as an example */
	const char *intro;       /* of --help: all that stands before the options */
	const char *examples;    /* of --help */
	const struct opt *table; /* of a struct that begins with struct daemon_options */
};

struct daemon_options {
	const struct daemon_usage *usage; /* set by the program before anything is called */
	bool help, version, plaintext;
	const char *conf, *dir, *name, *listen, *metrics, *metad, *cluster, *secret_file, *transform;
	/* what daemon_options_load makes of them */
	struct io_addr listen_addr; /* of listen, else of metad */
	struct io_addr metrics_addr; /* family 0: none */
	char way_path[48];           /* the word by which metad asks bulk of its host to make way (common/io/io_word.h), of this user */
	struct uuid cluster_uuid;
	uint8_t secret[AUTH_SECRET_BYTES];
	const struct rpc_transform *rpc_transform;
	struct opt_parser parser;
};

/* clang-format off */
/* Rows of the server itself: they differ from one daemon to the next, so the command line alone gives them. */
#define DAEMON_SERVER_OPTS(values, dir_help, name_default, listen_default, listen_help)                             \
	{.name = "dir", .type = OPT_STRING, .offset = offsetof(values, common.dir),                                 \
		.cli_only = true, .arg = "DIR", .help = dir_help},                                                  \
	{.name = "name", .type = OPT_STRING, .offset = offsetof(values, common.name), .default_ = name_default,     \
		.cli_only = true, .arg = "NAME", .help = "name of this server in the cluster"},                     \
	{.name = "listen", .type = OPT_STRING, .offset = offsetof(values, common.listen),                           \
		.default_ = listen_default, .cli_only = true, .arg = "IP:PORT", .help = listen_help},                     \
	{.name = "metrics", .type = OPT_STRING, .offset = offsetof(values, common.metrics), .cli_only = true,        \
		.arg = "IP:PORT",                                                                                   \
		.help = "where to answer GET /metrics, else nowhere; port 0: any, written to DIR/metrics"}

/* Rows of the store that the server belongs to, then --version and --help: the end of a table. */
#define DAEMON_STORE_OPTS(values, metad_help)                                                                       \
	{.name = "conf", .letter = 'c', .type = OPT_STRING, .offset = offsetof(values, common.conf),                \
		.cli_only = true, .arg = "FILE",                                                                    \
		.help = "configuration file: the options below, and others of the same names"},                     \
	{.name = "cluster", .type = OPT_STRING, .offset = offsetof(values, common.cluster),                         \
		.arg = "UUID", .help = "the cluster this server belongs to"},                                       \
	{.name = "secret-file", .type = OPT_STRING, .offset = offsetof(values, common.secret_file),                 \
		.arg = "FILE",                                                                                      \
		.help = "the cluster's secret: 64 hex digits; relative to the configuration file"},                 \
	{.name = "metad", .type = OPT_STRING, .offset = offsetof(values, common.metad),                             \
		.arg = "IP:PORT", .help = metad_help},                                                              \
	{.name = "plaintext", .type = OPT_FLAG, .offset = offsetof(values, common.plaintext),                       \
		.help = "allow addresses beyond loopback without encryption"},                                      \
	{.name = "transform", .type = OPT_STRING, .offset = offsetof(values, common.transform),                     \
		.arg = "NAME", .help = "byte transform of all connections: none or xor (for tests)"},               \
	{.name = "version", .type = OPT_FLAG, .offset = offsetof(values, common.version), .cli_only = true,         \
		.help = "print the version and exit"},                                                              \
	{.name = "help", .letter = 'h', .type = OPT_FLAG, .offset = offsetof(values, common.help),                  \
		.cli_only = true, .help = "print this page and exit"}
/* clang-format on */

/* The command line alone. ERR_INVAL: wrong usage. */
int daemon_options_parse(struct daemon_options *o, int argc, char **argv, struct err *err);
/* Configuration file, meaning of the shared options, secret. ERR_INVAL: wrong usage; else a file that cannot be read. */
int daemon_options_load(struct daemon_options *o, struct io *io, struct err *err);
/* The same for a tool that needs the cluster's id alone: nothing else is looked at. */
int daemon_options_load_cluster(struct daemon_options *o, struct io *io, struct err *err);
/* Wipes the secret and frees all strings. */
void daemon_options_fini(struct daemon_options *o);

/* ERR_INVAL if there is no value; `how` completes "give --name". */
int daemon_options_require(
	const struct daemon_options *o, const char *value, const char *name, const char *how, struct err *err);
/* ERR_INVAL if `text`, the value of option `name`, is not IP:PORT. */
int daemon_options_addr(
	const struct daemon_options *o, const char *name, const char *text, struct io_addr *ret_addr, struct err *err);

/* The same of a list: one, or all of a group. */
int daemon_options_addrs(
	const struct daemon_options *o, const char *name, const char *text, struct rpc_addrs *ret_addrs, struct err *err);

/* How a missing option that the configuration file usually has is to be given. */
#define DAEMON_IN_CONF ", or name the configuration file with -c"

/* The whole --help page; mem_free it. */
char *daemon_options_help(const struct daemon_usage *usage);

#endif
