/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Orders become jobs, jobs end in results, results wait until a heartbeat that carried them was answered. repair_pull.c is
 * one rebuild; a check is a read of the whole chunk here.
 *
 *     FREE --order--> PULLING/WRITING or CHECKING --> DONE --told in a heartbeat that was answered--> FREE
 */
#include "chunkd/repair_priv.h"

#include <stdio.h>
#include "common/base/check.h"
#include "common/base/mem.h"

#define MS 1000000ull

enum { BUSY_MS = 2000 };

static void close_when_idle(struct repairs *r);

/* ---- peers ---- */

static void peer_closed(void *ctx)
{
	struct repair_peer *p = ctx;

	p->peer = NULL;
	p->closing = false;
	close_when_idle(p->repairs);
}

static void peer_close(struct repair_peer *p)
{
	p->closing = true;
	rpc_peer_close(p->peer, peer_closed, p);
}

static void peer_open(struct repairs *r, struct repair_peer *p, const struct io_addr *addr)
{
	struct rpc_peer_options o = {.addr = *addr,
		.self = {.cluster = r->ch->o.cluster, .role = RPC_ROLE_CHUNKD},
		.conns = 1,
		.bulk = true,
		.transform = r->ch->o.transform};

	snprintf(o.self.name, sizeof(o.self.name), "%s", r->ch->o.name);
	p->addr = *addr;
	p->repairs = r;
	p->peer = rpc_peer_new(r->ch->io, &o);
}

struct repair_peer *repair__peer_get(struct repairs *r, const struct io_addr *addr)
{
	struct repair_peer *found = NULL, *empty = NULL, *oldest = NULL;

	for (size_t i = 0; i < REPAIR_PEERS; i++) {
		struct repair_peer *p = &r->peers[i];

		if (p->closing)
			continue;
		if (!p->peer)
			empty = empty ? empty : p;
		else if (memcmp(&p->addr, addr, sizeof(*addr)) == 0)
			found = p;
		else if (p->users == 0 && (!oldest || p->used_ns < oldest->used_ns))
			oldest = p;
	}
	if (!found && empty) {
		found = empty;
		peer_open(r, found, addr);
	} else if (!found && oldest) {
		peer_close(oldest); /* its place is there for the next one */
	}
	if (!found)
		return NULL;
	found->users++;
	found->used_ns = io_now_ns(r->ch->io);
	return found;
}

void repair__peer_put(struct repair_peer *p)
{
	CHECK(p->users > 0);
	p->users--;
}

/* ---- jobs ---- */

static void job_free(struct repair_job *job)
{
	struct repairs *r = job->repairs;

	repair__pull_free(job);
	mem_free(job->seen);
	*job = (struct repair_job){.repairs = r};
}

void repair__finish(struct repair_job *job, int status, const char *text)
{
	struct chunkd *ch = job->repairs->ch;

	CHECK(job->state != REPAIR_FREE && job->state != REPAIR_DONE);
	job->state = REPAIR_DONE;
	job->status = status;
	job->told = false;
	snprintf(job->text, sizeof(job->text), "%s", text ? text : "");
	job->generation = job->disk->sb.generation;
	if (status == 0 && !job->check) {
		struct receipt receipt = {
			.block = job->row.copy.block,
			.length = job->row.length,
			.generation = job->generation,
			.disk = job->disk_number,
			.incarnation = job->row.copy.incarnation,
			.crc = job->row.crc,
			.index = job->row.copy.index,
		};

		job->crc = job->row.crc;
		receipt_mac(&receipt, &job->disk->receipt_key, job->mac);
	}
	log_line(&ch->log, status ? LOG_WARN : LOG_INFO, job->check ? "chunk-checked" : "chunk-rebuilt",
		"block=%llu index=%u incarnation=%u disk=%u error=%s text=\"%s\"", (unsigned long long)job->copy.block,
		job->copy.index, job->copy.incarnation, job->disk_number, status ? err_name(status) : "none",
		job->text);
	job->repairs->busy_ns = io_now_ns(ch->io);
	ch->gets--;
	registrar_kick(ch);
	close_when_idle(job->repairs);
	daemon_idle(ch);
}

static struct repair_job *find_job(struct repairs *r, const Craton__RepairOrder *o, struct repair_job **ret_free)
{
	*ret_free = NULL;
	for (size_t i = 0; i < REPAIR_JOBS; i++) {
		struct repair_job *job = &r->jobs[i];

		if (job->state == REPAIR_FREE)
			*ret_free = *ret_free ? *ret_free : job;
		else if (job->copy.block == o->block && job->copy.index == o->index &&
			job->copy.incarnation == o->incarnation && job->check == (o->check != 0))
			return job;
	}
	return NULL;
}

/* The order as the job keeps it. Everything in it is checked: it came over the network. */
static int take_order(struct repair_job *job, const Craton__RepairOrder *o)
{
	Craton__Copy copy = CRATON__COPY__INIT;
	struct token token;
	int rc;

	copy.block = o->block;
	copy.index = o->index;
	copy.incarnation = o->incarnation;
	copy.disk = o->disk;
	rc = daemon_authorize(job->repairs->ch, &o->write_token, &copy, o->check ? TOKEN_READ : TOKEN_WRITE, &job->disk,
		&job->copy, &token);
	return rc < 0 ? rc : repair__order_take(job, o, &token);
}

/* ---- a check ---- */

static void reread_part(struct get *get, struct get_part *part)
{
	struct repair_job *job = CONTAINER_OF(get, struct repair_job, get);
	uint32_t first = (uint32_t)(part->offset / LIMIT_UNIT_BYTES), units = stripe_unit_count(part->len);

	ec_unit_crcs(part->data, part->len, job->seen + first);
	stripe_mask_units(job->copy.block, job->copy.index, first, units, job->seen + first);
	/* The trailer counts, too: without its list a reader cannot use the chunk. */
	if (part->first && get->list_code < 0)
		job->status = get->list_code;
	else if (part->first && get->list.len != (size_t)stripe_unit_count(job->row.length) * sizeof(uint32_t))
		job->status = ERR_TRAILER_CORRUPT;
	else if (part->first &&
		stripe_combine(job->copy.block, job->copy.index, job->row.length, (const uint32_t *)get->list.data) !=
			job->crcs[job->copy.index])
		job->status = ERR_CORRUPT;
	get_part_sent(part, 0);
}

static void reread_failed(struct get *get, int code)
{
	CONTAINER_OF(get, struct repair_job, get)->status = code;
}

static void reread_closed(struct get *get)
{
	struct repair_job *job = CONTAINER_OF(get, struct repair_job, get);

	if (!job->status &&
		stripe_combine(job->copy.block, job->copy.index, job->row.length, job->seen) !=
			job->crcs[job->copy.index])
		job->status = ERR_CORRUPT;
	repair__finish(job, job->status,
		job->status == ERR_IO ? "the copy cannot be read"
			: job->status ? "the copy was read again and is not what its proof says"
				      : NULL);
}

static void reread_start(struct repair_job *job)
{
	job->state = REPAIR_CHECKING;
	job->status = 0;
	job->seen = mem_array(stripe_unit_count(job->row.length), sizeof(*job->seen));
	job->get = (struct get){.disk = job->disk,
		.row = job->row,
		.length = job->row.length,
		.want_list = true,
		.part = reread_part,
		.failed = reread_failed,
		.closed = reread_closed};
	CHECK(get_start(&job->get) == 0);
}

/* ---- orders ---- */

static void job_start(struct repair_job *job)
{
	struct chunkd *ch = job->repairs->ch;
	uint64_t length = stripe_chunk_len(&job->geom, job->copy.index);
	int rc = index_get(job->disk->index, &job->copy, &job->row);

	ch->gets++;
	job->state = REPAIR_PULLING;
	job->repairs->busy_ns = io_now_ns(ch->io);
	if (job->disk->failed || !job->disk->registered)
		repair__finish(job, job->disk->failed ? ERR_DISK_FAILED : ERR_AGAIN, NULL);
	else if (rc == 0 && (job->row.length != length || (!job->check && job->row.crc != job->crcs[job->copy.index])))
		repair__finish(job, ERR_CORRUPT, "a copy of another content lies there");
	else if (rc == 0 && job->check)
		reread_start(job);
	else if (rc == 0)
		repair__finish(job, 0, NULL); /* sealed before, but the receipt was not heard */
	else if (job->check)
		repair__finish(job, ERR_NOENT, "the disk does not have the copy");
	else
		repair__pull_start(job);
}

void repairs_take(struct repairs *r, Craton__RepairOrder *const *orders, size_t count)
{
	for (size_t i = 0; i < count && !r->closing; i++) {
		struct repair_job *job;
		int rc;

		if (find_job(r, orders[i], &job) || !job)
			continue;
		rc = take_order(job, orders[i]);
		if (rc < 0) {
			log_line(&r->ch->log, LOG_WARN, "order-refused", "block=%llu index=%u disk=%u error=%s",
				(unsigned long long)orders[i]->block, orders[i]->index, orders[i]->disk, err_name(rc));
			job_free(job);
			continue;
		}
		job_start(job);
	}
}

/* ---- results ---- */

static void add_culprit(struct repair_job *job, Craton__RepairResult *out, uint8_t index, int status, const char *text)
{
	struct repairs *r = job->repairs;
	size_t at = (size_t)(job - r->jobs);
	const struct repair_source *s = &job->sources[index];
	Craton__RepairCulprit *c = &r->culprit[at][out->n_culprits];
	char *line = r->culprit_text[at][out->n_culprits];

	snprintf(line, REPAIR_TEXT_BYTES, "%s: %s", s->server, text);
	craton__repair_culprit__init(c);
	c->index = index;
	c->disk = s->disk;
	c->incarnation = s->incarnation;
	c->status = status;
	c->text = line;
	r->culprits[at][out->n_culprits++] = c;
}

static void make_result(struct repair_job *job, Craton__RepairResult *out)
{
	craton__repair_result__init(out);
	out->block = job->copy.block;
	out->index = job->copy.index;
	out->incarnation = job->copy.incarnation;
	out->disk = job->disk_number;
	out->generation = job->generation;
	out->check = job->check;
	out->status = job->status;
	out->text = job->text;
	if (job->status == 0 && !job->check) {
		out->crc = job->crc;
		out->mac = (ProtobufCBinaryData){sizeof(job->mac), job->mac};
	}
	out->culprits = job->repairs->culprits[job - job->repairs->jobs];
	for (uint8_t i = 0; i < LIMIT_WIDTH; i++) {
		if (job->sources[i].told)
			add_culprit(job, out, i, job->sources[i].bad,
				job->sources[i].bad == ERR_CORRUPT
					? "what it serves does not lead up to the block's proof"
					: "it cannot be read");
		else if (job->liars & 1u << i)
			add_culprit(
				job, out, i, ERR_CORRUPT, "its checksums agree, the block is right only without it");
	}
}

size_t repairs_results(struct repairs *r, Craton__RepairResult ***ret_results)
{
	size_t n = 0;

	for (size_t i = 0; i < REPAIR_JOBS; i++) {
		if (r->jobs[i].state != REPAIR_DONE)
			continue;
		r->jobs[i].told = true;
		make_result(&r->jobs[i], &r->result[n]);
		r->results[n] = &r->result[n];
		n++;
	}
	*ret_results = r->results;
	return n;
}

void repairs_reported(struct repairs *r)
{
	for (size_t i = 0; i < REPAIR_JOBS; i++)
		if (r->jobs[i].state == REPAIR_DONE && r->jobs[i].told)
			job_free(&r->jobs[i]);
}

bool repairs_busy(const struct repairs *r)
{
	return r->busy_ns && io_now_ns(r->ch->io) - r->busy_ns < BUSY_MS * MS;
}

/* ---- life ---- */

struct repairs *repairs_new(struct chunkd *ch)
{
	struct repairs *r = MEM_NEW(struct repairs);

	r->ch = ch;
	for (size_t i = 0; i < REPAIR_JOBS; i++)
		r->jobs[i].repairs = r;
	return r;
}

static void close_when_idle(struct repairs *r)
{
	void (*closed)(void *ctx) = r->closed;
	void *ctx = r->closed_ctx;

	if (!r->closing || !closed)
		return;
	for (size_t i = 0; i < REPAIR_JOBS; i++)
		if (r->jobs[i].state != REPAIR_FREE && r->jobs[i].state != REPAIR_DONE)
			return;
	for (size_t i = 0; i < REPAIR_PEERS; i++)
		if (r->peers[i].peer && !r->peers[i].closing)
			peer_close(&r->peers[i]);
	for (size_t i = 0; i < REPAIR_PEERS; i++)
		if (r->peers[i].peer)
			return;
	for (size_t i = 0; i < REPAIR_JOBS; i++) {
		io_turn_hook_remove(r->ch->io, &r->jobs[i].hook);
		job_free(&r->jobs[i]);
	}
	r->closed = NULL;
	mem_free(r);
	closed(ctx);
}

void repairs_close(struct repairs *r, void (*closed)(void *ctx), void *ctx)
{
	r->closing = true;
	r->closed = closed;
	r->closed_ctx = ctx;
	for (size_t i = 0; i < REPAIR_JOBS; i++)
		if (r->jobs[i].state == REPAIR_PULLING || r->jobs[i].state == REPAIR_WRITING)
			repair__pull_stop(&r->jobs[i]);
	close_when_idle(r);
}
