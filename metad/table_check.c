/* SPDX-License-Identifier: Apache-2.0 */
/*
 * table_check: reads the whole table soon after the start and then once a day. Pages of LMDB have no checksums: garbage in one of them may hide
 * rows, and nothing that looks for one row would notice. Each row is looked at, and in the end their number is that which the table says
 * (kv_lmdb.c): else this metad ends, as it does for any other damage.
 *
 *     rest --timer--> snapshot --rows in memory--> a slice of rows --timer--> ... --last row--> rest
 *                         \--the disk is all but full: the room is needed--> rest
 *
 * An open snapshot keeps the table from reusing what it frees: where very much is written it ends, for an hour. Users come first, so it is not as
 * fast as can be.
 */
#include "metad/core.h"

#include "common/base/check.h"

enum {
	FIRST_MS = 1000,           /* after the start, and when the table is another one */
	LOOK_MS = 60 * 1000,       /* while it rests: another table may have come */
	SLICE_MS = 10,             /* from one slice to the next */
	SLICE_BYTES = 320 << 10,   /* 32 MiB/s, a few per cent of a core */
	RETRY_MS = 60 * 60 * 1000, /* where there was no room for a snapshot */
	AGAIN_MS = 24 * 60 * 60 * 1000,
	PRESSURE_REST = 50, /* per cent of the table's memory, as of the plans (background.c) */
	GROWTH_SHARE = 8,   /* of what the table takes of the disk: while a snapshot is open it may grow by 1/8 */
};

static const uint64_t GROWTH_BYTES = 64 << 20, /* and by so much */
	MS_NS = 1000 * 1000;

static void on_timer(struct io_op *op);

static void wait(struct metad *md, uint64_t ms)
{
	if (md->stopping || md->failed)
		return;
	io_prep_timer(&md->table_check.timer, io_now_ns(md->io) + ms * MS_NS, on_timer);
	io_submit(md->io, &md->table_check.timer);
}

static void rest(struct metad *md, uint64_t ms)
{
	md->table_check.due_ns = io_now_ns(md->io) + ms * MS_NS;
	wait(md, ms < LOOK_MS ? ms : LOOK_MS);
}

static void close_snapshot(struct metad_table_check *c)
{
	if (c->snapshot)
		kv_snapshot_close(c->snapshot);
	c->snapshot = NULL;
}

static uint64_t backing_bytes(const struct metad *md)
{
	struct kv_stats stats;

	kv_get_stats(md->state.kv, &stats);
	return stats.backing_bytes;
}

bool metad__table_check_gives_way(uint64_t begun_bytes, uint64_t now_bytes)
{
	return now_bytes > begun_bytes + begun_bytes / GROWTH_SHARE + GROWTH_BYTES;
}

static void open_snapshot(struct metad *md)
{
	struct metad_table_check *c = &md->table_check;
	struct err err = {0};
	uint64_t applied;
	int code = kv_snapshot_open(md->state.kv, &c->snapshot, &applied, &err);

	if (code == ERR_CORRUPT) {
		metad__fatal(md, code, err.text);
		return;
	}
	if (code < 0) {
		log_line(md->options.log, LOG_WARN, "table-not-checked", "text=\"%s\"", err.text);
		rest(md, RETRY_MS);
		return;
	}
	c->rows = c->bytes = 0;
	c->begun_bytes = backing_bytes(md);
	c->begun_ns = io_now_ns(md->io);
	wait(md, 0);
}

static void end(struct metad *md, int code, const char *text)
{
	struct metad_table_check *c = &md->table_check;
	uint64_t took_ms = (io_now_ns(md->io) - c->begun_ns) / MS_NS;

	close_snapshot(c);
	if (code == ERR_NOSPC) {
		log_line(md->options.log, LOG_INFO, "table-not-checked", "rows=%llu text=\"%s\"",
			(unsigned long long)c->rows, text);
		rest(md, RETRY_MS);
	} else if (code != ERR_NOENT) {
		metad__fatal(md, code, text);
	} else {
		log_line(md->options.log, LOG_INFO, "table-checked", "rows=%llu bytes=%llu ms=%llu",
			(unsigned long long)c->rows, (unsigned long long)c->bytes, (unsigned long long)took_ms);
		rest(md, AGAIN_MS);
	}
}

static void read_slice(void *ctx)
{
	struct metad *md = metad__of(ctx);
	struct metad_table_check *c = &md->table_check;
	uint64_t until = c->bytes + SLICE_BYTES;
	struct slice key, value;
	struct err err = {0};
	int code = 0;

	while (c->bytes < until && (code = kv_snapshot_next(c->snapshot, &key, &value, &err)) == 0) {
		c->rows++;
		c->bytes += key.len + value.len;
	}
	if (code)
		end(md, code, err.text);
	else
		wait(md, SLICE_MS);
}

static void on_timer(struct io_op *op)
{
	struct metad *md = CONTAINER_OF(op, struct metad, table_check.timer);
	struct metad_table_check *c = &md->table_check;
	uint64_t now_ns = io_now_ns(md->io);

	if (md->stopping || md->failed || op->result)
		metad__maybe_stopped(md);
	else if (c->snapshot && metad__table_check_gives_way(c->begun_bytes, backing_bytes(md)))
		end(md, ERR_NOSPC,
			"so much is written that the table would grow by what it may not overwrite meanwhile");
	else if (!c->snapshot && now_ns < c->due_ns)
		wait(md, c->due_ns - now_ns < LOOK_MS * MS_NS ? (c->due_ns - now_ns) / MS_NS + 1 : LOOK_MS);
	else if (!md->state.kv || kv_pressure_now(md->state.kv) >= PRESSURE_REST)
		wait(md, c->snapshot ? SLICE_MS : FIRST_MS);
	else if (!c->snapshot)
		open_snapshot(md);
	else if (kv_snapshot_near(c->snapshot, SLICE_BYTES, read_slice, md))
		read_slice(md);
}

void metad__table_check_start(struct metad *md)
{
	if (!md->options.table_unread)
		rest(md, FIRST_MS);
}

void metad__table_check_forget(struct metad *md)
{
	struct metad_table_check *c = &md->table_check;

	close_snapshot(c);
	if (!c->due_ns)
		return;
	c->due_ns = io_now_ns(md->io) + FIRST_MS * MS_NS;
	if (!io_pending(&c->timer))
		wait(md, FIRST_MS);
}

void metad__table_check_stop(struct metad *md)
{
	close_snapshot(&md->table_check);
	io_cancel(md->io, &md->table_check.timer);
}

bool metad__table_check_idle(const struct metad *md)
{
	return !io_pending(&md->table_check.timer);
}
