/* SPDX-License-Identifier: Apache-2.0 */
/*
 * read_probe: a fetch from a slow disk for its time alone: nobody waits for it, its bytes are looked at by nobody. One page takes all of
 * it, part over part; without a page to spare there is no probe. It is compared with what the client's last fetches took.
 */
#include "client/read_job.h"

#include <string.h>
#include "common/base/sometimes.h"

#define PROBE_TIMEOUT_NS (5ull * 1000 * 1000 * 1000)

struct read_probe {
	struct rpc_call call;
	struct client *client;
	uint32_t disk;
	void *page;
	uint64_t started_ns, median_ns;
	Craton__GetRequest request;
	Craton__Copy copy;
	uint8_t token[TOKEN_BYTES];
};

static int probe_place(struct rpc_call *call, const ProtobufCMessage *head, uint32_t payload_len,
	struct iovec ret_iov[RPC_PAYLOAD_IOV], int *ret_count)
{
	struct read_probe *p = CONTAINER_OF(call, struct read_probe, call);

	(void)head;
	ret_iov[0] = (struct iovec){p->page, payload_len};
	*ret_count = 1;
	return payload_len <= POOL_PAGE_BYTES ? 0 : ERR_PROTO;
}

static void probe_part(struct rpc_call *call, const ProtobufCMessage *msg, uint32_t payload_len)
{
	(void)call, (void)msg, (void)payload_len;
}

static void probe_done(struct rpc_call *call, int status, const ProtobufCMessage *msg, uint32_t payload_len)
{
	struct read_probe *p = CONTAINER_OF(call, struct read_probe, call);
	struct client *client = p->client;

	(void)msg, (void)payload_len;
	if (status == 0 || status == ERR_TIMEDOUT)
		disks_note(&client->disks, p->disk, io_now_ns(client->io) - p->started_ns, p->median_ns);
	else if (disks_is_failure(status))
		disks_failed(&client->disks, p->disk);
	pool_put(&client->pool, p->page);
	pool_unreserve(&client->pool, 1);
	mem_free(p);
	client->background--;
	client_check_closed(client);
}

void read_probe(const struct read_job *j, uint8_t index)
{
	struct client *client = j->args.client;
	const struct layout_block *b = j->args.block;
	struct rpc_peer *peer = disks_peer(&client->disks, b->chunks[index].disk);
	uint64_t at = (uint64_t)j->first_row * READ_ROW, end = at + (uint64_t)j->rows * READ_ROW;
	uint64_t len = stripe_chunk_len(&b->geom, index);
	struct read_probe *p;

	if (!peer || at >= len || client->closing || !pool_reserve(&client->pool, 1))
		return;
	SOMETIMES(read_probe_sent);
	p = MEM_NEW(struct read_probe);
	p->client = client;
	p->disk = b->chunks[index].disk;
	p->page = pool_take(&client->pool);
	p->started_ns = io_now_ns(client->io);
	p->median_ns = read_median_ns(client);
	memcpy(p->token, b->token, b->token_bytes);
	craton__copy__init(&p->copy);
	p->copy.block = b->id;
	p->copy.index = index;
	p->copy.incarnation = b->chunks[index].incarnation;
	p->copy.disk = p->disk;
	craton__get_request__init(&p->request);
	p->request.copy = &p->copy;
	p->request.token = (ProtobufCBinaryData){b->token_bytes, p->token};
	p->request.offset = at;
	p->request.length = (end < len ? end : len) - at;
	p->call = (struct rpc_call){
		.method = &rpc_chunkd_get,
		.request = &p->request.base,
		.deadline_ns = p->started_ns + PROBE_TIMEOUT_NS,
		.place = probe_place,
		.part = probe_part,
		.done = probe_done,
	};
	client->background++;
	rpc_call_start(peer, &p->call);
}
