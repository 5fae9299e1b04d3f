/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What of the log a member needs behind its snapshot: it lasts to send one and to write it down, and the log may grow by more than it keeps meanwhile.
 * Trimmed then, it would leave the member with a snapshot behind which there is nothing, and another one to be sent, on and on.
 *
 *     offer opens: held from Y + 1 --installed--> held from the member's match + 1 --within half of keep_bytes, or lost ground--> as for all
 *
 * It has an end: a member that lacks twice what it lacked when it had its snapshot comes no nearer, and gets another one if it must.
 */
#include "metad/replica/replica_private.h"

#include "common/base/check.h"
#include "common/base/sometimes.h"

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

static void look_at(struct replica *r, struct keep *k)
{
	const struct raft_peer *peer = replica__peer(r, k->peer);
	uint64_t lacks;

	if (r->core.role != RAFT_LEADER || r->core.term != k->term || !peer) {
		end(r, k);
		return;
	}
	if (is_offered(r, k))
		return;
	if (peer->state == RAFT_SENDING_SNAPSHOT || peer->match + 1 < k->hold.from) {
		end(r, k); /* it did not get there */
		return;
	}
	lacks = r->core.last_index - peer->match;
	if (!k->lacked)
		k->lacked = lacks + 1;
	if (is_near(r, peer) || lacks > 2 * (k->lacked + REPLICA_BODIES_MAX)) {
		end(r, k);
		return;
	}
	SOMETIMES(replica_log_kept_behind_snapshot);
	k->hold.from = peer->match + 1;
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
	if (k)
		end(r, k);
	k = keep_of(r, 0);
	CHECK(k);
	rc = wal_hold(r->wal, &k->hold, from);
	if (rc)
		return rc;
	k->peer = peer;
	k->term = r->core.term;
	return 0;
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
