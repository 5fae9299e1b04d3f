/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lease: which session has which file open for writing. The file's row names the session, and a row (session, inode)
 * leads from the session to its files, so that its end can give them up: a file without a name becomes garbage, by this
 * row and never by its age; one with a name keeps what was committed, and the next who opens it goes on from there.
 */
#include "common/base/check.h"
#include "metad/state/state.h"

void state__lease_drop(struct state *s, struct state_inode *file)
{
	struct state_session *session = file->lease ? map_get(&s->sessions, file->lease) : NULL;
	struct state_key key;

	if (!file->lease)
		return;
	if (!session) {
		state__fault(s, "inode %llu is leased to session %llu, which is gone", (unsigned long long)file->id,
			(unsigned long long)file->lease);
		return;
	}
	state_key_pair(&key, STATE_TABLE_LEASE, file->lease, file->id);
	state__del(s, &key);
	session->lease_count--;
	file->lease = 0;
}

void state__lease_take(struct state *s, struct state_inode *file)
{
	static const uint8_t version = 1;
	struct state_session *session = state_session_at(s, s->cmd.request.session);
	struct state_key key;

	state__lease_drop(s, file);
	if (!session)
		return;
	file->lease = session->id;
	session->lease_count++;
	if (file->id < session->lease_from)
		session->lease_from = file->id;
	state_key_pair(&key, STATE_TABLE_LEASE, session->id, file->id);
	state__put(s, &key, &version, sizeof(version));
}

/* The first inode that the session holds. Not from 0 on: what was given up just before is still in the way of a scan. */
static int first_lease(struct state *s, const struct state_session *session, uint64_t *ret_inode)
{
	struct state_key key;
	struct kv_scan scan;
	uint64_t owner = 0;

	state_key_pair(&key, STATE_TABLE_LEASE, session->id, session->lease_from);
	kv_seek_within(s->kv, &scan, state_key_slice(&key), STATE_PREFIX_ID);
	if (!kv_scan_valid(&scan) || !state_key_parse_pair(scan.key, STATE_TABLE_LEASE, &owner, ret_inode))
		owner = 0;
	kv_scan_end(&scan);
	return owner == session->id ? 0 : ERR_NOENT;
}

int state__lease_give_up(struct state *s, struct state_session *session)
{
	struct state_inode *file = &s->inodes[0];
	uint64_t inode;

	if (first_lease(s, session, &inode) || state_inode_get(s, inode, file) || file->lease != session->id) {
		state__fault(s, "the leases of session %llu are not what they were counted to be",
			(unsigned long long)session->id);
		return ERR_CORRUPT;
	}
	session->lease_from = inode + 1;
	state__epoch_raise(s, file);
	if (file->flags & STATE_INODE_HIDDEN) {
		state__file_drop(s, file, STATE_INODE_REMOVED, file->ctime_ns);
	} else {
		state__lease_drop(s, file);
		state__inode_put(s, file);
	}
	return 0;
}
