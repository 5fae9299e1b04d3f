/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What arrives by rpc: checked against its token, turned into calls of the disk layer, answered. Every request carries a capability
 * that metad signed: it names block, index, disk, rights and expiry (state time), for writes also incarnation, greatest length and
 * policy. Nothing else about the caller matters here.
 */
#include "chunkd/daemon.h"
#include "chunkd/get.h"
#include "chunkd/probe.h"
#include "chunkd/put.h"
#include "chunkd/put_check.h"
#include "common/base/check.h"
#include "common/base/mem.h"
#include "common/rpc/methods.h"
#include "proto/chunkd.pb-c.h"

/* ---- tokens ---- */

static struct disk *find_disk(struct chunkd *ch, uint32_t number)
{
	for (size_t i = 0; i < ch->disk_count; i++)
		if (number && ch->disks[i]->sb.disk == number)
			return ch->disks[i];
	return NULL;
}

/* One that has expired is nothing special: the client gets a new one. */
static int refuse_token(struct chunkd *ch, enum refused_cause cause, const Craton__Copy *copy)
{
	enum log_level level = cause == REFUSED_TOKEN_EXPIRED ? LOG_INFO : LOG_WARN;
	uint64_t unlogged;

	if (refused_count(&ch->refused, cause, io_now_ns(ch->io), &unlogged))
		log_line(&ch->log, level, "token-refused", "cause=%s block=%llu index=%u disk=%u unlogged=%llu",
			refused_name(cause), (unsigned long long)copy->block, copy->index, copy->disk,
			(unsigned long long)unlogged);
	return ERR_TOKEN;
}

int daemon_authorize(struct chunkd *ch, const ProtobufCBinaryData *bytes, const Craton__Copy *copy, uint8_t right,
	struct disk **ret_disk, struct copy_id *ret_copy, struct token *ret_token)
{
	struct token t;
	int rc;

	if (!copy || copy->index >= LIMIT_WIDTH || copy->block == 0)
		return ERR_INVAL;
	if (ch->key_count == 0)
		return ERR_AGAIN; /* metad has not answered yet */
	rc = token_open(slice_of(bytes->data, bytes->len), ch->keys, ch->key_count, &t);
	if (rc < 0)
		return refuse_token(ch, REFUSED_TOKEN, copy);
	if (t.block != copy->block || (t.index != TOKEN_INDEX_ANY && t.index != copy->index) || !(t.rights & right) ||
		(t.disk && t.disk != copy->disk))
		return refuse_token(ch, REFUSED_TOKEN_OTHER, copy);
	if (right == TOKEN_WRITE && (t.disk != copy->disk || t.incarnation != copy->incarnation))
		return refuse_token(ch, REFUSED_TOKEN_OTHER, copy);
	if (registrar_state_ms(ch) > t.expires_ms)
		return refuse_token(ch, REFUSED_TOKEN_EXPIRED, copy);
	*ret_disk = find_disk(ch, copy->disk);
	if (!*ret_disk)
		return ERR_NOENT;
	*ret_copy = (struct copy_id){copy->block, copy->incarnation, (uint8_t)copy->index};
	*ret_token = t;
	return 0;
}

static int authorize_read(struct chunkd *ch, const ProtobufCBinaryData *bytes, const Craton__Copy *copy,
	struct disk **ret_disk, struct index_row *ret_row)
{
	struct copy_id id;
	struct token token;
	int rc = daemon_authorize(ch, bytes, copy, TOKEN_READ, ret_disk, &id, &token);

	return rc < 0 ? rc : index_get((*ret_disk)->index, &id, ret_row);
}

/* ---- put ---- */

static void reply_receipt(struct rpc_req *req, const struct disk *d, const struct index_row *row)
{
	Craton__PutReply msg = CRATON__PUT_REPLY__INIT;
	uint8_t mac[TOKEN_MAC_BYTES];
	struct receipt receipt = {
		.block = row->copy.block,
		.length = row->length,
		.generation = d->sb.generation,
		.disk = d->sb.disk,
		.incarnation = row->copy.incarnation,
		.crc = row->crc,
		.index = row->copy.index,
	};

	receipt_mac(&receipt, &d->receipt_key, mac);
	msg.mac = (ProtobufCBinaryData){sizeof(mac), mac};
	msg.generation = d->sb.generation;
	rpc_reply(req, &(struct rpc_reply){.msg = &msg.base});
}

static struct disk *put_disk(struct chunkd *ch, const struct rpc_req *req)
{
	const Craton__PutRequest *m = (const Craton__PutRequest *)req->msg;

	return find_disk(ch, m->copy->disk);
}

static int begin(struct chunkd *ch, struct rpc_req *req, struct put_cell **ret_cell)
{
	const Craton__PutRequest *m = (const Craton__PutRequest *)req->msg;
	struct put_request r;
	struct token token;
	struct copy_id copy;
	struct disk *d;
	int rc = daemon_authorize(ch, &m->token, m->copy, TOKEN_WRITE, &d, &copy, &token);

	if (rc < 0)
		return rc;
	if (!d->registered)
		return ERR_AGAIN;
	if (m->announced_bytes > token.max_chunk_bytes)
		return refuse_token(ch, REFUSED_TOKEN_OTHER, m->copy);
	put_check_read(m, req->payload_len, &r);
	r.copy = copy;
	r.policy = token.policy;
	return put_begin(d->puts, &r, ret_cell);
}

static int put_place(void *ctx, struct rpc_req *req)
{
	struct put_cell *cell;
	int rc = begin(ctx, req, &cell);

	if (rc < 0)
		return rc;
	req->user = cell;
	req->payload[0] = (struct iovec){put_buffer(cell), req->payload_len};
	req->payload_count = 1;
	return 0;
}

static void put_gone(void *ctx, struct rpc_req *req)
{
	(void)ctx;
	if (req->user)
		put_abandon(req->user);
}

static void put_done(void *ctx, int code, const struct index_row *row)
{
	struct rpc_req *req = ctx;
	const struct disk *d = put_disk(req->user, req);

	if (code == 0 && row && !d)
		code = ERR_AGAIN; /* it got another number meanwhile */
	if (code == 0 && row)
		reply_receipt(req, d, row);
	else
		rpc_reply_status(req, code);
}

static void handle_put(void *ctx, struct rpc_req *req)
{
	struct put_cell *cell = req->user;
	int rc;

	if (!cell) {
		/* No payload: a seal that stands alone. */
		rc = begin(ctx, req, &cell);
		if (rc < 0) {
			rpc_reply_status(req, rc);
			return;
		}
	}
	req->user = ctx;
	put_write(cell, put_done, req);
}

static void handle_drop_upload(void *ctx, struct rpc_req *req)
{
	const Craton__DropUploadRequest *m = (const Craton__DropUploadRequest *)req->msg;
	struct copy_id copy;
	struct token token;
	struct disk *d;
	int rc = daemon_authorize(ctx, &m->token, m->copy, TOKEN_WRITE, &d, &copy, &token);

	if (rc == 0)
		rc = put_drop(d->puts, &copy);
	rpc_reply_status(req, rc == ERR_NOENT ? 0 : rc); /* nothing of it is open: that is what was wanted */
}

static void handle_receipt(void *ctx, struct rpc_req *req)
{
	const Craton__ReceiptRequest *m = (const Craton__ReceiptRequest *)req->msg;
	struct index_row row;
	struct copy_id copy;
	struct token token;
	struct disk *d;
	int rc = daemon_authorize(ctx, &m->token, m->copy, TOKEN_WRITE, &d, &copy, &token);

	if (rc == 0 && !d->registered)
		rc = ERR_AGAIN;
	if (rc == 0 && d->failed)
		rc = ERR_DISK_FAILED; /* a receipt is an acknowledgement */
	if (rc == 0)
		rc = index_get(d->index, &copy, &row);
	if (rc == 0)
		reply_receipt(req, d, &row);
	else
		rpc_reply_status(req, rc == ERR_NOENT ? ERR_NOT_SEALED : rc);
}

/* ---- get ---- */

struct get_request {
	struct get get;
	struct chunkd *ch;
	struct rpc_req *req; /* NULL once answered */
	struct list link;    /* in ch->free_gets */
};

static void part_sent(void *ctx, int code)
{
	get_part_sent(ctx, code);
}

static void get_part_ready(struct get *get, struct get_part *part)
{
	struct get_request *g = CONTAINER_OF(get, struct get_request, get);
	Craton__GetPart msg = CRATON__GET_PART__INIT;
	struct iovec iov = {part->data, part->len};
	char damaged[] = "the chunk's trailer is damaged";

	msg.offset = part->offset;
	msg.chunk_length = get->row.length;
	if (part->first && get->want_list) {
		msg.list = (ProtobufCBinaryData){get->list.len, (uint8_t *)get->list.data};
		if (get->list.len == 0)
			msg.detail = damaged;
	}
	rpc_reply(g->req,
		&(struct rpc_reply){.msg = &msg.base,
			.payload = &iov,
			.payload_count = 1,
			.more = !part->last,
			.sent = part_sent,
			.sent_ctx = part});
	if (part->last)
		g->req = NULL;
}

static void get_failed(struct get *get, int code)
{
	struct get_request *g = CONTAINER_OF(get, struct get_request, get);

	if (code == ERR_IO && g->ch->probes)
		probes_soon(g->ch->probes);
	if (g->req)
		rpc_reply_status(g->req, code);
	g->req = NULL;
}

static void get_closed(struct get *get)
{
	struct get_request *g = CONTAINER_OF(get, struct get_request, get);
	struct chunkd *ch = g->ch;

	list_push_front(&ch->free_gets, &g->link);
	ch->gets--;
	daemon_idle(ch);
}

static void handle_get(void *ctx, struct rpc_req *req)
{
	const Craton__GetRequest *m = (const Craton__GetRequest *)req->msg;
	struct chunkd *ch = ctx;
	struct index_row row;
	struct disk *d;
	struct list *n;
	struct get_request *g;
	int rc = authorize_read(ch, &m->token, m->copy, &d, &row);

	if (rc == 0 && ch->gets >= DAEMON_GETS_MAX)
		rc = ERR_OVERLOADED;
	if (rc < 0) {
		rpc_reply_status(req, rc);
		return;
	}
	n = list_pop_front(&ch->free_gets);
	g = n ? LIST_ENTRY(n, struct get_request, link) : MEM_NEW(struct get_request);
	g->ch = ch;
	g->req = req;
	g->get.disk = d;
	g->get.row = row;
	g->get.offset = m->offset;
	g->get.length = m->length;
	g->get.want_list = m->want_list;
	g->get.part = get_part_ready;
	g->get.failed = get_failed;
	g->get.closed = get_closed;
	rc = get_start(&g->get);
	if (rc < 0) {
		list_push_front(&ch->free_gets, &g->link);
		rpc_reply_status(req, rc);
		return;
	}
	ch->gets++;
}

/* ---- lists, stat: from the trailer ---- */

struct trailer_request {
	struct trailer_read read;
	struct chunkd *ch;
	struct rpc_req *req;
};

static void start_trailer(struct chunkd *ch, struct rpc_req *req, struct disk *d, const struct index_row *row,
	void (*done)(struct trailer_read *read, int code))
{
	struct trailer_request *t = MEM_NEW(struct trailer_request);

	t->ch = ch;
	t->req = req;
	t->read.done = done;
	ch->gets++;
	trailer_read_start(d, row, &t->read);
}

static void end_trailer(struct trailer_request *t)
{
	struct chunkd *ch = t->ch;

	trailer_read_end(&t->read);
	mem_free(t);
	ch->gets--;
	daemon_idle(ch);
}

static void lists_read(struct trailer_read *read, int code)
{
	struct trailer_request *t = CONTAINER_OF(read, struct trailer_request, read);
	Craton__ListsReply msg = CRATON__LISTS_REPLY__INIT;
	Craton__List lists[1 + LIMIT_K], *table[1 + LIMIT_K];
	const struct format_trailer *trailer = &read->trailer;
	size_t n = 0;

	if (code < 0) {
		rpc_reply_status(t->req, code);
		end_trailer(t);
		return;
	}
	for (uint8_t i = 0; i <= LIMIT_K; i++) {
		struct slice list = i == LIMIT_K ? trailer->list : format_trailer_data_list(trailer, i);

		if (list.len == 0)
			continue;
		craton__list__init(&lists[n]);
		lists[n].index = i == LIMIT_K ? trailer->copy.index : i;
		lists[n].crcs = (ProtobufCBinaryData){list.len, (uint8_t *)list.data};
		table[n] = &lists[n];
		n++;
	}
	msg.n_lists = n;
	msg.lists = table;
	rpc_reply(t->req, &(struct rpc_reply){.msg = &msg.base});
	end_trailer(t);
}

static void stat_read(struct trailer_read *read, int code)
{
	struct trailer_request *t = CONTAINER_OF(read, struct trailer_request, read);
	Craton__StatReply msg = CRATON__STAT_REPLY__INIT;
	const struct index_row *row = &read->row;
	char name[SEGMENT_NAME_BYTES], *path;

	if (code < 0 && code != ERR_TRAILER_CORRUPT) {
		rpc_reply_status(t->req, code);
		end_trailer(t);
		return;
	}
	segments_name(read->disk->segments, row->extent.segment, name);
	path = mem_printf("%s/%s", read->disk->dir, name);
	msg.segment = path;
	msg.segment_offset = index_row_offset(row);
	msg.length = row->length;
	msg.chunk_crc = row->crc;
	msg.trailer_offset = index_row_offset(row) + index_row_trailer_at(row);
	msg.trailer_bytes = index_row_trailer_bytes(row);
	msg.trailer_bad = code < 0;
	msg.generation = read->disk->sb.generation;
	rpc_reply(t->req, &(struct rpc_reply){.msg = &msg.base});
	mem_free(path);
	end_trailer(t);
}

static void handle_trailer(struct chunkd *ch, struct rpc_req *req, const ProtobufCBinaryData *token,
	const Craton__Copy *copy, void (*done)(struct trailer_read *read, int code))
{
	struct index_row row;
	struct disk *d;
	int rc = authorize_read(ch, token, copy, &d, &row);

	if (rc == 0 && ch->gets >= DAEMON_GETS_MAX)
		rc = ERR_OVERLOADED;
	if (rc < 0)
		rpc_reply_status(req, rc);
	else
		start_trailer(ch, req, d, &row, done);
}

static void handle_lists(void *ctx, struct rpc_req *req)
{
	const Craton__ListsRequest *m = (const Craton__ListsRequest *)req->msg;

	handle_trailer(ctx, req, &m->token, m->copy, lists_read);
}

static void handle_stat(void *ctx, struct rpc_req *req)
{
	const Craton__StatRequest *m = (const Craton__StatRequest *)req->msg;

	handle_trailer(ctx, req, &m->token, m->copy, stat_read);
}

/* ---- table ---- */

const struct rpc_handler daemon_handlers[] = {
	{.method = &rpc_chunkd_put, .handle = handle_put, .place = put_place, .abandoned = put_gone},
	{.method = &rpc_chunkd_drop_upload, .handle = handle_drop_upload},
	{.method = &rpc_chunkd_receipt, .handle = handle_receipt},
	{.method = &rpc_chunkd_get, .handle = handle_get},
	{.method = &rpc_chunkd_lists, .handle = handle_lists},
	{.method = &rpc_chunkd_stat, .handle = handle_stat},
	{0},
};

void daemon_handlers_fini(struct chunkd *ch)
{
	struct list *n;

	while ((n = list_pop_front(&ch->free_gets)))
		mem_free(LIST_ENTRY(n, struct get_request, link));
}
