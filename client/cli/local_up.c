// SPDX-License-Identifier: Apache-2.0
#include "client/cli/local_up.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "client/cli/meta_group.h"
#include "client/cli/process.h"
#include "client/cli/store_status.h"
#include "common/base/mem.h"
#include "common/base/units.h"
#include "common/code/ec.h"

enum { REGISTER_TIMEOUT_MS = 60000, REGISTER_POLL_MS = 50, NOTE_FIRST_MS = 3000, NOTE_NEXT_MS = 15000, NOTE_REDRAW_MS = 100 };

void local_say(const char *fmt, ...)
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

struct up {
	struct cli *cli;
	struct local local;
	uint64_t started, metads_removed, metads_down, servers_out; /* they do not run, which was said */
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

/* The metad of index i is not in the group any more. True: it does not run; else it was said that it does. */
static bool leave_out(struct up *up, uint64_t i, const char *name, bool end)
{
	struct err err;
	char *dir;

	if (end && process_end(up->local.dir, name, SIGTERM, LOCAL_END_TIMEOUT_MS, &err) == ERR_OK && up->now[i])
		up->started--;
	up->metads_removed++;
	if (!process_pid(up->local.dir, name))
		return true;
	dir = cli_quoted(up->local.dir);
	local_say("%s runs, though it is not in the group of metads any more: craton local stop %s %s", name, dir, name);
	mem_free(dir);
	return false;
}

/* A metad that joins with nothing yet is not missed: it is started when those that lead can say whether it votes, and must not. */
static bool comes_later(const struct local *local, uint64_t i)
{
	char name[LOCAL_NAME_BYTES];
	struct err err;

	local_daemon_name(local, i, name);
	return local->metad_joins && i + 1 == local->metad_joins && local_check_replica(local, name, &err) < 0;
}

/* Of the metads of this folder those that the group removed are left out, and nothing is missing without them. NULL: it is not known who is in it. */
static void sort_metads(struct up *up, const struct cr_members *members)
{
	uint64_t lost = 0;

	note_clear(up);
	for (uint64_t i = 0; i < up->local.metad_count; i++) {
		const char *complaint = up->complaints[i];
		char name[LOCAL_NAME_BYTES];
		bool removed;

		local_daemon_name(&up->local, i, name);
		removed = members && !meta_group_member(members, name) && i + 1 != up->local.metad_joins;
		if (removed) {
			if (leave_out(up, i, name, up->now[i]))
				local_say("%s does not run: it is not in the group of metads any more", name);
		} else if (complaint && up->lost[i]) {
			local_say("%s", complaint);
		} else if (complaint) {
			cli_fail(up->cli, "%s", complaint);
			up->failed = true;
		}
		up->metads_down += !removed && complaint;
		lost += up->lost[i];
	}
	if (!members && up->local.metad_joins && comes_later(&up->local, up->local.metad_joins - 1)) {
		local_say("metad-%llu holds nothing, and was not started: see that the others run, then give the command again; if none of them ever leads, it may "
			"have voted already, and docs/groups.md, When the majority is lost, says what is left to do",
			(unsigned long long)up->local.metad_joins);
	}
	if (!members && 2 * lost > up->local.metad_count)
		local_say("most of the metads have lost what they had: docs/groups.md, When the majority is lost, says what is left to do");
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
void local_json_place(struct json *j, const struct local *local)
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
	local_json_place(&j, local);
	json_u64(&j, "started", up->started);
	json_u64(&j, "daemons", local_daemon_count(local) - up->metads_removed - up->metads_down);
	cli_json_end(&out, &j);
}

static void up_text(const struct up *up, const char *errors)
{
	const struct local *local = &up->local;
	char *dir = cli_quoted(local->dir), *path = mem_printf("%s/craton.conf", local->dir), *conf = cli_quoted(path);

	printf("The store runs: %llu metad, %llu chunkd, %s, up to %llu MiB each (%llu of them started now).\n"
	       "Use it with:   export CRATON_CONF=%s\n"
	       "End it with:   craton local down %s\n%s",
	       (unsigned long long)(local->metad_count - up->metads_removed - up->metads_down), (unsigned long long)local->chunkd_count, local->policy,
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
		if (!comes_later(local, i))
			exit_code = up_one(up, i);
	}
	return exit_code;
}

static void on_join(void *ctx, const char *name)
{
	note(ctx, "adds %s to the group of metads", name);
}

/* Of a metad that is a member already nothing more is asked: where it is now it says itself. Another `craton local` may have made it one since. */
static int ask_for(struct up *up, const char *name, struct cr_members *members)
{
	struct local *local = &up->local;
	char address[32], *why;
	int exit_code = CLI_OK;

	snprintf(address, sizeof(address), "127.0.0.1:%llu", (unsigned long long)local->metad_ports[local->metad_joins - 1]);
	if (meta_group_member(members, name) || cr_meta_members(up->cli->store, CR_META_ADD, address, members) == 0)
		return CLI_OK;
	why = mem_strdup(cr_error());
	if (cr_meta_members(up->cli->store, CR_META_SAY, NULL, members) < 0 || !meta_group_member(members, name)) {
		note_clear(up);
		exit_code = cli_fail(up->cli, "%s", why);
	}
	mem_free(why);
	return exit_code;
}

static int join_metad(struct up *up, const char *name, struct cr_members *members)
{
	struct local *local = &up->local;
	struct meta_group_waiting waiting = {.on_wait = on_join, .ctx = up};
	struct err err = {0};
	int exit_code;
	bool now;

	if (local_start_joining(local, name, &now, &err) < 0)
		return cli_fail(up->cli, "%s", err.text);
	up->started += now;
	on_join(up, name);
	exit_code = ask_for(up, name, members);
	if (exit_code == CLI_OK)
		exit_code = meta_group_wait(up->cli, name, &waiting, members);
	note_clear(up);
	return exit_code;
}

/* Its port may have been chosen anew. It may be a member already, or one no more: as whoever added it, or took it out, was not here to note that. */
static int add_metad(struct up *up)
{
	struct local *local = &up->local;
	const struct cr_member *member;
	struct cr_members members;
	char name[LOCAL_NAME_BYTES];
	struct err err = {0};
	int exit_code = CLI_OK;

	snprintf(name, sizeof(name), "metad-%llu", (unsigned long long)local->metad_joins);
	if (cr_meta_members(up->cli->store, CR_META_SAY, NULL, &members) < 0)
		return cli_fail(up->cli, "%s", cr_error());
	member = meta_group_member(&members, name);
	if (local_check_replica(local, name, &err) < 0) {
		if (members.answered_by != members.leader)
			return cli_fail(up->cli, "no metad leads just now that could say whether %s votes: give the command again", name);
		if (member && strcmp(member->role, "learner"))
			return cli_fail(up->cli, "%s", err.text);
	}
	if (member || local->metad_joins >= members.next_id) {
		exit_code = join_metad(up, name, &members);
	} else {
		local_say("%s was removed from the group again", name);
		(void)leave_out(up, local->metad_joins - 1, name, true);
	}
	if (exit_code == CLI_OK && local_joined(local, &err) < 0)
		exit_code = cli_fail(up->cli, "%s", err.text);
	return exit_code;
}

static int add_next(struct up *up)
{
	struct cr_members members;
	struct err err = {0};

	if (up->metads_removed || up->metads_down)
		return cli_fail(up->cli, up->metads_down ? "no metad is added before all run that the group has"
		                                         : "metads of this store were removed: others are added by hand (docs/groups.md, Growing)");
	if (cr_meta_members(up->cli->store, CR_META_SAY, NULL, &members) < 0)
		return cli_fail(up->cli, "%s", cr_error());
	return local_join(&up->local, members.next_id, &err) < 0 ? cli_fail(up->cli, "%s", err.text) : CLI_OK;
}

/* One after the other, while the store is used. What was begun before is gone on with, wanted or not. */
static int grow(struct up *up, uint64_t metads)
{
	struct local *local = &up->local;
	int exit_code = CLI_OK;

	while (exit_code == CLI_OK && (local->metad_joins || local->metad_count < metads))
		exit_code = local->metad_joins ? add_metad(up) : add_next(up);
	if (exit_code == CLI_OK && !up->metads_removed && local->metad_count % 2 == 0)
		local_say("%llu metads bear the loss of no more than %llu do: --metad %llu adds one", (unsigned long long)local->metad_count,
		          (unsigned long long)local->metad_count - 1, (unsigned long long)local->metad_count + 1);
	return exit_code;
}

/* What was asked for now, and cannot hold a block as it should. */
static void check_policy(const struct local *wanted, const struct local *local)
{
	const struct ec_policy *policy = ec_policy_by_name(local->policy);
	unsigned servers = policy ? policy->k + policy->m : 0;

	if ((wanted->policy || wanted->chunkd_count) && local->chunkd_count < servers)
		local_say("%s puts the chunks of a block on %u chunk servers, and there are %llu: give --chunkd %u", local->policy, servers,
		    (unsigned long long)local->chunkd_count, servers);
}

int local_up(struct cli *cli, const char *dir, struct local *wanted)
{
	bool terminal = isatty(STDERR_FILENO);
	struct up up = {.cli = cli, .note = {.next_ms = terminal ? 0 : process_clock_ms() + NOTE_FIRST_MS, .terminal = terminal}};
	struct err err = {0};
	char *errors = NULL;
	int exit_code;

	wanted->timeout_ms = cli->timeout_ms;
	wanted->on_wait = on_wait;
	wanted->ctx = &up;
	if (local_create(dir, wanted, &up.local, &err) < 0)
		return cli_fail(cli, "%s", err.text);
	check_policy(wanted, &up.local);
	exit_code = up_all(&up);
	if (exit_code == CLI_OK)
		exit_code = up_wait(&up, &errors);
	if (exit_code == CLI_OK)
		exit_code = grow(&up, wanted->metad_count);
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
