// SPDX-License-Identifier: Apache-2.0
/*
 * craton-names-load: many sessions of libcraton in one process make, find, remove, rename and link a few names of a store at once, until
 * standard input ends, and write down what they asked and were told, on the clock that all processes of the host share (CLOCK_MONOTONIC).
 * docs/HISTORIES.md has the form. tools/prove linearizable kills the servers meanwhile.
 *
 * Names come in groups of three; an operation couples names of one group only. A group goes on to fresh names after some hundred
 * operations, or some that were not answered: what stays unknown of the old ones does not make the search ever longer.
 */
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "client/craton.h"
#include "common/base/check.h"
#include "common/base/mem.h"
#include "common/base/opt.h"
#include "common/base/rng.h"
#include "tests/lib/linear_json.h"

enum {
	SESSIONS_MAX = 256,
	GROUPS = 10,
	NAMES = 3,       /* of a group */
	ROUND_OPS = 600, /* of a group's names, */
	ROUND_LOST = 8,  /* or so many without an answer */
	HASTY = 4,       /* one session in so many does not wait longer than --hasty-ms */
};

struct settings {
	bool help;
	uint64_t sessions, seed, pause_ms, timeout_ms, hasty_ms;
	const char *history;
};

#define OPTION(field) .offset = offsetof(struct settings, field)
static const struct opt table[] = {
	{.name = "sessions",
		.type = OPT_U64,
		OPTION(sessions),
		.default_ = "32",
		.min = 1,
		.max = SESSIONS_MAX,
		.arg = "N",
		.help = "clients"},
	{.name = "seed", .type = OPT_U64, OPTION(seed), .default_ = "1", .arg = "S", .help = "of what they do"},
	{.name = "pause-ms",
		.type = OPT_U64,
		OPTION(pause_ms),
		.default_ = "20",
		.max = 60000,
		.arg = "MS",
		.help = "longest rest between two operations"},
	{.name = "timeout-ms",
		.type = OPT_U64,
		OPTION(timeout_ms),
		.default_ = "30000",
		.min = 1,
		.max = 600000,
		.arg = "MS",
		.help = "for an answer"},
	{.name = "hasty-ms",
		.type = OPT_U64,
		OPTION(hasty_ms),
		.default_ = "400",
		.min = 1,
		.max = 600000,
		.arg = "MS",
		.help = "the same, of one session in four"},
	{.name = "history", .type = OPT_STRING, OPTION(history), .arg = "FILE", .help = "where the history goes"},
	{.name = "help", .letter = 'h', .type = OPT_FLAG, OPTION(help), .help = "print this page and exit"},
	{0},
};

struct group {
	unsigned round, ops, lost;
};

static struct {
	pthread_mutex_t lock;
	struct group groups[GROUPS];
	struct linear_history history;
	bool stopping;
} load = {.lock = PTHREAD_MUTEX_INITIALIZER};

struct session {
	const struct settings *s;
	unsigned number;
	pthread_t thread;
	struct cr_store *store;
	uint64_t dir;
	struct rng rng;
};

/* ---- one operation, waited for ---- */

struct waited {
	struct cr_op op;
	sem_t done;
};

static void on_done(struct cr_op *op)
{
	sem_post(&CONTAINER_OF(op, struct waited, op)->done);
}

static int wait_for(struct waited *w)
{
	while (sem_wait(&w->done) != 0)
		CHECK(errno == EINTR);
	sem_destroy(&w->done);
	return (int)w->op.result;
}

static int create(struct session *k, const char *name, uint64_t *ret_inode)
{
	struct waited w = {.op.done = on_done};
	struct cr_stat values = {.mode = 0644}, stat = {0};
	struct cr_file *file = NULL;
	int rc;

	CHECK(sem_init(&w.done, 0, 0) == 0);
	cr_create_async(k->store, k->dir, name, CR_EXCL, &values, &file, &stat, &w.op);
	rc = wait_for(&w);
	if (rc == 0) {
		*ret_inode = stat.inode;
		cr_abort(file);
	}
	return rc;
}

static int lookup(struct session *k, const char *name, uint64_t *ret_inode)
{
	struct waited w = {.op.done = on_done};
	struct cr_stat stat = {0};
	int rc;

	CHECK(sem_init(&w.done, 0, 0) == 0);
	cr_lookup_async(k->store, k->dir, name, &stat, &w.op);
	rc = wait_for(&w);
	*ret_inode = stat.inode;
	return rc;
}

static int ask(struct session *k, const struct linear_op *op, uint64_t *ret_inode)
{
	char from[64], to[64];

	snprintf(from, sizeof(from), "/names/%s", op->name);
	snprintf(to, sizeof(to), "/names/%s", op->to);
	switch (op->kind) {
	case LINEAR_CREATE:
		return create(k, op->name, ret_inode);
	case LINEAR_LOOKUP:
		return lookup(k, op->name, ret_inode);
	case LINEAR_UNLINK:
		return cr_unlink(k->store, from);
	case LINEAR_RENAME:
		return cr_rename(k->store, from, to, op->noreplace ? CR_RENAME_NOREPLACE : 0);
	case LINEAR_LINK:
		return cr_link(k->store, from, to);
	}
	CHECK_UNREACHABLE();
}

/* ---- the load ---- */

static uint64_t now_ns(void)
{
	struct timespec t;

	CHECK(clock_gettime(CLOCK_MONOTONIC, &t) == 0);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void choose(struct session *k, struct linear_op *op, struct group **ret_group)
{
	static const enum linear_kind kinds[] = {LINEAR_CREATE, LINEAR_CREATE, LINEAR_CREATE, LINEAR_LOOKUP,
		LINEAR_LOOKUP, LINEAR_LOOKUP, LINEAR_LOOKUP, LINEAR_UNLINK, LINEAR_UNLINK, LINEAR_RENAME, LINEAR_RENAME,
		LINEAR_LINK};
	unsigned number = (unsigned)rng_below(&k->rng, GROUPS);
	struct group *g = &load.groups[number];

	if (g->ops++ == ROUND_OPS || g->lost >= ROUND_LOST)
		*g = (struct group){.round = g->round + 1, .ops = 1};
	*op = (struct linear_op){
		.client = k->number, .kind = kinds[rng_below(&k->rng, ARRAY_COUNT(kinds))], .outcome = LINEAR_UNKNOWN};
	op->noreplace = op->kind == LINEAR_RENAME && rng_chance(&k->rng, 1, 4);
	snprintf(op->name, sizeof(op->name), "%u.%u.%u", number, g->round, (unsigned)rng_below(&k->rng, NAMES));
	if (op->kind == LINEAR_RENAME || op->kind == LINEAR_LINK)
		snprintf(op->to, sizeof(op->to), "%u.%u.%u", number, g->round, (unsigned)rng_below(&k->rng, NAMES));
	*ret_group = g;
}

static enum linear_outcome outcome_of(int rc)
{
	return rc >= 0 ? LINEAR_OK : rc == -EEXIST ? LINEAR_EXIST : rc == -ENOENT ? LINEAR_NOENT : LINEAR_UNKNOWN;
}

static void rest(struct session *k)
{
	uint64_t ns = rng_below(&k->rng, k->s->pause_ms * 1000000 + 1);

	nanosleep(&(struct timespec){.tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000)}, NULL);
}

static void *run(void *arg)
{
	struct session *k = arg;
	bool stopping = false;

	while (!stopping) {
		struct linear_op op;
		struct group *group;
		uint64_t inode = 0;
		unsigned round;

		pthread_mutex_lock(&load.lock);
		choose(k, &op, &group);
		round = group->round;
		pthread_mutex_unlock(&load.lock);
		op.invoke = now_ns();
		op.outcome = outcome_of(ask(k, &op, &inode));
		op.ret = op.outcome == LINEAR_UNKNOWN ? 0 : now_ns();
		op.inode = op.outcome == LINEAR_OK ? inode : 0;
		pthread_mutex_lock(&load.lock);
		if (op.outcome == LINEAR_UNKNOWN && group->round == round && op.kind != LINEAR_LOOKUP)
			group->lost++;
		*linear_add(&load.history) = op;
		stopping = load.stopping;
		pthread_mutex_unlock(&load.lock);
		rest(k);
	}
	return NULL;
}

static int connect_one(struct session *k, struct err *err)
{
	uint64_t timeout_ms = k->number % HASTY == HASTY - 1 ? k->s->hasty_ms : k->s->timeout_ms;
	struct cr_options options = {.timeout_ms = (uint32_t)timeout_ms, .buffer_bytes = (uint64_t)64 << 20};
	struct cr_stat stat;
	int rc = cr_connect(&options, &k->store);

	if (rc == 0 && k->number == 0)
		rc = cr_mkdir(k->store, "/names", 0755);
	if (rc == 0)
		rc = cr_stat(k->store, "/names", &stat);
	if (rc < 0)
		return err_set(err, ERR_IO, "session %u: %s", k->number, cr_error());
	k->dir = stat.inode;
	rng_init(&k->rng, k->s->seed * SESSIONS_MAX + k->number);
	return 0;
}

/* Threads are joined in any case. */
static int run_all(const struct settings *s, struct session *sessions, struct err *err)
{
	char byte;
	int rc = 0;

	for (unsigned i = 0; i < s->sessions && rc == 0; i++) {
		sessions[i] = (struct session){.s = s, .number = i};
		rc = connect_one(&sessions[i], err);
	}
	if (rc)
		return rc;
	for (unsigned i = 0; i < s->sessions; i++)
		CHECK(pthread_create(&sessions[i].thread, NULL, run, &sessions[i]) == 0);
	printf("running\n");
	fflush(stdout);
	while (read(STDIN_FILENO, &byte, 1) > 0)
		;
	pthread_mutex_lock(&load.lock);
	load.stopping = true;
	pthread_mutex_unlock(&load.lock);
	for (unsigned i = 0; i < s->sessions; i++)
		CHECK(pthread_join(sessions[i].thread, NULL) == 0);
	return 0;
}

static int load_run(const struct settings *s, struct err *err)
{
	struct session *sessions = mem_array(SESSIONS_MAX, sizeof(sessions[0]));
	FILE *out = fopen(s->history, "w");
	int rc = out ? run_all(s, sessions, err) : err_set(err, ERR_IO, "%s: %s", s->history, strerror(errno));

	if (rc == 0)
		rc = linear_write(out, &load.history) ? err_set(err, ERR_IO, "%s cannot be written", s->history) : 0;
	if (out && fclose(out) != 0 && rc == 0)
		rc = err_set(err, ERR_IO, "%s cannot be written", s->history);
	for (unsigned i = 0; i < s->sessions; i++)
		cr_disconnect(sessions[i].store);
	linear_fini(&load.history);
	mem_free(sessions);
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
	rc = opt_parse_cli(&parser, argc, argv, words, 0, &word_count, &err);
	if (rc == 0 && s.help) {
		char *text = opt_help(table);

		printf("Usage: craton-names-load --history FILE [OPTION ...]\n\nMixed load on a few names of the store in CRATON_CONF, until standard input "
		       "ends.\n\nOptions:\n%s",
			text);
		mem_free(text);
		opt_fini(&parser);
		return 0;
	}
	if (rc == 0 && !s.history)
		rc = err_set(&err, ERR_INVAL, "--history FILE is needed");
	if (rc == 0)
		rc = load_run(&s, &err);
	opt_fini(&parser);
	if (rc < 0)
		fprintf(stderr, "craton-names-load: %s\n", err.text);
	return rc < 0;
}
