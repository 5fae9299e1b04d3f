/* SPDX-License-Identifier: Apache-2.0 */
#include "common/rpc/replicas.h"

#include <stdio.h>
#include <string.h>
#include "common/base/check.h"
#include "common/base/mem.h"

enum {
	SLOTS = 2 * RPC_REPLICAS_NAMED + LIMIT_METADS, /* what was named once and is not any more makes room last */
	DOUBLINGS = 16,                                 /* of RPC_REPLICAS_KNOCK_NS: longer than anybody waits */
};

struct slot {
	struct io_addr addr;
	struct rpc_peer *peer;
	bool configured, named; /* neither: it is asked no more */
	bool strange; /* it said last that it belongs to another cluster, or speaks another version */
};

struct rpc_replicas {
	struct io *io;
	struct rpc_addrs addrs;
	struct rpc_peer_options options;
	struct slot slots[SLOTS];
	uint32_t count;
	uint32_t at;   /* whom to ask */
	uint32_t hops; /* to who was named, since a call succeeded */
	bool named;    /* `at` was, by another one */
	uint32_t silences; /* of those that were asked, since one answered */
	uint32_t open;
	void (*closed)(void *ctx);
	void *closed_ctx;
};

/* ---- addresses ---- */

static bool is_known(const struct rpc_addrs *addrs, const struct io_addr *addr, uint32_t *ret_at)
{
	for (uint32_t i = 0; i < addrs->count; i++)
		if (io_addr_equal(&addrs->addrs[i], addr)) {
			*ret_at = i;
			return true;
		}
	return false;
}

int rpc_addrs_parse(const char *text, struct rpc_addrs *ret_addrs)
{
	struct rpc_addrs addrs = {0};
	char one[IO_ADDR_TEXT_BYTES];
	uint32_t at;

	do {
		struct io_addr addr;
		size_t len, trimmed;

		text += strspn(text, " \t");
		len = trimmed = strcspn(text, ",");
		while (trimmed && strchr(" \t", text[trimmed - 1]))
			trimmed--;
		if (trimmed >= sizeof(one))
			return ERR_INVAL;
		snprintf(one, sizeof(one), "%.*s", (int)trimmed, text);
		if (io_addr_parse(one, &addr) < 0)
			return ERR_INVAL;
		if (is_known(&addrs, &addr, &at))
			return ERR_EXIST;
		if (addrs.count == LIMIT_METADS)
			return ERR_MSGSIZE;
		addrs.addrs[addrs.count++] = addr;
		text += len;
	} while (*text++ == ',');
	*ret_addrs = addrs;
	return 0;
}

const char *rpc_addrs_fault(int code)
{
	_Static_assert(LIMIT_METADS == 5, "the text says five");
	return code == ERR_EXIST ? "one address is named twice" : code == ERR_MSGSIZE ? "more than five addresses" : "not an address";
}

void rpc_addrs_format(const struct rpc_addrs *addrs, char ret_text[RPC_ADDRS_TEXT_BYTES])
{
	size_t len = 0;

	ret_text[0] = '\0';
	for (uint32_t i = 0; i < addrs->count; i++) {
		char one[IO_ADDR_TEXT_BYTES];

		io_addr_format(&addrs->addrs[i], one);
		len += (size_t)snprintf(ret_text + len, RPC_ADDRS_TEXT_BYTES - len, "%s%s", i ? ", " : "", one);
	}
}

/* ---- life ---- */

static void slot_open(struct rpc_replicas *r, struct slot *slot, const struct io_addr *addr)
{
	struct rpc_peer_options o = r->options;

	o.addr = *addr;
	*slot = (struct slot){.addr = *addr, .peer = rpc_peer_new(r->io, &o)};
	r->open++;
}

struct rpc_replicas *rpc_replicas_new(
	struct io *io, const struct rpc_addrs *addrs, const struct rpc_peer_options *options)
{
	struct rpc_replicas *r = MEM_NEW(struct rpc_replicas);

	CHECK(addrs->count > 0 && addrs->count <= LIMIT_METADS);
	r->io = io;
	r->addrs = *addrs;
	r->options = *options;
	for (; r->count < addrs->count; r->count++) {
		slot_open(r, &r->slots[r->count], &addrs->addrs[r->count]);
		r->slots[r->count].configured = true;
	}
	return r;
}

static void peer_closed(void *ctx)
{
	struct rpc_replicas *r = ctx;
	void (*closed)(void *ctx) = r->closed;
	void *closed_ctx = r->closed_ctx;

	if (--r->open > 0)
		return;
	mem_free(r);
	closed(closed_ctx);
}

void rpc_replicas_close(struct rpc_replicas *r, void (*closed)(void *ctx), void *ctx)
{
	struct rpc_peer *peers[SLOTS];
	uint32_t count = r->count;

	r->closed = closed;
	r->closed_ctx = ctx;
	for (uint32_t i = 0; i < count; i++)
		peers[i] = r->slots[i].peer;
	for (uint32_t i = 0; i < count; i++)
		rpc_peer_close(peers[i], peer_closed, r);
}

static bool is_asked(const struct slot *slot)
{
	return slot->configured || slot->named;
}

uint32_t rpc_replicas_count(const struct rpc_replicas *r)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < r->count; i++)
		count += is_asked(&r->slots[i]);
	return count;
}

const struct rpc_addrs *rpc_replicas_addrs(const struct rpc_replicas *r)
{
	return &r->addrs;
}

/* ---- whom to ask ---- */

struct rpc_peer *rpc_replicas_peer(const struct rpc_replicas *r)
{
	return r->slots[r->at].peer;
}

uint64_t rpc_replicas_patience_ns(const struct rpc_replicas *r, uint64_t usual_ns)
{
	uint32_t rounds = r->silences / rpc_replicas_count(r);
	uint64_t knock_ns = RPC_REPLICAS_KNOCK_NS << (rounds < DOUBLINGS ? rounds : DOUBLINGS);

	return rpc_peer_is_open(rpc_replicas_peer(r)) || usual_ns < knock_ns ? usual_ns : knock_ns;
}

/* Its slot, a new one if it is not known yet; NULL: there is no room. */
static struct slot *slot_of(struct rpc_replicas *r, const struct io_addr *addr)
{
	struct slot *unused = NULL;

	for (uint32_t i = 0; i < r->count; i++) {
		if (io_addr_equal(&r->slots[i].addr, addr))
			return &r->slots[i];
		if (!is_asked(&r->slots[i]) && i != r->at && !unused)
			unused = &r->slots[i];
	}
	if (r->count < SLOTS)
		unused = &r->slots[r->count++];
	else if (unused)
		rpc_peer_close(unused->peer, peer_closed, r);
	else
		return NULL;
	slot_open(r, unused, addr);
	return unused;
}

static bool is_named(struct rpc_replicas *r, const struct io_addr *leader, uint32_t *ret_at)
{
	struct slot *slot = leader->family ? slot_of(r, leader) : NULL;

	if (!slot)
		return false;
	slot->named = true;
	*ret_at = (uint32_t)(slot - r->slots);
	return *ret_at != r->at;
}

void rpc_replicas_learn(struct rpc_replicas *r, char *const *texts, size_t count)
{
	struct io_addr addrs[RPC_REPLICAS_NAMED];
	uint32_t known = 0;

	for (size_t i = 0; i < count && known < RPC_REPLICAS_NAMED; i++)
		known += io_addr_parse(texts[i], &addrs[known]) == 0;
	if (known == 0)
		return;
	for (uint32_t i = 0; i < r->count; i++)
		r->slots[i].named = false;
	for (uint32_t i = 0; i < known; i++) {
		struct slot *slot = slot_of(r, &addrs[i]);

		if (slot)
			slot->named = true;
	}
}

/* NULL: it made room for another one meanwhile. */
static struct slot *slot_of_peer(struct rpc_replicas *r, const struct rpc_peer *peer)
{
	for (uint32_t i = 0; i < r->count; i++)
		if (r->slots[i].peer == peer)
			return &r->slots[i];
	return NULL;
}

static bool is_silence(int status)
{
	switch (status) {
	case ERR_CONNREFUSED:
	case ERR_HOSTUNREACH:
	case ERR_CONNRESET:
	case ERR_PIPE:
	case ERR_TIMEDOUT:
	case ERR_STOPPED:
		return true;
	default:
		return false;
	}
}

bool rpc_replicas_note(
	struct rpc_replicas *r, const struct rpc_peer *peer, int status, const struct rpc_call *call)
{
	struct slot *slot = slot_of_peer(r, peer);
	uint32_t at;

	/* Of one that does not answer nothing new is known. */
	if (slot && !is_silence(status))
		slot->strange = status == ERR_WRONG_CLUSTER || status == ERR_VERSION;
	if (slot != &r->slots[r->at])
		return status == ERR_NOT_LEADER && r->named; /* another call has found out */
	r->silences = is_silence(status) ? r->silences + 1 : 0;
	if (status == ERR_NOT_LEADER && is_named(r, &call->leader, &at) && r->hops < rpc_replicas_count(r)) {
		r->hops++;
		r->at = at;
		r->named = true;
		return true;
	}
	r->hops = 0;
	if (status != ERR_NOT_LEADER && !is_silence(status) && !slot->strange)
		return false;
	do
		r->at = (r->at + 1) % r->count;
	while (!is_asked(&r->slots[r->at]));
	r->named = false;
	return false;
}

bool rpc_replicas_all_strange(const struct rpc_replicas *r)
{
	for (uint32_t i = 0; i < r->count; i++)
		if (is_asked(&r->slots[i]) && !r->slots[i].strange)
			return false;
	return true;
}
