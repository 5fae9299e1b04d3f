// SPDX-License-Identifier: Apache-2.0
/*
 * craton-sim: runs whole stores under virtual time, one for each seed (run.h). The same seed gives the same events; their hash is
 * printed. A seed that shows a defect prints the command that replays it and the last notes. Several seeds run in a process each, so
 * that one that crashes or hangs does not hide the others.
 */
#include <limits.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include "common/base/check.h"
#include "common/base/mem.h"
#include "common/base/opt.h"
#include "tests/sim/points.h"
#include "tests/sim/report.h"

enum {
	RUN_LIMIT_S = 300, /* of a core: a loop without end */
	HEAP_BYTES = 256 << 20,
	HUGE_PAGE_BYTES = 2 << 20,
	GROUP_SEEDS = 5, /* with --groups, one in so many has one */
};

struct settings {
	bool help, transcript, shrink, hash, twice, lines, json, stop, points, all_points, groups;
	uint64_t seed, runs, ops, metads, parts, part;
	const char *faults, *without, *events, *history;
	enum run_mode mode;
	uint64_t without_bits;
};

#define OPTION(field) .offset = offsetof(struct settings, field)
static const struct opt table[] = {
	{.name = "seed", .type = OPT_U64, OPTION(seed), .default_ = "1", .arg = "S", .help = "the first seed"},
	{.name = "runs",
		.type = OPT_U64,
		OPTION(runs),
		.default_ = "1",
		.min = 1,
		.max = 1000000,
		.arg = "N",
		.help = "seeds, from the first on"},
	{.name = "ops",
		.type = OPT_U64,
		OPTION(ops),
		.default_ = "2000",
		.min = 4,
		.max = 1000000,
		.arg = "N",
		.help = "operations of the clients in a run"},
	{.name = "metads",
		.type = OPT_U64,
		OPTION(metads),
		.default_ = "0",
		.max = CLUSTER_METADS_MAX,
		.arg = "N",
		.help = "a group of so many metads; 0: one, that keeps one log"},
	{.name = "groups",
		.type = OPT_FLAG,
		OPTION(groups),
		.help = "instead: one seed in five has a group of three"},
	{.name = "faults",
		.type = OPT_STRING,
		OPTION(faults),
		.default_ = "all",
		.arg = "none|one|all",
		.help = "what goes wrong"},
	{.name = "without",
		.type = OPT_STRING,
		OPTION(without),
		.arg = "KIND,...",
		.help = "kinds of faults to leave out"},
	{.name = "transcript",
		.type = OPT_FLAG,
		OPTION(transcript),
		.help = "what is done on purpose and what the daemons log, as lines with their virtual time"},
	{.name = "events",
		.type = OPT_STRING,
		OPTION(events),
		.arg = "FILE",
		.help = "every event as a line (one run)"},
	{.name = "history",
		.type = OPT_STRING,
		OPTION(history),
		.arg = "FILE",
		.help = "the history of names of a group, for craton-linear (one run; --metads 1 or more)"},
	{.name = "shrink",
		.type = OPT_FLAG,
		OPTION(shrink),
		.help = "a seed that fails: look for fewer operations and kinds of faults with which it still does"},
	{.name = "hash", .type = OPT_FLAG, OPTION(hash), .help = "print seed and hash only"},
	{.name = "twice",
		.type = OPT_FLAG,
		OPTION(twice),
		.help = "each seed twice, at other addresses: the events must be the same"},
	{.name = "lines", .type = OPT_FLAG, OPTION(lines), .help = "each result as a line in JSON"},
	{.name = "stop", .type = OPT_FLAG, OPTION(stop), .help = "at the first seed that fails"},
	{.name = "json", .type = OPT_FLAG, OPTION(json), .help = "the sums of all runs as a last line in JSON"},
	{.name = "crash-points",
		.type = OPT_FLAG,
		OPTION(points),
		.help = "one run without faults; a copy of it loses power at each sync that is chosen"},
	{.name = "all-points", .type = OPT_FLAG, OPTION(all_points), .help = "with --crash-points: at each sync"},
	{.name = "parts",
		.type = OPT_U64,
		OPTION(parts),
		.default_ = "1",
		.min = 1,
		.max = 1000,
		.arg = "N",
		.help = "with --crash-points: at one in N of those syncs"},
	{.name = "part",
		.type = OPT_U64,
		OPTION(part),
		.default_ = "0",
		.arg = "I",
		.help = "which of them, from 0 on"},
	{.name = "help", .letter = 'h', .type = OPT_FLAG, OPTION(help), .help = "print this page and exit"},
	{0},
};

static unsigned metads_of(const struct settings *s, uint64_t seed)
{
	struct rng rng;

	rng_init(&rng, seed ^ 0x67726f757073);
	return s->groups && rng_chance(&rng, 1, GROUP_SEEDS) ? CLUSTER_METADS_MAX : (unsigned)s->metads;
}

static uint64_t current_seed; /* for the signal handler */
static const struct settings *current_settings;

static void print_replay(uint64_t seed, const struct settings *s)
{
	char line[512];
	int n = snprintf(line, sizeof(line),
		"replay: tests/sim/craton-sim --seed %llu --ops %llu --metads %u --faults %s%s%s --transcript\n",
		(unsigned long long)seed, (unsigned long long)s->ops, metads_of(s, seed), s->faults, s->without ? " --without " : "",
		s->without ? s->without : "");

	if (write(STDOUT_FILENO, line, (size_t)n) < 0)
		_exit(1);
}

static void on_signal(int number)
{
	char line[128];
	int n = snprintf(line, sizeof(line), "seed %llu: %s in ", (unsigned long long)current_seed,
		number == SIGPROF ? "no end" : "crashed");

	if (write(STDOUT_FILENO, line, (size_t)n) >= 0)
		(void)run_print_last(STDOUT_FILENO);
	print_replay(current_seed, current_settings);
	_exit(1);
}

static void run_one(const struct settings *s, uint64_t seed, FILE *events, FILE *history, struct run_result *out)
{
	struct run_options o = {.seed = seed,
		.ops = s->ops,
		.mode = s->mode,
		.metads = metads_of(s, seed),
		.without = s->without_bits,
		.transcript = s->transcript ? stdout : NULL,
		.events = events,
		.history = history};

	current_seed = seed;
	current_settings = s;
	run_seed(&o, out);
	if (!out->ok)
		print_replay(seed, s);
}

/* ---- processes ---- */

/*
 * Memory is taken from the kernel once and in huge pages, and not given back: a fresh page costs more than what is done with it, and a
 * run frees and takes its megabytes thousands of times. Where the heap is another one (sanitizers) or there are no huge pages, nothing is lost.
 */
static void prepare_heap(void)
{
	uintptr_t from, to;

	mallopt(M_MMAP_THRESHOLD, 32 << 20);
	mallopt(M_TRIM_THRESHOLD, INT_MAX);
	mallopt(M_TOP_PAD, HEAP_BYTES);
	from = (uintptr_t)sbrk(0);
	mem_free(mem_alloc(HUGE_PAGE_BYTES));
	to = (uintptr_t)sbrk(0);
	from = (from + HUGE_PAGE_BYTES - 1) / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
	if (to > from)
		(void)madvise((void *)from, to - from, MADV_HUGEPAGE);
}

/* Another process of the same program has the same addresses: unless something lies in the way. */
static void shift_addresses(void)
{
	static void *in_the_way[64];

	for (size_t i = 0; i < ARRAY_COUNT(in_the_way); i++)
		in_the_way[i] = mem_zalloc(16 + 48 * i);
}

static void run_child(const struct settings *s, uint64_t seed, bool again, struct run_result *out)
{
	int fds[2], status = 0;
	pid_t pid;

	fflush(stdout);
	CHECK(pipe(fds) == 0);
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		struct run_result r;

		if (again)
			shift_addresses();
		run_limit_cpu(RUN_LIMIT_S);
		run_one(s, seed, NULL, NULL, &r);
		fflush(stdout);
		_exit(write(fds[1], &r, sizeof(r)) == sizeof(r) ? 0 : 1);
	}
	close(fds[1]);
	if (read(fds[0], out, sizeof(*out)) != sizeof(*out))
		*out = (struct run_result){.seed = seed};
	close(fds[0]);
	CHECK(waitpid(pid, &status, 0) == pid);
	out->ok &= WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static bool is_same_again(const struct settings *s, const struct run_result *first)
{
	struct run_result again;

	run_child(s, first->seed, true, &again);
	if (again.hash == first->hash && again.counts[RUN_events] == first->counts[RUN_events])
		return true;
	printf("seed %llu: NOT DETERMINISTIC: %llu events with hash %016llx, then %llu with %016llx\n",
		(unsigned long long)first->seed, (unsigned long long)first->counts[RUN_events],
		(unsigned long long)first->hash, (unsigned long long)again.counts[RUN_events],
		(unsigned long long)again.hash);
	return false;
}

static void print_result(const struct settings *s, const struct run_result *r)
{
	if (s->hash)
		printf("%llu %016llx\n", (unsigned long long)r->seed, (unsigned long long)r->hash);
	else if (s->lines)
		report_json(r);
	else
		report_line(r);
	fflush(stdout);
}

/* NULL, and *ret_out NULL: not wanted. */
static bool open_out(const char *path, FILE **ret_out)
{
	*ret_out = path ? fopen(path, "w") : NULL;
	if (path && !*ret_out)
		perror(path);
	return !path || *ret_out;
}

static bool close_out(const char *path, FILE *out)
{
	if (!out || fclose(out) == 0)
		return true;
	perror(path);
	return false;
}

static int run_all(const struct settings *s)
{
	static struct run_result sum, r;
	FILE *events, *history;
	uint64_t failed = 0, seeds = 0;

	if (!open_out(s->events, &events) || !open_out(s->history, &history))
		return 1;
	for (; seeds < s->runs && !(s->stop && failed); seeds++) {
		if (s->runs == 1 && !s->twice)
			run_one(s, s->seed, events, history, &r);
		else
			run_child(s, s->seed + seeds, false, &r);
		r.ok = r.ok && (!s->twice || is_same_again(s, &r));
		failed += !r.ok;
		report_add(&sum, &r);
		print_result(s, &r);
	}
	if (!close_out(s->events, events) || !close_out(s->history, history))
		return 1;
	if (s->json)
		report_json_sum(&sum, seeds, failed);
	return failed ? 1 : 0;
}

/* ---- shrinking ---- */

static bool still_fails(const struct settings *s)
{
	struct run_result r;

	run_child(s, s->seed, false, &r);
	return !r.ok;
}

/* Half the operations again and again; then without each kind of fault in turn. Another number gives another run, so not all is tried. */
static int shrink(struct settings *s)
{
	static char without[512];

	if (!still_fails(s)) {
		printf("seed %llu does not fail\n", (unsigned long long)s->seed);
		return 0;
	}
	for (uint64_t step = s->ops / 2; step > 0; step /= 2) {
		s->ops -= step;
		if (!still_fails(s))
			s->ops += step;
	}
	for (int i = 0; i < FAULTS_KINDS; i++) {
		s->without_bits |= (uint64_t)1 << i;
		if (!still_fails(s))
			s->without_bits &= ~((uint64_t)1 << i);
	}
	for (int i = 0; i < FAULTS_KINDS; i++)
		if (s->without_bits >> i & 1)
			snprintf(without + strlen(without), sizeof(without) - strlen(without), "%s%s",
				without[0] ? "," : "", faults_name(i));
	s->without = without[0] ? without : NULL;
	printf("\nshrunk: ");
	fflush(stdout);
	print_replay(s->seed, s);
	return 1;
}

/* ---- options ---- */

static int read_mode(struct settings *s, struct err *err)
{
	static const char *const names[] = {[RUN_NO_FAULTS] = "none", [RUN_ONE] = "one", [RUN_ALL] = "all"};

	for (size_t i = 0; i < ARRAY_COUNT(names); i++) {
		if (strcmp(s->faults, names[i]) != 0)
			continue;
		s->mode = (enum run_mode)i;
		return 0;
	}
	return err_set(err, ERR_INVAL, "--faults is none, one (chunk server at a time) or all");
}

static int read_without(struct settings *s, struct err *err)
{
	const char *at = s->without;

	while (at && *at) {
		size_t n = strcspn(at, ",");
		int i = 0;

		while (i < FAULTS_KINDS && (strlen(faults_name(i)) != n || strncmp(faults_name(i), at, n) != 0))
			i++;
		if (i == FAULTS_KINDS)
			return err_set(err, ERR_INVAL, "--without: there is no fault %.*s", (int)n, at);
		s->without_bits |= (uint64_t)1 << i;
		at += n + (at[n] == ',');
	}
	return 0;
}

static int run(struct settings *s)
{
	if (s->points)
		return points_run(&(struct points_options){.seed = s->seed,
			.ops = s->ops,
			.metads = (unsigned)s->metads,
			.all = s->all_points,
			.part = s->part,
			.parts = s->parts,
			.json = s->json});
	return s->shrink ? shrink(s) : run_all(s);
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
	if (rc == 0 && !s.help)
		rc = read_mode(&s, &err);
	if (rc == 0)
		rc = read_without(&s, &err);
	if (rc == 0 && (s.events || s.transcript || s.history) && s.runs != 1)
		rc = err_set(&err, ERR_INVAL, "--events, --transcript and --history are for one run: leave --runs out");
	if (rc == 0 && s.history && !s.metads)
		rc = err_set(&err, ERR_INVAL, "--history is of groups: add --metads 1 or 3");
	if (rc == 0 && s.part >= s.parts)
		rc = err_set(&err, ERR_INVAL, "--part is less than --parts");
	if (rc < 0) {
		fprintf(stderr, "craton-sim: %s\n", err.text);
		return 2;
	}
	if (s.help) {
		char *text = opt_help(table);

		printf("Usage: craton-sim [OPTION ...]\n\nRuns a whole store in this process under virtual time.\n\nOptions:\n%s",
			text);
		mem_free(text);
		return 0;
	}
	prepare_heap();
	for (size_t i = 0; i < 4; i++)
		signal((int[]){SIGABRT, SIGSEGV, SIGBUS, SIGPROF}[i], on_signal);
	rc = run(&s);
	opt_fini(&parser);
	return rc;
}
