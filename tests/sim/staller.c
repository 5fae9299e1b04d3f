// SPDX-License-Identifier: Apache-2.0
/* staller: see the header:    open -> (the processor is taken away) write -> close */
#include "tests/sim/staller.h"

#include <string.h>
#include "common/base/mem.h"
#include "tests/sim/workload.h"

/* Two blocks and a half. What is not sent yet is half of the window that a writer has (WRITE_STRIPES). */
enum { BYTES = 10 * 4 * CLUSTER_CELL_BYTES };

static void start(struct staller *s, enum client_op_kind kind, void (*done)(struct client_op *op))
{
	s->op.kind = kind;
	s->op.done = done;
	s->op.user = s;
	cluster_client_start(s->cluster, s->cluster->first_client, &s->op);
}

/* False: it went wrong, which nothing excuses. */
static bool went_well(struct staller *s, const struct client_op *op)
{
	if (op->err.code == 0)
		return true;
	cluster_fail(s->cluster, "%s of %s, which stood still, failed: %s: %s", workload_op_name(op->kind),
		s->entry->path, err_name(op->err.code), op->err.text);
	return false;
}

static void closed(struct client_op *op)
{
	struct staller *s = op->user;

	if (!went_well(s, op))
		return;
	checker_end(s->checker, s->entry, CHECKER_DONE);
	s->done = true;
}

static void written(struct client_op *op)
{
	struct staller *s = op->user;

	if (!went_well(s, op))
		return;
	memset(&s->op, 0, sizeof(s->op));
	s->op.file = s->file;
	start(s, CLIENT_CLOSE, closed);
}

static void opened(struct client_op *op)
{
	struct staller *s = op->user;

	if (!went_well(s, op))
		return;
	s->file = op->ret_file;
	sim_work_stall(s->cluster->nodes[s->cluster->first_client].io, STALLER_NS);
	content_fill(s->content, 0, s->buf, s->content.bytes);
	memset(&s->op, 0, sizeof(s->op));
	s->op.file = s->file;
	s->op.flags = CLIENT_WRITE_COPY;
	s->op.buf = s->buf;
	s->op.len = s->content.bytes;
	start(s, CLIENT_WRITE, written);
}

void staller_begin(struct staller *s, struct cluster *cluster, struct checker *checker)
{
	*s = (struct staller){.cluster = cluster, .checker = checker, .buf = mem_alloc(BYTES)};
	s->entry = checker_add(checker, WORKLOAD_WORKERS, "/stalled");
	s->content = checker_new_content(checker, BYTES);
	checker_begin(checker, s->entry, s->content);
	cluster_note(cluster, "staller");
	s->op.path = s->entry->path;
	s->op.flags = CR_WRITE | CR_ATOMIC;
	s->op.mode = 0644;
	start(s, CLIENT_OPEN, opened);
}

void staller_end(struct staller *s)
{
	mem_free(s->buf);
	s->buf = NULL;
}
