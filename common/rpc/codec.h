/* SPDX-License-Identifier: Apache-2.0 */
/*
 * codec: protobuf bodies to messages and back, within bounds. Pure.
 *
 * A message is unpacked into an arena: one bump allocator that refuses to grow past its bound, from which nothing is
 * freed until the whole is cleared. protobuf-c recurses for each level of nesting, so the depth is checked before it
 * runs.
 */
#ifndef COMMON_RPC_CODEC_H
#define COMMON_RPC_CODEC_H

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CODEC_PACK_SPARE = 16 };
enum { CODEC_DEPTH = 16 }; /* levels of messages in messages; protobuf-c needs about 1.5 KiB of stack for each */

struct codec_chunk;

struct codec_arena {
	struct codec_chunk *chunk; /* newest first */
	size_t used, max;          /* bytes handed out and their bound */
	size_t held;               /* bytes of memory that the arena holds */
	bool refused;              /* something was asked for past the bound */
};

void codec_arena_init(struct codec_arena *a, size_t max);
void codec_arena_clear(struct codec_arena *a); /* keeps one piece of memory, of 16 KiB at most */
void codec_arena_fini(struct codec_arena *a);
void *codec_arena_alloc(struct codec_arena *a, size_t len); /* 16-byte aligned; NULL past the bound */

/*
 * The message lives in the arena. Unknown fields are kept, strings have a NUL behind them, repeated counts and all
 * lengths are bounded by `len`. ERR_PROTO: malformed or too deep. ERR_MSGSIZE: needs more than the arena's bound.
 */
int codec_unpack(struct codec_arena *a, const ProtobufCMessageDescriptor *type, const void *body, size_t len,
	const ProtobufCMessage **ret_msg);

/* Returns the length of the packed message; if that is greater than `cap`, what `out` holds is of no use. Fastest with some bytes to spare. */
size_t codec_pack(const ProtobufCMessage *msg, void *out, size_t cap);

#endif
