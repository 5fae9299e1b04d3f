/* SPDX-License-Identifier: Apache-2.0 */
/*
 * backup: the rows of the table as they are after one entry of the log, while requests go on. The client asks for one part after the
 * other, so that nobody waits for a slow disk of his:
 *
 *   id 0 --flush: all that was acknowledged is in the table--> snapshot --> header --> sections of rows --> last section --> closed
 *                                                                  \--not asked for METAD_BACKUP_IDLE_MS--> closed
 *
 * An open snapshot keeps the table from reusing what it frees: hence one at a time, and not for ever. Where the disk is all but full it ends when the
 * table needs that room (kv.h), and the client is told.
 */
#include "metad/core.h"

#include <stdio.h>
#include "common/base/check.h"
#include "common/base/mem.h"

#ifndef PACKAGE_VERSION
#define PACKAGE_VERSION "0.1.0"
#endif

static const char has_ended[] = "this backup has ended: begin a new one";

static void refuse(struct rpc_req *req, int status, const char *text)
{
	Craton__BackupReply reply = CRATON__BACKUP_REPLY__INIT;

	reply.error = (char *)(uintptr_t)text;
	rpc_reply(req, &(struct rpc_reply){.status = status, .msg = &reply.base});
}

static void backup_close(struct metad *md)
{
	struct metad_backup *b = &md->backup;

	if (b->asker)
		refuse(b->asker, ERR_STALE, has_ended);
	if (b->snapshot)
		kv_snapshot_close(b->snapshot);
	mem_free(b->out);
	*b = (struct metad_backup){0};
}

/* A request that waits for the flush is answered when that has ended. */
void metad__backup_stop(struct metad *md)
{
	struct rpc_req *waiting = md->backup.waiting;

	backup_close(md);
	md->backup.waiting = waiting;
}

void metad__backup_tick(struct metad *md)
{
	const struct metad_backup *b = &md->backup;

	if (!b->snapshot || io_now_ns(md->io) - b->asked_ns < (uint64_t)METAD_BACKUP_IDLE_MS * 1000000)
		return;
	log_line(md->options.log, LOG_WARN, "backup-abandoned", "bytes=%llu text=\"nobody has asked for the rest\"",
		(unsigned long long)b->offset);
	backup_close(md);
}

static void send_part(struct metad *md, struct rpc_req *req, bool end)
{
	Craton__BackupReply reply = CRATON__BACKUP_REPLY__INIT;
	struct metad_backup *b = &md->backup;

	reply.id = b->id;
	reply.data = (ProtobufCBinaryData){.data = b->out, .len = b->writer.len};
	reply.end = end;
	b->offset += b->writer.len;
	b->asked_ns = io_now_ns(md->io);
	rpc_reply(req, &(struct rpc_reply){.msg = &reply.base});
	if (!end)
		return;
	log_line(md->options.log, LOG_INFO, "backup-made", "bytes=%llu rows=%llu applied=%llu",
		(unsigned long long)b->offset, (unsigned long long)b->writer.total_rows, (unsigned long long)b->applied);
	backup_close(md);
}

/* What fits a section, from the row that did not fit the one before. ERR_NOENT: no more rows. */
static int fill(struct metad_backup *b, struct err *err)
{
	int rc = kv_snapshot_check(b->snapshot, err);

	while (rc == 0) {
		if (!b->pending) {
			rc = kv_snapshot_next(b->snapshot, &b->key, &b->value, err);
			if (rc < 0)
				break;
			if (slice_compare(b->key, table_group_key()) == 0)
				continue; /* who is in the group is no matter of the store that is restored */
			b->pending = true;
		}
		if (!backup_writer_row(&b->writer, b->key, b->value))
			break;
		b->pending = false;
	}
	return rc;
}

static void next_part(struct metad *md, struct rpc_req *req)
{
	struct metad_backup *b = &md->backup;
	struct err err = {0};
	int rc;

	backup_writer_next(&b->writer);
	rc = fill(b, &err);
	if (rc < 0 && rc != ERR_NOENT) {
		log_line(md->options.log, LOG_ERROR, "backup-failed", "error=%s text=\"%s\"", err_name(rc), err.text);
		refuse(req, rc, err.text);
		backup_close(md);
		return;
	}
	if (b->writer.rows)
		backup_writer_seal(&b->writer);
	else
		backup_writer_end(&b->writer);
	send_part(md, req, b->writer.rows == 0);
}

static void begin(struct metad *md, struct rpc_req *req)
{
	struct backup_header header = {
		.cluster = md->options.cluster, .state_ms = md->state.meta.time_ms, .created_ns = io_wall_ns(md->io)};
	struct metad_backup *b = &md->backup;
	struct err err = {0};
	int rc = kv_snapshot_open(md->state.kv, &b->snapshot, &b->applied, &err);

	if (rc < 0) {
		refuse(req, rc, err.text);
		backup_close(md);
		return;
	}
	b->out = mem_alloc(BACKUP_SECTION_BYTES);
	do
		io_random(md->io, &b->id, sizeof(b->id));
	while (b->id == 0);
	header.applied_index = b->applied;
	snprintf(header.software, sizeof(header.software), "craton %s", PACKAGE_VERSION);
	backup_writer_init(&b->writer, &header, b->out);
	send_part(md, req, false);
}

static void rows_are_near(void *ctx)
{
	struct metad *md = ctx;
	struct rpc_req *req = md->backup.asker;

	md->backup.asker = NULL;
	next_part(md, req);
}

static void on_flushed(void *ctx, int code)
{
	struct metad *md = metad__of(ctx);
	struct rpc_req *req = md->backup.waiting;

	md->backup.waiting = NULL;
	if (code < 0 || md->stopping || md->failed || !md->ready)
		rpc_reply_status(req, ERR_STOPPED);
	else
		begin(md, req);
}

void metad__backup(void *ctx, struct rpc_req *req)
{
	struct metad *md = metad__of(ctx);
	const Craton__BackupRequest *msg = (const Craton__BackupRequest *)req->msg;
	struct metad_backup *b = &md->backup;

	if (metad__gate(md, req))
		return;
	if (msg->id == 0 && (b->snapshot || b->waiting)) {
		refuse(req, ERR_BUSY, "another backup is being made: wait for it to end (one that was given up ends after 30 s)");
	} else if (msg->id == 0) {
		b->waiting = req;
		kv_flush(md->state.kv, on_flushed, md);
	} else if (!b->snapshot || b->asker || msg->id != b->id || msg->offset != b->offset) {
		refuse(req, ERR_STALE, has_ended);
	} else if (kv_snapshot_near(b->snapshot, BACKUP_SECTION_BYTES, rows_are_near, md)) {
		next_part(md, req);
	} else {
		b->asker = req;
	}
}
