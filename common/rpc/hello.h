/* SPDX-License-Identifier: Apache-2.0 */
/* hello: what the two sides say first, and what they make of it. Pure. (Private to common/rpc.) */
#ifndef COMMON_RPC_HELLO_H
#define COMMON_RPC_HELLO_H

#include "common/rpc/rpc.h"
#include "proto/common.pb-c.h"

enum { HELLO_VERSION_MIN = 1, HELLO_VERSION_MAX = 1 };

/* What `self` says. It points into *self. */
void hello_fill(const struct rpc_identity *self, Craton__Hello *ret_hello);
/*
 * The body of a HELLO frame as an identity. ERR_PROTO: malformed; ERR_MSGSIZE; ERR_VERSION: no version in common;
 * ERR_WRONG_CLUSTER. `err` names both sides' values. On ERR_VERSION and ERR_WRONG_CLUSTER *ret_peer is set as well.
 */
int hello_parse(
	const struct rpc_identity *self, const void *body, size_t len, struct rpc_identity *ret_peer, struct err *err);

#endif
