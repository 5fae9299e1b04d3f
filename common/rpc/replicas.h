/* SPDX-License-Identifier: Apache-2.0 */
/*
 * replicas: a service that several replicas give, one of which answers at a time (metad): whoever calls asks the one that it believes to
 * lead, and notes what came of it. Who does not lead says who does; of one that does not answer, or belongs elsewhere, the next is asked. Which of a call's failures are tried
 * again, for how long and after what pause, is the caller's.
 *
 * The configuration's list is where it begins. Who is not in it is asked, too, when one that is asked names him as the leader, or in the leader's list of
 * all: a group changes while its clients run. Whoever answers at a configured address could do himself what he might have others do.
 */
#ifndef COMMON_RPC_REPLICAS_H
#define COMMON_RPC_REPLICAS_H

#include "common/base/limits.h"
#include "common/rpc/rpc.h"

/* Where they are. */
struct rpc_addrs {
	uint32_t count; /* 1 .. LIMIT_METADS */
	struct io_addr addrs[LIMIT_METADS];
};
enum { RPC_ADDRS_TEXT_BYTES = LIMIT_METADS * (IO_ADDR_TEXT_BYTES + 2) };
/* "10.0.0.1:7000, 10.0.0.2:7000, [::1]:7000". ERR_INVAL: not such a list; ERR_EXIST: one is named twice; ERR_MSGSIZE: they are more than LIMIT_METADS. */
int rpc_addrs_parse(const char *text, struct rpc_addrs *ret_addrs);
/* What is wrong with the list, in words, by what rpc_addrs_parse returned. */
const char *rpc_addrs_fault(int code);
void rpc_addrs_format(const struct rpc_addrs *addrs, char ret_text[RPC_ADDRS_TEXT_BYTES]);

struct rpc_replicas;
/* options: of each peer, but the address. */
struct rpc_replicas *rpc_replicas_new(
	struct io *io, const struct rpc_addrs *addrs, const struct rpc_peer_options *options);
/* Fails all calls with ERR_CANCELED, closes, then `closed`. */
void rpc_replicas_close(struct rpc_replicas *replicas, void (*closed)(void *ctx), void *ctx);
/* That may be asked now. */
uint32_t rpc_replicas_count(const struct rpc_replicas *replicas);
/* Of the configuration. */
const struct rpc_addrs *rpc_replicas_addrs(const struct rpc_replicas *replicas);
/* All there are, as the one that leads says: IP:PORT. Those that it named before and does not now are asked no more. None, or not addresses: nothing new. */
enum { RPC_REPLICAS_NAMED = 9 };
void rpc_replicas_learn(struct rpc_replicas *replicas, char *const *texts, size_t count);

/* Whom to ask now. */
struct rpc_peer *rpc_replicas_peer(const struct rpc_replicas *replicas);
/*
 * How long it may take to answer before another one is asked instead, usual_ns being right for one that is there: no longer than that. One that has not said
 * HELLO yet may be a host that is gone, for which nobody should wait: it gets RPC_REPLICAS_KNOCK_NS, and twice as much each time that none of them
 * answered, as it may be far away.
 */
#define RPC_REPLICAS_KNOCK_NS (300ull * 1000 * 1000)
uint64_t rpc_replicas_patience_ns(const struct rpc_replicas *replicas, uint64_t usual_ns);
/*
 * The call to `peer` has ended with `status`. True: it is known who leads, so the next try need not wait. Not more often than
 * there are replicas before a call succeeds: two may name each other. Of many calls that fail together none is told so unless the one that is asked now was
 * named: in an election all of them would go round without a pause.
 */
bool rpc_replicas_note(
	struct rpc_replicas *replicas, const struct rpc_peer *peer, int status, const struct rpc_call *call);
/* Each said last that it belongs to another cluster (ERR_WRONG_CLUSTER), or speaks another version: it is no mistake of one of them. */
bool rpc_replicas_all_strange(const struct rpc_replicas *replicas);

#endif
