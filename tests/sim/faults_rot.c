// SPDX-License-Identifier: Apache-2.0
/*
 * faults_rot: a bit is flipped in the log or the table of a daemon that was stopped cleanly. Its next start says that the file is damaged,
 * or goes on as if nothing were; what it serves then is judged like everything else. A daemon that refuses has changed nothing: with the
 * bit flipped back it starts.
 */
#include "tests/sim/faults_priv.h"

#include <string.h>
#include "chunkd/daemon.h"
#include "common/base/sometimes.h"

enum { FILES_MAX = 16, NAME_BYTES = 64, PATH_BYTES = 128, TRIES = 200, REACH_BYTES = 256 << 10 };

struct files {
	char names[FILES_MAX][NAME_BYTES];
	unsigned count;
};

static int each_name(void *ctx, const char *name)
{
	struct files *files = ctx;

	/* Not those that are being made: a start takes them for what they are. */
	if ((strncmp(name, "log-0", 5) == 0 || strcmp(name, "kv-mem") == 0) && files->count < FILES_MAX)
		snprintf(files->names[files->count++], NAME_BYTES, "%s", name);
	return 0;
}

/* A byte of one of its files that is not zero: most of a log is still empty. */
static bool some_byte(
	struct faults *f, unsigned node, char dir[PATH_BYTES], char path[PATH_BYTES], uint64_t *ret_offset)
{
	bool is_group = cluster_is_metad(f->cluster, node) && f->cluster->options.metads;
	const char *part = rng_chance(&f->rng, 1, 2) ? "log" : is_group ? "table-0" : "kv";
	struct io *io = faults__io_of(f, node);
	struct files files = {.count = 0};
	uint8_t byte;

	if (cluster_is_metad(f->cluster, node))
		snprintf(dir, PATH_BYTES, "%s/%s", f->cluster->nodes[node].dir, part);
	else
		snprintf(dir, PATH_BYTES, "%s/index/%s",
			cluster_disk_path(
				(unsigned)rng_below(&f->rng, f->cluster->options.disks[node - CLUSTER_CHUNKD])),
			part);
	if (io_list_dir(io, dir, each_name, &files) < 0 || !files.count)
		return false;
	snprintf(path, PATH_BYTES, "%.60s/%.60s", dir, files.names[rng_below(&f->rng, files.count)]);
	for (int i = 0; i < TRIES; i++) {
		*ret_offset = rng_below(&f->rng, 1 + rng_below(&f->rng, REACH_BYTES));
		if (sim_read_raw(io, path, &byte, 1, *ret_offset) == 1 && byte)
			return true;
	}
	return false;
}

/* What it said of a disk that it does without; NULL: nothing. */
static const struct bad_disk *trouble(const struct faults *f, unsigned node)
{
	const struct chunkd *ch = f->cluster->nodes[node].chunkd;

	return ch && ch->bad_count ? &ch->bad[0] : NULL;
}

static void judge(struct faults *f, unsigned node, int code, const char *text, const char *dir, const char *path)
{
	bool is_named = strstr(text, path) || (strstr(text, dir) && strstr(text, "the log ends at"));

	SOMETIMES(sim_rot_refused);
	if (code != ERR_CORRUPT || !is_named)
		cluster_fail(f->cluster, "%s with a bit flipped in %s says: %s: %.300s", f->cluster->nodes[node].name,
			path, err_name(code), text);
}

bool faults__start_rotten(struct faults *f, unsigned node)
{
	char dir[PATH_BYTES], path[PATH_BYTES];
	const struct bad_disk *bad;
	uint64_t offset;
	uint8_t bit = (uint8_t)rng_below(&f->rng, 8);
	bool is_up;

	if (!some_byte(f, node, dir, path, &offset))
		return false;
	cluster_note(f->cluster, "rot %s %s offset %llu bit %u", f->cluster->nodes[node].name, path,
		(unsigned long long)offset, bit);
	CHECK(sim_flip_bit(faults__io_of(f, node), path, offset, bit) == 0);
	f->counts[FAULTS_START_ROTTEN]++;
	is_up = cluster_try_start(f->cluster, node);
	bad = is_up ? trouble(f, node) : NULL;
	if (is_up && !bad) {
		SOMETIMES(sim_rot_harmless);
		return true;
	}
	if (bad)
		judge(f, node, bad->code, bad->text, dir, path);
	else
		judge(f, node, f->cluster->start_code, f->cluster->start_text, dir, path);
	if (is_up)
		faults__crash(f, node, CLUSTER_S);
	CHECK(sim_flip_bit(faults__io_of(f, node), path, offset, bit) == 0);
	f->nodes[node].back_ns = faults__now_ns(f) + faults__some_time(f, 10 * CLUSTER_MS, CLUSTER_S);
	return true;
}
