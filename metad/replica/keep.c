/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What of the log a member needs behind its snapshot: it lasts to send one and to write it down, and the log may grow by more than it keeps meanwhile.
 * Trimmed then, it would leave the member with a snapshot behind which there is nothing, and another one to be sent, on and on.
 *
 *     offer opens: held from Y + 1 --installed--> held from the member's match + 1 --within half of keep_bytes, or an end of these--> as for all
 *
 * A log must not fill the disk for a member that never comes. Whose snapshots all fail has the log behind the last two that it took. It is held no
 * more when the member lacks twice the bytes that it lacked when it had its snapshot, when nothing came of it for PART_IDLE_MS (who is dead says nothing,
 * and a full store takes no entries by which it would fall back), or when KEEP_SEGMENTS_MOST would be held. It gets another snapshot then, if it must; so it
 * does after a change of leaders, who know nothing of each other's keeps.
 */
#include "metad/replica/replica_private.h"

#include "common/base/check.h"
#include "common/base/sometimes.h"

enum {
	KEEP_SEGMENTS_MOST = 1024, /* a quarter of what a log may have */
	KEEP_SEGMENT_BYTES = 64 << 20,
	KEEP_SLACK_BYTES = 4 << 20,
};

static struct keep *keep_of(struct replica *r, uint64_t peer)
{
	for (uint32_t i = 0; i < RAFT_MEMBERS_MAX; i++)
		if (r->keeps[i].peer == peer)
			return &r->keeps[i];
	return NULL;
}

static void end(struct replica *r, struct keep *k)
{
	wal_release(r->wal, &k->hold);
	*k = (struct keep){0};
}

static bool is_offered(const struct replica *r, const struct keep *k)
{
	return r->offer.state == OFFER_OPEN && r->offer.message.to == k->peer;
}

static bool is_near(const struct replica *r, const struct raft_peer *peer)
{
	return peer->match >= wal_index_back(wal_index(r->wal), r->options.keep_bytes / 2);
}

static uint64_t most_bytes(const struct replica *r)
{
	return KEEP_SEGMENTS_MOST * (r->options.segment_bytes ? r->options.segment_bytes : KEEP_SEGMENT_BYTES);
}

static bool is_in_vain(const struct replica *r, const struct keep *k)
{
	return io_now_ns(r->io) - k->moved_ns > PART_IDLE_MS * UINT64_C(1000000) || wal_bytes_from(r->wal, k->hold.from) > most_bytes(r);
}

/* True: it has its snapshot, and is not near yet. */
static bool comes_nearer(struct replica *r, struct keep *k, const struct raft_peer *peer)
{
	uint64_t lacks = wal_bytes_from(r->wal, peer->match + 1);

	if (peer->match != k->match)
		k->moved_ns = io_now_ns(r->io);
	k->match = peer->match;
	if (!k->lacked)
		k->lacked = lacks + KEEP_SLACK_BYTES;
	k->hold.from = peer->match + 1;
	return !is_near(r, peer) && lacks <= 2 * k->lacked;
}

static void look_at(struct replica *r, struct keep *k)
{
	const struct raft_peer *peer = replica__peer(r, k->peer);
	bool has_snapshot;

	if (r->core.role != RAFT_LEADER || r->core.term != k->term || !peer) {
		end(r, k);
		return;
	}
	/* Else it waits for another offer, or for a first word. */
	has_snapshot = peer->state != RAFT_SENDING_SNAPSHOT && peer->match >= r->core.base_index;
	if (is_offered(r, k))
		k->moved_ns = io_now_ns(r->io);
	if (is_in_vain(r, k) || (has_snapshot && !is_offered(r, k) && !comes_nearer(r, k, peer))) {
		end(r, k);
		return;
	}
	if (has_snapshot)
		SOMETIMES(replica_log_kept_behind_snapshot);
}

void replica__keep_look(struct replica *r)
{
	for (uint32_t i = 0; i < RAFT_MEMBERS_MAX; i++)
		if (r->keeps[i].peer)
			look_at(r, &r->keeps[i]);
}

int replica__keep_begin(struct replica *r, uint64_t peer, uint64_t from)
{
	struct keep *k;
	int rc;

	replica__keep_look(r); /* no more than there are members */
	k = keep_of(r, peer);
	if (k) {
		uint64_t base = wal_index(r->wal)->base_index, begun = k->taken ? k->offered : k->took ? k->hold.from : from;

		if (from <= base)
			return ERR_NOENT;
		/* What it had begun to take last may be what it installs, however many it was offered since, and none before that. */
		k->hold.from = begun < from && begun > base ? begun : from;
		k->offered = from;
		k->taken = false;
		k->lacked = 0;
		return 0;
	}
	k = keep_of(r, 0);
	CHECK(k);
	rc = wal_hold(r->wal, &k->hold, from);
	if (rc)
		return rc;
	k->peer = peer;
	k->offered = from;
	k->term = r->core.term;
	k->moved_ns = io_now_ns(r->io);
	return 0;
}

void replica__keep_taken(struct replica *r, uint64_t peer)
{
	struct keep *k = keep_of(r, peer);

	if (k)
		k->taken = k->took = true;
}

bool replica__keeps(const struct replica *r, uint64_t peer)
{
	for (uint32_t i = 0; i < RAFT_MEMBERS_MAX; i++)
		if (r->keeps[i].peer == peer)
			return true;
	return false;
}

void replica__keep_close(struct replica *r)
{
	for (uint32_t i = 0; i < RAFT_MEMBERS_MAX; i++)
		if (r->keeps[i].peer)
			end(r, &r->keeps[i]);
}
