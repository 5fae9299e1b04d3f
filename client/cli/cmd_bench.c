/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "client/cli/bench.h"
#include "client/cli/bench_meta.h"
#include "client/cli/bench_small.h"
#include "client/cli/process.h"
#include "common/base/check.h"
#include "common/base/mem.h"
#include "common/base/rng.h"

enum { STREAMS_MAX = 64 };

struct values {
	struct cli_common common;
	uint64_t size, streams, file_size, count, settle_ms, degraded;
	const char *policy, *path;
	bool keep, reuse, rewrite;
	struct bench_meta_options meta;
	uint64_t bytes;
};

static const struct opt opts[] = {
	{.name = "size", .type = OPT_BYTES, .offset = offsetof(struct values, size), .default_ = "4G", .min = 1 << 20, .max = (uint64_t)1 << 44, .arg = "SIZE",
	 .of = "floor, put, get", .help = "user data to move"},
	{.name = "streams", .type = OPT_U64, .offset = offsetof(struct values, streams), .default_ = "1", .min = 1, .max = STREAMS_MAX, .arg = "N",
	 .of = "put, get", .help = "files at once"},
	{.name = "degraded", .type = OPT_U64, .offset = offsetof(struct values, degraded), .default_ = "0", .max = LIMIT_M, .arg = "N",
	 .of = "get", .help = "as if the first N chunk servers were lost"},
	{.name = "count", .type = OPT_U64, .offset = offsetof(struct values, count), .default_ = "1000", .min = 1, .max = 1000000, .arg = "N",
	 .of = "latency", .help = "files"},
	{.name = "file-size", .type = OPT_BYTES, .offset = offsetof(struct values, file_size), .default_ = "4M", .min = 1, .max = 1 << 30, .arg = "SIZE",
	 .of = "latency", .help = "of each file"},
	{.name = "settle", .type = OPT_MS, .offset = offsetof(struct values, settle_ms), .default_ = "1s", .max = 3600000, .arg = "TIME",
	 .of = "latency", .help = "the same without counting, before"},
	{.name = "policy", .type = OPT_STRING, .offset = offsetof(struct values, policy), .default_ = "rs-4-2", .arg = "NAME", .of = "floor", .help = "coding"},
	{.name = "path", .type = OPT_STRING, .offset = offsetof(struct values, path), .default_ = "/.bench", .arg = "PATH",
	 .of = "put, get, latency", .help = "directory of the store for the files"},
	{.name = "keep", .type = OPT_FLAG, .offset = offsetof(struct values, keep), .of = "put, get, latency, small", .help = "leave the files that it wrote"},
	{.name = "reuse", .type = OPT_FLAG, .offset = offsetof(struct values, reuse), .of = "get", .help = "read files that put --keep left"},
	{.name = "files", .type = OPT_U64, .offset = offsetof(struct values, meta.files), .default_ = "100000", .min = 1, .max = 100 * 1000 * 1000, .arg = "N",
	 .of = "meta, small, objects", .help = "how many to create"},
	{.name = "bytes", .type = OPT_BYTES, .offset = offsetof(struct values, bytes), .default_ = "4K", .min = 1, .max = BENCH_SMALL_BYTES_MAX, .arg = "SIZE",
	 .of = "small, objects", .help = "of each"},
	{.name = "clients", .type = OPT_U64, .offset = offsetof(struct values, meta.clients), .default_ = "64", .min = 1, .max = BENCH_META_CLIENTS_MAX, .arg = "N",
	 .of = "meta, small, objects", .help = "logical clients; those of meta have a directory each"},
	{.name = "inflight", .type = OPT_U64, .offset = offsetof(struct values, meta.in_flight), .default_ = "1", .min = 1, .max = BENCH_META_IN_FLIGHT_MAX, .arg = "N",
	 .of = "meta, small, objects", .help = "operations that each client has in flight"},
	{.name = "connections", .type = OPT_U64, .offset = offsetof(struct values, meta.connections), .default_ = "8", .min = 1, .max = LIMIT_PEER_CONNS, .arg = "N",
	 .of = "meta", .help = "connections to each metad, shared by all clients"},
	{.name = "metad", .type = OPT_U64, .offset = offsetof(struct values, meta.metads), .default_ = "1", .min = 1, .max = LIMIT_METADS, .arg = "N",
	 .of = "meta", .help = "metads that are started in DIR, as for craton local up"},
	{.name = "rate", .type = OPT_U64, .offset = offsetof(struct values, meta.per_s), .default_ = "0", .max = 10 * 1000 * 1000, .arg = "N",
	 .of = "meta", .help = "creates, then stats, that become due per second, each timed from then on; 0: as fast as they go"},
	{.name = "rewrite", .type = OPT_FLAG, .offset = offsetof(struct values, rewrite),
	 .of = "put", .help = "write, remove, wait for the space, write again; only the second write is measured"},
	CLI_COMMON_OPTS(struct values),
	{0},
};

double bench_self_cpu_s(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return (double)u.ru_utime.tv_sec + (double)u.ru_stime.tv_sec + ((double)u.ru_utime.tv_usec + (double)u.ru_stime.tv_usec) / 1e6;
}

double bench_clock_s(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

uint8_t *bench_random_memory(size_t bytes)
{
	uint8_t *p = mem_aligned(2 << 20, bytes);
	struct rng rng;

	rng_init(&rng, 42);
	rng_bytes(&rng, p, bytes);
	return p;
}

static volatile sig_atomic_t stopped;

static void on_signal(int number)
{
	(void)number;
	stopped = 1;
}

void bench_catch_signals(void)
{
	static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
	struct sigaction old, action = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND | SA_RESTART};

	for (size_t i = 0; i < ARRAY_COUNT(signals); i++)
		if (sigaction(signals[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN) /* nohup stays nohup */
			sigaction(signals[i], &action, NULL);
}

bool bench_stopped(void)
{
	return stopped;
}

static double per_gib(const struct bench_result *r) { return r->cpu_s / ((double)r->bytes / (double)(1 << 30)); }
static double gb_per_s(const struct bench_result *r) { return (double)r->bytes / 1e9 / r->seconds; }

void bench_json(struct json *j, const char *key, const struct bench_result *r)
{
	if (key)
		json_object(j, key);
	json_u64(j, "bytes", r->bytes);
	json_f64(j, "seconds", r->seconds);
	json_f64(j, "gb_per_s", gb_per_s(r));
	json_f64(j, "cpu_s_per_gib", per_gib(r));
	if (key)
		json_end_object(j);
}

void bench_print(const char *what, const struct bench_result *r)
{
	printf("%-8s %.3f GB/s  %.3f CPU s/GiB  (%.3f s)\n", what, gb_per_s(r), per_gib(r), r->seconds);
}

static int run_floor(struct cli *cli, const char *dir)
{
	const struct values *v = cli->values;
	const struct ec_policy *policy = ec_policy_by_name(v->policy);
	struct bench_floor floor;
	struct buf out;
	struct json j;
	int exit_code;

	if (!policy)
		return cli_usage(cli, "there is no policy '%s'", v->policy);
	exit_code = bench_floor(cli, dir, policy, v->size, &floor);
	if (exit_code != CLI_OK)
		return exit_code;
	if (!cli->json) {
		bench_print("put", &floor.put);
		bench_print("rewrite", &floor.rewrite);
		bench_print("get", &floor.get);
		bench_print("rebuild", &floor.rebuild);
		return CLI_OK;
	}
	cli_json_begin(&out, &j);
	bench_json(&j, "put", &floor.put);
	bench_json(&j, "rewrite", &floor.rewrite);
	bench_json(&j, "get", &floor.get);
	bench_json(&j, "rebuild", &floor.rebuild);
	cli_json_end(&out, &j);
	return CLI_OK;
}

struct bench_daemons bench_daemons_look(const char *config)
{
	struct bench_daemons d = {0};
	const char *path = config ? config : getenv("CRATON_CONF");
	char *dir = path ? mem_strdup(path) : NULL, *slash = dir ? strrchr(dir, '/') : NULL;
	struct dirent *e;
	DIR *listing;

	if (slash)
		*slash = '\0';
	listing = dir ? opendir(slash ? dir : ".") : NULL;
	while (listing && (e = readdir(listing))) {
		pid_t pid = e->d_name[0] == '.' ? 0 : process_pid(slash ? dir : ".", e->d_name);
		uint64_t peak = pid && !strncmp(e->d_name, "chunkd", 6) ? process_peak_bytes(pid) : 0;

		if (!pid)
			continue;
		d.count++;
		d.cpu_s += process_cpu_s(pid);
		if (peak > d.peak_bytes)
			d.peak_bytes = peak;
	}
	if (listing)
		closedir(listing);
	mem_free(dir);
	return d;
}

static void report(const struct cli *cli, const char *what, const struct bench_result *r, const struct bench_daemons *after)
{
	uint64_t self_peak = process_peak_bytes(getpid());
	struct buf out;
	struct json j;

	if (!cli->json) {
		bench_print(what, r);
		printf("         CPU of the client%s; peak memory: client %llu MiB, largest chunkd %llu MiB\n",
		       after->count ? " and all local daemons" : " only", (unsigned long long)(self_peak >> 20),
		       (unsigned long long)(after->peak_bytes >> 20));
		return;
	}
	cli_json_begin(&out, &j);
	bench_json(&j, NULL, r);
	json_u64(&j, "daemons_counted", after->count);
	json_u64(&j, "client_peak_bytes", self_peak);
	json_u64(&j, "chunkd_peak_bytes", after->peak_bytes);
	cli_json_end(&out, &j);
}

static int run_store(struct cli *cli, bool get)
{
	const struct values *v = cli->values;
	struct bench_daemons before, after;
	struct bench_result r;
	int exit_code;

	bench_catch_signals();
	cli->ignore_servers = get ? (uint32_t)v->degraded : 0;
	exit_code = cli_connect(cli);
	if (exit_code == CLI_OK && ((get && !v->reuse) || v->rewrite))
		exit_code = bench_put(cli, v->path, v->size, (uint32_t)v->streams, &r);
	if (exit_code == CLI_OK && v->rewrite)
		exit_code = bench_reclaim(cli, v->path, (uint32_t)v->streams);
	if (exit_code != CLI_OK)
		return exit_code;
	before = bench_daemons_look(cli->config);
	exit_code = (get ? bench_get : bench_put)(cli, v->path, v->size, (uint32_t)v->streams, &r);
	after = bench_daemons_look(cli->config);
	if (exit_code != CLI_OK) {
		if (get && !v->reuse && !v->keep) /* what it wrote itself */
			bench_remove(cli, v->path, (uint32_t)v->streams);
		return exit_code;
	}
	r.cpu_s += after.cpu_s - before.cpu_s;
	report(cli, get ? "get" : "put", &r, &after);
	return v->keep || (get && v->reuse) ? CLI_OK : bench_remove(cli, v->path, (uint32_t)v->streams);
}

static void latency_json(struct json *j, const char *key, const struct bench_latency *r)
{
	json_object(j, key);
	json_u64(j, "count", r->count);
	json_f64(j, "p50_ms", r->p50_ms);
	json_f64(j, "p90_ms", r->p90_ms);
	json_f64(j, "p99_ms", r->p99_ms);
	json_f64(j, "max_ms", r->max_ms);
	json_end_object(j);
}

static void latency_print(const char *what, const struct bench_latency *r)
{
	printf("%-8s %u files: p50 %.1f ms, p90 %.1f ms, p99 %.1f ms, max %.1f ms\n", what, r->count, r->p50_ms, r->p90_ms, r->p99_ms, r->max_ms);
}

static int run_latency(struct cli *cli)
{
	const struct values *v = cli->values;
	struct bench_latency put, get;
	struct buf out;
	struct json j;
	int exit_code;

	bench_catch_signals();
	exit_code = cli_connect(cli);
	if (exit_code == CLI_OK)
		exit_code = bench_latency(cli, v->path, v->file_size, (uint32_t)v->count, (double)v->settle_ms / 1e3, v->keep, &put, &get);
	if (exit_code != CLI_OK)
		return exit_code;
	if (!cli->json) {
		latency_print("put", &put);
		latency_print("get", &get);
		return CLI_OK;
	}
	cli_json_begin(&out, &j);
	latency_json(&j, "put", &put);
	latency_json(&j, "get", &get);
	cli_json_end(&out, &j);
	return CLI_OK;
}

static int run_small(struct cli *cli, bool objects)
{
	const struct values *v = cli->values;
	struct bench_small_options o = {.count = v->meta.files, .bytes = v->bytes, .in_flight = v->meta.clients * v->meta.in_flight, .keep = v->keep};

	bench_catch_signals();
	if (o.in_flight > BENCH_SMALL_IN_FLIGHT_MAX)
		return cli_usage(cli, "--clients times --inflight is %llu, at most %d are possible", (unsigned long long)o.in_flight, BENCH_SMALL_IN_FLIGHT_MAX);
	return objects ? bench_objects(cli, &o) : bench_small(cli, &o);
}

static int run_floor_in(struct cli *cli) { return run_floor(cli, cli->words[1]); }
static int run_put(struct cli *cli) { return run_store(cli, false); }
static int run_get(struct cli *cli) { return run_store(cli, true); }
static int run_small_files(struct cli *cli) { return run_small(cli, false); }
static int run_objects(struct cli *cli) { return run_small(cli, true); }

static int run_meta(struct cli *cli)
{
	const struct values *v = cli->values;

	bench_catch_signals();
	if (opt_given(cli->options, "metad") && cli->word_count != 2)
		return cli_usage(cli, "--metad expects DIR, where so many metads are started; the configured store has its own");
	return bench_meta(cli, cli->word_count == 2 ? cli->words[1] : NULL, &v->meta);
}

static const struct {
	const char *name;
	int (*run)(struct cli *cli);
	const char *words; /* that it expects behind its name */
	int min_words, max_words;
} benches[] = {
	{"floor", run_floor_in, "DIR, a directory of the file system to measure", 2, 2},
	{"put", run_put, "no further words", 1, 1},
	{"get", run_get, "no further words", 1, 1},
	{"latency", run_latency, "no further words", 1, 1},
	{"meta", run_meta, "at most DIR", 1, 2},
	{"small", run_small_files, "no further words", 1, 1},
	{"objects", run_objects, "no further words", 1, 1},
};

static void names_of_all(char *ret_names, size_t bytes)
{
	size_t len = 0;

	for (size_t i = 0; i < ARRAY_COUNT(benches) && len < bytes; i++)
		len += (size_t)snprintf(ret_names + len, bytes - len, "%s%s", len ? ", " : "", benches[i].name);
}

static int run(struct cli *cli)
{
	const char *what = cli->words[0];
	char names[128];
	size_t bench = 0;

	while (bench < ARRAY_COUNT(benches) && strcmp(benches[bench].name, what))
		bench++;
	if (bench == ARRAY_COUNT(benches)) {
		names_of_all(names, sizeof(names));
		return cli_usage(cli, "there is no benchmark '%s'; there are %s", what, names);
	}
	if (cli->word_count < benches[bench].min_words || cli->word_count > benches[bench].max_words)
		return cli_usage(cli, "%s expects %s", what, benches[bench].words);
	return benches[bench].run(cli);
}

const struct cli_command cmd_bench = {
	.name = "bench",
	.args = "floor DIR | put | get | latency | meta [DIR] | small | objects",
	.summary = "measure the store, and the floor: what this machine could reach without network and daemons",
	.details = "floor does the same encoding, checksums, direct writes and syncs into k+m files in DIR; put and get go through the store.\n"
	           "latency writes and fsyncs single files, then reads them: what the median and the slowest take.\n"
	           "meta creates, stats and lists files; in DIR, with a metad (or --metad) of its own that is gone afterwards, it also commits files of eight\n"
	           "blocks (it plays the chunk servers that such commits need). On the configured store commits are left out.\n"
	           "small creates, writes and commits whole files of --bytes; objects writes chunks alone: blocks of three plain copies that are\n"
	           "sealed on their disks and never committed.\n"
	           "An option of another benchmark is refused. What is interrupted, by one ^C, takes away what it wrote.\n"
	           "GB is 1e9 bytes; CPU seconds per GiB count the client and all daemons of a local store.\n"
	           "JSON: bytes, seconds, gb_per_s, cpu_s_per_gib; floor has these under put, rewrite (in place), get, rebuild (bytes rebuilt).\n"
	           "small: file_...; objects: object_...; meta: for create, stat, list (entries), allocate (blocks), commit: NAME_per_s, NAME_count, NAME_p50_ms, NAME_p99_ms, NAME_max_ms,\n"
	           "NAME_server_cpu_us, NAME_client_cpu_us (of all metads and of this process, each).\n\n"
	           "Examples:\n"
	           "  craton bench floor /var/tmp --size 4G\n"
	           "  craton bench put --size 4G\n"
	           "  craton bench put --size 4G --rewrite\n"
	           "  craton bench put --keep --streams 8 && craton bench get --reuse --streams 8\n"
	           "  craton bench get --degraded 2\n"
	           "  craton bench latency --count 1000 --file-size 4M\n"
	           "  craton bench meta /var/tmp --files 1000000 --clients 64 --inflight 4\n"
	           "  craton bench meta /var/tmp --metad 3 --rate 10000\n"
	           "  craton bench small --files 20000 --bytes 4K --clients 64; craton bench objects --clients 64\n",
	.opts = opts,
	.values_bytes = sizeof(struct values),
	.min_words = 1,
	.max_words = 2,
	.run = run,
};
