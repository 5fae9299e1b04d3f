/* SPDX-License-Identifier: Apache-2.0 */
#include "metad/founders.h"

#include <inttypes.h>
#include <string.h>
#include "common/base/check.h"
#include "common/base/crc32c.h"
#include "common/base/cursor.h"

enum { FOUNDERS_MAGIC = 0x4f465243 /* "CRFO" */, FOUNDERS_VERSION = 1 };

bool founders_roll_equal(const struct founders_roll *a, const struct founders_roll *b)
{
	return a->count == b->count && memcmp(a->nonces, b->nonces, a->count * sizeof(a->nonces[0])) == 0;
}

static bool has_nonce(const struct founders_roll *roll, uint64_t id, const uint8_t nonce[FOUNDERS_NONCE_BYTES])
{
	return id <= roll->count && memcmp(roll->nonces[id - 1], nonce, FOUNDERS_NONCE_BYTES) == 0;
}

/* Each other one that has accepted `roll`, or is waited for. 0: all have. */
static uint64_t first_without(const struct founders *f, const struct founders_roll *roll)
{
	for (uint64_t id = 1; id <= f->count; id++)
		if (id != f->self && !founders_roll_equal(&f->said[id - 1].roll, roll))
			return id;
	return 0;
}

/* 0: nobody's directory, or roll, is another than this roll says. */
static uint64_t first_against(const struct founders *f, const struct founders_roll *roll)
{
	for (uint64_t id = 1; id <= f->count; id++) {
		const struct founders_said *said = &f->said[id - 1];

		if (said->heard && (!has_nonce(roll, id, said->nonce) || (said->roll.count && !founders_roll_equal(&said->roll, roll))))
			return id;
	}
	return 0;
}

enum by { BY_THIS, BY_ANOTHER, BY_NONE };

/* One that takes part, by this roll, another one, or none that it knows. 0: nobody. */
static uint64_t member(const struct founders *f, const struct founders_roll *roll, enum by by)
{
	for (uint64_t id = 1; id <= f->count; id++) {
		const struct founders_said *said = &f->said[id - 1];

		if (id == f->self || !said->heard || !said->member)
			continue;
		if (by == (said->roll.count == 0 ? BY_NONE : founders_roll_equal(&said->roll, roll) ? BY_THIS : BY_ANOTHER))
			return id;
	}
	return 0;
}

static enum founders_step accept(const struct founders *f, struct founders_roll *ret_roll, uint64_t *ret_who)
{
	uint64_t against;

	for (uint64_t id = 1; id <= f->count; id++) {
		*ret_roll = f->said[id - 1].roll;
		if (ret_roll->count == 0)
			continue;
		against = ret_roll->count == f->count ? first_against(f, ret_roll) : id;
		*ret_who = against && against != f->self ? against : id;
		return against ? FOUNDERS_DIFFER : FOUNDERS_ACCEPT;
	}
	*ret_roll = (struct founders_roll){.count = f->count};
	for (uint64_t id = 1; id <= f->count; id++) {
		*ret_who = id;
		if (!f->said[id - 1].heard)
			return FOUNDERS_WAIT;
		memcpy(ret_roll->nonces[id - 1], f->said[id - 1].nonce, FOUNDERS_NONCE_BYTES);
	}
	return FOUNDERS_ACCEPT;
}

enum founders_step founders_decide(const struct founders *f, struct founders_roll *ret_roll, uint64_t *ret_who)
{
	const struct founders_said *self = &f->said[f->self - 1];

	CHECK(f->self >= 1 && f->self <= f->count && f->count <= LIMIT_METADS && self->heard && (!self->roll.count || self->roll.count == f->count));
	*ret_roll = (struct founders_roll){.count = 0};
	if (member(f, &self->roll, BY_THIS))
		return FOUNDERS_TAKE_PART;
	*ret_who = member(f, &self->roll, BY_ANOTHER);
	if (*ret_who)
		return FOUNDERS_LOST;
	*ret_who = member(f, &self->roll, BY_NONE);
	if (*ret_who) /* one that cannot read its own any more does not say that this one's is another */
		return self->roll.count ? FOUNDERS_UNSAID : FOUNDERS_LOST;
	if (self->roll.count == 0)
		return accept(f, ret_roll, ret_who);
	*ret_who = first_against(f, &self->roll);
	if (*ret_who)
		return FOUNDERS_DIFFER;
	*ret_who = first_without(f, &self->roll);
	return *ret_who ? FOUNDERS_WAIT : FOUNDERS_TAKE_PART;
}

/* ---- DIR/log/founders ---- */

size_t founders_encode(const struct uuid *cluster, uint64_t replica, const struct founders_said *said, uint8_t out[FOUNDERS_BYTES_MAX])
{
	struct wcursor w;

	wcursor_init(&w, out, FOUNDERS_BYTES_MAX);
	wcursor_u32(&w, FOUNDERS_MAGIC);
	wcursor_u32(&w, FOUNDERS_VERSION);
	wcursor_bytes(&w, cluster->bytes, sizeof(cluster->bytes));
	wcursor_u64(&w, replica);
	wcursor_bytes(&w, said->nonce, FOUNDERS_NONCE_BYTES);
	wcursor_u32(&w, said->roll.count);
	for (uint32_t i = 0; i < said->roll.count; i++)
		wcursor_bytes(&w, said->roll.nonces[i], FOUNDERS_NONCE_BYTES);
	wcursor_u32(&w, crc32c(out, w.len));
	CHECK(!w.failed);
	return w.len;
}

static void take(struct rcursor *r, size_t bytes, uint8_t *out)
{
	struct slice s = rcursor_slice(r, bytes);

	if (!r->failed)
		memcpy(out, s.data, bytes);
}

int founders_decode(const char *path, struct slice data, const struct uuid *cluster, uint64_t replica, struct founders_said *ret_said, struct err *err)
{
	struct founders_said said = {.heard = true};
	uint32_t magic, version, crc;
	uint64_t of;
	struct uuid of_cluster = {0};
	struct rcursor r;

	rcursor_init(&r, data.data, data.len);
	magic = rcursor_u32(&r);
	version = rcursor_u32(&r);
	if (!r.failed && magic == FOUNDERS_MAGIC && version != FOUNDERS_VERSION)
		return err_set(err, ERR_VERSION, "%s: has version %" PRIu32 ", and this build knows %d: use a newer program", path, version, FOUNDERS_VERSION);
	take(&r, sizeof(of_cluster.bytes), of_cluster.bytes);
	of = rcursor_u64(&r);
	take(&r, FOUNDERS_NONCE_BYTES, said.nonce);
	said.roll.count = rcursor_u32(&r);
	for (uint32_t i = 0; i < said.roll.count && i < LIMIT_METADS; i++)
		take(&r, FOUNDERS_NONCE_BYTES, said.roll.nonces[i]);
	crc = rcursor_u32(&r);
	/* The length first: the CRC is that of bytes that must be there. */
	if (!rcursor_done(&r) || magic != FOUNDERS_MAGIC || said.roll.count > LIMIT_METADS || crc != crc32c(data.data, data.len - 4))
		return err_set(err, ERR_CORRUPT, "%s: is damaged. If any metad of this group may ever have served, replace this one as one that lost its disk; else docs/groups.md says how the group is founded anew", path);
	if (!uuid_equal(&of_cluster, cluster))
		return err_set(err, ERR_WRONG_CLUSTER, "%s: is of another cluster than the configuration says: use the right one of both", path);
	if (of != replica)
		return err_set(err, ERR_INVAL, "%s: is of replica %" PRIu64 ": start it with that number", path, of);
	*ret_said = said;
	return 0;
}
