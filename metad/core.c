/* SPDX-License-Identifier: Apache-2.0 */
/*
 * core: the daemon's life.
 *
 *   metad_start: ledger opened (synchronous) --> listening --it leads (lead.c)--format, if new; raise, if one log of an older build--> ready
 *   metad_stop:  no new requests --> of a group, leadership handed over --> batches answered --> ledger closed --> freed, `stopped`
 *   a failure:   on_fatal once; every request from then on gets ERR_STOPPED; the owner ends the process
 *
 * State time is a number in the replicated state: every entry carries the leader's, which is the one it found when it
 * began to lead plus what its monotonic clock has counted since. A leader goes on where the last entry stood; an idle metad
 * writes a tick every METAD_TICK_MS, so a crash takes at most that much of it back, which only makes tokens and the
 * floor wait longer.
 */
#include "metad/core.h"

#include <stdio.h>
#include "common/base/check.h"
#include "common/base/limits.h"
#include "common/base/mem.h"
#include "common/base/sometimes.h"
#include "common/code/ec.h"
#include "common/rpc/methods.h"
#include "metad/restore.h"

enum {
	METAD_MAGIC = 0x6d657464,
	DEFAULT_CELL_BYTES = 1 << 20,
	DEFAULT_CHUNK_BYTES = 4 << 20,
	TIMER_MS = 250,
};

static const uint64_t MS_NS = 1000 * 1000;

static void on_raft(void *ctx, struct rpc_req *req)
{
	ledger_handle_raft(metad__of(ctx)->ledger, req);
}

const struct rpc_handler metad__handlers[] = {
	{.method = &rpc_metad_lookup, .handle = metad__lookup},
	{.method = &rpc_metad_readdir, .handle = metad__readdir},
	{.method = &rpc_metad_mkdir, .handle = metad__mkdir},
	{.method = &rpc_metad_remove, .handle = metad__remove},
	{.method = &rpc_metad_rename, .handle = metad__rename},
	{.method = &rpc_metad_setattr, .handle = metad__setattr},
	{.method = &rpc_metad_policy, .handle = metad__policy},
	{.method = &rpc_metad_create, .handle = metad__create},
	{.method = &rpc_metad_allocate, .handle = metad__allocate},
	{.method = &rpc_metad_commit, .handle = metad__commit},
	{.method = &rpc_metad_abort, .handle = metad__abort},
	{.method = &rpc_metad_layout, .handle = metad__layout},
	{.method = &rpc_metad_df, .handle = metad__df},
	{.method = &rpc_metad_status, .handle = metad__status},
	{.method = &rpc_metad_register, .handle = metad__register},
	{.method = &rpc_metad_heartbeat, .handle = metad__heartbeat},
	{.method = &rpc_metad_config, .handle = metad__config},
	{.method = &rpc_metad_drops, .handle = metad__drops},
	{.method = &rpc_metad_inventory, .handle = metad__inventory},
	{.method = &rpc_metad_gc, .handle = metad__gc},
	{.method = &rpc_metad_report, .handle = metad__report},
	{.method = &rpc_metad_session_open, .handle = metad__session_open},
	{.method = &rpc_metad_session_renew, .handle = metad__session_renew},
	{.method = &rpc_metad_session_close, .handle = metad__session_close},
	{.method = &rpc_metad_link, .handle = metad__link},
	{.method = &rpc_metad_symlink, .handle = metad__symlink},
	{.method = &rpc_metad_readlink, .handle = metad__readlink},
	{.method = &rpc_metad_truncate, .handle = metad__truncate},
	{.method = &rpc_metad_xattr_set, .handle = metad__xattr_set},
	{.method = &rpc_metad_xattr_remove, .handle = metad__xattr_remove},
	{.method = &rpc_metad_xattr_get, .handle = metad__xattr_get},
	{.method = &rpc_metad_backup, .handle = metad__backup},
	{.method = &rpc_metad_maintenance, .handle = metad__maintenance},
	{.method = &rpc_metad_raft, .handle = on_raft},
	{.method = &rpc_metad_members, .handle = metad__members},
	{.method = NULL},
};

struct metad *metad__of(void *ctx)
{
	struct metad *md = ctx;

	CHECK_MAGIC(md, METAD_MAGIC);
	return md;
}

uint64_t metad__now_ms(const struct metad *md)
{
	if (!md->role.leads)
		return md->state.meta.time_ms;
	return md->base_ms + (io_now_ns(md->io) - md->base_ns) / MS_NS;
}

/* ---- requests that wait ---- */

void metad__wait(struct list *list, struct rpc_req *req)
{
	struct waiting *w = MEM_NEW(struct waiting);

	w->req = req;
	list_push_back(list, &w->link);
}

struct rpc_req *metad__unwait(struct list *list)
{
	struct list *link = list_pop_front(list);
	struct waiting *w = link ? LIST_ENTRY(link, struct waiting, link) : NULL;
	struct rpc_req *req = w ? w->req : NULL;

	mem_free(w);
	return req;
}

void metad__fail_waiting(struct list *list, int status)
{
	struct rpc_req *req;

	while ((req = metad__unwait(list)))
		rpc_reply_status(req, status);
}

/* It is in the session's replies: sent again after it was done. */
static bool was_answered(const struct metad *md, const Craton__RequestId *id)
{
	const struct state_session *session = id ? state_session_at(&md->state, id->session) : NULL;

	return session && id->number && session->replies[id->number % STATE_WINDOW].seq == id->number;
}

bool metad__refuse_growth(struct metad *md, struct rpc_req *req, const Craton__RequestId *id)
{
	if (!ledger_is_full(md->ledger) || was_answered(md, id))
		return false;
	if (!metad__ask_first(md, req))
		rpc_reply_status(req, ERR_META_FULL);
	SOMETIMES(metad_growth_refused);
	return true;
}

/* ---- failure ---- */

static const char *next_step(const struct metad *md, int code)
{
	if (code == ERR_CORRUPT && md->options.group.id)
		return "no start will mend it: craton meta remove this one, and add one under the next number, in an empty directory; of a group of one, "
		       "restore a backup (docs/groups.md)";
	if (code == ERR_CORRUPT)
		return "no start will mend it: craton meta restore a backup into an empty directory (docs/DEPLOY.md)";
	if (code == ERR_NOSPC)
		return "free space there, then start again";
	if (code == ERR_VERSION)
		return "start the build that this asks for";
	if (code == ERR_EXIST && md->options.group.found)
		return "no start will mend it";
	return "remove the cause, then start again";
}

void metad__fatal(struct metad *md, int code, const char *text)
{
	if (md->failed)
		return;
	md->failed = code;
	log_line(md->options.log, LOG_ERROR, "fatal", "error=%s text=%s next=%s", err_name(code), text, next_step(md, code));
	metad__gate_fail(md, ERR_STOPPED);
	metad__fail_waiting(&md->range.waiting, ERR_STOPPED);
	io_at_turn_end(md->io, &md->batcher.hook);
	if (md->options.on_fatal)
		md->options.on_fatal(md->options.ctx, code, text);
}

static void on_ledger_fatal(void *ctx, int code, const char *text)
{
	metad__fatal(metad__of(ctx), code, text);
}

static const char *founder_text(enum ledger_wait why, int status)
{
	switch (why) {
	case LEDGER_WAIT_ACCEPT:
		return "it answers, and waits, too: its log says for whom";
	case LEDGER_WAIT_DIFFER:
		return "one of the founders lost its directory since the founding began, or they name different ones: see docs/groups.md, and empty no directory of a metad that may have served";
	case LEDGER_WAIT_UNSAID:
		return "it is in the group, and cannot say with which directories that was founded (founders-unread in its log): unless another one can, replace this metad as one that lost its disk (docs/groups.md)";
	case LEDGER_WAIT_DISK:
		return "the own disk has not taken DIR/log/founders yet";
	case LEDGER_WAIT_ANSWER:
		break;
	}
	return status == ERR_PROTO ? "its build is older than this one, and is not asked whether it is in a group: if it founds this one, all are founded by the older build (docs/groups.md)"
		: status == ERR_NOENT || status == ERR_ACCES
		? "who is there is no founder of that number, or has another secret: all must name the same `metad`, in the same order"
		: "all that found a group must be up at the same time, once";
}

static void on_ledger_wait(void *ctx, uint64_t id, enum ledger_wait why, int status)
{
	struct metad *md = metad__of(ctx);
	bool is_own = why == LEDGER_WAIT_DISK;
	const char *error = why == LEDGER_WAIT_DIFFER ? err_name(ERR_STALE) : status && !is_own ? err_name(status) : "-";

	log_line(md->options.log, status || (why != LEDGER_WAIT_ANSWER && why != LEDGER_WAIT_ACCEPT) ? LOG_WARN : LOG_INFO, "waits-for-founder",
		"metad=%llu error=%s text=\"%s\"", (unsigned long long)(is_own ? md->options.group.id : id), error, founder_text(why, status));
}

static void on_ledger_warn(void *ctx, const char *event, const char *text)
{
	log_line(metad__of(ctx)->options.log, LOG_WARN, event, "text=\"%s\"", text);
}

/* ---- time ---- */

static void on_tick(struct metad *md, void *arg, int status, const struct state_result *res)
{
	(void)md, (void)arg, (void)status, (void)res;
}

static void on_rolled(struct metad *md, void *arg, int status, const struct state_result *res)
{
	(void)arg;
	md->rolling = false;
	if (res && !status)
		log_line(md->options.log, LOG_INFO, "token-key-rolled", "id=%u", md->state.meta.token_keys[0].id);
}

/* After a restore the first roll comes as soon as it can, so that the key from before it goes. */
static uint64_t token_life_ms(const struct metad *md)
{
	return state_restore_keys_old(&md->state) ? METAD_TOKEN_SETTLE_MS : METAD_TOKEN_ROLL_MS;
}

/* Who would see it elsewhere sees only that another leads. */
static void note_ill(struct metad *md)
{
	static const struct {
		const char *event, *text;
	} words[] = {
		[LEDGER_WELL] = {"disk-answers", "it may lead again"},
		[LEDGER_LOG_HANGS] = {"log-hangs", "nothing written to it comes back: its disk is slow, full or gone; others lead meanwhile"},
		[LEDGER_ROWS_STAND] = {"table-stands", "it takes no more entries: its disk is slow, full or gone; others lead meanwhile"},
	};
	enum ledger_ill ill = ledger_ill(md->ledger);

	if (ill != md->ill)
		log_line(md->options.log, ill ? LOG_WARN : LOG_INFO, words[ill].event, "dir=%s text=\"%s\"", md->dir, words[ill].text);
	md->ill = ill;
}

static void on_timer(struct io_op *op)
{
	struct metad *md = CONTAINER_OF(op, struct metad, timer);
	uint64_t now_ms = metad__now_ms(md);

	if (md->stopping || op->result) {
		metad__maybe_stopped(md);
		return;
	}
	if (!md->failed) {
		note_ill(md);
		metad__begin_again(md);
	}
	if (md->ready && !md->failed) {
		metad__check_version(md);
		metad__note_differs(md);
		metad__check_silence(md);
		metad__check_sessions(md);
		metad__backup_tick(md);
		if (now_ms >= md->logged_ms + METAD_TICK_MS ||
			(md->state.meta.floor < md->state.meta.next_block && now_ms >= md->tick_ms + METAD_TICK_MS)) {
			md->cmd.type = STATE_CMD_TICK;
			if (metad__submit(md, on_tick, NULL))
				md->tick_ms = now_ms;
		}
		if (!md->rolling && now_ms >= md->state.meta.token_keys[0].created_ms + token_life_ms(md)) {
			md->cmd.type = STATE_CMD_TOKEN_ROLL;
			io_random(md->io, md->cmd.token_roll.salt, STATE_SALT_BYTES);
			md->rolling = metad__submit(md, on_rolled, NULL);
		}
	}
	metad__drive_timer(md);
}

void metad__drive_timer(struct metad *md)
{
	uint64_t ms = state_config(&md->state, CONFIG_SERVER_DOWN_AFTER) / 4;

	ms = ms > TIMER_MS ? TIMER_MS : ms ? ms : 1;
	io_prep_timer(&md->timer, io_now_ns(md->io) + ms * MS_NS, on_timer);
	io_submit(md->io, &md->timer);
}

/* ---- start ---- */

static void set_defaults(struct metad_options *o)
{
	o->default_policy = o->default_policy ? o->default_policy : "rs-4-2";
	o->cell_bytes = o->cell_bytes ? o->cell_bytes : DEFAULT_CELL_BYTES;
	o->chunk_bytes = o->chunk_bytes ? o->chunk_bytes : DEFAULT_CHUNK_BYTES;
	o->supports = o->supports ? o->supports : STATE_CLUSTER_VERSION;
}

int metad_check_options(const struct metad_options *options, struct err *err)
{
	struct metad_options o = *options;
	const struct ec_policy *policy;
	struct state_policy root;

	set_defaults(&o);
	policy = ec_policy_by_name(o.default_policy);
	if (!policy)
		return err_set(err, ERR_INVAL,
			"policy '%s' is unknown: use rs-4-2, rs-6-3, rs-8-3, rs-8-4, rs-10-4, rs-9-6 or rs-1-2",
			o.default_policy);
	root = (struct state_policy){.id = policy->id, .cell_bytes = o.cell_bytes, .chunk_bytes = o.chunk_bytes};
	if (!state_policy_valid(&root))
		return err_set(err, ERR_INVAL,
			"cells have a multiple of 16 KiB up to 1 MiB, chunks a multiple of the cell up to 64 MiB");
	return 0;
}

static int copy_options(struct metad *md, const struct metad_options *o, struct err *err)
{
	int code = metad_check_options(o, err);

	if (code)
		return code;
	md->options = *o;
	set_defaults(&md->options);
	md->options.default_policy = ec_policy_by_name(md->options.default_policy)->name;
	md->dir = mem_strdup(o->dir);
	md->name = mem_strdup(o->name);
	md->way_path = o->way_path ? mem_strdup(o->way_path) : NULL;
	md->options.way_path = md->way_path;
	md->options.dir = md->dir;
	md->options.name = md->name;
	return 0;
}

static void metad_free(struct metad *md)
{
	state_close(&md->state);
	metad__fleet_fini(md);
	metad__gc_fini(md);
	metad__repair_fini(md);
	metad__sessions_fini(md);
	mem_free(md->candidates);
	mem_free(md->disk_mark);
	mem_free(md->scratch);
	mem_free(md->dir);
	mem_free(md->name);
	mem_free(md->way_path);
	mem_free(md);
}

static struct metad *metad_new(struct io *io)
{
	struct metad *md = MEM_NEW(struct metad);
	uint64_t seed;

	md->magic = METAD_MAGIC;
	md->io = io;
	list_init(&md->gate);
	list_init(&md->asked);
	list_init(&md->range.waiting);
	metad__batch_init(md);
	metad__scan_init(md);
	metad__gc_init(md);
	metad__sessions_init(md);
	metad__sessions_start(md);
	io_random(io, &seed, sizeof(seed));
	rng_init(&md->rng, seed);
	md->disks = mem_array(LIMIT_DISKS + 1, sizeof(*md->disks));
	md->servers = mem_array(STATE_SERVERS + 1, sizeof(*md->servers));
	md->candidates = mem_array(LIMIT_DISKS + 1, sizeof(*md->candidates));
	md->disk_mark = mem_array(LIMIT_DISKS + 1, sizeof(*md->disk_mark));
	md->scratch = MEM_NEW(struct metad_scratch);
	metad__repair_init(md);
	return md;
}

/* Where the file system has no O_DIRECT the log goes through the page cache: slower, as safe. */
static int check_direct(struct metad *md, bool *ret_buffered, struct err *err)
{
	char *path = mem_printf("%s/direct-probe", md->dir);
	int fd, code = io_open(md->io, path, IO_OPEN_WRITE | IO_OPEN_CREATE | IO_OPEN_DIRECT, 0600, &fd);

	*ret_buffered = code == ERR_INVAL;
	if (code == 0)
		io_close(md->io, fd);
	if (code == 0 || *ret_buffered)
		io_unlink(md->io, path); /* if it stays it does no harm */
	mem_free(path);
	if (*ret_buffered)
		log_line(md->options.log, LOG_WARN, "no-direct-io",
			"dir=%s text=\"the file system has no O_DIRECT: slower, through the page cache\"", md->dir);
	if (code && !*ret_buffered)
		return err_set(err, code, "%s cannot be written: %s: make the directory, or mend its rights", md->dir,
			err_text(code));
	return 0;
}

static struct rpc_identity identity(const struct metad *md)
{
	struct rpc_identity self = {.cluster = md->options.cluster, .role = RPC_ROLE_METAD};

	snprintf(self.name, sizeof(self.name), "%s", md->name);
	return self;
}

static int open_ledger(struct metad *md, struct err *err)
{
	struct ledger_options o = {
		.dir = md->dir,
		.backend = md->options.backend,
		.segment_bytes = md->options.log_segment_bytes,
		.keep_bytes = md->options.log_keep_bytes,
		.cluster = md->options.cluster,
		.group = &md->options.group,
		.self = identity(md),
		.listen = md->options.listen,
		.secret = md->options.secret,
		.supports = md->options.supports,
		.transform = md->options.transform,
		.apply = metad__apply,
		.digest = metad__digest,
		.version = metad__version,
		.rows = metad__entry_rows,
		.on_role = metad__on_role,
		.on_table = metad__on_table,
		.on_fatal = on_ledger_fatal,
		.on_wait = on_ledger_wait,
		.on_warn = on_ledger_warn,
		.ctx = md,
	};
	int code = restore_check_dir(md->io, md->dir, err);
	bool converts = false;

	if (!code)
		code = check_direct(md, &o.buffered, err);
	if (!code)
		code = ledger_converts(md->io, &o, &converts, err);
	if (!code && converts)
		code = metad__convert(md, &o, err);
	return code ? code : ledger_open(md->io, &o, &md->ledger, err);
}

int metad__check_state(struct metad *md, struct err *err)
{
	char ours[UUID_TEXT_BYTES], theirs[UUID_TEXT_BYTES];

	if (!md->state.kv && state_open_as(&md->state, ledger_kv(md->ledger), md->options.supports)) {
		*err = md->state.fault;
		return err->code;
	}
	if (state_failure(&md->state, err))
		return err->code;
	if (!md->state.formatted || uuid_equal(&md->state.meta.cluster, &md->options.cluster))
		return 0;
	uuid_format(&md->state.meta.cluster, theirs);
	uuid_format(&md->options.cluster, ours);
	return err_set(err, ERR_WRONG_CLUSTER,
		"%s holds the metadata of cluster %s, the configuration says %s: use the right one of both", md->dir,
		theirs, ours);
}

void metad__count_refused(struct metad *md, const struct rpc_req *req, enum refused_cause cause)
{
	char addr[IO_ADDR_TEXT_BYTES];
	uint64_t unlogged;

	if (refused_count(&md->refused, cause, io_now_ns(md->io), &unlogged))
		log_line(md->options.log, LOG_WARN, "request-refused",
			"cause=%s method=%s peer=%s name=%s unlogged=%llu", refused_name(cause),
			req->handler->method->name, io_addr_format(&req->peer_addr, addr), req->peer->name,
			(unsigned long long)unlogged);
}

static int open_server(struct metad *md, struct err *err)
{
	struct rpc_server_options o = {
		.listen = md->options.listen,
		.self = identity(md),
		.handlers = metad__handlers,
		.ctx = md,
		.conn_closed = metad__conn_closed,
		.transform = md->options.transform,
		.log = md->options.log,
		.refused = &md->refused,
		.max_conns = md->options.max_conns,
		.kin_conns = md->options.group.id ? METAD_KIN_CONNS : 0,
	};

	return rpc_server_open(md->io, &o, &md->server, err);
}

static void ignore_closed(void *ctx)
{
	(void)ctx;
}

/* Of other failures, and of some of these, the text says it. */
static void say_next_step(const struct metad *md, int code, struct err *err)
{
	const char *next = next_step(md, code);
	char text[ERR_TEXT_BYTES];

	if (code != ERR_CORRUPT || strstr(err->text, "craton meta "))
		return;
	snprintf(text, sizeof(text), "%s", err->text);
	err_set(err, code, "%.*s; %s", (int)(sizeof(text) - strlen(next) - 3), text, next);
}

static void count_for_way(void *ctx, struct io_way_sample *sample)
{
	struct metad *md = metad__of(ctx);
	struct rpc_stats rpc;

	rpc_server_get_stats(md->server, &rpc);
	sample->requests = rpc.requests;
	sample->entries = md->batcher.entries;
	sample->entries_ns = md->batcher.seconds.sum_ns;
}

static void on_way_stopped(void *ctx)
{
	metad__maybe_stopped(metad__of(ctx));
}

int metad_start(struct io *io, const struct metad_options *options, struct metad **ret_metad, struct err *err)
{
	struct metad *md = metad_new(io);
	int code = copy_options(md, options, err);

	if (!code)
		code = open_ledger(md, err);
	if (code) {
		say_next_step(md, code, err);
		metad_free(md);
		return code;
	}
	code = metad__check_state(md, err);
	say_next_step(md, code, err);
	if (!code)
		code = metad__metrics_open(md, err);
	if (!code)
		code = open_server(md, err);
	if (code) {
		metad__metrics_close(md, ignore_closed);
		ledger_abandon(md->ledger);
		metad_free(md);
		return code;
	}
	ledger_start(md->ledger);
	if (ledger_waits(md->ledger))
		log_line(md->options.log, LOG_INFO, "waits", "text=\"it belongs to no group yet: craton meta add it, by its address\"");
	metad__drive_timer(md);
	metad__background_start(md);
	io_way_start(&md->way, md->io,
		&(struct io_way_options){.path = md->options.way_path, .count = count_for_way, .stopped = on_way_stopped, .log = md->options.log, .ctx = md});
	metad__table_check_start(md);
	*ret_metad = md;
	return 0;
}

struct io_addr metad_addr(const struct metad *md)
{
	return rpc_server_addr(md->server);
}

/* ---- stop ---- */

static void on_ledger_closed(void *ctx, int code)
{
	struct metad *md = metad__of(ctx);
	void (*stopped)(void *ctx) = md->stopped;
	void *stopped_ctx = md->stopped_ctx;

	if (code && !md->failed)
		log_line(md->options.log, LOG_ERROR, "close-failed", "error=%s", err_name(code));
	metad__batch_fini(md);
	io_way_fini(&md->way);
	metad_free(md);
	stopped(stopped_ctx);
}

/* Every part comes here when it has ended; the last one closes the ledger. */
void metad__maybe_stopped(struct metad *md)
{
	if (!md->stopping || !md->server_closed || md->closing || !metad__batches_idle(md) || !metad__scan_idle(md) ||
		!metad__background_idle(md) || !io_way_idle(&md->way) || !metad__table_check_idle(md) || io_pending(&md->timer))
		return;
	md->closing = true;
	metad__backup_stop(md);
	ledger_close(md->ledger, on_ledger_closed, md);
}

static void on_metrics_closed(void *ctx)
{
	struct metad *md = metad__of(ctx);

	md->server_closed = true;
	metad__maybe_stopped(md);
}

static void on_server_closed(void *ctx)
{
	metad__metrics_close(metad__of(ctx), on_metrics_closed);
}

static void stop_parts(void *ctx)
{
	struct metad *md = metad__of(ctx);

	ledger_resign(md->ledger);
	metad__scan_stop(md);
	metad__background_stop(md);
	io_way_stop(&md->way);
	metad__table_check_stop(md);
	if (io_pending(&md->timer))
		io_cancel(md->io, &md->timer);
	rpc_server_close(md->server, on_server_closed, md);
}

void metad_stop(struct metad *md, void (*stopped)(void *ctx), void *ctx)
{
	CHECK(!md->stopping && stopped);
	md->stopping = true;
	md->stopped = stopped;
	md->stopped_ctx = ctx;
	metad__gate_fail(md, ERR_STOPPED);
	metad__fail_waiting(&md->range.waiting, ERR_STOPPED);
	metad__members_stop(md);
	/* Letters go on until another one leads. */
	if (!ledger_hand_over(md->ledger, stop_parts, md))
		stop_parts(md);
}
