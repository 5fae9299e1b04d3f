/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/cli.h"
#include "client/cli/local.h"
#include "client/cli/process.h"
#include "client/cli/store_status.h"
#include "common/base/check.h"
#include "common/base/mem.h"

enum { END_TIMEOUT_MS = 60000, REGISTER_TIMEOUT_MS = 60000, REGISTER_POLL_MS = 50, LOG_LINE_BYTES = 8 << 10 };

struct values {
	struct cli_common common;
	uint64_t metad, chunkd, capacity;
	const char *policy;
};

static const struct opt opts[] = {
	{.name = "metad", .type = OPT_U64, .offset = offsetof(struct values, metad), .max = LIMIT_METADS, .arg = "N",
	 .help = "up: metads of a new store: 1 if not given, 3 or 5 are a group, of which 1 or 2 may die"},
	{.name = "chunkd", .type = OPT_U64, .offset = offsetof(struct values, chunkd), .max = LOCAL_CHUNKD_MAX, .arg = "N",
	 .help = "up: chunk servers, 6 in a new store; a greater number adds some"},
	{.name = "policy", .type = OPT_STRING, .offset = offsetof(struct values, policy), .arg = "NAME", .help = "up: coding of a new store, rs-4-2 if not given"},
	{.name = "capacity", .type = OPT_BYTES, .offset = offsetof(struct values, capacity), .arg = "SIZE",
	 .help = "up: limit of each chunk server of a new store, 8G if not given"},
	CLI_COMMON_OPTS(struct values),
	{0},
};

/* Until all chunk servers are there; what cannot be done all the same (too few of them for the policy) is in *ret_errors, mem_free() it. */
static int up_wait(struct cli *cli, const struct local *local, char **ret_errors)
{
	uint64_t deadline = process_clock_ms() + REGISTER_TIMEOUT_MS;
	char *conf = mem_printf("%s/craton.conf", local->dir);
	struct store_status status;
	int exit_code, r;

	cli->config = conf;
	exit_code = cli_connect(cli);
	while (exit_code == CLI_OK) {
		r = store_status_fetch(cli->store, &status);
		if (r < 0) {
			exit_code = cli_fail(cli, "the store does not answer: %s", cr_error());
			break;
		}
		if (status.servers_up >= local->chunkd_count) {
			*ret_errors = store_status_errors(&status);
			store_status_fini(&status);
			break;
		}
		if (process_clock_ms() > deadline) {
			char *dir = cli_quoted(local->dir);

			exit_code = cli_fail(cli, "only %llu of %llu chunk servers registered within %d s; look at: craton local logs %s",
			                     (unsigned long long)status.servers_up, (unsigned long long)local->chunkd_count,
			                     REGISTER_TIMEOUT_MS / 1000, dir);
			mem_free(dir);
		}
		store_status_fini(&status);
		process_sleep_ms(REGISTER_POLL_MS);
	}
	mem_free(conf);
	cli->config = NULL;
	return exit_code;
}

/* Until one of the metads leads: the chunk servers register with it, and where they were before counts no more. */
static int leader_wait(struct cli *cli, const struct local *local)
{
	char *conf = mem_printf("%s/craton.conf", local->dir);
	struct store_status status;
	int exit_code;

	cli->config = conf;
	exit_code = cli_connect(cli);
	if (exit_code == CLI_OK && store_status_fetch(cli->store, &status) < 0)
		exit_code = cli_fail(cli, "the metads do not answer: %s", cr_error());
	else if (exit_code == CLI_OK)
		store_status_fini(&status);
	if (cli->store)
		cr_disconnect(cli->store);
	cli->store = NULL;
	mem_free(conf);
	cli->config = NULL;
	return exit_code;
}

/* The folder's name may hold any bytes but a NUL and a line break. */
static void json_place(struct json *j, const struct local *local)
{
	char *conf = mem_printf("%s/craton.conf", local->dir);

	json_name(j, "dir", local->dir);
	json_name(j, "config", conf);
	mem_free(conf);
}

static void up_json(const struct local *local, uint64_t started)
{
	struct buf out;
	struct json j;

	cli_json_begin(&out, &j);
	json_place(&j, local);
	json_u64(&j, "started", started);
	json_u64(&j, "daemons", local_daemon_count(local));
	cli_json_end(&out, &j);
}

static void up_text(const struct local *local, uint64_t started, const char *errors)
{
	char *dir = cli_quoted(local->dir), *path = mem_printf("%s/craton.conf", local->dir), *conf = cli_quoted(path);

	printf("The store runs: %llu metad, %llu chunkd, %s, up to %llu MiB each (%llu of them started now).\n"
	       "Use it with:   export CRATON_CONF=%s\n"
	       "End it with:   craton local down %s\n%s",
	       (unsigned long long)local->metad_count, (unsigned long long)local->chunkd_count, local->policy,
	       (unsigned long long)(local->capacity_bytes >> 20), (unsigned long long)started, conf, dir, errors);
	mem_free(dir);
	mem_free(path);
	mem_free(conf);
}

static int up(struct cli *cli, const char *dir, const char *word)
{
	const struct values *v = cli->values;
	struct local wanted = {.metad_count = v->metad, .chunkd_count = v->chunkd, .capacity_bytes = v->capacity, .policy = v->policy,
	                       .lock_timeout_ms = cli->timeout_ms}, local;
	struct err err = {0};
	uint64_t started = 0;
	char *errors = NULL;
	int exit_code = CLI_OK;
	bool metad_missing = false;

	(void)word;
	if (local_create(dir, &wanted, &local, &err) < 0)
		return cli_fail(cli, "%s", err.text);
	for (uint64_t i = 0; i < local_daemon_count(&local) && exit_code == CLI_OK; i++) {
		char name[LOCAL_NAME_BYTES];
		bool now;

		if (i == local.metad_count && local.metad_count > 1) {
			exit_code = leader_wait(cli, &local);
			if (exit_code == CLI_OK && local_founded(&local, &err) < 0)
				exit_code = cli_fail(cli, "%s", err.text);
			if (exit_code != CLI_OK)
				break;
		}
		local_daemon_name(&local, i, name);
		if (local_start(&local, name, &now, &err) == 0) {
			started += now;
		} else {
			cli_fail(cli, "%s", err.text);
			/* A majority of a group serves without it, as leader_wait finds out; but whoever is not there when it is founded has no part in it. */
			if (i < local.metad_count && local_was_founded(&local))
				metad_missing = true;
			else
				exit_code = CLI_FAILED;
		}
	}
	if (exit_code == CLI_OK)
		exit_code = up_wait(cli, &local, &errors);
	if (exit_code == CLI_OK && metad_missing)
		exit_code = CLI_FAILED; /* it was said; all others run */
	if (exit_code == CLI_OK && cli->json)
		up_json(&local, started);
	else if (exit_code == CLI_OK)
		up_text(&local, started, errors);
	mem_free(errors);
	local_fini(&local);
	return exit_code;
}

static int down(struct cli *cli, const char *dir, const char *word)
{
	struct local local;
	struct err err = {0};
	int exit_code = CLI_OK;

	(void)word;
	if (local_load(dir, &local, &err) < 0)
		return cli_fail(cli, "%s", err.text);
	for (uint64_t i = local_daemon_count(&local); i-- > 0;) { /* metad last: the others say goodbye to it */
		char name[LOCAL_NAME_BYTES];
		int r;

		local_daemon_name(&local, i, name);
		r = process_end(local.dir, name, SIGTERM, END_TIMEOUT_MS, &err);
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
	struct err err = {0};
	struct buf out;
	struct json j;

	(void)word;
	if (local_load(dir, &local, &err) < 0)
		return cli_fail(cli, "%s", err.text);
	buf_init(&out, 64 << 10);
	json_init(&j, &out);
	json_object(&j, NULL);
	json_place(&j, &local);
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

	if (local_load(dir, &local, &err) < 0)
		return cli_fail(cli, "%s", err.text);
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

static int one(struct cli *cli, const char *dir, const char *name, int signal)
{
	struct local local;
	struct err err = {0};
	bool started;
	int r;

	if (local_load(dir, &local, &err) < 0)
		return cli_fail(cli, "%s", err.text);
	local.lock_timeout_ms = cli->timeout_ms;
	r = local_check_name(&local, name, &err);
	if (r == ERR_OK)
		r = signal ? process_end(local.dir, name, signal, END_TIMEOUT_MS, &err) : local_start(&local, name, &started, &err);
	local_fini(&local);
	return r < 0 ? cli_fail(cli, "%s", err.text) : cli_done(cli);
}

static int do_kill(struct cli *cli, const char *dir, const char *name) { return one(cli, dir, name, SIGKILL); }
static int do_stop(struct cli *cli, const char *dir, const char *name) { return one(cli, dir, name, SIGTERM); }
static int do_start(struct cli *cli, const char *dir, const char *name) { return one(cli, dir, name, 0); }

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
	           "With --metad 3 three metads keep the metadata, and any one of them may be killed.\n"
	           "Failure domains are the chunk servers.\n"
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
