/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/cli/cli.h"
#include "client/cli/local.h"
#include "client/cli/process.h"
#include "client/cli/store_status.h"
#include "common/base/check.h"
#include "common/base/mem.h"
#include "common/base/units.h"
#include "common/code/ec.h"

enum { END_TIMEOUT_MS = 60000, REGISTER_TIMEOUT_MS = 60000, REGISTER_POLL_MS = 50, LOG_LINE_BYTES = 8 << 10, NOTE_FIRST_MS = 3000, NOTE_NEXT_MS = 15000, NOTE_REDRAW_MS = 100 };

struct values {
	struct cli_common common;
	uint64_t metad, chunkd, capacity;
	const char *policy;
};

static const struct opt opts[] = {
	{.name = "metad", .type = OPT_U64, .offset = offsetof(struct values, metad), .min = 1, .max = LIMIT_METADS, .arg = "N",
	 .of = "up", .help = "metads of a new store: 1 if not given, 3 or 5 are a group, of which 1 or 2 may die"},
	{.name = "chunkd", .type = OPT_U64, .offset = offsetof(struct values, chunkd), .min = 1, .max = LOCAL_CHUNKD_MAX, .arg = "N",
	 .of = "up", .help = "chunk servers, 6 in a new store; a greater number adds some"},
	{.name = "policy", .type = OPT_STRING, .offset = offsetof(struct values, policy), .arg = "NAME", .of = "up", .help = "coding of a new store, rs-4-2 if not given"},
	{.name = "capacity", .type = OPT_BYTES, .offset = offsetof(struct values, capacity), .arg = "SIZE",
	 .of = "up", .help = "limit of each chunk server of a new store, 8G if not given"},
	CLI_COMMON_OPTS(struct values),
	{0},
};

/* A line on stderr that fails nothing. */
static void say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void say(const char *fmt, ...)
{
	char line[1024], *shown;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	shown = cli_printable(line);
	fprintf(stderr, "craton local: %s\n", shown);
	mem_free(shown);
}

/* ---- up ---- */

struct up {
	struct cli *cli;
	struct local local;
	uint64_t started, metads_out, servers_out; /* out: they do not run, which was said */
	bool failed;
	char *complaints[LIMIT_METADS]; /* of a metad of a group that has led and does not run; said when it is known who is in the group */
	bool lost[LIMIT_METADS];        /* it does not, because it holds no replica */
	bool now[LIMIT_METADS];         /* it was started now */
	struct { /* what it waits for: a line that is redrawn on a terminal; elsewhere one now and then */
		uint64_t next_ms;
		bool terminal;
		const char *what; /* the note's own format */
	} note;
};

static void note(struct up *up, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void note(struct up *up, const char *fmt, ...)
{
	uint64_t now_ms = process_clock_ms();
	char text[256];
	va_list ap;

	if (fmt != up->note.what && up->note.next_ms > now_ms + NOTE_FIRST_MS)
		up->note.next_ms = now_ms + NOTE_FIRST_MS; /* of something else nothing was said yet */
	up->note.what = fmt;
	if (up->cli->json || now_ms < up->note.next_ms)
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (up->note.terminal)
		fprintf(stderr, "\r\033[Kcraton local: %s", text);
	else
		fprintf(stderr, "craton local: %s\n", text);
	fflush(stderr);
	up->cli->drawn = up->note.terminal;
	up->note.next_ms = now_ms + (up->note.terminal ? NOTE_REDRAW_MS : NOTE_NEXT_MS);
}

/* Before anything else is said. */
static void note_clear(struct up *up)
{
	if (!up->cli->drawn)
		return;
	fprintf(stderr, "\r\033[K");
	up->cli->drawn = false;
	up->note.next_ms = 0;
}

static void on_wait(void *ctx, const char *name)
{
	note(ctx, "waits for %s to start", name);
}

/* Of those that run here: another one of its name may have died a moment ago, and still count as up. */
static uint64_t registered(const struct local *local, const struct store_status *status)
{
	uint64_t count = 0;

	for (uint64_t i = local->metad_count; i < local_daemon_count(local); i++) {
		char name[LOCAL_NAME_BYTES], address[128];

		local_daemon_name(local, i, name);
		process_address(local->dir, name, address, sizeof(address));
		count += process_pid(local->dir, name) && store_status_is_up(status, address);
	}
	return count;
}

/* Until all chunk servers are there; what cannot be done all the same (too few of them for the policy) is in *ret_errors, mem_free() it. */
static int up_wait(struct up *up, char **ret_errors)
{
	struct cli *cli = up->cli;
	uint64_t timeout_ms = cli->timeout_ms ? cli->timeout_ms : REGISTER_TIMEOUT_MS, deadline = process_clock_ms() + timeout_ms;
	uint64_t wanted = up->local.chunkd_count - up->servers_out, there;
	char *conf = mem_printf("%s/craton.conf", up->local.dir), limit[UNITS_TEXT_BYTES];
	struct store_status status;
	int exit_code, r;

	cli->config = conf;
	exit_code = cli_connect(cli);
	while (exit_code == CLI_OK) {
		r = store_status_fetch(cli->store, &status);
		if (r < 0) {
			note_clear(up);
			exit_code = cli_fail(cli, "the store does not answer: %s", cr_error());
			break;
		}
		there = registered(&up->local, &status);
		if (there >= wanted) {
			*ret_errors = store_status_errors(&status);
			store_status_fini(&status);
			break;
		}
		note(up, "waits for chunk servers: %llu of %llu have registered", (unsigned long long)there, (unsigned long long)wanted);
		if (process_clock_ms() > deadline) {
			char *dir = cli_quoted(up->local.dir);

			note_clear(up);
			exit_code = cli_fail(cli, "only %llu of %llu chunk servers registered within %s; look at: craton local logs %s",
			                     (unsigned long long)there, (unsigned long long)wanted, units_format_ms(timeout_ms, limit), dir);
			mem_free(dir);
		}
		store_status_fini(&status);
		process_sleep_ms(REGISTER_POLL_MS);
	}
	note_clear(up);
	mem_free(conf);
	cli->config = NULL;
	return exit_code;
}

static bool is_member(const struct cr_members *members, const char *name)
{
	for (uint32_t i = 0; i < members->count; i++)
		if (!strcmp(members->members[i].name, name))
			return true;
	return false;
}

/* Of the metads of this folder those that the group removed are left out, and nothing is missing without them. NULL: it is not known who is in it. */
static void sort_metads(struct up *up, const struct cr_members *members)
{
	uint64_t lost = 0;

	note_clear(up);
	for (uint64_t i = 0; i < up->local.metad_count; i++) {
		const char *complaint = up->complaints[i];
		char name[LOCAL_NAME_BYTES], *dir;
		bool removed;
		struct err err;

		local_daemon_name(&up->local, i, name);
		removed = members && !is_member(members, name);
		if (removed && up->now[i] && process_end(up->local.dir, name, SIGTERM, END_TIMEOUT_MS, &err) == ERR_OK)
			up->started--;
		if (removed && process_pid(up->local.dir, name)) {
			dir = cli_quoted(up->local.dir);
			say("%s runs, though it is not in the group of metads any more: craton local stop %s %s", name, dir, name);
			mem_free(dir);
		} else if (removed) {
			say("%s does not run: it is not in the group of metads any more", name);
		} else if (complaint && up->lost[i]) {
			say("%s", complaint);
		} else if (complaint) {
			cli_fail(up->cli, "%s", complaint);
			up->failed = true;
		}
		up->metads_out += removed || complaint;
		lost += up->lost[i];
	}
	if (!members && 2 * lost > up->local.metad_count)
		say("most of the metads have lost what they had: docs/groups.md, When the majority is lost, says what is left to do");
}

/* Until one of the metads leads: the chunk servers register with it, and where they were before counts no more. */
static int leader_wait(struct up *up)
{
	struct cli *cli = up->cli;
	char *conf = mem_printf("%s/craton.conf", up->local.dir);
	struct store_status status;
	struct cr_members members;
	bool known = false;
	int exit_code;

	note_clear(up);
	note(up, "waits for one of the metads to lead");
	cli->config = conf;
	exit_code = cli_connect(cli);
	if (exit_code == CLI_OK && store_status_fetch(cli->store, &status) < 0) {
		note_clear(up);
		exit_code = cli_fail(cli, "the metads do not answer: %s", cr_error());
	} else if (exit_code == CLI_OK) {
		store_status_fini(&status);
		known = cr_meta_members(cli->store, CR_META_SAY, NULL, &members) == 0 && members.leader && members.answered_by == members.leader;
	}
	sort_metads(up, known ? &members : NULL);
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

static void up_json(const struct up *up)
{
	const struct local *local = &up->local;
	struct buf out;
	struct json j;

	cli_json_begin(&out, &j);
	json_place(&j, local);
	json_u64(&j, "started", up->started);
	json_u64(&j, "daemons", local_daemon_count(local) - up->metads_out);
	cli_json_end(&out, &j);
}

static void up_text(const struct up *up, const char *errors)
{
	const struct local *local = &up->local;
	char *dir = cli_quoted(local->dir), *path = mem_printf("%s/craton.conf", local->dir), *conf = cli_quoted(path);

	printf("The store runs: %llu metad, %llu chunkd, %s, up to %llu MiB each (%llu of them started now).\n"
	       "Use it with:   export CRATON_CONF=%s\n"
	       "End it with:   craton local down %s\n%s",
	       (unsigned long long)(local->metad_count - up->metads_out), (unsigned long long)local->chunkd_count, local->policy,
	       (unsigned long long)(local->capacity_bytes >> 20), (unsigned long long)up->started, conf, dir, errors);
	mem_free(dir);
	mem_free(path);
	mem_free(conf);
}

/* A chunk server that lost its disk is no reason not to start the others, as is a metad of a group that has led: leader_wait tells if it is missed. */
static int up_one(struct up *up, uint64_t i)
{
	struct local *local = &up->local;
	bool metad = i < local->metad_count, in_group = metad && local->metad_count > 1 && local_was_founded(local), now, lost;
	char name[LOCAL_NAME_BYTES];
	struct err err = {0};

	local_daemon_name(local, i, name);
	lost = local_check_files(local, name, &err) < 0;
	if (!lost && local_start(local, name, &now, &err) == ERR_OK) {
		up->started += now;
		if (in_group)
			up->now[i] = now;
		return CLI_OK;
	}
	if (in_group) {
		up->complaints[i] = mem_strdup(err.text);
		up->lost[i] = lost;
		return CLI_OK;
	}
	note_clear(up);
	cli_fail(up->cli, "%s", err.text);
	up->failed = true;
	up->servers_out += !metad;
	return lost && !metad ? CLI_OK : CLI_FAILED;
}

static int up_all(struct up *up)
{
	struct local *local = &up->local;
	struct err err = {0};
	int exit_code = CLI_OK;

	for (uint64_t i = 0; i < local_daemon_count(local) && exit_code == CLI_OK; i++) {
		if (i == local->metad_count && local->metad_count > 1) {
			exit_code = leader_wait(up);
			if (exit_code == CLI_OK && local_founded(local, &err) < 0)
				exit_code = cli_fail(up->cli, "%s", err.text);
			if (exit_code != CLI_OK)
				break;
		}
		exit_code = up_one(up, i);
	}
	return exit_code;
}

/* What was asked for now, and cannot hold a block as it should. */
static void check_policy(const struct values *v, const struct local *local)
{
	const struct ec_policy *policy = ec_policy_by_name(local->policy);
	unsigned wanted = policy ? policy->k + policy->m : 0;

	if ((v->policy || v->chunkd) && local->chunkd_count < wanted)
		say("%s puts the chunks of a block on %u chunk servers, and there are %llu: give --chunkd %u", local->policy, wanted,
		    (unsigned long long)local->chunkd_count, wanted);
}

static int up(struct cli *cli, const char *dir, const char *word)
{
	const struct values *v = cli->values;
	bool terminal = isatty(STDERR_FILENO);
	struct up up = {.cli = cli, .note = {.next_ms = terminal ? 0 : process_clock_ms() + NOTE_FIRST_MS, .terminal = terminal}};
	struct local wanted = {.metad_count = v->metad, .chunkd_count = v->chunkd, .capacity_bytes = v->capacity, .policy = v->policy,
	                       .timeout_ms = cli->timeout_ms, .on_wait = on_wait, .ctx = &up};
	struct err err = {0};
	char *errors = NULL;
	int exit_code;

	(void)word;
	if (local_create(dir, &wanted, &up.local, &err) < 0)
		return cli_fail(cli, "%s", err.text);
	check_policy(v, &up.local);
	exit_code = up_all(&up);
	if (exit_code == CLI_OK)
		exit_code = up_wait(&up, &errors);
	if (exit_code == CLI_OK && up.failed)
		exit_code = CLI_FAILED; /* it was said; all others run */
	if (exit_code == CLI_OK && cli->json)
		up_json(&up);
	else if (exit_code == CLI_OK)
		up_text(&up, errors);
	for (uint64_t i = 0; i < LIMIT_METADS; i++)
		mem_free(up.complaints[i]);
	mem_free(errors);
	local_fini(&up.local);
	return exit_code;
}

/* ---- the others ---- */

/* What cannot be read of local.conf is said; down, status and the like need no more than the names of the daemons. */
static int look(struct cli *cli, const char *dir, struct local *local)
{
	struct err err = {0};

	if (local_look(dir, local, &err) < 0)
		return cli_fail(cli, "%s", err.text);
	if (err.code)
		say("%s; the daemons are those that have a folder", err.text);
	return CLI_OK;
}

static int end(const struct cli *cli, const struct local *local, const char *name, int signal, struct err *err)
{
	struct err late = {0};
	int r = process_end(local->dir, name, signal, cli->timeout_ms ? cli->timeout_ms : END_TIMEOUT_MS, &late);
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
	           "With --metad 3 three metads keep the metadata, and any one of them may be killed.\n"
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
