/* SPDX-License-Identifier: Apache-2.0 */
#include "chunkd/drops.h"

#include "chunkd/daemon.h"
#include "chunkd/put.h"
#include "common/base/check.h"
#include "common/base/mem.h"
#include "common/base/rng.h"
#include "common/rpc/auth.h"
#include "common/rpc/methods.h"
#include "proto/metad.pb-c.h"

enum { CALL_MS = 10 * 1000, BACKOFF_MS = 1000, BACKOFF_MS_MAX = 60 * 1000, BACKOFF_ATTEMPTS = 16 };

static const uint64_t MS_NS = 1000 * 1000;

/* Of one disk. An exchange that came to nothing is repeated later and later, however often heartbeats say that there are orders. */
struct wish {
	bool wanted;
	uint32_t failures; /* since one came to something */
	uint64_t from_ns;  /* not before that */
};

struct drops {
	struct chunkd *ch;
	struct wish *wishes; /* by disk */
	struct rng rng;
	size_t at;    /* disk of the exchange */
	struct rpc_call call;
	Craton__DropsRequest request;
	uint8_t mac[32];
	bool has_after, end;
	Craton__CopyId after, done[LIMIT_DROPS], *done_table[LIMIT_DROPS];
	struct disk_drop ops[LIMIT_DROPS];
	struct copy_id copies[LIMIT_DROPS];
	uint32_t running, done_count, orders, total; /* the last two: of this exchange, and carried out */
	bool calling, closing;
	void (*closed)(void *ctx);
	void *closed_ctx;
};

static void next_disk(struct drops *s);

static bool busy(const struct drops *s)
{
	return s->calling || s->running;
}

/* Drops under way end here when nobody waits for that any more. */
static void maybe_closed(struct drops *s)
{
	void (*closed)(void *ctx) = s->closed;
	void *ctx = s->closed_ctx;

	if (!s->closing || s->calling)
		return;
	s->closed = NULL;
	if (!s->running) {
		mem_free(s->wishes);
		mem_free(s);
	}
	if (closed)
		closed(ctx);
}

/* ---- dropping ---- */

static void on_reply(struct rpc_call *call, int status, const ProtobufCMessage *msg, uint32_t payload_len);

/* Asks for orders behind `after`; reports what is done. */
static void ask(struct drops *s)
{
	struct chunkd *ch = s->ch;
	struct disk *d = ch->disks[s->at];
	Craton__DropsRequest *m = &s->request;

	craton__drops_request__init(m);
	m->server = registrar_server(ch);
	m->server_uuid = (ProtobufCBinaryData){sizeof(ch->server_uuid.bytes), ch->server_uuid.bytes};
	m->disk = d->sb.disk;
	m->generation = d->sb.generation;
	m->done = s->done_table;
	m->n_done = s->done_count;
	m->after = s->has_after ? &s->after : NULL;
	auth_drops(ch->o.secret, ch->o.cluster.bytes, m, s->mac);
	m->auth = (ProtobufCBinaryData){sizeof(s->mac), s->mac};
	s->call = (struct rpc_call){.method = &rpc_metad_drops,
		.request = &m->base,
		.deadline_ns = io_now_ns(ch->io) + CALL_MS * MS_NS,
		.done = on_reply};
	s->calling = true;
	rpc_call_start(registrar_peer(ch), &s->call);
}

static void note_done(struct drops *s, const struct copy_id *copy)
{
	Craton__CopyId *out = &s->done[s->done_count];

	craton__copy_id__init(out);
	out->block = copy->block;
	out->index = copy->index;
	out->incarnation = copy->incarnation;
	s->done_table[s->done_count++] = out;
}

/* The exchange has ended. */
static void ended(struct drops *s, bool failed)
{
	struct wish *wish = &s->wishes[s->at];

	if (!failed) {
		wish->failures = 0;
		wish->from_ns = 0;
	} else {
		wish->from_ns = io_now_ns(s->ch->io) + rng_backoff(&s->rng, BACKOFF_MS, BACKOFF_MS_MAX, wish->failures) * MS_NS;
		wish->failures += wish->failures < BACKOFF_ATTEMPTS;
	}
	next_disk(s);
}

/* All of these orders were carried out, or could not be. */
static void carried_out(struct drops *s)
{
	if (s->closing) {
		maybe_closed(s);
		return;
	}
	s->total += s->done_count;
	if (s->done_count)
		registrar_kick(s->ch); /* there is room again: metad should know before it says so */
	if (s->done_count || !s->end)
		ask(s);
	else
		ended(s, s->orders && !s->total);
}

static void on_dropped(struct disk_drop *drop, int code)
{
	struct drops *s = drop->user;

	CHECK(s->running > 0);
	s->running--;
	if (code == 0)
		note_done(s, &s->copies[drop - s->ops]);
	if (s->running == 0)
		carried_out(s);
}

/* True: it is gone already, or it will be when the callback comes; false: not now. */
static void drop_one(struct drops *s, struct disk *d, uint32_t at)
{
	struct disk_drop *op = &s->ops[at];
	int code = put_drop(d->puts, &s->copies[at]); /* an upload of a copy that must not be */

	if (code == ERR_BUSY || !index_has_room(d->index))
		return;
	op->user = s;
	op->done = on_dropped;
	code = disk_drop(d, &s->copies[at], op);
	if (code == 0)
		s->running++;
	else if (code == ERR_NOENT)
		note_done(s, &s->copies[at]);
}

static void carry_out(struct drops *s, const Craton__DropsReply *m)
{
	struct disk *d = s->ch->disks[s->at];

	s->end = m->end;
	s->has_after = m->next != NULL;
	if (m->next) {
		craton__copy_id__init(&s->after);
		s->after.block = m->next->block;
		s->after.index = m->next->index;
		s->after.incarnation = m->next->incarnation;
	}
	s->orders += (uint32_t)m->n_drops;
	s->done_count = 0;
	s->running = 1; /* callbacks do not come before all are on their way */
	for (size_t i = 0; i < m->n_drops; i++) {
		s->copies[i] = (struct copy_id){
			m->drops[i]->block, m->drops[i]->incarnation, (uint8_t)m->drops[i]->index};
		drop_one(s, d, (uint32_t)i);
	}
	if (--s->running == 0)
		carried_out(s);
}

static bool plausible(const Craton__DropsReply *m)
{
	for (size_t i = 0; i < m->n_drops; i++)
		if (m->drops[i]->index >= LIMIT_WIDTH)
			return false;
	return m->n_drops <= LIMIT_DROPS && (m->end || m->next);
}

static void on_reply(struct rpc_call *call, int status, const ProtobufCMessage *msg, uint32_t payload_len)
{
	struct drops *s = CONTAINER_OF(call, struct drops, call);
	const Craton__DropsReply *m = (const Craton__DropsReply *)msg;
	const struct disk *d = s->ch->disks[s->at];

	(void)payload_len;
	s->calling = false;
	if (s->closing) {
		maybe_closed(s);
		return;
	}
	/* metad was asked for a disk in a generation; it may have another one by now. */
	if (status < 0 || !plausible(m) || !d->registered || d->sb.generation != s->request.generation)
		ended(s, true); /* what was done is reported when metad names it again */
	else
		carry_out(s, m);
}

/* ---- which disk ---- */

static void next_disk(struct drops *s)
{
	struct chunkd *ch = s->ch;

	for (size_t i = 0; i < ch->disk_count; i++) {
		size_t at = (s->at + 1 + i) % ch->disk_count;

		if (!s->wishes[at].wanted)
			continue;
		s->wishes[at].wanted = false;
		if (!ch->disks[at]->registered || ch->disks[at]->failed || io_now_ns(ch->io) < s->wishes[at].from_ns)
			continue;
		s->at = at;
		s->has_after = false;
		s->done_count = s->total = s->orders = 0;
		ask(s);
		return;
	}
}

void drops_wanted(struct drops *s, uint32_t disk)
{
	for (size_t i = 0; i < s->ch->disk_count; i++)
		if (s->ch->disks[i]->sb.disk == disk)
			s->wishes[i].wanted = true;
	if (!busy(s) && !s->closing)
		next_disk(s);
}

bool drops_under_way(const struct drops *s)
{
	return s->running > 0;
}

struct drops *drops_new(struct chunkd *ch)
{
	struct drops *s = MEM_NEW(struct drops);
	uint64_t seed;

	s->ch = ch;
	s->wishes = mem_array(ch->disk_count, sizeof(*s->wishes));
	io_random(ch->io, &seed, sizeof(seed));
	rng_init(&s->rng, seed);
	return s;
}

void drops_close(struct drops *s, void (*closed)(void *ctx), void *ctx)
{
	s->closing = true;
	s->closed = closed;
	s->closed_ctx = ctx;
	rpc_call_cancel(&s->call);
	maybe_closed(s);
}
