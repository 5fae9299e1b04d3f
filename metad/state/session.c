/* SPDX-License-Identifier: Apache-2.0 */
/* session: see the header. The window, its rows, and the commands that open and end sessions. */
#include "metad/state/session.h"

#include "common/base/check.h"
#include "common/base/mem.h"
#include "common/base/sometimes.h"
#include "common/code/ec.h"
#include "metad/state/state.h"

enum { ROW_VERSION = 1, ROW_ENDING = 1 };
_Static_assert(3 + 66 + 13 + 1 + LIMIT_COMMIT_BLOCKS * 12 <= STATE_REPLY_BYTES, "the reply of a whole commit");
enum { HAS_ATTR = 1, HAS_POLICY = 2, POLICY_OWN = 4, HAS_BLOCKS = 8, COMPLETE = 16 };

/* ---- replies ---- */

static void put_attr(struct wcursor *w, const struct state_result *res)
{
	const struct state_attr *a = &res->attr;

	wcursor_u64(w, a->inode);
	wcursor_u8(w, a->type);
	wcursor_u32(w, a->mode);
	wcursor_u32(w, a->uid);
	wcursor_u32(w, a->gid);
	wcursor_u32(w, a->nlink);
	wcursor_u64(w, a->size);
	wcursor_u64(w, (uint64_t)a->mtime_ns);
	wcursor_u64(w, (uint64_t)a->ctime_ns);
	wcursor_u64(w, res->parent);
	wcursor_u64(w, res->epoch);
}

static void get_attr(struct rcursor *r, uint8_t has, struct state_result *res)
{
	struct state_attr *a = &res->attr;

	a->inode = rcursor_u64(r);
	a->type = rcursor_u8(r);
	a->complete = has & COMPLETE;
	a->mode = rcursor_u32(r);
	a->uid = rcursor_u32(r);
	a->gid = rcursor_u32(r);
	a->nlink = rcursor_u32(r);
	a->size = rcursor_u64(r);
	a->mtime_ns = (int64_t)rcursor_u64(r);
	a->ctime_ns = (int64_t)rcursor_u64(r);
	res->parent = rcursor_u64(r);
	res->epoch = rcursor_u64(r);
}

/* Blocks of which there is nothing to say are left out: for a client no word is a good word. */
static void put_blocks(struct wcursor *w, const struct state_result *res)
{
	size_t at = w->len;

	wcursor_u8(w, 0);
	for (uint32_t i = 0; i < res->count; i++) {
		const struct state_block_result *b = &res->blocks[i];

		if (!b->status && !b->not_counted)
			continue;
		wcursor_u64(w, b->block);
		wcursor_u16(w, (uint16_t)-b->status);
		wcursor_u16(w, b->not_counted);
		w->data[at]++;
	}
}

static void get_blocks(struct rcursor *r, struct state_result *res)
{
	res->count = rcursor_u8(r);
	if (res->count > LIMIT_COMMIT_BLOCKS)
		r->failed = true;
	for (uint32_t i = 0; i < res->count && !r->failed; i++) {
		res->blocks[i].block = rcursor_u64(r);
		res->blocks[i].status = -(int)rcursor_u16(r);
		res->blocks[i].not_counted = rcursor_u16(r);
	}
}

size_t state__session_reply_encode(const struct state_result *res, uint8_t out[STATE_REPLY_BYTES])
{
	uint8_t has = 0;
	struct wcursor w;

	has |= res->attr.inode ? HAS_ATTR : 0;
	has |= res->attr.complete ? COMPLETE : 0;
	has |= res->policy.id ? HAS_POLICY : 0;
	has |= res->policy_own ? POLICY_OWN : 0;
	has |= res->count ? HAS_BLOCKS : 0;
	wcursor_init(&w, out, STATE_REPLY_BYTES);
	wcursor_u16(&w, (uint16_t)-res->status);
	wcursor_u8(&w, has);
	if (has & HAS_ATTR)
		put_attr(&w, res);
	if (has & HAS_POLICY) {
		wcursor_u8(&w, res->policy.id);
		wcursor_u32(&w, res->policy.cell_bytes);
		wcursor_u64(&w, res->policy.chunk_bytes);
	}
	if (has & HAS_BLOCKS)
		put_blocks(&w, res);
	CHECK(!w.failed);
	return w.len;
}

int state__session_reply_decode(struct slice bytes, struct state_result *res)
{
	struct rcursor r;
	uint8_t has;

	rcursor_init(&r, bytes.data, bytes.len);
	res->status = -(int)rcursor_u16(&r);
	has = rcursor_u8(&r);
	if (has & HAS_ATTR)
		get_attr(&r, has, res);
	if (has & HAS_POLICY) {
		res->policy.id = rcursor_u8(&r);
		res->policy.cell_bytes = rcursor_u32(&r);
		res->policy.chunk_bytes = rcursor_u64(&r);
		res->policy_own = has & POLICY_OWN;
	}
	if (has & HAS_BLOCKS)
		get_blocks(&r, res);
	return rcursor_done(&r) ? 0 : ERR_CORRUPT;
}

/* ---- rows ---- */

size_t state__session_row_encode(const struct state_session *session, uint8_t *out)
{
	size_t name_len = strlen(session->name);
	struct wcursor w;

	wcursor_init(&w, out, STATE_SESSION_ROW_BYTES);
	wcursor_u8(&w, ROW_VERSION);
	wcursor_u8(&w, session->ending ? ROW_ENDING : 0);
	wcursor_u64(&w, session->secret);
	wcursor_u64(&w, session->low);
	wcursor_u64(&w, session->opened_ms);
	wcursor_u8(&w, (uint8_t)name_len);
	wcursor_bytes(&w, session->name, name_len);
	for (uint64_t held = state_session_held(session, session->low); held; held &= held - 1) {
		uint8_t ahead = (uint8_t)__builtin_ctzll(held);
		const struct state_reply *reply = &session->replies[(session->low + ahead) % STATE_WINDOW];

		CHECK(reply->seq == session->low + ahead);
		wcursor_u8(&w, ahead);
		wcursor_u16(&w, reply->len);
		wcursor_bytes(&w, reply->bytes, reply->len);
	}
	CHECK(!w.failed);
	return w.len;
}

static void reply_set(struct state_session *session, uint64_t seq, const uint8_t *bytes, size_t len)
{
	struct state_reply *reply = &session->replies[seq % STATE_WINDOW];

	if (reply->len < len)
		reply->bytes = mem_realloc(reply->bytes, len);
	reply->seq = seq;
	session->held |= 1ull << seq % STATE_WINDOW;
	reply->len = (uint16_t)len;
	memcpy(reply->bytes, bytes, len);
}

int state__session_row_decode(struct slice value, struct state_session *session)
{
	struct rcursor r;
	uint8_t flags;
	size_t name_len;

	rcursor_init(&r, value.data, value.len);
	if (rcursor_u8(&r) != ROW_VERSION)
		return ERR_CORRUPT;
	flags = rcursor_u8(&r);
	session->ending = flags & ROW_ENDING;
	session->secret = rcursor_u64(&r);
	session->low = rcursor_u64(&r);
	session->opened_ms = rcursor_u64(&r);
	name_len = rcursor_u8(&r);
	if (name_len >= STATE_SESSION_NAME_BYTES || flags > ROW_ENDING || session->low == 0)
		return ERR_CORRUPT;
	rcursor_copy(&r, session->name, name_len);
	while (!r.failed && rcursor_left(&r)) {
		uint8_t ahead = rcursor_u8(&r);
		struct slice bytes = rcursor_slice(&r, rcursor_u16(&r));

		if (r.failed || ahead >= STATE_WINDOW || bytes.len == 0 || bytes.len > STATE_REPLY_BYTES)
			return ERR_CORRUPT;
		reply_set(session, session->low + ahead, bytes.data, bytes.len);
	}
	return r.failed ? ERR_CORRUPT : 0;
}

/* ---- in memory ---- */

static struct state_session *find(const struct state *s, uint64_t id)
{
	return map_get(&s->sessions, id);
}

struct state_session *state_session_at(const struct state *s, uint64_t id)
{
	struct state_session *session = find(s, id);

	return session && !session->ending && !state_restore_lost(s, id) ? session : NULL;
}

uint32_t state_session_count(const struct state *s)
{
	uint32_t count = 0;
	size_t pos = 0;
	uint64_t id;
	void *session;

	if (!s->restore.count)
		return (uint32_t)s->sessions.count;
	while (map_next(&s->sessions, &pos, &id, &session))
		count += !state_restore_lost(s, id);
	return count;
}

static struct state_session *session_new(struct state *s, uint64_t id)
{
	struct state_session *session = MEM_NEW(struct state_session);

	session->id = id;
	session->low = 1;
	list_init(&session->dirty);
	map_put(&s->sessions, id, session);
	return session;
}

void state__session_fini(struct state_session *session)
{
	for (int i = 0; i < STATE_WINDOW; i++)
		mem_free(session->replies[i].bytes);
}

static void session_free(struct state_session *session)
{
	state__session_fini(session);
	if (list_linked(&session->dirty))
		list_remove(&session->dirty);
	mem_free(session);
}

static void touch(struct state *s, struct state_session *session)
{
	if (!list_linked(&session->dirty))
		list_push_back(&s->sessions_dirty, &session->dirty);
}

void state__sessions_load(struct state *s)
{
	struct kv_scan scan;
	struct state_key key;
	uint64_t id, inode;

	state_key_table(&key, STATE_TABLE_SESSION);
	for (kv_seek_within(s->kv, &scan, state_key_slice(&key), STATE_PREFIX_TABLE); kv_scan_valid(&scan); kv_scan_next(&scan)) {
		if (scan.key.data[0] != STATE_TABLE_SESSION)
			break;
		if (!state_key_parse_id(scan.key, STATE_TABLE_SESSION, &id) ||
			state__session_row_decode(scan.value, session_new(s, id))) {
			state__fault(s, "a row of the session table cannot be decoded");
			break;
		}
	}
	kv_scan_end(&scan);
	state_key_table(&key, STATE_TABLE_LEASE);
	for (kv_seek_within(s->kv, &scan, state_key_slice(&key), STATE_PREFIX_TABLE); kv_scan_valid(&scan); kv_scan_next(&scan)) {
		if (scan.key.data[0] != STATE_TABLE_LEASE)
			break;
		if (!state_key_parse_pair(scan.key, STATE_TABLE_LEASE, &id, &inode) || !find(s, id)) {
			state__fault(s, "a lease belongs to no session");
			break;
		}
		find(s, id)->lease_count++;
	}
	kv_scan_end(&scan);
}

void state__sessions_free(struct state *s)
{
	size_t pos = 0;
	uint64_t id;
	void *session;

	while (map_next(&s->sessions, &pos, &id, &session))
		session_free(session);
	map_fini(&s->sessions);
}

uint64_t state_session_oldest_ms(const struct state *s)
{
	uint64_t id, oldest_ms = UINT64_MAX;
	void *session;
	size_t pos = 0;

	while (map_next(&s->sessions, &pos, &id, &session))
		if (((struct state_session *)session)->opened_ms < oldest_ms)
			oldest_ms = ((struct state_session *)session)->opened_ms;
	return oldest_ms;
}

/* ---- the window ---- */

/* What its client has heard of is forgotten. */
static void advance(struct state_session *session, uint64_t low)
{
	uint64_t end = low - session->low < STATE_WINDOW ? low : session->low + STATE_WINDOW;

	for (uint64_t seq = session->low; seq < end; seq++) {
		session->replies[seq % STATE_WINDOW].seq = 0;
		session->held &= ~(1ull << seq % STATE_WINDOW);
	}
	session->low = low;
}

bool state__session_admit(struct state *s, const struct state_request *request, struct state_result *res,
	struct state_session **ret_session)
{
	struct state_session *session;
	struct state_reply *reply;

	*ret_session = NULL;
	if (!request->session)
		return true;
	session = state_session_at(s, request->session);
	if (!session) {
		res->status = ERR_SESSION_LOST;
		return false;
	}
	if (request->seq - request->ahead > session->low) {
		advance(session, request->seq - request->ahead);
		touch(s, session);
	}
	if (request->seq < session->low) {
		res->status = ERR_RANGE;
		return false;
	}
	reply = &session->replies[request->seq % STATE_WINDOW];
	if (reply->seq != request->seq) {
		*ret_session = session;
		return true;
	}
	SOMETIMES(state_reply_again);
	if (state__session_reply_decode(slice_of(reply->bytes, reply->len), res))
		state__fault(s, "a reply in session %llu cannot be decoded", (unsigned long long)session->id);
	return false;
}

void state__session_record(struct state *s, struct state_session *session, uint64_t seq, const struct state_result *res)
{
	uint8_t bytes[STATE_REPLY_BYTES];

	reply_set(session, seq, bytes, state__session_reply_encode(res, bytes));
	touch(s, session);
}

void state__sessions_write(struct state *s)
{
	struct list *link;

	while ((link = list_pop_front(&s->sessions_dirty))) {
		struct state_session *session = LIST_ENTRY(link, struct state_session, dirty);
		struct state_key key;

		state_key_id(&key, STATE_TABLE_SESSION, session->id);
		state__put(s, &key, s->session_row, state__session_row_encode(session, s->session_row));
	}
}

/* ---- commands ---- */

void state__session_open(struct state *s, const struct state_cmd_session_open *cmd, struct state_result *res)
{
	struct state_session *session;

	if (state_session_count(s) >= LIMIT_SESSIONS) {
		res->status = ERR_OVERLOADED;
		return;
	}
	session = session_new(s, s->meta.next_session++);
	s->meta_dirty = true;
	session->secret = cmd->secret;
	session->opened_ms = s->meta.time_ms;
	memcpy(session->name, cmd->name.data, cmd->name.len);
	touch(s, session);
	res->session = session->id;
}

/* Gives leases up; when none is left the session is gone, else whoever sent this sends it again (res->more). */
void state__session_end(struct state *s, const struct state_cmd_session_end *cmd, struct state_result *res)
{
	struct state_session *session = find(s, cmd->session);
	struct state_key key;

	if (!session) {
		res->status = ERR_SESSION_LOST;
		return;
	}
	if (state_restore_lost(s, session->id) && state_restore_hold_ms(s)) {
		res->status = ERR_BUSY; /* its files without a name may be complete in a newer backup */
		return;
	}
	for (int i = 0; i < STATE_END_LEASES && session->lease_count; i++)
		if (state__lease_give_up(s, session))
			return;
	session->ending = true;
	res->more = session->lease_count > 0;
	if (res->more) {
		touch(s, session);
		return;
	}
	state_key_id(&key, STATE_TABLE_SESSION, session->id);
	state__del(s, &key);
	map_remove(&s->sessions, session->id);
	session_free(session);
	s->sessions_ended++;
}
