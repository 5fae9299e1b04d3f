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

static const uint64_t ms_ns = 1000000, s_ns = 1000000000;

void part_pace_init(struct part_pace *p, uint64_t bytes_per_s, uint64_t now_ns)
{
	*p = (struct part_pace){.bytes_per_s = bytes_per_s ? bytes_per_s : PART_BYTES_PER_S, .begun_ns = now_ns, .next_ns = now_ns};
}

void part_pace_sent(struct part_pace *p, size_t bytes, uint64_t now_ns)
{
	uint64_t credit_ns = now_ns - p->begun_ns < PART_CREDIT_MS * ms_ns ? now_ns - p->begun_ns : PART_CREDIT_MS * ms_ns;

	if (p->next_ns < now_ns - credit_ns)
		p->next_ns = now_ns - credit_ns;
	p->next_ns += bytes * s_ns / p->bytes_per_s;
	p->bytes += bytes;
	if (!p->again)
		p->sent_ns = now_ns;
	p->again = false;
}

void part_pace_asked(struct part_pace *p, bool next, uint64_t now_ns)
{
	uint64_t turn_ns = now_ns - p->sent_ns;

	if (!next)
		p->again = p->bytes > 0;
	else if (p->sent_ns && (!p->turn_ns || turn_ns < p->turn_ns))
		p->turn_ns = turn_ns;
}

bool part_pace_is_over(const struct part_pace *p, uint64_t now_ns)
{
	uint64_t rate = p->bytes_per_s < PART_BYTES_PER_S ? p->bytes_per_s : PART_BYTES_PER_S;
	uint64_t due_ns = p->bytes / rate * s_ns + p->bytes % rate * s_ns / rate;

	return now_ns - p->begun_ns > PART_IDLE_MS * ms_ns + PART_SLOWNESS * due_ns;
}

enum { SHORT_BYTES = 64 << 10, OFTEN_PER_S = 256, SELDOM_PER_S = 8 };

size_t part_pace_part_bytes(const struct part_pace *p)
{
	uint64_t bytes = p->bytes_per_s / OFTEN_PER_S, turn_us = (p->turn_ns < s_ns / SELDOM_PER_S ? p->turn_ns : s_ns / SELDOM_PER_S) / 1000;

	if (bytes < SHORT_BYTES)
		bytes = p->bytes_per_s / SELDOM_PER_S < SHORT_BYTES ? p->bytes_per_s / SELDOM_PER_S : SHORT_BYTES;
	if (bytes < p->bytes_per_s / 2 * turn_us / 1000000)
		bytes = p->bytes_per_s / 2 * turn_us / 1000000;
	return bytes < BACKUP_SECTION_BYTES ? bytes : BACKUP_SECTION_BYTES;
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
