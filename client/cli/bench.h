/* SPDX-License-Identifier: Apache-2.0 */
/* bench: what `craton bench` measures. GB = 1e9 bytes; CPU seconds per GiB of `bytes`, client and local daemons together. */
#ifndef CLIENT_CLI_BENCH_H
#define CLIENT_CLI_BENCH_H

#include <stdint.h>
#include "client/cli/cli.h"
#include "common/code/ec.h"

struct bench_result {
	uint64_t bytes;
	double seconds, cpu_s;
};

/* The daemons of a local store lie beside its craton.conf (NULL: that of the environment): their CPU and memory belong to the figure. */
struct bench_daemons {
	uint32_t count;
	double cpu_s;
	uint64_t peak_bytes; /* of the largest chunkd */
};
struct bench_daemons bench_daemons_look(const char *config);

/* Seconds of CPU of this process. */
double bench_self_cpu_s(void);
double bench_clock_s(void);
/* Memory with pseudo-random content, 2 MiB aligned, all pages touched; mem_free() it. */
uint8_t *bench_random_memory(size_t bytes);
void bench_json(struct json *j, const char *key, const struct bench_result *r);
void bench_print(const char *what, const struct bench_result *r);

/* The speed of light of this machine: the same encoding, checksums, direct writes and syncs into k+m local files below dir, no network. */
struct bench_floor {
	struct bench_result put, rewrite, get, rebuild; /* rewrite: over what was written, in place */
};
int bench_floor(const struct cli *cli, const char *dir, const struct ec_policy *policy, uint64_t bytes, struct bench_floor *ret_floor);

/* Writes or reads `bytes` through the store in `streams` files below `dir` of the store. */
int bench_put(struct cli *cli, const char *dir, uint64_t bytes, uint32_t streams, struct bench_result *ret_result);
int bench_get(struct cli *cli, const char *dir, uint64_t bytes, uint32_t streams, struct bench_result *ret_result);

/* What single operations take, in milliseconds. */
struct bench_latency {
	uint32_t count;
	double p50_ms, p90_ms, p99_ms, max_ms;
};
/* `count` files of `size` bytes below `dir`, one after the other: written and fsynced, then read; each after settle_s of the same that is
 * not counted. */
int bench_latency(struct cli *cli, const char *dir, uint64_t size, uint32_t count, double settle_s, bool keep,
                  struct bench_latency *ret_put, struct bench_latency *ret_get);

/* From here on a first SIGINT, SIGTERM or SIGHUP ends a benchmark as a failure would, so that it leaves nothing; a second one ends it at once. */
void bench_catch_signals(void);
bool bench_stopped(void); /* there was one */

/* A benchmark is done with its directory, which goes unless somebody else has something there. */
int bench_leave(struct cli *cli, const char *dir);
int bench_remove(struct cli *cli, const char *dir, uint32_t streams);
/* Removes them and waits until their space is free again: what is written next goes into segments that were written before. */
int bench_reclaim(struct cli *cli, const char *dir, uint32_t streams);

#endif
