/* SPDX-License-Identifier: Apache-2.0 */
#include "metad/replica/part.h"

#include "common/base/check.h"
#include "common/base/cursor.h"

void part_digest_init(struct part_digest *d)
{
	SHA256_Init(&d->sha);
	d->rows = 0;
}

void part_digest_row(struct part_digest *d, struct slice key, struct slice value)
{
	uint8_t head[6];
	struct wcursor w;

	wcursor_init(&w, head, sizeof(head));
	wcursor_u16(&w, (uint16_t)key.len);
	wcursor_u32(&w, (uint32_t)value.len);
	SHA256_Update(&d->sha, head, sizeof(head));
	SHA256_Update(&d->sha, key.data, key.len);
	SHA256_Update(&d->sha, value.data, value.len);
	d->rows++;
}

void part_digest_fini(struct part_digest *d, uint8_t ret_digest[PART_DIGEST_BYTES])
{
	SHA256_Final(ret_digest, &d->sha);
}

void part_descriptor_encode(uint64_t snapshot, uint8_t out[RAFT_DESCRIPTOR_BYTES])
{
	struct wcursor w;

	wcursor_init(&w, out, RAFT_DESCRIPTOR_BYTES);
	wcursor_u64(&w, snapshot);
	wcursor_zeros(&w, RAFT_DESCRIPTOR_BYTES - w.len);
	CHECK(!w.failed);
}

uint64_t part_descriptor_decode(const uint8_t descriptor[RAFT_DESCRIPTOR_BYTES])
{
	struct rcursor r;

	rcursor_init(&r, descriptor, RAFT_DESCRIPTOR_BYTES);
	return rcursor_u64(&r);
}
