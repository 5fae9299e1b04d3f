// SPDX-License-Identifier: Apache-2.0
/* workload_put: files that are written: atomic ones, such that are given up half-way, and such that are seen while they grow. */
#include <string.h>
#include "tests/sim/workload_priv.h"

/* ---- put ---- */

static void put_closed(struct client_op *op)
{
	struct worker *k = op->user;

	k->file = NULL;
	if (op->err.code < 0)
		workload__failed(k, op, false);
	checker_end(k->w->checker, k->entry, workload__outcome_of(op));
	workload__acknowledged(k, op);
	workload__job_end(k);
}

static void put_aborted(struct client_op *op)
{
	struct worker *k = op->user;

	/* Whether or not it was told to metad, nothing of the file was published. */
	k->file = NULL;
	k->w->checker->refused++;
	workload__job_end(k);
}

static void put_abort(struct worker *k)
{
	struct client_file *file = k->file;

	workload__clear(&k->op);
	k->op.file = file;
	workload__start_op(k, &k->op, CLIENT_ABORT, put_aborted);
}

static void put_close(struct worker *k, struct client_op *op, void (*done)(struct client_op *op))
{
	checker_begin(k->w->checker, k->entry, k->content);
	workload__clear(op);
	op->file = k->file;
	workload__start_op(k, op, CLIENT_CLOSE, done);
}

static void put_step(struct client_op *op)
{
	struct worker *k = op->user;
	uint64_t left = k->content.bytes - k->at, len;

	if (op->err.code < 0) {
		workload__failed(k, op, false);
		put_abort(k);
		return;
	}
	if (k->give_up && (left == 0 || workload__chance(k, 40))) {
		put_abort(k);
		return;
	}
	workload__clear(op);
	op->file = k->file;
	if (left == 0) {
		put_close(k, op, put_closed);
		return;
	}
	if (k->at > 0 && workload__chance(k, 5)) {
		workload__start_op(k, op, CLIENT_FSYNC, put_step);
		return;
	}
	len = workload__chance(k, 50) ? left : rng_between(&k->rng, 1, left);
	op->flags = CLIENT_WRITE_COPY;
	op->buf = k->buf + k->at;
	op->len = len;
	op->offset = k->at;
	k->at += len;
	workload__start_op(k, op, CLIENT_WRITE, put_step);
}

/* The other way: all of it in place, the close right behind it; two operations under way. */
static void put_both_done(struct worker *k)
{
	if (--k->pending == 0)
		put_closed(&k->op2);
}

static void put_written(struct client_op *op)
{
	put_both_done(op->user);
}

static void put_whole_closed(struct client_op *op)
{
	put_both_done(op->user);
}

static void put_whole(struct worker *k)
{
	struct client_op *op = &k->op;

	workload__clear(op);
	op->file = k->file;
	op->buf = k->buf;
	op->len = k->content.bytes;
	k->pending = 2;
	workload__start_op(k, op, CLIENT_WRITE, put_written);
	put_close(k, &k->op2, put_whole_closed);
}

static void put_opened(struct client_op *op)
{
	struct worker *k = op->user;

	if (op->err.code < 0) {
		workload__failed(k, op, false);
		k->w->checker->refused++;
		workload__job_end(k);
		return;
	}
	k->file = op->ret_file;
	content_fill(k->content, 0, k->buf, k->content.bytes);
	if (!k->give_up && k->content.bytes > 0 && workload__chance(k, 40))
		put_whole(k);
	else
		put_step(op);
}

static bool put(struct worker *k, struct checker_entry *e, bool give_up)
{
	struct client_op *op = &k->op;

	if (!e)
		return false;
	k->entry = e;
	k->content = checker_new_content(k->w->checker, workload__some_size(k));
	k->give_up = give_up;
	k->what = give_up ? "put-given-up" : "put";
	op->path = e->path;
	op->flags = CR_WRITE | CR_ATOMIC;
	op->mode = 0644;
	workload__start_op(k, op, CLIENT_OPEN, put_opened);
	return true;
}

bool workload__job_put(struct worker *k)
{
	bool is_full = workload__count_own(k, checker_is_file) >= NAMES_MAX;

	return put(k,
		is_full || workload__chance(k, 30) ? workload__pick(k, checker_is_file, false) : workload__free_name(k),
		false);
}

bool workload__job_put_given_up(struct worker *k)
{
	return put(
		k, workload__chance(k, 50) ? workload__pick(k, checker_is_file, false) : workload__free_name(k), true);
}

/* ---- a file written in the open ---- */

static void stream_ended(struct client_op *op)
{
	struct worker *k = op->user;
	bool is_closed = op->kind == CLIENT_CLOSE && op->err.code == 0;

	k->file = NULL;
	if (op->kind == CLIENT_CLOSE && op->err.code < 0)
		workload__failed(k, op, false);
	checker_stream_end(k->w->checker, k->entry, is_closed ? CHECKER_DONE : CHECKER_UNKNOWN);
	workload__acknowledged(k, op);
	workload__job_end(k);
}

static void stream_end(struct worker *k, enum client_op_kind kind)
{
	workload__clear(&k->op);
	k->op.file = k->file;
	workload__start_op(k, &k->op, kind, stream_ended);
}

static void stream_step(struct client_op *op)
{
	struct worker *k = op->user;
	uint64_t left = k->content.bytes - k->at, len;

	if (op->err.code < 0) {
		workload__failed(k, op, false);
		stream_end(k, CLIENT_ABORT);
		return;
	}
	if (op->kind == CLIENT_FSYNC) {
		checker_stream_synced(k->w->checker, k->entry, k->at);
		workload__acknowledged(k, op);
	}
	if (left == 0 || workload__chance(k, 3)) {
		stream_end(k, left == 0 ? CLIENT_CLOSE : CLIENT_ABORT);
		return;
	}
	workload__clear(op);
	op->file = k->file;
	if (k->at > 0 && workload__chance(k, 40)) {
		workload__start_op(k, op, CLIENT_FSYNC, stream_step);
		return;
	}
	len = rng_between(&k->rng, 1, left);
	op->flags = CLIENT_WRITE_COPY;
	op->buf = k->buf + k->at;
	op->len = len;
	op->offset = k->at;
	k->at += len;
	workload__start_op(k, op, CLIENT_WRITE, stream_step);
}

static void stream_opened(struct client_op *op)
{
	struct worker *k = op->user;

	if (op->err.code < 0) {
		/* It may have replaced what was there by an empty file. */
		workload__failed(k, op, false);
		checker_stream_end(k->w->checker, k->entry, CHECKER_UNKNOWN);
		workload__job_end(k);
		return;
	}
	k->file = op->ret_file;
	checker_stream_made(k->w->checker, k->entry);
	content_fill(k->content, 0, k->buf, k->content.bytes);
	stream_step(op);
}

bool workload__job_stream(struct worker *k)
{
	bool is_full = workload__count_own(k, checker_is_file) >= NAMES_MAX;

	k->entry =
		is_full || workload__chance(k, 30) ? workload__pick(k, checker_is_file, false) : workload__free_name(k);
	if (!k->entry)
		return false;
	k->what = "stream";
	k->content = checker_new_content(k->w->checker, workload__some_size(k));
	k->op.path = k->entry->path;
	k->op.flags = CR_WRITE;
	k->op.mode = 0644;
	checker_stream_begin(k->w->checker, k->entry, k->content);
	workload__stream_open(k);
	return true;
}

void workload__stream_open(struct worker *k)
{
	workload__start_op(k, &k->op, CLIENT_OPEN, stream_opened);
}
