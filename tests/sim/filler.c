// SPDX-License-Identifier: Apache-2.0
/* filler: see the header. Each step starts one operation of the first client, whose `done` is the next. */
#include "tests/sim/filler.h"

#include <string.h>
#include "common/base/check.h"
#include "common/base/mem.h"
#include "tests/sim/workload.h"

enum {
	BYTES = 300 << 10,    /* of a file: more than a block */
	LEFT_BYTES = 3 << 19, /* less than two segments of a log, and more than one */
	PAUSE_MS = 50,
	SETTLE_MS = 30 * 1000, /* what others of a group say of their room is as old as their last commit, of a tick, and letter */
};

static void make_next(struct filler *f);
static void make_again(struct filler *f);
static void remove_next(struct filler *f);

/* ---- operations ---- */

static struct cluster_node *client_of(struct filler *f)
{
	return &f->cluster->nodes[f->cluster->first_client];
}

static void start(struct filler *f, enum client_op_kind kind, void (*done)(struct client_op *op))
{
	f->op.kind = kind;
	f->op.done = done;
	f->op.user = f;
	cluster_client_start(f->cluster, f->cluster->first_client, &f->op);
}

static void clear(struct filler *f)
{
	memset(&f->op, 0, sizeof(f->op));
}

static void fail(struct filler *f, const struct client_op *op, const char *when)
{
	cluster_fail(f->cluster, "%s of %s %s: %s: %s", workload_op_name(op->kind), f->entry->path, when,
		err_name(op->err.code), op->err.text);
}

/* False: it went wrong, which nothing excuses. */
static bool went_well(struct filler *f, const struct client_op *op)
{
	if (op->err.code)
		fail(f, op, "around a full disk of metad's");
	return op->err.code == 0;
}

static void pause(struct filler *f, uint64_t ms, void (*done)(struct io_op *op))
{
	struct io *io = client_of(f)->io;

	io_prep_timer(&f->pause, io_now_ns(io) + ms * CLUSTER_MS, done);
	io_submit(io, &f->pause);
}

/* One request that changes the name of f->entry. */
static void change(struct filler *f, struct checker_entry *e, enum client_op_kind kind, uint64_t next,
	void (*done)(struct client_op *op))
{
	f->entry = e;
	clear(f);
	f->op.path = e->path;
	f->op.mode = 0755;
	checker_begin(f->checker, e, (struct content){.id = next});
	start(f, kind, done);
}

/* ---- a put, a look ---- */

static void put_closed(struct client_op *op)
{
	struct filler *f = op->user;

	if (!went_well(f, op))
		return;
	checker_end(f->checker, f->entry, CHECKER_DONE);
	f->then(f);
}

static void put_written(struct client_op *op)
{
	struct filler *f = op->user;

	if (!went_well(f, op))
		return;
	checker_begin(f->checker, f->entry, f->content);
	clear(f);
	f->op.file = f->file;
	start(f, CLIENT_CLOSE, put_closed);
}

static void put_opened(struct client_op *op)
{
	struct filler *f = op->user;

	if (!went_well(f, op))
		return;
	f->file = op->ret_file;
	content_fill(f->content, 0, f->buf, f->content.bytes);
	clear(f);
	f->op.file = f->file;
	f->op.flags = CLIENT_WRITE_COPY;
	f->op.buf = f->buf;
	f->op.len = f->content.bytes;
	start(f, CLIENT_WRITE, put_written);
}

static void open_to_put(struct filler *f, struct checker_entry *e, void (*done)(struct client_op *op))
{
	f->entry = e;
	clear(f);
	f->op.path = e->path;
	f->op.flags = CR_WRITE | CR_ATOMIC;
	f->op.mode = 0644;
	start(f, CLIENT_OPEN, done);
}

static void put(struct filler *f, struct checker_entry *e, void (*then)(struct filler *f))
{
	f->then = then;
	f->content = checker_new_content(f->checker, BYTES);
	open_to_put(f, e, put_opened);
}

static void look_closed(struct client_op *op)
{
	struct filler *f = op->user;

	if (went_well(f, op))
		f->then(f);
}

static void look_read(struct client_op *op)
{
	struct filler *f = op->user;

	if (!went_well(f, op))
		return;
	checker_look_read(f->checker, &f->look, 0, f->buf, BYTES + 1, op->count);
	clear(f);
	f->op.file = f->file;
	start(f, CLIENT_CLOSE, look_closed);
}

static void look_opened(struct client_op *op)
{
	struct filler *f = op->user;

	if (!went_well(f, op))
		return;
	f->file = op->ret_file;
	checker_look_opened(f->checker, &f->look, op->attr.size);
	clear(f);
	f->op.file = f->file;
	f->op.buf = f->buf;
	f->op.len = BYTES + 1;
	start(f, CLIENT_READ, look_read);
}

static void look(struct filler *f, struct checker_entry *e, void (*then)(struct filler *f))
{
	f->then = then;
	f->entry = e;
	checker_look_begin(f->checker, &f->look, e);
	clear(f);
	f->op.path = e->path;
	f->op.flags = CR_READ;
	start(f, CLIENT_OPEN, look_opened);
}

/* ---- room again ---- */

static void all_done(struct filler *f)
{
	f->done = true;
}

static void leave(struct filler *f, uint64_t bytes)
{
	cluster_note(f->cluster, "filler leaves %llu bytes", (unsigned long long)bytes);
	for (unsigned i = 0; i < cluster_metads(f->cluster); i++)
		sim_disk_leave(f->cluster->nodes[cluster_metad_node(f->cluster, i)].io, bytes);
}

static void waited_for_room(struct io_op *op)
{
	make_again(CONTAINER_OF(op, struct filler, pause));
}

static void made_again(struct client_op *op)
{
	struct filler *f = op->user;
	bool refused = op->err.code == ERR_META_FULL;

	if (!refused && !went_well(f, op))
		return;
	checker_end(f->checker, f->entry, refused ? CHECKER_NOT_DONE : CHECKER_DONE);
	if (refused)
		pause(f, PAUSE_MS, waited_for_room);
	else
		put(f, f->later, all_done);
}

static void make_again(struct filler *f)
{
	change(f, f->dirs[0], CLIENT_MKDIR, CHECKER_DIRECTORY, made_again);
}

/* ---- full ---- */

static void removed(struct client_op *op)
{
	struct filler *f = op->user;

	if (!went_well(f, op))
		return;
	checker_end(f->checker, f->entry, CHECKER_DONE);
	remove_next(f);
}

static void settled(struct io_op *op)
{
	make_again(CONTAINER_OF(op, struct filler, pause));
}

static void remove_next(struct filler *f)
{
	if (!checker_is_nothing(f->gone)) {
		change(f, f->gone, CLIENT_UNLINK, CHECKER_NOTHING, removed);
	} else if (f->removed < f->made) {
		change(f, f->dirs[f->removed++], CLIENT_RMDIR, CHECKER_NOTHING, removed);
	} else {
		leave(f, UINT64_MAX);
		pause(f, SETTLE_MS, settled);
	}
}

static void put_refused(struct client_op *op)
{
	struct filler *f = op->user;

	if (op->err.code != ERR_META_FULL)
		fail(f, op, "is not refused on a full disk of metad's");
	else
		look(f, f->kept, remove_next);
}

static void waited(struct io_op *op)
{
	make_next(CONTAINER_OF(op, struct filler, pause));
}

static void made(struct client_op *op)
{
	struct filler *f = op->user;
	bool refused = op->err.code == ERR_META_FULL;

	if (!refused && !went_well(f, op))
		return;
	checker_end(f->checker, f->entry, refused ? CHECKER_NOT_DONE : CHECKER_DONE);
	f->made += !refused;
	if (refused)
		open_to_put(f, f->later, put_refused);
	else
		pause(f, PAUSE_MS, waited);
}

/* What a log gives back, somebody else takes. */
static void keep_full(struct filler *f)
{
	uint64_t total, left;

	for (unsigned i = 0; i < cluster_metads(f->cluster); i++) {
		struct io *io = f->cluster->nodes[cluster_metad_node(f->cluster, i)].io;

		if (io_disk_space(io, "/", &total, &left) == 0 && left > LEFT_BYTES)
			sim_disk_leave(io, LEFT_BYTES);
	}
}

static void make_next(struct filler *f)
{
	char path[CHECKER_PATH_BYTES];

	keep_full(f);

	if (f->made == FILLER_DIRS_MAX) {
		cluster_fail(f->cluster, "%u directories were made on a full disk of metad's", f->made);
		return;
	}
	snprintf(path, sizeof(path), "%.*s/%u", CHECKER_PATH_BYTES - 16, f->home->path, f->made);
	f->dirs[f->made] = checker_add(f->checker, WORKLOAD_WORKERS, path);
	change(f, f->dirs[f->made], CLIENT_MKDIR, CHECKER_DIRECTORY, made);
}

/* ---- the beginning ---- */

static void has_home(struct client_op *op)
{
	struct filler *f = op->user;

	if (!went_well(f, op))
		return;
	checker_end(f->checker, f->entry, CHECKER_DONE);
	leave(f, LEFT_BYTES);
	make_next(f);
}

static void make_home(struct filler *f)
{
	change(f, f->home, CLIENT_MKDIR, CHECKER_DIRECTORY, has_home);
}

static void put_gone(struct filler *f)
{
	put(f, f->gone, make_home);
}

void filler_begin(struct filler *f, struct cluster *cluster, struct checker *checker)
{
	*f = (struct filler){.cluster = cluster, .checker = checker, .buf = mem_alloc(BYTES + 1)};
	f->home = checker_add(checker, WORKLOAD_WORKERS, "/full");
	f->kept = checker_add(checker, WORKLOAD_WORKERS, "/full-kept");
	f->gone = checker_add(checker, WORKLOAD_WORKERS, "/full-gone");
	f->later = checker_add(checker, WORKLOAD_WORKERS, "/full-later");
	put(f, f->kept, put_gone);
}

void filler_end(struct filler *f)
{
	mem_free(f->buf);
	f->buf = NULL;
}
