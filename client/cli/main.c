/* SPDX-License-Identifier: Apache-2.0 */
/* craton: the command line of the store. This file finds the command, parses its options and prints help; cmd_*.c do the work. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/cli/cli.h"
#include "common/base/check.h"
#include "common/base/mem.h"

static const struct cli_command *const commands[] = {
	&cmd_put,    &cmd_get, &cmd_cat,    &cmd_ls,     &cmd_stat,   &cmd_mkdir, &cmd_mv,    &cmd_ln,  &cmd_rm, &cmd_truncate,
	&cmd_inspect, &cmd_df, &cmd_policy, &cmd_status, &cmd_gc, &cmd_config, &cmd_doctor, &cmd_local, &cmd_bench, &cmd_dataset,
	&cmd_mount,  &cmd_umount,
	&cmd_cluster, &cmd_disk, &cmd_meta, &cmd_server,
};

static void print_commands(FILE *f)
{
	fprintf(f, "Usage: craton COMMAND [OPTIONS] [ARGUMENTS]\n\n"
	           "Craton is an erasure-coded store for the checkpoints and datasets of ML training.\n\nCommands:\n");
	for (size_t i = 0; i < ARRAY_COUNT(commands); i++)
		fprintf(f, "  %-9s %s\n", commands[i]->name, commands[i]->summary);
	fprintf(f, "\nStart a store on this machine:  craton local up DIR\n"
	           "Help on a command:              craton COMMAND --help\n"
	           "Paths in the store start with /; exit codes: 0 done, 1 failed, 2 wrong usage.\n");
}

static void print_help(const struct cli_command *c)
{
	char *opts = opt_help(c->opts);

	printf("Usage: craton %s [OPTIONS]%s%s\n\n%s.\n\nOptions:\n%s\n%s", c->name, *c->args ? " " : "", c->args, c->summary, opts, c->details);
	free(opts);
}

static const struct cli_command *find(const char *name)
{
	for (size_t i = 0; i < ARRAY_COUNT(commands); i++)
		if (!strcmp(commands[i]->name, name))
			return commands[i];
	return NULL;
}

static int no_command(const char *name)
{
	struct opt names[ARRAY_COUNT(commands) + 1] = {{0}};
	const struct cli none = {0};
	const char *nearest;

	for (size_t i = 0; i < ARRAY_COUNT(commands); i++)
		names[i].name = commands[i]->name;
	nearest = opt_nearest(names, name, strlen(name));
	return cli_usage(&none, "there is no command '%s'%s%s%s", name, nearest ? "; did you mean " : "", nearest ? nearest : "", nearest ? "?" : "");
}

/* Whether `action`, the first words of the command line, is one of "put, get". */
static bool is_among(const char *actions, const char *action)
{
	size_t len;

	for (; *actions; actions += len + strspn(actions + len, ", ")) {
		len = strcspn(actions, ",");
		if (!strncmp(actions, action, len) && (action[len] == '\0' || action[len] == ' '))
			return true;
	}
	return false;
}

/* 0, or an exit code: what is given for an action that does not take it would do nothing, and somebody thinks that it did. */
static int check_given(const struct cli *cli, const struct opt *opts)
{
	char *action = mem_printf("%s %s", cli->word_count > 0 ? cli->words[0] : "", cli->word_count > 1 ? cli->words[1] : "");
	int exit_code = CLI_OK;

	for (const struct opt *o = opts; o->name && exit_code == CLI_OK; o++)
		if (o->of && opt_given(cli->options, o->name) && !is_among(o->of, action))
			exit_code = cli_usage(cli, "--%s belongs to %s", o->name, o->of);
	mem_free(action);
	return exit_code;
}

static int run(const struct cli_command *c, int argc, char **argv)
{
	static const char *words[CLI_WORDS];
	struct cli cli = {.command = c->name, .words = words};
	struct opt_parser parser;
	struct cli_common *common;
	struct err err = {0};
	int exit_code;

	cli.values = mem_zalloc(c->values_bytes);
	common = cli.values; /* stands first in every command's values */
	opt_init(&parser, c->opts, cli.values);
	cli.options = &parser;
	for (int i = 1; i < argc; i++) /* so that a usage error is JSON too */
		cli.json |= !strcmp(argv[i], "--json");
	if (opt_parse_cli(&parser, argc, argv, words, CLI_WORDS, &cli.word_count, &err) < 0) {
		exit_code = cli_usage(&cli, "%s", err.text);
	} else if (common->help) {
		print_help(c);
		exit_code = CLI_OK;
	} else if (cli.word_count < c->min_words || cli.word_count > c->max_words) {
		exit_code = cli_usage(&cli, "expects %s%s", *c->args ? c->args : "no arguments",
		                      cli.word_count > c->max_words ? "; there are too many arguments" : "");
	} else {
		cli.config = common->config;
		cli.json = common->json;
		cli.timeout_ms = common->timeout_ms;
		exit_code = check_given(&cli, c->opts);
		if (exit_code == CLI_OK)
			exit_code = c->run(&cli);
		if (exit_code == CLI_OK && c->silent)
			cli_done(&cli);
		cr_disconnect(cli.store);
	}
	opt_fini(&parser);
	mem_free(cli.values);
	return exit_code;
}

/* Descriptors that the caller has closed would be given to sockets, and data meant for stdout go there: they fail instead. */
static void hold_standard_descriptors(void)
{
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd)
			_exit(CLI_FAILED);
}

static int dispatch(int argc, char **argv)
{
	const struct cli_command *c;
	struct cli none = {0};

	if (argc < 2) {
		print_commands(stderr);
		return CLI_USAGE;
	}
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")) {
		c = argc > 2 ? find(argv[2]) : NULL;
		if (argc > 2 && !c)
			return no_command(argv[2]);
		if (c)
			print_help(c);
		else
			print_commands(stdout);
		return CLI_OK;
	}
	if (!strcmp(argv[1], "--version")) {
		printf("craton %s\n", cr_version());
		return CLI_OK;
	}
	c = find(argv[1]);
	if (!c && argv[1][0] == '-')
		return cli_usage(&none, "%s must follow the command that it belongs to: craton COMMAND %s ...", argv[1], argv[1]);
	if (!c)
		return no_command(argv[1]);
	return run(c, argc - 1, argv + 1);
}

int main(int argc, char **argv)
{
	int exit_code;

	hold_standard_descriptors();
	exit_code = dispatch(argc, argv);
	if (fflush(stdout) || ferror(stdout)) {
		fprintf(stderr, "craton%s%s: cannot write to standard output\n", argc > 1 ? " " : "", argc > 1 ? argv[1] : "");
		return CLI_FAILED; /* whatever it would have said */
	}
	return exit_code;
}
