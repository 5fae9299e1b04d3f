/* SPDX-License-Identifier: Apache-2.0 */
/*
 * write_alloc: blocks for a file being written, asked for ahead of need, the first one with the file's creation. Invariant: an allocation
 * is used only while it is young enough to be committed, and only if it was made for the servers as they are: after one of them failed or
 * came back all are thrown away.
 */
#include "client/write.h"

#include <string.h>
#include "common/base/sometimes.h"

#define ALLOC_LIFE_NS (10ull * 60 * 1000 * 1000 * 1000)

struct write_allocate {
	struct session_call call;
	struct write_stream *stream;
	Craton__AllocateRequest request;
	uint32_t avoid[64], slow[64];
	uint32_t probe;
	uint64_t asked_ns, expected_bytes; /* of a chunk */
};

static bool take_target(const Craton__Target *in, struct write_target *out)
{
	if (!in || in->token.len != TOKEN_BYTES || in->disk == 0)
		return false;
	*out = (struct write_target){.disk = in->disk, .incarnation = in->incarnation};
	memcpy(out->token, in->token.data, TOKEN_BYTES);
	return true;
}

bool write_alloc_read(const Craton__Allocation *in, const struct ec_policy *policy, struct write_alloc *ret_alloc)
{
	struct write_alloc a = {.block = in->block};
	uint32_t width = policy->k + policy->m, seen = 0;

	for (size_t i = 0; i < in->n_targets; i++) {
		uint32_t index = in->targets[i]->index;

		if (index >= width || seen & 1u << index || !take_target(in->targets[i], &a.targets[index]))
			break;
		seen |= 1u << index;
	}
	for (size_t i = 0; i < in->n_spares && a.spare_count < LIMIT_M; i++)
		if (take_target(in->spares[i], &a.spares[a.spare_count]))
			a.spare_count++;
	if (seen != (1u << width) - 1 || a.block == 0)
		return false;
	*ret_alloc = a;
	return true;
}

static struct write_alloc *take_allocation(
	const struct write_stream *s, const Craton__Allocation *in, const struct write_allocate *asked)
{
	struct write_alloc *a = MEM_NEW(struct write_alloc);

	if (!write_alloc_read(in, s->policy, a)) {
		mem_free(a);
		return NULL;
	}
	a->at_ns = asked->asked_ns;
	a->probe = asked->probe;
	return a;
}

static void allocate_failed(struct write_stream *s, int status, const Craton__AllocateReply *reply)
{
	struct err err = {0};

	if (s->ending)
		return;
	if (status == ERR_NO_PLACEMENT)
		write_fail(s, status,
			"write %s: no room for a block of %s: %u more failure domains with an up disk and room are needed: see `craton status`",
			s->path, s->policy->name, reply && reply->missing_domains ? reply->missing_domains : 1);
	else
		write_fail(s, session_explain(&s->client->session, &err, status, "write", s->path), "%s", err.text);
}

/* A server that it avoided is back: with it the block may lie on more domains. */
static bool avoided_in_vain(const struct write_allocate *a)
{
	const struct disks *disks = &a->stream->client->disks;

	for (size_t i = 0; i < a->request.n_avoid_disks; i++)
		if (!disks_avoided(disks, a->avoid[i]) && !disks_without_room(disks, a->avoid[i], a->expected_bytes))
			return true;
	return false;
}

/* False: there is nothing in it to write with. */
static bool take_blocks(struct write_allocate *a, const Craton__AllocateReply *reply)
{
	struct write_stream *s = a->stream;
	bool useless;

	disks_learn(&s->client->disks, reply->disks, reply->n_disks);
	/* Asked for again: the list of the avoided has become shorter. */
	useless = avoided_in_vain(a);
	for (size_t i = 0; i < reply->n_blocks && !useless && i < a->request.count; i++) {
		struct write_alloc *alloc = take_allocation(s, reply->blocks[i], a);

		if (!alloc)
			break;
		list_push_back(&s->allocs, &alloc->link);
		s->alloc_count++;
	}
	return s->alloc_count > 0 || useless;
}

static void allocate_done(struct session_call *call, int status, const ProtobufCMessage *msg)
{
	struct write_allocate *a = CONTAINER_OF(call, struct write_allocate, call);
	struct write_stream *s = a->stream;
	const Craton__AllocateReply *reply = (const Craton__AllocateReply *)msg;

	s->allocate = NULL;
	if (status < 0 || !reply)
		allocate_failed(s, status < 0 ? status : ERR_PROTO, reply);
	else if (!take_blocks(a, reply))
		write_fail(s, ERR_PROTO, "write %s: malformed allocation by metad", s->path);
	mem_free(a);
	write_kick(s);
}

/* Disks that are avoided; but now and then one that is merely slow is left out, for one block. */
static void choose_avoid(struct write_allocate *a, struct disks *disks)
{
	Craton__AllocateRequest *r = &a->request;
	size_t n = disks_avoid_list(disks, a->expected_bytes, a->avoid, ARRAY_COUNT(a->avoid));

	for (size_t i = 0; i < n && !a->probe; i++) {
		if (!disks_probe(disks, a->avoid[i]))
			continue;
		SOMETIMES(write_alloc_probed);
		a->probe = a->avoid[i];
		a->avoid[i] = a->avoid[--n];
		r->count = 1;
	}
	r->avoid_disks = a->avoid;
	r->n_avoid_disks = n;
	r->slow_disks = a->slow;
	r->n_slow_disks = disks_slow_list(disks, a->slow, ARRAY_COUNT(a->slow));
}

static struct write_allocate *allocate_new(struct client *client, uint32_t count)
{
	struct write_allocate *a = MEM_NEW(struct write_allocate);

	a->asked_ns = io_now_ns(client->io);
	craton__allocate_request__init(&a->request);
	a->request.count = count;
	return a;
}

struct write_allocate *write_first_ask(struct client *client)
{
	uint32_t any;

	/* Avoided disks are named in a request of its own. */
	return disks_avoid_list(&client->disks, UINT64_MAX, &any, 1) || disks_slow_list(&client->disks, &any, 1)
		? NULL
		: allocate_new(client, 1);
}

void write_first_take(struct write_allocate *a, struct write_stream *s, const Craton__AllocateReply *reply)
{
	a->stream = s;
	/* The file was made all the same: what there is not is asked for, and what is wrong is said then. */
	(void)take_blocks(a, reply);
}

/* The first block of a file of which there is less than a stripe will be as short as that, mostly: a disk that is full for long chunks takes it. */
static uint64_t expected_bytes(const struct write_stream *s)
{
	struct stripe_geom geom = {.k = s->policy->k, .m = s->policy->m, .cell_bytes = s->cell_bytes, .length = s->end};

	return list_empty(&s->blocks) && s->end < write_stripe_bytes(s) ? stripe_chunk_len(&geom, 0) : s->chunk_bytes;
}

void write_alloc_ask(struct write_stream *s, uint32_t count)
{
	struct write_allocate *a;
	Craton__AllocateRequest *r;

	if (s->allocate)
		return;
	a = allocate_new(s->client, count);
	a->stream = s;
	a->expected_bytes = expected_bytes(s);
	r = &a->request;
	r->inode = s->inode;
	r->epoch = s->epoch;
	r->chunk_bytes = s->chunk_bytes;
	r->cell_bytes = s->cell_bytes;
	choose_avoid(a, &s->client->disks);
	a->call = (struct session_call){
		.method = &rpc_metad_allocate,
		.request = &r->base,
		.repeatable = true,
		.done = allocate_done,
	};
	s->allocate = a;
	session_start(&s->client->session, &a->call);
}

struct write_alloc *write_alloc_next(struct write_stream *s)
{
	uint64_t now_ns = io_now_ns(s->client->io);

	while (!list_empty(&s->allocs)) {
		struct write_alloc *a = LIST_ENTRY(list_pop_front(&s->allocs), struct write_alloc, link);

		s->alloc_count--;
		if (now_ns - a->at_ns < ALLOC_LIFE_NS && a->at_ns >= s->client->disks.changed_ns)
			return a;
		mem_free(a);
	}
	write_alloc_ask(s, 1);
	return NULL;
}

void write_alloc_cancel(struct write_stream *s)
{
	struct list *l;

	if (s->allocate)
		session_cancel(&s->allocate->call);
	while ((l = list_pop_front(&s->allocs)))
		mem_free(LIST_ENTRY(l, struct write_alloc, link));
	s->alloc_count = 0;
}
