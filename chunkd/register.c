/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Telling metad who we are, again and again.
 *
 *   REGISTER --reply: numbers and generations--> BEAT --told to, or refused--> REGISTER
 *       \--failure--> wait (jittered backoff, longer if metad says no) --> REGISTER
 *
 * Meanwhile each disk stores what the reply gave it in its superblock, and is registered when that is durable. No disk waits for another one, nor
 * do heartbeats: a disk that hangs, or is slow, would have its server taken for dead. A superblock that finds no space, or was still being written
 * when the next generation came, is stored before a later heartbeat. That of a disk that failed is not written any more.
 *
 * Heartbeats speak of registered disks, and of those that failed on the way there: metad takes another generation than its own as a
 * reason to register all of them again. A disk that could not be opened has no identity; it is named by its path, with the cause.
 *
 * A disk hands out receipts only under a generation that its superblock holds. Keys are derived from the cluster secret and the salts
 * of the reply; they never cross the wire. State time is what metad said last plus what our own monotonic clock counted since the
 * reply came: a little late, never early, so a token may live a little longer here, which the floor's five minutes of grace cover.
 */
#include <stdio.h>
#include "chunkd/daemon.h"
#include "chunkd/repair.h"
#include "chunkd/drops.h"
#include "chunkd/inventory.h"
#include "common/base/check.h"
#include "common/base/mem.h"
#include "common/base/rng.h"
#include "common/base/sometimes.h"
#include "common/rpc/auth.h"
#include "common/rpc/methods.h"
#include "proto/metad.pb-c.h"

#define MS 1000000ull

enum {
	CALL_MS = 5000,
	GROUP_CALL_MS = 1500, /* where another replica of metad can be asked instead */
	GOODBYE_MS = 500,
	BEAT_MS_MIN = 50,
	BEAT_MS_MAX = 60 * 1000,
	BUSY_BEAT_MS = 100, /* while orders are worked off: the next one comes with the reply */
	BACKOFF_MS = 100,
	BACKOFF_MS_MAX = 3000,
	REFUSED_MS_MAX = 30 * 1000, /* metad has answered, and it was no: a person has to do something */
	NONCE_BYTES = 16,
	STUCK_TEXT_BYTES = 96,
};

struct registrar {
	struct chunkd *ch;
	struct rpc_replicas *metads;
	const struct rpc_peer *asked;
	struct rpc_call call;
	struct io_op timer;
	struct rng rng;
	uint32_t attempt, server, beat_ms;
	bool beating, closing, said_goodbye, kicked;
	int last_error; /* to log changes only */
	void (*closed)(void *ctx);
	void *closed_ctx;
	/* the request under way */
	Craton__RegisterRequest reg;
	Craton__HeartbeatRequest beat;
	Craton__DiskRegister *reg_disks, **reg_table;
	Craton__DiskBeat *beat_disks, **beat_table;
	Craton__DiskTrouble *troubles, **trouble_table;
	uint64_t (*free_bytes)[LIMIT_ROOM_SIZES];
	char (*stuck_text)[STUCK_TEXT_BYTES];
	char address[IO_ADDR_TEXT_BYTES];
	uint8_t nonce[NONCE_BYTES], mac[32];
	/* by disk: what metad gave it last; number 0: it is refused */
	struct store {
		struct registrar *r;
		struct disk *disk;
		uint8_t key[32];
		uint32_t number;
		uint64_t generation;
		uint64_t writing; /* the generation that its superblock is being written with; 0: it is not */
		bool again;       /* to be written, when it can be */
	} * stores;
};

static void on_timer(struct io_op *op);
static void close_step(struct registrar *r);
static void send_beat(struct registrar *r, bool stopping);

uint64_t registrar_state_ms(const struct chunkd *ch)
{
	return ch->state_ms + (io_now_ns(ch->io) - ch->state_at_ns) / MS;
}

struct rpc_peer *registrar_peer(const struct chunkd *ch)
{
	return rpc_replicas_peer(ch->registrar->metads);
}

uint32_t registrar_server(const struct chunkd *ch)
{
	return ch->registrar->server;
}

static void wait_ms(struct registrar *r, uint64_t ms)
{
	if (r->closing)
		return;
	io_prep_timer(&r->timer, io_now_ns(r->ch->io) + ms * MS, on_timer);
	io_submit(r->ch->io, &r->timer);
}

/* True: another replica of metad leads, and is asked at once. */
static bool asks_another(struct registrar *r, int status)
{
	if (!rpc_replicas_note(r->metads, r->asked, status, &r->call))
		return false;
	wait_ms(r, 0);
	return true;
}

static void wait_beat(struct registrar *r)
{
	uint32_t ms = r->beat_ms;

	if (repairs_busy(r->ch->repairs) && ms > BUSY_BEAT_MS)
		ms = BUSY_BEAT_MS;
	wait_ms(r, rng_between(&r->rng, ms * 9 / 10, ms * 11 / 10));
}

void registrar_kick(struct chunkd *ch)
{
	struct registrar *r = ch->registrar;

	if (r && !r->closing && r->beating && io_pending(&r->timer) && r->beat_ms > BUSY_BEAT_MS && !r->kicked) {
		r->kicked = true;
		io_cancel(ch->io, &r->timer);
	}
}

static void failed(struct registrar *r, int code, const char *text, uint64_t most_ms)
{
	struct chunkd *ch = r->ch;

	/* Before the first success these are mistakes of the configuration: waiting does not mend them. */
	if (!ch->registered &&
		(code == ERR_ACCES || ((code == ERR_WRONG_CLUSTER || code == ERR_VERSION) && rpc_replicas_all_strange(r->metads)))) {
		char line[512];

		snprintf(line, sizeof(line), "metad refuses us: %s%s", text ? text : err_text(code),
			text && code == ERR_WRONG_CLUSTER ? "" : ": check cluster and secret-file");
		ch->o.on_fatal(ch->o.ctx, code, line);
		return;
	}
	if (code != r->last_error)
		log_line(&ch->log, LOG_WARN, r->beating ? "heartbeat-failed" : "register-failed",
			"error=%s text=\"%s\"", err_name(code), text ? text : err_text(code));
	r->last_error = code;
	wait_ms(r, rng_backoff(&r->rng, BACKOFF_MS, most_ms, r->attempt < 16 ? r->attempt++ : r->attempt));
}

/* ---- what replies teach ---- */

static int learn_keys(struct chunkd *ch, Craton__TokenKey *const *keys, size_t count)
{
	struct token_key learned[DAEMON_TOKEN_KEYS];
	uint8_t key[TOKEN_KEY_BYTES];

	if (count == 0)
		return 0;
	if (count > DAEMON_TOKEN_KEYS)
		return ERR_PROTO;
	for (size_t i = 0; i < count; i++) {
		learned[i].id = (uint8_t)keys[i]->id;
		if (auth_derive(ch->o.secret, "token", slice_of(keys[i]->salt.data, keys[i]->salt.len), key) < 0)
			return ERR_PROTO;
		hmac_key_init(&learned[i].key, key);
	}
	memcpy(ch->keys, learned, count * sizeof(learned[0]));
	ch->key_count = count;
	return 0;
}

/*
 * Backwards, too: state time stands still while metad is away and our count does not, nor do two clocks run alike for ever. Ahead of
 * metad by the life of a token, a server would refuse each one that metad gives. A reply is at most CALL_MS old.
 */
static void learn_time(struct chunkd *ch, uint64_t state_ms)
{
	ch->state_ms = state_ms;
	ch->state_at_ns = io_now_ns(ch->io);
}

/* 0: an older metad that says it at registrations only. */
static void learn_beat(struct registrar *r, uint32_t ms)
{
	if (ms)
		r->beat_ms = ms < BEAT_MS_MIN ? BEAT_MS_MIN : ms > BEAT_MS_MAX ? BEAT_MS_MAX : ms;
}

/* ---- registration ---- */

static bool any_registered(const struct chunkd *ch)
{
	for (size_t i = 0; i < ch->disk_count; i++)
		if (ch->disks[i]->registered)
			return true;
	return false;
}

/* metad has given it a generation, which its superblock could not take in: that it failed is all there is to say of it. */
static bool failed_storing(const struct store *s)
{
	return !s->disk->registered && s->disk->failed && s->number;
}

static bool any_to_speak_of(const struct registrar *r)
{
	for (size_t i = 0; i < r->ch->disk_count; i++)
		if (failed_storing(&r->stores[i]))
			return true;
	return any_registered(r->ch);
}

static bool any_writing(const struct registrar *r)
{
	for (size_t i = 0; i < r->ch->disk_count; i++)
		if (r->stores[i].writing)
			return true;
	return false;
}

static void maybe_registered(struct registrar *r)
{
	if (r->ch->registered || !any_to_speak_of(r))
		return;
	r->ch->registered = true;
	log_line(&r->ch->log, LOG_INFO, "registered", "server=%u disks=%zu", r->server, r->ch->disk_count);
}

static void stored(void *ctx, int code)
{
	struct store *s = ctx;
	struct registrar *r = s->r;
	bool is_last = s->writing == s->generation;

	s->writing = 0;
	if (code == 0 && is_last && s->number) {
		hmac_key_init(&s->disk->receipt_key, s->key);
		s->disk->registered = true;
	}
	s->again = s->number && (code == ERR_NOSPC || (code == 0 && !is_last));
	maybe_registered(r);
	if (code != ERR_NOSPC) /* which the next heartbeat tries again, and would bring the one after it forward */
		registrar_kick(r->ch); /* it takes chunks when metad has heard of it */
}

/* A disk that failed is let be: a write to it may never end. */
static void store(struct store *s)
{
	s->again = false;
	if (s->writing || s->disk->failed)
		return;
	s->writing = s->generation;
	disk_set_identity(s->disk, s->number, s->generation, stored, s);
}

static void store_again(struct registrar *r)
{
	for (size_t i = 0; i < r->ch->disk_count; i++)
		if (r->stores[i].again)
			store(&r->stores[i]);
}

static int check_reply(const struct chunkd *ch, const Craton__RegisterReply *m)
{
	if (m->n_disks != ch->disk_count || m->n_token_keys == 0 || m->heartbeat_ms == 0)
		return ERR_PROTO;
	for (size_t i = 0; i < m->n_disks; i++)
		if (m->disks[i]->status >= 0 &&
			(m->disks[i]->disk == 0 || m->disks[i]->receipt_salt.len != AUTH_SALT_BYTES))
			return ERR_PROTO;
	return 0;
}

static void register_done(struct rpc_call *call, int status, const ProtobufCMessage *msg, uint32_t payload_len)
{
	struct registrar *r = CONTAINER_OF(call, struct registrar, call);
	const Craton__RegisterReply *m = (const Craton__RegisterReply *)msg;
	struct chunkd *ch = r->ch;
	const char *text;
	int code = status;

	(void)payload_len;
	if (r->closing) {
		close_step(r);
		return;
	}
	if (asks_another(r, status))
		return;
	if (code == 0)
		code = check_reply(ch, m);
	if (code == 0)
		code = learn_keys(ch, m->token_keys, m->n_token_keys);
	if (code < 0) {
		text = m && m->error && m->error[0] ? m->error : NULL;
		failed(r, code, text, text ? REFUSED_MS_MAX : BACKOFF_MS_MAX);
		return;
	}
	learn_time(ch, m->state_time_ms);
	r->server = m->server;
	learn_beat(r, m->heartbeat_ms);
	for (size_t i = 0; i < ch->disk_count; i++) {
		struct store *s = &r->stores[i];

		s->again = false;
		if (m->disks[i]->status < 0) {
			log_line(&ch->log, LOG_ERROR, "disk-refused", "dir=%s error=%s", s->disk->dir,
				err_name(m->disks[i]->status));
			s->disk->registered = false;
			s->number = 0;
			s->generation = 0;
			continue;
		}
		CHECK(auth_derive(ch->o.secret, "receipt",
			      slice_of(m->disks[i]->receipt_salt.data, m->disks[i]->receipt_salt.len), s->key) == 0);
		/* Until the superblock holds the new generation nothing is acknowledged under the old one. */
		s->disk->registered = false;
		s->number = m->disks[i]->disk;
		s->generation = m->disks[i]->generation;
		store(s);
	}
	if (!any_writing(r) && !any_to_speak_of(r)) {
		failed(r, ERR_DISK_FAILED, "no disk could be registered", BACKOFF_MS_MAX);
		return;
	}
	maybe_registered(r);
	r->beating = true;
	r->attempt = 0;
	r->last_error = 0;
	wait_beat(r);
}

static uint64_t call_ms(const struct registrar *r)
{
	return rpc_replicas_count(r->metads) > 1 ? rpc_replicas_patience_ns(r->metads, GROUP_CALL_MS * MS) / MS : CALL_MS;
}

static void start_call(struct registrar *r)
{
	r->asked = rpc_replicas_peer(r->metads);
	rpc_call_start(rpc_replicas_peer(r->metads), &r->call);
}

static void send_register(struct registrar *r)
{
	struct chunkd *ch = r->ch;
	Craton__RegisterRequest *m = &r->reg;

	craton__register_request__init(m);
	io_random(ch->io, r->nonce, sizeof(r->nonce));
	m->server_uuid = (ProtobufCBinaryData){sizeof(ch->server_uuid.bytes), ch->server_uuid.bytes};
	m->name = (char *)ch->o.name;
	m->address = r->address;
	m->domain = (char *)(ch->o.domain && ch->o.domain[0] ? ch->o.domain : ch->o.name);
	m->version = (char *)PACKAGE_VERSION;
	m->nonce = (ProtobufCBinaryData){sizeof(r->nonce), r->nonce};
	for (size_t i = 0; i < ch->disk_count; i++) {
		struct disk *d = ch->disks[i];
		Craton__DiskRegister *disk = &r->reg_disks[i];

		craton__disk_register__init(disk);
		disk->uuid = (ProtobufCBinaryData){sizeof(d->sb.disk_uuid.bytes), d->sb.disk_uuid.bytes};
		disk->disk = d->sb.disk;
		disk->generation = d->sb.generation;
		disk->path = d->dir;
		disk->capacity_bytes = segments_capacity_bytes(d->segments);
		disk->storage_class = d->sb.storage_class;
		disk->failed = d->failed != 0;
	}
	m->n_disks = ch->disk_count;
	m->disks = r->reg_table;
	auth_register(ch->o.secret, ch->o.cluster.bytes, m, r->mac);
	m->auth = (ProtobufCBinaryData){sizeof(r->mac), r->mac};
	r->call = (struct rpc_call){.method = &rpc_metad_register,
		.request = &m->base,
		.deadline_ns = io_now_ns(ch->io) + call_ms(r) * MS,
		.done = register_done};
	start_call(r);
}

/* ---- heartbeats ---- */

static void beat_done(struct rpc_call *call, int status, const ProtobufCMessage *msg, uint32_t payload_len)
{
	struct registrar *r = CONTAINER_OF(call, struct registrar, call);
	const Craton__HeartbeatReply *m = (const Craton__HeartbeatReply *)msg;
	struct chunkd *ch = r->ch;
	int code = status;

	(void)payload_len;
	if (r->closing) {
		close_step(r);
		return;
	}
	if (asks_another(r, status))
		return;
	if (code == 0)
		rpc_replicas_learn(r->metads, m->metads, m->n_metads);
	if (code == 0)
		code = learn_keys(ch, m->token_keys, m->n_token_keys);
	if (code == 0 && m->register_again)
		code = ERR_GENERATION;
	if (code == ERR_GENERATION || code == ERR_STALE || code == ERR_NOENT) {
		log_line(&ch->log, LOG_INFO, "register-again", "server=%u", r->server);
		SOMETIMES(chunkd_registers_again);
		r->beating = false;
		wait_ms(r, rng_between(&r->rng, 1, BACKOFF_MS));
		return;
	}
	if (code < 0) {
		failed(r, code, NULL, BACKOFF_MS_MAX);
		return;
	}
	learn_time(ch, m->state_time_ms);
	learn_beat(r, m->heartbeat_ms);
	repairs_reported(ch->repairs);
	repairs_take(ch->repairs, m->repairs, m->n_repairs);
	r->attempt = 0;
	r->last_error = 0;
	if (!ch->stopping) {
		for (size_t i = 0; i < m->n_drop_disks && i < LIMIT_DISKS_PER_SERVER; i++)
			drops_wanted(ch->drops, m->drop_disks[i]);
		inventory_beat(ch->inventory, m->floor, m->inventory_round);
	}
	wait_beat(r);
}

/* What failed it; of one that has not failed, what keeps it from taking more. */
static char *beat_error(struct registrar *r, size_t i)
{
	struct disk *d = r->ch->disks[i];
	int stuck = segments_stuck(d->segments);

	if (d->failed)
		return d->failed_text;
	snprintf(r->stuck_text[i], sizeof(r->stuck_text[i]), "%s%s", stuck ? "segments cannot be made: " : "", stuck ? err_text(stuck) : "");
	return r->stuck_text[i];
}

static void send_beat(struct registrar *r, bool stopping)
{
	struct chunkd *ch = r->ch;
	Craton__HeartbeatRequest *m = &r->beat;

	craton__heartbeat_request__init(m);
	m->server = r->server;
	m->server_uuid = (ProtobufCBinaryData){sizeof(ch->server_uuid.bytes), ch->server_uuid.bytes};
	m->stopping = stopping;
	for (size_t i = 0; i < ch->disk_count; i++) {
		struct disk *d = ch->disks[i];
		Craton__DiskBeat *beat = &r->beat_disks[i];

		segments_refresh(d->segments, !d->failed);
		if (!d->registered && !failed_storing(&r->stores[i]))
			continue;
		r->beat_table[m->n_disks++] = beat;
		craton__disk_beat__init(beat);
		beat->disk = r->stores[i].number;
		beat->generation = r->stores[i].generation;
		beat->capacity_bytes = segments_capacity_bytes(d->segments);
		for (uint32_t size = 0; size < LIMIT_ROOM_SIZES; size++)
			r->free_bytes[i][size] =
				d->failed || index_is_full(d->index) ? 0 : segments_free_bytes(d->segments, size);
		beat->n_free_bytes = LIMIT_ROOM_SIZES;
		beat->free_bytes = r->free_bytes[i];
		beat->chunks = index_count(d->index);
		beat->failed = d->failed != 0;
		beat->error = beat_error(r, i);
		beat->queue = sched_depth(&d->sched);
	}
	m->disks = r->beat_table;
	m->n_repairs = repairs_results(ch->repairs, &m->repairs);
	m->troubles = r->trouble_table;
	m->n_troubles = ch->bad_count;
	auth_heartbeat(ch->o.secret, ch->o.cluster.bytes, m, r->mac);
	m->auth = (ProtobufCBinaryData){sizeof(r->mac), r->mac};
	r->call = (struct rpc_call){.method = &rpc_metad_heartbeat,
		.request = &m->base,
		.deadline_ns = io_now_ns(ch->io) + (stopping ? GOODBYE_MS : call_ms(r)) * MS,
		.done = beat_done};
	start_call(r);
}

/* ---- life ---- */

static void on_timer(struct io_op *op)
{
	struct registrar *r = CONTAINER_OF(op, struct registrar, timer);

	if (!r->closing && op->result == ERR_CANCELED && r->kicked) {
		/* What is to be said may get company for a moment, once: more of it does not put the heartbeat off. */
		wait_ms(r, BUSY_BEAT_MS);
		return;
	}
	r->kicked = false;
	if (r->closing) {
		close_step(r);
		return;
	}
	store_again(r);
	if (r->beating)
		send_beat(r, false);
	else
		send_register(r);
}

struct registrar *registrar_new(struct chunkd *ch)
{
	struct registrar *r = MEM_NEW(struct registrar);
	size_t n = ch->disk_count;
	struct io_addr addr = ch->o.advertise.family ? ch->o.advertise : chunkd_addr(ch);
	struct rpc_peer_options options = {.self = {.cluster = ch->o.cluster, .role = RPC_ROLE_CHUNKD},
		.conns = 1,
		.transform = ch->o.transform};
	uint64_t seed;

	snprintf(options.self.name, sizeof(options.self.name), "%s", ch->o.name);
	r->ch = ch;
	io_random(ch->io, &seed, sizeof(seed));
	rng_init(&r->rng, seed);
	io_addr_format(&addr, r->address);
	r->reg_disks = mem_array(n, sizeof(*r->reg_disks));
	r->reg_table = mem_array(n, sizeof(*r->reg_table));
	r->beat_disks = mem_array(n, sizeof(*r->beat_disks));
	r->beat_table = mem_array(n, sizeof(*r->beat_table));
	r->free_bytes = mem_array(n, sizeof(*r->free_bytes));
	r->stuck_text = mem_array(n, sizeof(*r->stuck_text));
	r->stores = mem_array(n, sizeof(*r->stores));
	for (size_t i = 0; i < n; i++) {
		r->reg_table[i] = &r->reg_disks[i];
		r->beat_table[i] = &r->beat_disks[i];
		r->stores[i].r = r;
		r->stores[i].disk = ch->disks[i];
	}
	r->troubles = mem_array(ch->bad_count + 1, sizeof(*r->troubles));
	r->trouble_table = mem_array(ch->bad_count + 1, sizeof(*r->trouble_table));
	for (size_t i = 0; i < ch->bad_count; i++) {
		craton__disk_trouble__init(&r->troubles[i]);
		r->troubles[i].path = ch->bad[i].dir;
		r->troubles[i].error = ch->bad[i].text;
		r->trouble_table[i] = &r->troubles[i];
	}
	r->metads = rpc_replicas_new(ch->io, &ch->o.metads, &options);
	wait_ms(r, 0);
	return r;
}

static void peers_closed(void *ctx)
{
	struct registrar *r = ctx;
	void (*closed)(void *ctx) = r->closed;
	void *closed_ctx = r->closed_ctx;

	mem_free(r->reg_disks);
	mem_free(r->reg_table);
	mem_free(r->beat_disks);
	mem_free(r->beat_table);
	mem_free(r->troubles);
	mem_free(r->trouble_table);
	mem_free(r->free_bytes);
	mem_free(r->stuck_text);
	mem_free(r->stores);
	r->ch->registrar = NULL; /* repairs that end later have nobody to tell */
	mem_free(r);
	closed(closed_ctx);
}

static void close_step(struct registrar *r)
{
	if (rpc_call_active(&r->call) || io_pending(&r->timer))
		return;
	if (r->beating && !r->said_goodbye) {
		r->said_goodbye = true;
		send_beat(r, true);
		return;
	}
	rpc_replicas_close(r->metads, peers_closed, r);
}

void registrar_close(struct registrar *r, void (*closed)(void *ctx), void *ctx)
{
	r->closing = true;
	r->closed = closed;
	r->closed_ctx = ctx;
	/* A superblock that is being written, perhaps for ever, is its disk's matter: the others say goodbye. */
	for (size_t i = 0; i < r->ch->disk_count; i++)
		disk_forget_identity(r->ch->disks[i]);
	io_cancel(r->ch->io, &r->timer);
	rpc_call_cancel(&r->call);
	close_step(r);
}
