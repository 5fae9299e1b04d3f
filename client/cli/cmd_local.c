/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "client/cli/cli.h"
#include "client/cli/local_up.h"
#include "client/cli/process.h"
#include "common/base/check.h"
#include "common/base/mem.h"

enum { LOG_LINE_BYTES = 8 << 10 };

struct values {
	struct cli_common common;
	uint64_t metad, chunkd, capacity;
	const char *policy;
};

static const struct opt opts[] = {
	{.name = "metad", .type = OPT_U64, .offset = offsetof(struct values, metad), .min = 1, .max = LIMIT_METADS, .arg = "N",
	 .of = "up", .help = "metads, 1 in a new store; 3 or 5 are a group, of which 1 or 2 may die; a greater number adds some"},
	{.name = "chunkd", .type = OPT_U64, .offset = offsetof(struct values, chunkd), .min = 1, .max = LOCAL_CHUNKD_MAX, .arg = "N",
	 .of = "up", .help = "chunk servers, 6 in a new store; a greater number adds some"},
	{.name = "policy", .type = OPT_STRING, .offset = offsetof(struct values, policy), .arg = "NAME", .of = "up", .help = "coding of a new store, rs-4-2 if not given"},
	{.name = "capacity", .type = OPT_BYTES, .offset = offsetof(struct values, capacity), .arg = "SIZE",
	 .of = "up", .help = "limit of each chunk server of a new store, 8G if not given"},
	CLI_COMMON_OPTS(struct values),
	{0},
};

static int up(struct cli *cli, const char *dir, const char *word)
{
	const struct values *v = cli->values;
	struct local wanted = {.metad_count = v->metad, .chunkd_count = v->chunkd, .capacity_bytes = v->capacity, .policy = v->policy};

	(void)word;
	return local_up(cli, dir, &wanted);
}

/* What cannot be read of local.conf is said; down, status and the like need no more than the names of the daemons. */
static int look(struct cli *cli, const char *dir, struct local *local)
{
	struct err err = {0};

	if (local_look(dir, local, &err) < 0)
		return cli_fail(cli, "%s", err.text);
	if (err.code)
		local_say("%s; the daemons are those that have a folder", err.text);
	return CLI_OK;
}

static int end(const struct cli *cli, const struct local *local, const char *name, int signal, struct err *err)
{
	struct err late = {0};
	int r = process_end(local->dir, name, signal, cli->timeout_ms ? cli->timeout_ms : LOCAL_END_TIMEOUT_MS, &late);
	char *dir = cli_quoted(local->dir);

	if (r < 0)
		*err = late;
	if (r == ERR_TIMEDOUT && signal == SIGKILL)
		err_set(err, r, "%s: the kernel is not done with what it asked of a disk; dmesg may say of which", late.text);
	else if (r == ERR_TIMEDOUT)
		err_set(err, r, "%s; end it with: craton local kill %s %s (its log is %s/%s/daemon.log)", late.text, dir, name, local->dir, name);
	mem_free(dir);
	return r;
}

static int down(struct cli *cli, const char *dir, const char *word)
{
	struct local local;
	struct err err;
	int exit_code = look(cli, dir, &local);

	(void)word;
	if (exit_code != CLI_OK)
		return exit_code;
	for (uint64_t i = local_daemon_count(&local); i-- > 0;) { /* metad last: the others say goodbye to it */
		char name[LOCAL_NAME_BYTES];
		int r;

		local_daemon_name(&local, i, name);
		r = end(cli, &local, name, SIGTERM, &err);
		if (r < 0 && r != ERR_NOENT)
			exit_code = cli_fail(cli, "%s", err.text);
	}
	local_fini(&local);
	return exit_code == CLI_OK ? cli_done(cli) : exit_code;
}

static void status_line(struct json *j, const struct local *local, const char *name)
{
	pid_t pid = process_pid(local->dir, name);
	char address[128] = "";

	if (pid)
		process_address(local->dir, name, address, sizeof(address));
	if (j) {
		json_object(j, NULL);
		json_str(j, "name", name);
		json_bool(j, "running", pid);
		json_u64(j, "pid", (uint64_t)pid);
		json_str(j, "address", address);
		json_f64(j, "cpu_s", pid ? process_cpu_s(pid) : 0.0);
		json_u64(j, "peak_bytes", pid ? process_peak_bytes(pid) : 0);
		json_end_object(j);
	} else if (pid)
		printf("%-10s running  pid %-8d %-21s  log %s/%s/daemon.log\n", name, (int)pid, address, local->dir, name);
	else
		printf("%-10s stopped  %*s  log %s/%s/daemon.log\n", name, 34, "", local->dir, name);
}

static int status(struct cli *cli, const char *dir, const char *word)
{
	struct local local;
	struct buf out;
	struct json j;

	(void)word;
	if (look(cli, dir, &local) != CLI_OK)
		return CLI_FAILED;
	buf_init(&out, 64 << 10);
	json_init(&j, &out);
	json_object(&j, NULL);
	local_json_place(&j, &local);
	json_array(&j, "daemons");
	for (uint64_t i = 0; i < local_daemon_count(&local); i++) {
		char name[LOCAL_NAME_BYTES];

		local_daemon_name(&local, i, name);
		status_line(cli->json ? &j : NULL, &local, name);
	}
	json_end_array(&j);
	json_end_object(&j);
	if (cli->json)
		cli_print_json(&out);
	buf_fini(&out);
	local_fini(&local);
	return CLI_OK;
}

static void log_line_json(const char *name, char *text)
{
	struct buf out;
	struct json j;

	text[strcspn(text, "\n")] = '\0';
	cli_json_begin(&out, &j);
	json_str(&j, "daemon", name);
	json_str(&j, "line", text);
	cli_json_end(&out, &j);
}

static int print_log(struct cli *cli, const struct local *local, const char *name, bool title)
{
	char *path = mem_printf("%s/%s/daemon.log", local->dir, name), text[LOG_LINE_BYTES];
	FILE *f = fopen(path, "re");
	int exit_code = CLI_OK;

	if (title && !cli->json)
		printf("==> %s <==\n", path);
	if (!f && errno != ENOENT)
		exit_code = cli_fail(cli, "cannot read %s: %s", path, strerror(errno));
	while (f && fgets(text, sizeof(text), f)) {
		if (cli->json)
			log_line_json(name, text);
		else
			fputs(text, stdout);
	}
	if (f)
		fclose(f);
	mem_free(path);
	return exit_code;
}

static int logs(struct cli *cli, const char *dir, const char *word)
{
	struct local local;
	struct err err = {0};
	int exit_code = CLI_OK;

	if (look(cli, dir, &local) != CLI_OK)
		return CLI_FAILED;
	if (word)
		exit_code = local_check_name(&local, word, &err) < 0 ? cli_fail(cli, "%s", err.text) : print_log(cli, &local, word, false);
	for (uint64_t i = 0; !word && i < local_daemon_count(&local) && exit_code == CLI_OK; i++) {
		char name[LOCAL_NAME_BYTES];

		local_daemon_name(&local, i, name);
		exit_code = print_log(cli, &local, name, true);
	}
	local_fini(&local);
	return exit_code;
}

static int end_one(struct cli *cli, const char *dir, const char *name, int signal)
{
	struct local local;
	struct err err = {0};
	int exit_code = look(cli, dir, &local);

	if (exit_code != CLI_OK)
		return exit_code;
	if (local_check_name(&local, name, &err) < 0 || end(cli, &local, name, signal, &err) < 0)
		exit_code = cli_fail(cli, "%s", err.text);
	local_fini(&local);
	return exit_code == CLI_OK ? cli_done(cli) : exit_code;
}

static int do_kill(struct cli *cli, const char *dir, const char *name) { return end_one(cli, dir, name, SIGKILL); }
static int do_stop(struct cli *cli, const char *dir, const char *name) { return end_one(cli, dir, name, SIGTERM); }

static int do_start(struct cli *cli, const char *dir, const char *name)
{
	struct local local;
	struct err err = {0};
	bool started;
	int r;

	if (local_load(dir, &local, &err) < 0)
		return cli_fail(cli, "%s", err.text);
	local.timeout_ms = cli->timeout_ms;
	r = local_check_name(&local, name, &err);
	if (r == ERR_OK)
		r = local_start(&local, name, &started, &err);
	local_fini(&local);
	return r < 0 ? cli_fail(cli, "%s", err.text) : cli_done(cli);
}

static const struct {
	const char *name;
	int min_words, max_words;
	int (*run)(struct cli *cli, const char *dir, const char *word);
} actions[] = {
	{"up", 1, 1, up},      {"down", 1, 1, down},    {"status", 1, 1, status},   {"logs", 1, 2, logs},
	{"kill", 2, 2, do_kill}, {"stop", 2, 2, do_stop}, {"start", 2, 2, do_start},
};

static int run(struct cli *cli)
{
	int words = cli->word_count - 1;

	for (size_t i = 0; i < ARRAY_COUNT(actions); i++) {
		if (strcmp(actions[i].name, cli->words[0]))
			continue;
		if (words < actions[i].min_words || words > actions[i].max_words)
			return cli_usage(cli, "%s expects %s", actions[i].name,
			                 actions[i].max_words == 1 ? "DIR" : actions[i].min_words == 2 ? "DIR NAME" : "DIR [NAME]");
		return actions[i].run(cli, cli->words[1], words > 1 ? cli->words[2] : NULL);
	}
	return cli_usage(cli, "there is no action '%s'; there are up, down, status, logs, kill, stop, start", cli->words[0]);
}

const struct cli_command cmd_local = {
	.name = "local",
	.args = "up|down|status|logs DIR | kill|stop|start DIR NAME",
	.summary = "run a whole store on this machine",
	.details = "Real daemons on loopback: metad-1, chunkd-1, chunkd-2, ... with the files of each in DIR/NAME and the configuration for\n"
	           "clients in DIR/craton.conf. `up` may be repeated and continues what is there; `kill` is kill -9, `stop` a clean stop.\n"
	           "With --metad 3 three metads keep the metadata, and any one of them may be killed. A store of one becomes one of three by it,\n"
	           "and goes on meanwhile, but for the second that its metad is started anew.\n"
	           "Failure domains are the chunk servers.\n"
	           "--timeout: `down`, `kill` and `stop` wait so long for each daemon to end, `up` for chunk servers to register, and\n"
	           "`up` and `start`, if it is more than a minute, for a daemon to serve, which may have much of its log to apply; 1m if not given.\n"
	           "JSON: up: dir, config, started, daemons; status: dir, config, daemons [name, running, pid, address, cpu_s, peak_bytes];\n"
	           "logs: an object a line: daemon, line; the others: an empty object.\n\n"
	           "Examples:\n"
	           "  craton local up /var/tmp/store\n"
	           "  craton local up /var/tmp/store --chunkd 9 --policy rs-6-3 --capacity 20G\n"
	           "  craton local up /var/tmp/store --metad 3\n"
	           "  export CRATON_CONF=/var/tmp/store/craton.conf; craton ls /\n"
	           "  craton local kill /var/tmp/store chunkd-3; craton status; craton local start /var/tmp/store chunkd-3\n"
	           "  craton local logs /var/tmp/store metad-1\n"
	           "  craton local down /var/tmp/store\n",
	.opts = opts,
	.values_bytes = sizeof(struct values),
	.min_words = 1,
	.max_words = 3,
	.run = run,
};
