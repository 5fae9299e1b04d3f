/* SPDX-License-Identifier: Apache-2.0 */
/*
 * codec_plain: the fast way for messages as nearly all are. Private to codec; pure.
 *
 * protobuf-c asks for a table of members, a second pass and an allocation for each piece, and packs in two passes. What is written by
 * our own encoders needs none of that: known fields of proto3, in rising order, each once (repeated ones in one run). Whatever is
 * otherwise is not judged here: the answer is "not plain", and protobuf-c does it. What is plain gives exactly what protobuf-c gives.
 */
#ifndef COMMON_RPC_CODEC_PLAIN_H
#define COMMON_RPC_CODEC_PLAIN_H

#include "common/base/slice.h"
#include "common/rpc/codec.h"

/* False: not plain, or the arena refuses; what the arena gave for it is still taken. */
bool codec__plain_unpack(struct codec_arena *a, const ProtobufCMessageDescriptor *type, struct slice body,
	const ProtobufCMessage **ret_msg);

/* False: not plain, or longer than `cap`. */
bool codec__plain_pack(const ProtobufCMessage *msg, uint8_t *out, size_t cap, size_t *ret_len);

#endif
