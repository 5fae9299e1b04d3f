// SPDX-License-Identifier: Apache-2.0
/*
 * sim_disk: the bytes of files, in sectors of 4 KiB, and what a crash leaves of them.
 *
 * A sector has what reads see (`live`) and, while it is dirty, what is durable (`old`); zeros are NULL and cost
 * nothing. A sync covers the writes that were completed when it was submitted, not those after: when a covered sector
 * is written again before the sync ends, its covered content is kept aside (`pending`) and becomes durable with it.
 *
 * A crash decides for each dirty sector: kept, lost, or torn at a multiple of 512 bytes (sim_set_loss shifts the odds). A
 * size not yet synced is kept or lost. Writes in flight may have reached the disk. A failed sync behaves as Linux does: what it covered
 * stays visible but, unless it was written directly, no later sync makes it durable, until it is
 * written again. Truncation counts as durable at once
 * (a legal outcome, and the only simple one).
 *
 * Invariants: (1) a sector is in `dirty` or `forgotten` exactly while is_dirty; (2) `old` and `pending` are NULL or
 * owned while is_dirty, else unused; (3) sectors_used counts the bits set in all `allocated`.
 */
#include <string.h>
#include "common/base/crc32c.h"
#include "common/base/mem.h"
#include "common/io/sim_impl.h"

enum { SIM_CHUNK_SECTORS = 256, SIM_TEAR = 512 };
static const uint64_t SIM_FILE_BYTES_MAX = 1ull << 40; /* bounds the table of chunks */

struct sim_sector {
	struct list link;
	uint8_t *live, *old, *pending;
	uint64_t dirty_seq, pending_first_seq;
	uint64_t idx;
	bool is_dirty;
};

struct sim_sector_chunk {
	uint64_t allocated[SIM_CHUNK_SECTORS / 64];
	struct sim_sector *sectors[SIM_CHUNK_SECTORS];
};

/* ---- sectors ---- */

static struct sim_sector *sim_sector_find(const struct sim_inode *inode, uint64_t idx)
{
	uint64_t chunk = idx / SIM_CHUNK_SECTORS;

	if (chunk >= inode->chunk_count || !inode->chunks[chunk])
		return NULL;
	return inode->chunks[chunk]->sectors[idx % SIM_CHUNK_SECTORS];
}

static struct sim_sector_chunk *sim_chunk_make(struct sim_inode *inode, uint64_t chunk)
{
	if (chunk >= inode->chunk_count) {
		size_t count = inode->chunk_count ? inode->chunk_count : 4;

		while (count <= chunk)
			count *= 2;
		inode->chunks = mem_realloc(inode->chunks, count * sizeof(*inode->chunks));
		memset(inode->chunks + inode->chunk_count, 0, (count - inode->chunk_count) * sizeof(*inode->chunks));
		inode->chunk_count = count;
	}
	if (!inode->chunks[chunk])
		inode->chunks[chunk] = MEM_NEW(struct sim_sector_chunk);
	return inode->chunks[chunk];
}

static struct sim_sector *sim_sector_make(struct sim_inode *inode, uint64_t idx)
{
	struct sim_sector_chunk *chunk = sim_chunk_make(inode, idx / SIM_CHUNK_SECTORS);
	struct sim_sector **place = &chunk->sectors[idx % SIM_CHUNK_SECTORS];

	if (!*place) {
		*place = MEM_NEW(struct sim_sector);
		(*place)->idx = idx;
		list_init(&(*place)->link);
	}
	return *place;
}

static void sim_sector_clean(struct sim_sector *sector)
{
	mem_free(sector->old);
	mem_free(sector->pending);
	sector->old = sector->pending = NULL;
	sector->is_dirty = false;
	list_remove(&sector->link);
}

static void sim_sector_free(struct sim_sector *sector)
{
	if (sector->is_dirty)
		sim_sector_clean(sector);
	mem_free(sector->live);
	mem_free(sector);
}

static bool sim_is_zero(const uint8_t *data, size_t len)
{
	return len == 0 || (data[0] == 0 && memcmp(data, data + 1, len - 1) == 0);
}

static uint8_t *sim_copy(const uint8_t *data)
{
	uint8_t *copy;

	if (!data)
		return NULL;
	copy = mem_alloc(SIM_SECTOR);
	memcpy(copy, data, SIM_SECTOR);
	return copy;
}

/* Before a change of `live`, which may be moved to where it is kept: the caller then sets a new one. */
static void sim_sector_dirty(struct sim_inode *inode, struct sim_sector *sector)
{
	if (!sector->is_dirty) {
		sector->old = sector->live;
		sector->live = NULL;
		sector->is_dirty = true;
	} else if (inode->syncs > 0 && sector->dirty_seq <= inode->sync_max_seq) {
		if (!sector->pending)
			sector->pending_first_seq = sector->dirty_seq;
		mem_free(sector->pending);
		/* Zeros too are kept as bytes here: NULL says that there is nothing. */
		sector->pending = sector->live ? sector->live : mem_zalloc(SIM_SECTOR);
		sector->live = NULL;
	} else {
		mem_free(sector->live);
		sector->live = NULL;
	}
	sector->dirty_seq = inode->write_seq;
	list_remove(&sector->link);
	list_push_back(&inode->dirty, &sector->link);
}

static void sim_sector_put(struct sim_inode *inode, uint64_t idx, uint32_t offset, const uint8_t *data, uint32_t len)
{
	struct sim_sector *sector = sim_sector_make(inode, idx);
	uint8_t *content = NULL;

	if (len < SIM_SECTOR) {
		content = sector->live ? sim_copy(sector->live) : mem_zalloc(SIM_SECTOR);
		memcpy(content + offset, data, len);
	} else if (!sim_is_zero(data, SIM_SECTOR)) {
		content = sim_copy(data);
	}
	sim_sector_dirty(inode, sector);
	sector->live = content;
}

/* ---- space ---- */

static bool sim_is_allocated(const struct sim_inode *inode, uint64_t idx)
{
	uint64_t chunk = idx / SIM_CHUNK_SECTORS, bit = idx % SIM_CHUNK_SECTORS;

	return chunk < inode->chunk_count && inode->chunks[chunk] &&
		(inode->chunks[chunk]->allocated[bit / 64] >> (bit % 64) & 1);
}

static int sim_reserve(struct sim_disk *disk, struct sim_inode *inode, uint64_t offset, uint64_t len)
{
	uint64_t first = offset / SIM_SECTOR, last = (offset + len - 1) / SIM_SECTOR, wanted = 0;

	if (offset + len < offset || offset + len > SIM_FILE_BYTES_MAX)
		return ERR_FBIG;
	for (uint64_t idx = first; idx <= last; idx++)
		wanted += !sim_is_allocated(inode, idx);
	if (!wanted)
		return 0;
	if (disk->is_full || wanted > sim__disk_left(disk))
		return ERR_NOSPC;
	for (uint64_t idx = first; idx <= last; idx++) {
		uint64_t bit = idx % SIM_CHUNK_SECTORS;

		sim_chunk_make(inode, idx / SIM_CHUNK_SECTORS)->allocated[bit / 64] |= 1ull << (bit % 64);
	}
	disk->sectors_used += wanted;
	return 0;
}

/* Forgets all from sector `first` on. */
static void sim_cut_sectors(struct sim_disk *disk, struct sim_inode *inode, uint64_t first)
{
	for (uint64_t c = first / SIM_CHUNK_SECTORS; c < inode->chunk_count; c++) {
		struct sim_sector_chunk *chunk = inode->chunks[c];
		bool is_whole = c * SIM_CHUNK_SECTORS >= first;

		for (uint64_t i = is_whole ? 0 : first % SIM_CHUNK_SECTORS; chunk && i < SIM_CHUNK_SECTORS; i++) {
			uint64_t mask = 1ull << (i % 64);

			disk->sectors_used -= (chunk->allocated[i / 64] & mask) != 0;
			chunk->allocated[i / 64] &= ~mask;
			if (chunk->sectors[i])
				sim_sector_free(chunk->sectors[i]);
			chunk->sectors[i] = NULL;
		}
		if (is_whole) {
			mem_free(chunk);
			inode->chunks[c] = NULL;
		}
	}
}

/* ---- files ---- */

struct sim_inode *sim__inode_new(struct sim_disk *disk, bool is_dir)
{
	struct sim_inode *inode = MEM_NEW(struct sim_inode);

	inode->number = disk->next_inode++;
	inode->refs = 1;
	inode->is_dir = is_dir;
	list_init(&inode->dirty);
	list_init(&inode->forgotten);
	list_push_back(&disk->inodes, &inode->link);
	return inode;
}

void sim__inode_get(struct sim_inode *inode)
{
	inode->refs++;
}

void sim__inode_free(struct sim_disk *disk, struct sim_inode *inode)
{
	sim_cut_sectors(disk, inode, 0);
	mem_free(inode->chunks);
	list_remove(&inode->link);
	mem_free(inode);
}

void sim__inode_put(struct sim_disk *disk, struct sim_inode *inode)
{
	CHECK(inode->refs > 0);
	if (--inode->refs > 0)
		return;
	sim__name_free(disk, inode);
	sim__inode_free(disk, inode);
}

static void sim_zero_tail(uint8_t *data, uint64_t within)
{
	if (data)
		memset(data + within, 0, SIM_SECTOR - within);
}

void sim__inode_truncate(struct sim_disk *disk, struct sim_inode *inode, uint64_t bytes)
{
	uint64_t within = bytes % SIM_SECTOR;
	struct sim_sector *last = within ? sim_sector_find(inode, bytes / SIM_SECTOR) : NULL;

	CHECK(bytes <= inode->bytes);
	sim_cut_sectors(disk, inode, (bytes + SIM_SECTOR - 1) / SIM_SECTOR);
	if (last) {
		sim_zero_tail(last->live, within);
		sim_zero_tail(last->old, within);
		sim_zero_tail(last->pending, within);
	}
	inode->bytes = bytes;
	if (inode->durable_bytes > bytes)
		inode->durable_bytes = bytes;
}

uint64_t sim__inode_read(const struct sim_inode *inode, void *buf, size_t len, uint64_t offset)
{
	uint8_t *out = buf;
	uint64_t done = 0;

	if (offset >= inode->bytes)
		return 0;
	if (len > inode->bytes - offset)
		len = inode->bytes - offset;
	while (done < len) {
		uint64_t at = offset + done, within = at % SIM_SECTOR;
		uint64_t n = SIM_SECTOR - within < len - done ? SIM_SECTOR - within : len - done;
		const struct sim_sector *sector = sim_sector_find(inode, at / SIM_SECTOR);

		if (sector && sector->live)
			memcpy(out + done, sector->live + within, n);
		else
			memset(out + done, 0, n);
		done += n;
	}
	return len;
}

static void sim_make_durable(struct sim_inode *inode, uint64_t offset, uint64_t len)
{
	for (uint64_t idx = offset / SIM_SECTOR; idx <= (offset + len - 1) / SIM_SECTOR; idx++) {
		struct sim_sector *sector = sim_sector_find(inode, idx);

		if (sector && sector->is_dirty)
			sim_sector_clean(sector);
	}
	if (inode->durable_bytes < offset + len)
		inode->durable_bytes = offset + len;
}

int sim__inode_write(struct sim_disk *disk, struct sim_inode *inode, const struct iovec *iov, int iov_count,
	uint64_t offset, bool is_durable)
{
	uint64_t total = io__iov_bytes(iov, iov_count), at = offset;
	int rc;

	if (total == 0)
		return 0;
	rc = sim_reserve(disk, inode, offset, total);
	if (rc)
		return rc;
	inode->write_seq++;
	for (int i = 0; i < iov_count; i++) {
		const uint8_t *data = iov[i].iov_base;
		size_t left = iov[i].iov_len;

		while (left > 0) {
			uint32_t within = (uint32_t)(at % SIM_SECTOR);
			uint32_t n = SIM_SECTOR - within < left ? SIM_SECTOR - within : (uint32_t)left;

			sim_sector_put(inode, at / SIM_SECTOR, within, data, n);
			data += n;
			left -= n;
			at += n;
		}
	}
	if (inode->bytes < at)
		inode->bytes = at;
	if (is_durable)
		sim_make_durable(inode, offset, total);
	return 0;
}

int sim__inode_allocate(struct sim_disk *disk, struct sim_inode *inode, uint64_t offset, uint64_t len)
{
	int rc;

	if (len == 0)
		return ERR_INVAL;
	rc = sim_reserve(disk, inode, offset, len);
	if (!rc && inode->bytes < offset + len)
		inode->bytes = offset + len;
	return rc;
}

void sim__inode_sync_begin(struct sim_inode *inode, uint64_t *ret_seq, uint64_t *ret_bytes)
{
	inode->syncs++;
	inode->sync_max_seq = inode->write_seq;
	*ret_seq = inode->write_seq;
	*ret_bytes = inode->bytes;
}

void sim__inode_sync_end(struct sim_inode *inode, uint64_t seq, uint64_t bytes)
{
	inode->syncs--;
	LIST_FOREACH_SAFE(n, &inode->dirty) {
		struct sim_sector *sector = LIST_ENTRY(n, struct sim_sector, link);

		if (sector->dirty_seq <= seq) {
			sim_sector_clean(sector);
		} else if (sector->pending && sector->pending_first_seq <= seq) {
			mem_free(sector->old);
			sector->old = sector->pending;
			sector->pending = NULL;
		}
	}
	if (inode->durable_bytes < bytes)
		inode->durable_bytes = bytes;
}

void sim__inode_sync_failed(struct sim_inode *inode, uint64_t seq, bool is_direct)
{
	inode->syncs--;
	/* No page is taken for clean where there is none: the device was asked to flush, and will be again. */
	if (is_direct)
		return;
	LIST_FOREACH_SAFE(n, &inode->dirty) {
		struct sim_sector *sector = LIST_ENTRY(n, struct sim_sector, link);

		if (sector->dirty_seq <= seq) {
			list_remove(&sector->link);
			list_push_back(&inode->forgotten, &sector->link);
		}
	}
}

void sim__inode_flip(struct sim_inode *inode, uint64_t offset, uint8_t bit)
{
	struct sim_sector *sector = sim_sector_make(inode, offset / SIM_SECTOR);
	uint8_t mask = (uint8_t)(1u << (bit % 8));

	if (!sector->live)
		sector->live = mem_zalloc(SIM_SECTOR);
	sector->live[offset % SIM_SECTOR] ^= mask;
	if (sector->is_dirty) {
		if (!sector->old)
			sector->old = mem_zalloc(SIM_SECTOR);
		sector->old[offset % SIM_SECTOR] ^= mask;
	}
}

/* ---- crash ---- */

static void sim_sector_crash(struct sim *sim, struct sim_sector *sector, enum sim_loss loss, bool is_forgotten)
{
	/* Of ten: so many are lost, so many more torn. */
	static const uint8_t shares[][2] = {
		[SIM_LOSS_ANY] = {4, 2}, [SIM_LOSS_ALL] = {10, 0}, [SIM_LOSS_TORN] = {1, 8}};
	uint64_t dice = loss == SIM_LOSS_ALL ? 0 : rng_below(&sim->rng, 10);
	uint64_t lost = is_forgotten ? 9 : shares[loss][0], torn = is_forgotten ? 0 : shares[loss][1];

	if (dice >= lost + torn) {
		/* kept */
	} else if (dice < lost) {
		mem_free(sector->live);
		sector->live = sector->old;
		sector->old = NULL;
	} else {
		uint64_t cut = SIM_TEAR * rng_between(&sim->rng, 1, SIM_SECTOR / SIM_TEAR - 1);

		if (!sector->live)
			sector->live = mem_zalloc(SIM_SECTOR);
		if (sector->old)
			memcpy(sector->live + cut, sector->old + cut, SIM_SECTOR - cut);
		else
			memset(sector->live + cut, 0, SIM_SECTOR - cut);
	}
	sim_sector_clean(sector);
}

void sim__inode_crash(struct sim *sim, struct sim_disk *disk, struct sim_inode *inode)
{
	while (!list_empty(&inode->dirty))
		sim_sector_crash(sim, LIST_ENTRY(inode->dirty.next, struct sim_sector, link), disk->loss, false);
	while (!list_empty(&inode->forgotten))
		sim_sector_crash(sim, LIST_ENTRY(inode->forgotten.next, struct sim_sector, link), disk->loss, true);
	if (inode->bytes > inode->durable_bytes && (disk->loss == SIM_LOSS_ALL || rng_chance(&sim->rng, 1, 2))) {
		struct sim_sector *last = sim_sector_find(inode, inode->durable_bytes / SIM_SECTOR);
		uint64_t within = inode->durable_bytes % SIM_SECTOR;

		sim_cut_sectors(disk, inode, (inode->durable_bytes + SIM_SECTOR - 1) / SIM_SECTOR);
		if (within && last && last->live)
			memset(last->live + within, 0, SIM_SECTOR - within);
		inode->bytes = inode->durable_bytes;
	}
	inode->durable_bytes = inode->bytes;
}

/* ---- the disk of a host ---- */

void sim__disk_init(struct sim_disk *disk, uint64_t bytes)
{
	*disk = (struct sim_disk){.sectors_total = bytes / SIM_SECTOR, .slow_factor = 1};
	list_init(&disk->inodes);
	disk->root = sim__inode_new(disk, true);
}

void sim__disk_fini(struct sim_disk *disk)
{
	while (!list_empty(&disk->inodes)) {
		struct sim_inode *inode = LIST_ENTRY(disk->inodes.next, struct sim_inode, link);

		/* All go, so nobody's reference is given back: names first, without their inodes. */
		sim__name_free(NULL, inode);
		sim__inode_free(disk, inode);
	}
}

void sim__disk_crash(struct sim_host *host)
{
	struct sim_disk *disk = &host->disk;

	disk->free_at_ns = 0;
	LIST_FOREACH(n, &disk->inodes) {
		struct sim_inode *inode = LIST_ENTRY(n, struct sim_inode, link);

		inode->syncs = 0;
		inode->locked_by = NULL;
	}
	if (disk->loss == SIM_LOSS_NONE)
		return;
	LIST_FOREACH(n, &disk->inodes) {
		struct sim_inode *inode = LIST_ENTRY(n, struct sim_inode, link);

		/* Held, so that none goes away while the list is walked. */
		sim__inode_get(inode);
		if (inode->is_dir)
			sim__name_crash(host->sim, disk, inode);
	}
	LIST_FOREACH_SAFE(n, &disk->inodes) {
		struct sim_inode *inode = LIST_ENTRY(n, struct sim_inode, link);

		if (!inode->is_dir)
			sim__inode_crash(host->sim, disk, inode);
	}
	for (struct list *n = disk->inodes.prev, *before; n != &disk->inodes; n = before) {
		before =
			n->prev; /* a directory was made before what is in it, so putting it can only free later ones */
		sim__inode_put(disk, LIST_ENTRY(n, struct sim_inode, link));
	}
}

uint64_t sim__disk_delay(struct sim_host *host, uint64_t bytes)
{
	struct sim *sim = host->sim;
	struct sim_disk *disk = &host->disk;
	uint64_t start = disk->free_at_ns > sim->now_ns ? disk->free_at_ns : sim->now_ns;
	uint64_t latency = rng_between(&sim->rng, sim->options.disk_latency_min_ns, sim->options.disk_latency_max_ns);

	disk->free_at_ns = start + bytes * 1000000000u / sim->options.disk_bytes_per_s * disk->slow_factor;
	return disk->free_at_ns - sim->now_ns + latency * disk->slow_factor;
}

void sim__disk_cost(struct sim_host *host, const struct sim_inode *inode, uint64_t bytes)
{
	uint64_t stalled_ns = inode ? sim__disk_stalled_ns(host, inode) : 0;

	host->cost_ns += sim__disk_delay(host, bytes);
	if (host->cost_ns < stalled_ns)
		host->cost_ns = stalled_ns;
}

/* ---- operations; they take effect when they complete ---- */

static int64_t sim_perform_read(struct sim_host *host, struct io_op *op, struct sim_file *file)
{
	uint64_t at = op->rw.offset;
	int rc = sim__disk_fault(host, file->inode, SIM_FAULT_READ);

	if (rc)
		return rc;
	for (int i = 0; i < op->rw.iov_count; i++) {
		const struct iovec *iov = &op->rw.iov[i];
		uint64_t n = sim__inode_read(file->inode, iov->iov_base, iov->iov_len, at);

		at += n;
		if (n < iov->iov_len)
			break;
	}
	return (int64_t)(at - op->rw.offset);
}

static int64_t sim_perform_write(struct sim_host *host, struct io_op *op, struct sim_file *file)
{
	int rc = sim__disk_fault(host, file->inode, SIM_FAULT_WRITE);

	if (op->flags & IO_DSYNC)
		sim__sync_point(host, SIM_SYNC_WRITE, file->path);
	if (!rc)
		rc = sim__inode_write(
			&host->disk, file->inode, op->rw.iov, op->rw.iov_count, op->rw.offset, op->flags & IO_DSYNC);
	if (rc)
		return rc;
	for (int i = 0; i < op->rw.iov_count; i++)
		sim_op_of(op)->crc = crc32c_extend(sim_op_of(op)->crc, op->rw.iov[i].iov_base, op->rw.iov[i].iov_len);
	return (int64_t)io__iov_bytes(op->rw.iov, op->rw.iov_count);
}

/* A SYNC has no vector: the fields of rw keep what it covers. */
static int64_t sim_perform_sync(struct sim_host *host, struct io_op *op, struct sim_file *file)
{
	uint64_t seq = sim_op_of(op)->progress;
	int rc = sim__disk_fault(host, file->inode, SIM_FAULT_SYNC);

	sim__sync_point(host, SIM_SYNC_FILE, file->path);
	if (rc)
		sim__inode_sync_failed(file->inode, seq, file->is_direct);
	else
		sim__inode_sync_end(file->inode, seq, op->rw.offset);
	return rc;
}

static void sim_disk_due(struct sim *sim, struct sim_event *event)
{
	struct io_op *op = sim_op_of_event(event);
	struct sim_host *host = sim_op_of(op)->host;
	struct sim_file *file = sim_op_of(op)->object;
	int64_t result;

	(void)sim;
	file->in_flight--;
	if (op->kind == IO_READ)
		result = sim_perform_read(host, op, file);
	else if (op->kind == IO_WRITE)
		result = sim_perform_write(host, op, file);
	else
		result = sim_perform_sync(host, op, file);
	sim__ready(host, op, result);
}

bool sim__disk_submit(struct sim_host *host, struct io_op *op)
{
	struct sim_file *file = sim__fd_get(host, op->fd, SIM_FD_FILE);
	uint64_t bytes = 0, delay_ns, stalled_ns;

	if (op->kind != IO_READ && op->kind != IO_WRITE && op->kind != IO_SYNC)
		return false;
	if (!file || (op->kind == IO_WRITE && !file->can_write)) {
		sim__ready(host, op, ERR_BADF);
		return true;
	}
	if (op->kind == IO_SYNC) {
		sim__inode_sync_begin(file->inode, &sim_op_of(op)->progress, &op->rw.offset);
	} else {
		bytes = io__iov_bytes(op->rw.iov, op->rw.iov_count);
		if (!sim__file_takes(file, op->rw.iov, op->rw.iov_count, op->rw.offset)) {
			sim__ready(host, op, ERR_INVAL);
			return true;
		}
	}
	file->in_flight++;
	sim_op_of(op)->object = file;
	delay_ns = sim__disk_delay(host, bytes);
	stalled_ns = sim__disk_stalled_ns(host, file->inode);
	sim__op_later(
		host, op, host->sim->now_ns + (delay_ns > stalled_ns ? delay_ns : stalled_ns), sim_disk_due);
	return true;
}

void sim__disk_cancel(struct sim_host *host, struct io_op *op)
{
	struct sim_file *file = sim_op_of(op)->object;

	/* Too late, as a rule; else the write may have reached the disk all the same. */
	if (rng_chance(&host->sim->rng, 1, 2))
		return;
	sim__unschedule(host->sim, &sim_op_of(op)->event);
	file->in_flight--;
	if (op->kind == IO_WRITE && rng_chance(&host->sim->rng, 1, 2))
		(void)sim__inode_write(&host->disk, file->inode, op->rw.iov, op->rw.iov_count, op->rw.offset, false);
	else if (op->kind == IO_SYNC)
		file->inode->syncs--;
	sim__ready(host, op, ERR_CANCELED);
}

void sim__disk_crash_op(struct sim_host *host, struct io_op *op)
{
	struct sim_file *file = sim_op_of(op)->object;

	/* No space: then nothing of it was written. */
	if (file && host->disk.loss != SIM_LOSS_ALL && rng_chance(&host->sim->rng, 1, 2))
		(void)sim__inode_write(&host->disk, file->inode, op->rw.iov, op->rw.iov_count, op->rw.offset, false);
}
