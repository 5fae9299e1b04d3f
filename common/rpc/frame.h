/* SPDX-License-Identifier: Apache-2.0 */
/*
 * frame: the unit of the wire. 40 bytes of header, then `body_len` bytes of protobuf, then `payload_len` bytes of bulk
 * data outside the protobuf (so that they can be received straight into an aligned buffer). Pure; docs/FORMATS.md has
 * the bytes.
 *
 *   0 u32 magic "CRF1"    4 u8 version (1)   5 u8 kind   6 u16 flags
 *   8 u64 request id     16 u16 method      18 u16 reserved (0)   20 i32 status (err code; responses)
 *  24 u32 body_len       28 u32 payload_len 32 u32 CRC32C of the body   36 u32 CRC32C of bytes 0..35
 *
 * The payload has no CRC here: the messages that announce one carry its unit CRCs, which go on to disk (nothing is
 * hashed twice).
 */
#ifndef COMMON_RPC_FRAME_H
#define COMMON_RPC_FRAME_H

#include <stdint.h>
#include "common/base/err.h"

enum { FRAME_HEADER_BYTES = 40, FRAME_VERSION = 1 };
enum frame_kind { FRAME_HELLO = 1, FRAME_REQUEST = 2, FRAME_RESPONSE = 3 };
enum { FRAME_MORE = 1 }; /* response: further frames with this request id follow */

struct frame {
	uint8_t kind;
	uint16_t flags;
	uint16_t method;
	int32_t status;
	uint64_t request_id;
	uint32_t body_len, payload_len;
	uint32_t body_crc;
};

void frame_encode(const struct frame *f, uint8_t ret_header[FRAME_HEADER_BYTES]);
/* ERR_PROTO (magic, CRC, kind, reserved bits), ERR_VERSION, ERR_MSGSIZE (beyond limits.h). `err` names the field. */
int frame_decode(const uint8_t header[FRAME_HEADER_BYTES], struct frame *ret_frame, struct err *err);

#endif
