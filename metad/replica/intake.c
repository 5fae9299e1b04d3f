/* SPDX-License-Identifier: Apache-2.0 */
#include "metad/replica/intake.h"

#include <inttypes.h>
#include <string.h>
#include "common/base/check.h"
#include "common/base/mem.h"
#include "common/kv/kv_backend.h"
#include "metad/replica/body.h"

/* Both are done in one go, and keep a processor from those who serve clients. */
enum {
	COMMIT_BYTES = 512 << 10,
	CHECK_BYTES = 512 << 10, /* of rows, in one call */
};

struct intake {
	struct io *io;
	struct intake_options o;
	const struct kv_backend *backend;
	char path[TABLE_PATH_BYTES];
	void *store, *reader; /* of the backend */
	struct memtable *table;
	struct backup_check check;
	struct part_digest digest;
	bool has_config;
};

struct intake *intake_new(struct io *io, const struct intake_options *options)
{
	struct intake *in = MEM_NEW(struct intake);

	in->io = io;
	in->o = *options;
	in->backend = options->table.kv.backend;
	in->table = memtable_new();
	table_path(options->table.dir, options->slot, "", in->path);
	return in;
}

static void store_close(struct intake *in)
{
	if (in->reader)
		in->backend->snapshot_close(in->store, in->reader);
	if (in->store)
		in->backend->close(in->store);
	in->reader = in->store = NULL;
}

void intake_free(struct intake *in)
{
	store_close(in);
	memtable_free(in->table);
	mem_free(in);
}

/* ---- parts ---- */

static int begin(struct intake *in, struct slice data, struct err *err)
{
	struct kv_options kv_options = in->o.table.kv;
	uint64_t applied;
	int rc = backup_check_header(&in->check, data, err);

	if (rc)
		return rc;
	if (!uuid_equal(&in->check.header.cluster, &in->o.cluster))
		return err_set(err, ERR_WRONG_CLUSTER, "the snapshot is of another cluster");
	if (in->check.header.applied_index != in->o.index)
		return err_set(err, ERR_CORRUPT, "the snapshot is of entry %" PRIu64 ", not of %" PRIu64,
			in->check.header.applied_index, in->o.index);
	rc = table_clear(in->io, in->o.table.dir, in->o.slot, err);
	if (rc)
		return rc;
	kv_options.dir = in->path;
	kv_options.derived = NULL; /* the rows that follow from others are in it, as they are */
	return in->backend->open(in->io, &kv_options, &in->store, &applied, err);
}

/* All commits carry the snapshot's index: without the mark none of them counts. */
static int commit(struct intake *in, bool sync, struct err *err)
{
	int rc = in->backend->commit(in->store, in->table, in->o.index, sync, err);

	if (rc == 0)
		rc = in->backend->renew(in->store, in->table, err);
	memtable_clear(in->table);
	return rc;
}

static int put_row(void *ctx, struct slice key, struct slice value)
{
	struct intake *in = ctx;

	memtable_put(in->table, key, value);
	return 0;
}

int intake_part(struct intake *in, uint64_t number, struct slice data, struct err *err)
{
	int rc;

	if (number == 0)
		return begin(in, data, err);
	rc = backup_check_section(&in->check, data, put_row, in, err);
	if (rc == 0 && memtable_bytes(in->table) >= COMMIT_BYTES)
		rc = commit(in, false, err);
	return rc;
}

/* ---- what was written, read back ---- */

static int check_begin(struct intake *in, struct err *err)
{
	uint64_t applied;
	int rc;

	if (!in->check.ended)
		return err_set(err, ERR_CORRUPT, "the snapshot ends too early");
	rc = commit(in, true, err);
	if (!rc)
		rc = in->backend->snapshot_open(in->store, &in->reader, &applied, err);
	if (!rc && applied != in->o.index)
		rc = err_set(err, ERR_CORRUPT, "%s: holds entries up to %" PRIu64 ", the snapshot those up to %" PRIu64, in->path,
			applied, in->o.index);
	part_digest_init(&in->digest);
	return rc;
}

static int check_group(struct intake *in, struct slice key, struct slice value, struct err *err)
{
	struct raft_config config;

	if (slice_compare(key, table_group_key()) != 0)
		return 0;
	in->has_config = true;
	if (table_group_decode(value, &config) == 0 && body_configs_equal(&config, &in->o.config))
		return 0;
	return err_set(err, ERR_CORRUPT, "the snapshot says something else of who is in the group than the leader");
}

static int check_end(struct intake *in, const uint8_t digest[PART_DIGEST_BYTES], struct err *err)
{
	uint8_t own[PART_DIGEST_BYTES];

	part_digest_fini(&in->digest, own);
	if (in->digest.rows == in->check.rows && in->has_config && memcmp(own, digest, sizeof(own)) == 0)
		return 0;
	return err_set(err, ERR_CORRUPT, "%s: the rows of the snapshot of entry %" PRIu64 " are not those that the leader read",
		in->path, in->o.index);
}

int intake_check(struct intake *in, const uint8_t digest[PART_DIGEST_BYTES], bool *ret_done, struct err *err)
{
	struct slice key, value;
	uint64_t bytes = 0;
	int rc = in->reader ? 0 : check_begin(in, err);

	*ret_done = false;
	while (rc == 0 && bytes < CHECK_BYTES) {
		rc = in->backend->snapshot_next(in->store, in->reader, &key, &value, err);
		if (rc)
			break;
		part_digest_row(&in->digest, key, value);
		bytes += key.len + value.len;
		rc = check_group(in, key, value, err);
	}
	if (rc != ERR_NOENT)
		return rc;
	*ret_done = true;
	return check_end(in, digest, err);
}

int intake_finish(struct intake *in, struct err *err)
{
	store_close(in);
	return table_mark(in->io, in->o.table.dir, in->o.slot, in->o.index, err);
}
