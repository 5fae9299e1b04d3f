/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A replica whose rows are not those of most others (digests.h) stops, and does not start again: DIR/differs says so, written before anything else. Its
 * log may be right, but what has changed rows in a way that others have not may have changed more, and where it leads, or gives its table away, others
 * would get these rows. It comes back as one that lost its disk does: empty, under a new number.
 */
#include "metad/ledger.h"

#include <inttypes.h>
#include <stdio.h>
#include "common/base/check.h"
#include "common/base/crc32c.h"
#include "common/base/cursor.h"
#include "common/base/mem.h"
#include "metad/raft_links.h"

enum { DIFFERS_MAGIC = 0x46445243 /* "CRDF" */, DIFFERS_VERSION = 1 };

static int describe(const struct ledger *l, uint64_t same, uint64_t differs, struct err *err)
{
	return err_set(err, ERR_CORRUPT,
		"what entries %" PRIu64 " to %" PRIu64 " changed here is not what they changed on most metads of the group: a bug, or memory that fails. "
		"These rows must not be served: `craton meta remove metad-%" PRIu64 "`, then start one with a new number in an empty directory, and add it "
		"(docs/groups.md)",
		same + 1, differs, l->group.id);
}

/* ---- DIR/differs ---- */

void ledger__differs_encode(uint64_t same, uint64_t differs, uint8_t out[LEDGER_DIFFERS_BYTES])
{
	struct wcursor w;

	wcursor_init(&w, out, LEDGER_DIFFERS_BYTES);
	wcursor_u32(&w, DIFFERS_MAGIC);
	wcursor_u32(&w, DIFFERS_VERSION);
	wcursor_u64(&w, same);
	wcursor_u64(&w, differs);
	wcursor_u32(&w, crc32c(out, w.len));
	CHECK(!w.failed && w.len == LEDGER_DIFFERS_BYTES);
}

int ledger__differs_decode(struct slice bytes, uint64_t *ret_same, uint64_t *ret_differs)
{
	uint32_t magic, version, crc;
	uint64_t same, differs;
	struct rcursor r;

	rcursor_init(&r, bytes.data, bytes.len);
	magic = rcursor_u32(&r);
	version = rcursor_u32(&r);
	same = rcursor_u64(&r);
	differs = rcursor_u64(&r);
	crc = rcursor_u32(&r);
	/* The length first: the CRC is that of bytes that must be there. */
	if (!rcursor_done(&r) || magic != DIFFERS_MAGIC || version != DIFFERS_VERSION || crc != crc32c(bytes.data, LEDGER_DIFFERS_BYTES - 4))
		return ERR_CORRUPT;
	*ret_same = same;
	*ret_differs = differs;
	return 0;
}

static char *path_of(const struct ledger *l)
{
	return mem_printf("%s/differs", l->dir);
}

static char *room_of(const struct ledger *l)
{
	return mem_printf("%s/differs.room", l->dir);
}

/* In place: what is there already needs no room. */
static int write_room(const struct ledger *l, const char *room, const uint8_t bytes[LEDGER_DIFFERS_BYTES])
{
	int64_t n;
	int fd, rc = io_open(l->io, room, IO_OPEN_WRITE | IO_OPEN_CREATE, 0600, &fd);

	if (rc)
		return rc;
	n = io_pwrite(l->io, fd, bytes, LEDGER_DIFFERS_BYTES, 0);
	rc = n < 0 ? (int)n : io_fdatasync(l->io, fd);
	io_close(l->io, fd);
	return rc;
}

void ledger__digest_room(struct ledger *l)
{
	static const uint8_t nothing[LEDGER_DIFFERS_BYTES];
	char *room = room_of(l), *bytes;
	size_t len = 0;

	if (io_read_file(l->io, room, LEDGER_DIFFERS_BYTES, &bytes, &len) == 0)
		mem_free(bytes);
	if (len != LEDGER_DIFFERS_BYTES)
		(void)write_room(l, room, nothing);
	mem_free(room);
}

/* If it cannot be written all the same: it is found again, soon after a start. */
static void write_differs(const struct ledger *l, uint64_t same, uint64_t differs)
{
	uint8_t bytes[LEDGER_DIFFERS_BYTES];
	char *path = path_of(l), *room = room_of(l);

	ledger__differs_encode(same, differs, bytes);
	if (write_room(l, room, bytes) == 0 && io_rename(l->io, room, path) == 0)
		(void)io_sync_dir(l->io, l->dir);
	mem_free(room);
	mem_free(path);
}

static int read_differs(const struct ledger *l, const char *path, struct err *err)
{
	uint64_t same, differs;
	char *bytes;
	size_t len;
	int rc = io_read_file(l->io, path, LEDGER_DIFFERS_BYTES, &bytes, &len);

	if (rc == ERR_NOENT)
		return 0;
	if (rc)
		return err_set(err, rc, "%s: cannot read: %s", path, err_text(rc));
	rc = ledger__differs_decode(slice_of(bytes, len), &same, &differs);
	mem_free(bytes);
	if (!rc)
		return describe(l, same, differs, err);
	return err_set(err, rc, "%s: is damaged, and would say since which entry the rows here are not those of the group: start one with a new number in an empty directory", path);
}

int ledger__digest_check(struct ledger *l, struct err *err)
{
	char *path = path_of(l);
	int rc = read_differs(l, path, err);

	mem_free(path);
	return rc;
}

/* ---- marks ---- */

void ledger__digest_begin(struct ledger *l)
{
	digests_init(&l->digests, wal_meta(replica_log(l->replica))->base_index, replica_applied(l->replica));
}

bool ledger__digest_doubts(const struct ledger *l)
{
	return digests_doubts(&l->digests, &replica_core(l->replica)->config);
}

void ledger__digest_applied(struct ledger *l, uint64_t index)
{
	uint32_t crc;

	if (index % DIGEST_ENTRIES == 0 && l->options.digest(l->options.ctx, &crc))
		digests_mark(&l->digests, index, crc);
}

void ledger__digest_said(struct ledger *l, uint64_t from, const struct digests_mark *said)
{
	digests_hear(&l->digests, from, l->role.leader, said);
}

void ledger__digest_look(struct ledger *l)
{
	const struct raft_core *core = replica_core(l->replica);
	struct digests_mark say;
	struct err err;
	uint64_t at;

	if (!core || l->failed)
		return;
	if (digests_step(&l->digests, &core->config, core->options.id, core->leader, core->term, io_now_ns(l->io) / 1000000, &say, &at) ==
		DIGESTS_DIFFER) {
		write_differs(l, l->digests.agreed, at);
		describe(l, l->digests.agreed, at, &err);
		replica_fail(l->replica, err.code, err.text);
		return;
	}
	raft_links_say(l->links, &say);
}
