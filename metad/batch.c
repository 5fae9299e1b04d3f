/* SPDX-License-Identifier: Apache-2.0 */
/*
 * batch: commands of one turn of the loop become one log entry (more if they do not fit), one write, one sync.
 *
 *   metad__submit --> open --turn's end, or full--> held --a place in flight--> ledger --applied--> free
 *
 * At most METAD_BATCHES_IN_FLIGHT are with the journal: the log writes no more at once, and what comes meanwhile shares
 * the next entry instead of making many small ones. While the table in memory has no room the ledger holds them;
 * requests then wait here, and beyond METAD_BATCHES they are refused.
 *
 * An entry says at which cluster version it was written, and one that is raised refuses those of before: behind an entry that raises it
 * nothing is given to the ledger until that is applied.
 *
 * Results are given out inside apply, command by command, after the entry is durable. If the ledger fails, or leads no
 * longer, every command of every batch that was not applied gets the reason; what was given to the ledger may still come to life, by the next
 * start or the next leader.
 */
#include "metad/core.h"

#include "common/base/check.h"
#include "common/base/limits.h"
#include "common/base/mem.h"

enum { FIRST_ITEMS = 64 };

/*
 * Whatever the command that is alone in its entry, its commit finds room in half of what is reserved: a page for each row and for each level
 * above it, each cut in two (kv_backend.h). The other half is for the commit that runs.
 */
enum { TABLE_DEPTH = 8, TABLE_PAGE_BYTES = 4096 };
_Static_assert(2ull * (STATE_COMMAND_ROWS + STATE_SESSION_ROW_BYTES / STATE_ROW_MEMORY_BYTES + 2) * (1 + TABLE_DEPTH) * TABLE_PAGE_BYTES +
			3 * (LIMIT_LOG_ENTRY_BYTES + STATE_COMMAND_ROWS * STATE_ROW_MEMORY_BYTES) + (1 << 20) <=
		METAD_ROOM_BYTES / 2,
	"one command always finds room");

static void batches_move(struct metad *md);

static struct batch *batch_get(struct metad *md)
{
	struct batcher *b = &md->batcher;
	struct list *link = list_pop_front(&b->free);
	struct batch *batch;

	if (link)
		return LIST_ENTRY(link, struct batch, link);
	if (b->count == METAD_BATCHES)
		return NULL;
	b->count++;
	batch = MEM_NEW(struct batch);
	batch->md = md;
	batch->data = mem_alloc(LEDGER_ENTRY_BYTES);
	batch->cap = FIRST_ITEMS;
	batch->items = mem_array(batch->cap, sizeof(*batch->items));
	list_init(&batch->link);
	return batch;
}

static void batch_clear(struct batch *batch)
{
	wcursor_init(&batch->w, batch->data, LEDGER_ENTRY_BYTES);
	wcursor_zeros(&batch->w, STATE_ENTRY_HEADER_BYTES);
	batch->count = batch->answered = 0;
	batch->rows = batch->entry.rows = STATE_ENTRY_OWN_ROWS;
	batch->raises = false;
}

static void batch_free(struct batch *batch)
{
	mem_free(batch->items);
	mem_free(batch->data);
	mem_free(batch);
}

static void on_hook(struct io_turn_hook *hook)
{
	batches_move(CONTAINER_OF(hook, struct metad, batcher.hook));
}

void metad__batch_init(struct metad *md)
{
	list_init(&md->batcher.free);
	list_init(&md->batcher.held);
	io_turn_hook_init(&md->batcher.hook, on_hook);
}

void metad__batch_fini(struct metad *md)
{
	struct batcher *b = &md->batcher;
	struct list *link;

	CHECK(metad__batches_idle(md));
	io_turn_hook_remove(md->io, &b->hook);
	while ((link = list_pop_front(&b->free)))
		batch_free(LIST_ENTRY(link, struct batch, link));
}

bool metad__batches_idle(const struct metad *md)
{
	return !md->batcher.open && md->batcher.in_flight == 0 && list_empty(&md->batcher.held);
}

/* Whoever was not answered yet hears `status`. */
static void batch_fail(struct batch *batch, int status)
{
	while (batch->answered < batch->count) {
		struct batch_item *item = &batch->items[batch->answered++];

		item->fn(batch->md, item->arg, status, NULL);
	}
}

static void batch_done(struct ledger_entry *entry, int code)
{
	struct batch *batch = CONTAINER_OF(entry, struct batch, entry);
	struct metad *md = batch->md;

	CHECK(code || batch->answered == batch->count);
	batch_fail(batch, code);
	md->batcher.in_flight--;
	if (batch->raises)
		md->batcher.raising = false;
	if (code == 0) {
		md->batcher.entries++;
		md->batcher.commands += batch->count;
		metrics_observe(&md->batcher.seconds, io_now_ns(md->io) - batch->submitted_ns);
	}
	list_push_back(&md->batcher.free, &batch->link);
	io_at_turn_end(md->io, &md->batcher.hook);
	metad__maybe_stopped(md);
}

static void batch_submit(struct metad *md, struct batch *batch)
{
	struct state_entry header = {
		.cluster_version = md->state.formatted ? md->state.meta.version : metad__first_version(md),
		.time_ms = metad__now_ms(md),
		.count = batch->count,
	};

	state_entry_encode(&header, batch->data);
	md->logged_ms = header.time_ms;
	batch->entry.done = batch_done;
	batch->entry.data = slice_of(batch->data, batch->w.len);
	md->batcher.in_flight++;
	md->batcher.raising |= batch->raises;
	batch->submitted_ns = io_now_ns(md->io);
	ledger_submit(md->ledger, &batch->entry);
}

static void close_open(struct batcher *b)
{
	if (b->open)
		list_push_back(&b->held, &b->open->link);
	b->open = NULL;
}

static void fail_held(struct metad *md, int status)
{
	struct batcher *b = &md->batcher;
	struct list *link;

	close_open(b);
	while ((link = list_pop_front(&b->held))) {
		batch_fail(LIST_ENTRY(link, struct batch, link), status);
		list_push_back(&b->free, link);
	}
	metad__maybe_stopped(md);
}

void metad__batches_drop(struct metad *md)
{
	fail_held(md, ERR_NOT_LEADER);
}

static bool may_submit(const struct batcher *b)
{
	return b->in_flight < METAD_BATCHES_IN_FLIGHT && !b->raising;
}

/* In a group an entry costs each member a write, and the leader letters: what is being filled waits for company while another one is in flight. */
static bool open_is_due(const struct metad *md)
{
	const struct batcher *b = &md->batcher;

	return b->open && (b->in_flight == 0 || md->options.group.id == 0 || b->open->count >= METAD_BATCH_WORTH);
}

/* Gives the ledger what it may have now; after a failure, gives everything back. */
static void batches_move(struct metad *md)
{
	struct batcher *b = &md->batcher;

	if (md->failed) {
		fail_held(md, ERR_STOPPED);
		return;
	}
	while (!list_empty(&b->held) && may_submit(b))
		batch_submit(md, LIST_ENTRY(list_pop_front(&b->held), struct batch, link));
	if (may_submit(b) && open_is_due(md)) {
		struct batch *batch = b->open;

		b->open = NULL;
		batch_submit(md, batch);
	}
}

/* Where the disk is all but full an entry is no more than its commit surely finds room for. */
static bool has_room(const struct batch *batch, uint32_t rows, uint32_t derived)
{
	uint64_t memory = batch->w.len + (uint64_t)(batch->rows + rows) * STATE_ROW_MEMORY_BYTES;

	return batch->count == 0 ||
		(batch->rows + rows <= METAD_ENTRY_ROWS &&
			kv_fits(batch->md->state.kv, memory, (uint64_t)batch->entry.rows + rows + derived));
}

/* An open batch with room for the command in md->cmd, which is then in it. */
static struct batch *batch_take(struct metad *md)
{
	struct batcher *b = &md->batcher;
	uint32_t rows = state_cmd_rows(&md->cmd) + state_session_rows(&md->state, &md->cmd.request),
		 derived = state_cmd_derived_rows(&md->cmd);

	for (int attempt = 0; attempt < 2; attempt++) {
		if (!b->open) {
			b->open = batch_get(md);
			if (!b->open)
				return NULL;
			batch_clear(b->open);
		}
		if (has_room(b->open, rows, derived)) {
			state_cmd_encode(&md->cmd, &b->open->w);
			if (!b->open->w.failed) {
				b->open->rows += rows;
				b->open->entry.rows += rows + derived;
				return b->open;
			}
			b->open->w.failed = false; /* full: its length is as before */
		}
		list_push_back(&b->held, &b->open->link);
		b->open = NULL;
	}
	CHECK_UNREACHABLE(); /* every command fits an empty entry */
}

static bool submit(struct metad *md, metad_result_fn *fn, void *arg)
{
	struct batch *batch = md->failed || !md->role.leads ? NULL : batch_take(md);

	if (!batch)
		return false;
	if (batch->count == batch->cap) {
		batch->cap *= 2;
		batch->items = mem_realloc(batch->items, batch->cap * sizeof(*batch->items));
	}
	batch->items[batch->count++] = (struct batch_item){.fn = fn, .arg = arg};
	batch->raises |= md->cmd.type == STATE_CMD_RAISE;
	io_at_turn_end(md->io, &md->batcher.hook);
	return true;
}

bool metad__submit(struct metad *md, metad_result_fn *fn, void *arg)
{
	md->cmd.request.session = 0;
	return submit(md, fn, arg);
}

void metad__submit_change(struct metad *md, metad_result_fn *fn, struct rpc_req *req, const Craton__RequestId *id)
{
	if (!metad__session_good(md, req, id))
		return;
	md->cmd.request = (struct state_request){
		.session = id->session, .seq = id->number, .ahead = (uint8_t)(id->number - id->unanswered)};
	if (submit(md, fn, req)) {
		md->background.asked++; /* a group's changes do not wait at the gate */
		rpc_req_forget_msg(req); /* all of it is in the entry */
	} else {
		rpc_reply_status(req, ERR_OVERLOADED);
	}
}

void metad__submit_req(struct metad *md, metad_result_fn *fn, struct rpc_req *req)
{
	if (!metad__submit(md, fn, req))
		rpc_reply_status(req, ERR_OVERLOADED);
}

static void on_result(void *ctx, uint32_t number, const struct state_cmd *cmd, const struct state_result *res)
{
	struct batch *batch = ctx;
	struct batch_item *item;

	(void)cmd;
	CHECK(number == batch->answered && number < batch->count);
	item = &batch->items[batch->answered++];
	item->fn(batch->md, item->arg, res->status, res);
}

int metad__apply(void *ctx, struct kv *kv, struct slice data, struct ledger_entry *entry, struct err *err)
{
	struct metad *md = ctx;
	int code;

	if (!md->state.kv) {
		code = state_open_as(&md->state, kv, md->options.supports);
		if (code) {
			*err = md->state.fault;
			return code;
		}
	}
	if (!entry)
		return state_apply(&md->state, data, NULL, NULL, err);
	return state_apply(&md->state, data, on_result, CONTAINER_OF(entry, struct batch, entry), err);
}

uint64_t metad__entry_rows(void *ctx, struct slice data)
{
	struct metad *md = ctx;

	return state_entry_rows(&md->state, data);
}

bool metad__digest(void *ctx, uint32_t *ret_digest)
{
	return state_digest(&((struct metad *)ctx)->state, ret_digest);
}

uint16_t metad__version(void *ctx)
{
	const struct metad *md = ctx;

	return md->state.formatted ? md->state.meta.version : 0;
}
