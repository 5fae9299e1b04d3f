// SPDX-License-Identifier: Apache-2.0
/*
 * sim_name: directories and open files of a simulated host, and the synchronous calls on them.
 *
 * A directory keeps three lists: the names as they are seen (`live`), those that are durable, and the changes between
 * the two in order. io_sync_dir applies all changes to the durable names; a crash applies some of them, chosen by
 * chance (of changes that have to do with each other no later one without the earlier), and sees only that. A rename inside one directory is one change. A rename across directories makes both
 * durable at once, since a file system would never keep one half of it.
 *
 * Invariants: (1) live and durable are sorted by bytes; (2) an inode's references are its places in the three lists,
 * its open files, and nothing else.
 */
#include <string.h>
#include "common/base/crc32c.h"
#include "common/base/limits.h"
#include "common/base/mem.h"
#include "common/io/sim_impl.h"

/* ---- lists of names ---- */

/* The place of the name, or where it belongs. */
static size_t sim_dir_search(const struct sim_dir_list *list, const char *name, bool *ret_found)
{
	size_t lo = 0, hi = list->count;

	*ret_found = false;
	while (lo < hi) {
		size_t mid = (lo + hi) / 2;
		int order = strcmp(list->entries[mid].name, name);

		if (order == 0) {
			*ret_found = true;
			return mid;
		}
		if (order < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static struct sim_inode *sim_dir_get(const struct sim_dir_list *list, const char *name)
{
	bool found;
	size_t at = sim_dir_search(list, name, &found);

	return found ? list->entries[at].inode : NULL;
}

static void sim_dir_insert(struct sim_dir_list *list, size_t at, const char *name, struct sim_inode *inode)
{
	if (list->count == list->cap) {
		list->cap = list->cap ? 2 * list->cap : 8;
		list->entries = mem_realloc(list->entries, list->cap * sizeof(*list->entries));
	}
	memmove(&list->entries[at + 1], &list->entries[at], (list->count - at) * sizeof(*list->entries));
	list->entries[at] = (struct sim_dir_entry){.name = mem_strdup(name), .inode = inode};
	list->count++;
	if (inode)
		sim__inode_get(inode);
}

static void sim_dir_erase(struct sim_disk *disk, struct sim_dir_list *list, size_t at)
{
	struct sim_dir_entry entry = list->entries[at];

	list->count--;
	memmove(&list->entries[at], &list->entries[at + 1], (list->count - at) * sizeof(*list->entries));
	mem_free(entry.name);
	mem_free(entry.gone);
	if (entry.inode && disk)
		sim__inode_put(disk, entry.inode);
}

/* inode NULL: the name goes. */
static void sim_dir_set(struct sim_disk *disk, struct sim_dir_list *list, const char *name, struct sim_inode *inode)
{
	bool found;
	size_t at = sim_dir_search(list, name, &found);

	if (inode)
		sim__inode_get(inode);
	if (found)
		sim_dir_erase(disk, list, at);
	if (inode) {
		sim_dir_insert(list, at, name, inode);
		sim__inode_put(disk, inode);
	}
}

static void sim_dir_clear(struct sim_disk *disk, struct sim_dir_list *list)
{
	while (list->count)
		sim_dir_erase(disk, list, list->count - 1);
	mem_free(list->entries);
	*list = (struct sim_dir_list){0};
}

/* The name changes at once; durably with the next sync of the directory. */
static void sim_dir_change(struct sim_disk *disk, struct sim_inode *dir, const char *name, struct sim_inode *inode)
{
	sim_dir_insert(&dir->changes, dir->changes.count, name, inode);
	sim_dir_set(disk, &dir->live, name, inode);
}

static void sim_dir_settle_one(struct sim_disk *disk, struct sim_inode *dir, const struct sim_dir_entry *change)
{
	sim_dir_set(disk, &dir->durable, change->name, change->inode);
	if (change->gone)
		sim_dir_set(disk, &dir->durable, change->gone, NULL);
}

static void sim_dir_settle(struct sim_disk *disk, struct sim_inode *dir, size_t count)
{
	for (size_t i = 0; i < count; i++)
		sim_dir_settle_one(disk, dir, &dir->changes.entries[i]);
	sim_dir_clear(disk, &dir->changes);
}

static bool sim_dir_same_name(const char *a, const char *b)
{
	return a && b && strcmp(a, b) == 0;
}

/* Of changes that have to do with each other no later one is there without the earlier. */
static bool sim_dir_depends(const struct sim_dir_entry *change, const struct sim_dir_entry *before)
{
	return sim_dir_same_name(change->name, before->name) || sim_dir_same_name(change->name, before->gone) ||
		sim_dir_same_name(change->gone, before->name) || sim_dir_same_name(change->gone, before->gone) ||
		(change->inode && change->inode == before->inode);
}

/* Changes of different files come to the disk in any order. */
static void sim_dir_settle_some(struct sim *sim, struct sim_disk *disk, struct sim_inode *dir)
{
	struct sim_dir_entry *changes = dir->changes.entries;
	bool *is_lost = mem_array(dir->changes.count + 1, sizeof(*is_lost));

	for (size_t i = 0; i < dir->changes.count; i++) {
		is_lost[i] = rng_chance(&sim->rng, 1, 3);
		for (size_t j = 0; j < i; j++)
			is_lost[i] |= is_lost[j] && sim_dir_depends(&changes[i], &changes[j]);
		if (!is_lost[i])
			sim_dir_settle_one(disk, dir, &changes[i]);
	}
	mem_free(is_lost);
	sim_dir_clear(disk, &dir->changes);
}

void sim__name_crash(struct sim *sim, struct sim_disk *disk, struct sim_inode *dir)
{
	if (disk->loss == SIM_LOSS_ALL)
		sim_dir_settle(disk, dir, 0);
	else
		sim_dir_settle_some(sim, disk, dir);
	sim_dir_clear(disk, &dir->live);
	for (size_t i = 0; i < dir->durable.count; i++)
		sim_dir_insert(&dir->live, i, dir->durable.entries[i].name, dir->durable.entries[i].inode);
}

void sim__name_free(struct sim_disk *disk, struct sim_inode *dir)
{
	sim_dir_clear(disk, &dir->live);
	sim_dir_clear(disk, &dir->durable);
	sim_dir_clear(disk, &dir->changes);
}

/* ---- paths ---- */

/* The next component into `name`; false at the end. ".." is not understood: no program here needs it. */
static bool sim_path_next(const char **path, char name[LIMIT_NAME_BYTES + 1], int *rc)
{
	size_t len;

	for (;;) {
		while (**path == '/')
			(*path)++;
		len = strcspn(*path, "/");
		if (len != 1 || **path != '.')
			break;
		(*path)++;
	}
	if (len == 0)
		return false;
	if (len > LIMIT_NAME_BYTES) {
		*rc = ERR_NAMETOOLONG;
		return false;
	}
	memcpy(name, *path, len);
	name[len] = 0;
	*path += len;
	if (!strcmp(name, ".."))
		*rc = ERR_INVAL;
	return *rc == 0;
}

/* The directory of the path's last component, which goes into `name` ("" for the root itself). */
static int sim_path_parent(
	struct sim_host *host, const char *path, struct sim_inode **ret_dir, char name[LIMIT_NAME_BYTES + 1])
{
	struct sim_inode *dir = host->disk.root;
	char next[LIMIT_NAME_BYTES + 1];
	int rc = 0;

	name[0] = 0;
	while (sim_path_next(&path, next, &rc)) {
		if (name[0]) {
			dir = sim_dir_get(&dir->live, name);
			if (!dir)
				return ERR_NOENT;
			if (!dir->is_dir)
				return ERR_NOTDIR;
		}
		memcpy(name, next, sizeof(next));
	}
	*ret_dir = dir;
	return rc;
}

static int sim_path_find(struct sim_host *host, const char *path, struct sim_inode **ret_inode)
{
	char name[LIMIT_NAME_BYTES + 1];
	struct sim_inode *dir, *inode;
	int rc = sim_path_parent(host, path, &dir, name);

	if (rc)
		return rc;
	inode = name[0] ? sim_dir_get(&dir->live, name) : dir;
	if (!inode)
		return ERR_NOENT;
	*ret_inode = inode;
	return 0;
}

struct sim_inode *sim__name_find(struct sim_host *host, const char *path)
{
	struct sim_inode *inode;

	return sim_path_find(host, path, &inode) ? NULL : inode;
}

static void sim_name_log(struct sim_host *host, const char *what, const char *path, int64_t result)
{
	CHECK(host->is_up);
	sim__log(host->sim, host, what, 0, result, crc32c(path, strlen(path)));
}

/* ---- open files ---- */

static int sim_open_inode(struct sim_host *host, const char *path, uint32_t flags, struct sim_inode **ret_inode)
{
	char name[LIMIT_NAME_BYTES + 1];
	struct sim_inode *dir, *inode;
	int rc = sim_path_parent(host, path, &dir, name);

	if (rc)
		return rc;
	if (!name[0])
		return ERR_ISDIR;
	inode = sim_dir_get(&dir->live, name);
	rc = sim__disk_broken(host, dir);
	if (rc)
		return rc;
	if (inode && (flags & IO_OPEN_CREATE) && (flags & IO_OPEN_EXCL))
		return ERR_EXIST;
	if (inode && inode->is_dir)
		return ERR_ISDIR;
	if (!inode && !(flags & IO_OPEN_CREATE))
		return ERR_NOENT;
	if (inode) {
		if (flags & IO_OPEN_TRUNCATE)
			sim__inode_truncate(&host->disk, inode, 0);
		sim__inode_get(inode);
	} else {
		inode = sim__inode_new(&host->disk, false);
		inode->tree = dir->tree;
		sim_dir_change(&host->disk, dir, name, inode);
	}
	*ret_inode = inode;
	return 0;
}

int sim__name_open(struct io *io, const char *path, uint32_t flags, uint32_t mode, int *ret_fd)
{
	struct sim_host *host = sim_host_of(io);
	struct sim_inode *inode;
	struct sim_file *file;
	int rc = sim_open_inode(host, path, flags, &inode);

	(void)mode; /* one user */
	sim_name_log(host, "open", path, rc);
	if (rc)
		return rc;
	file = MEM_NEW(struct sim_file);
	*file = (struct sim_file){
		.host = host,
		.inode = inode,
		.path = mem_strdup(path),
		.can_write = flags & IO_OPEN_WRITE,
		.is_direct = flags & IO_OPEN_DIRECT,
	};
	*ret_fd = sim__fd_new(host, SIM_FD_FILE, file);
	return 0;
}

void sim__name_abandon(struct sim_host *host, struct sim_file *file)
{
	if (file->inode->locked_by == file)
		file->inode->locked_by = NULL;
	sim__inode_put(&host->disk, file->inode);
	sim__file_free(file);
}

void sim__file_free(struct sim_file *file)
{
	mem_free(file->path);
	mem_free(file);
}

void sim__name_close(struct sim_host *host, struct sim_file *file)
{
	CHECK(file->in_flight == 0);
	sim__name_abandon(host, file);
}

bool sim__file_takes(const struct sim_file *file, const struct iovec *iov, int iov_count, uint64_t offset)
{
	if (!file->is_direct)
		return true;
	if (offset % IO_DIRECT_ALIGN)
		return false;
	for (int i = 0; i < iov_count; i++)
		if ((uintptr_t)iov[i].iov_base % IO_DIRECT_ALIGN || iov[i].iov_len % IO_DIRECT_ALIGN)
			return false;
	return true;
}

/* ---- the synchronous calls ---- */

int sim__name_size(struct io *io, int fd, uint64_t *ret_bytes)
{
	struct sim_file *file = sim__fd_get(sim_host_of(io), fd, SIM_FD_FILE);

	if (!file)
		return ERR_BADF;
	*ret_bytes = file->inode->bytes;
	return 0;
}

int sim__name_allocate(struct io *io, int fd, uint64_t offset, uint64_t len)
{
	struct sim_host *host = sim_host_of(io);
	struct sim_file *file = sim__fd_get(host, fd, SIM_FD_FILE);
	int rc;

	if (!file || !file->can_write)
		return ERR_BADF;
	rc = sim__disk_broken(host, file->inode);
	if (!rc)
		rc = sim__inode_allocate(&host->disk, file->inode, offset, len);
	sim__disk_cost(host, file->inode, 0);
	sim__log(host->sim, host, "allocate", fd, rc, 0);
	return rc;
}

int sim__name_truncate(struct io *io, int fd, uint64_t bytes)
{
	struct sim_host *host = sim_host_of(io);
	struct sim_file *file = sim__fd_get(host, fd, SIM_FD_FILE);
	int rc;

	if (!file || !file->can_write)
		return ERR_BADF;
	rc = sim__disk_broken(host, file->inode);
	if (!rc)
		sim__inode_truncate(&host->disk, file->inode, bytes);
	sim__disk_cost(host, file->inode, 0);
	sim__log(host->sim, host, "truncate", (int64_t)bytes, rc, 0);
	return rc;
}

int64_t sim__name_pread(struct io *io, int fd, void *buf, size_t len, uint64_t offset)
{
	struct sim_host *host = sim_host_of(io);
	struct sim_file *file = sim__fd_get(host, fd, SIM_FD_FILE);
	struct iovec iov = {buf, len};
	int rc;

	if (!file)
		return ERR_BADF;
	if (!sim__file_takes(file, &iov, 1, offset))
		return ERR_INVAL;
	sim__disk_cost(host, file->inode, len);
	rc = sim__disk_fault(host, file->inode, SIM_FAULT_READ);
	return rc ? rc : (int64_t)sim__inode_read(file->inode, buf, len, offset);
}

int64_t sim__name_pwrite(struct io *io, int fd, const void *buf, size_t len, uint64_t offset)
{
	struct sim_host *host = sim_host_of(io);
	struct sim_file *file = sim__fd_get(host, fd, SIM_FD_FILE);
	struct iovec iov = {(void *)buf, len};
	int rc;

	if (!file || !file->can_write)
		return ERR_BADF;
	if (!sim__file_takes(file, &iov, 1, offset))
		return ERR_INVAL;
	sim__disk_cost(host, file->inode, len);
	rc = sim__disk_fault(host, file->inode, SIM_FAULT_WRITE);
	if (!rc)
		rc = sim__inode_write(&host->disk, file->inode, &iov, 1, offset, false);
	sim__log(host->sim, host, "pwrite", fd, rc ? rc : (int64_t)len, crc32c(buf, len));
	return rc ? rc : (int64_t)len;
}

int sim__name_fdatasync(struct io *io, int fd)
{
	struct sim_host *host = sim_host_of(io);
	struct sim_file *file = sim__fd_get(host, fd, SIM_FD_FILE);
	uint64_t seq, bytes;
	int rc;

	if (!file)
		return ERR_BADF;
	sim__disk_cost(host, file->inode, 0);
	sim__inode_sync_begin(file->inode, &seq, &bytes);
	rc = sim__disk_fault(host, file->inode, SIM_FAULT_SYNC);
	sim__sync_point(host, SIM_SYNC_FILE, file->path);
	if (rc)
		sim__inode_sync_failed(file->inode, seq, file->is_direct);
	else
		sim__inode_sync_end(file->inode, seq, bytes);
	sim__log(host->sim, host, "fdatasync", fd, rc, 0);
	return rc;
}

int sim__name_mkdir(struct io *io, const char *path, uint32_t mode)
{
	struct sim_host *host = sim_host_of(io);
	char name[LIMIT_NAME_BYTES + 1];
	struct sim_inode *dir, *made;
	int rc = sim_path_parent(host, path, &dir, name);

	(void)mode;
	if (!rc)
		rc = sim__disk_broken(host, dir);
	if (!rc && (!name[0] || sim_dir_get(&dir->live, name)))
		rc = ERR_EXIST;
	sim_name_log(host, "mkdir", path, rc);
	if (rc)
		return rc;
	made = sim__inode_new(&host->disk, true);
	made->tree = dir == host->disk.root ? made->number : dir->tree;
	sim_dir_change(&host->disk, dir, name, made);
	sim__inode_put(&host->disk, made);
	return 0;
}

static void sim_rename_within(
	struct sim_disk *disk, struct sim_inode *dir, const char *from, const char *to, struct sim_inode *inode)
{
	sim_dir_change(disk, dir, to, inode);
	dir->changes.entries[dir->changes.count - 1].gone = mem_strdup(from);
	sim_dir_set(disk, &dir->live, from, NULL);
}

static int sim_rename(struct sim_host *host, const char *from, const char *to)
{
	char from_name[LIMIT_NAME_BYTES + 1], to_name[LIMIT_NAME_BYTES + 1];
	struct sim_inode *from_dir, *to_dir, *inode, *target;
	struct sim_disk *disk = &host->disk;
	int rc = sim_path_parent(host, from, &from_dir, from_name);

	if (!rc)
		rc = sim_path_parent(host, to, &to_dir, to_name);
	if (!rc)
		rc = sim__disk_broken(host, from_dir);
	if (rc)
		return rc;
	inode = sim_dir_get(&from_dir->live, from_name);
	target = sim_dir_get(&to_dir->live, to_name);
	if (!inode)
		return ERR_NOENT;
	if (!to_name[0])
		return ERR_BUSY;
	if (inode == target)
		return 0;
	if (target && target->is_dir != inode->is_dir)
		return target->is_dir ? ERR_ISDIR : ERR_NOTDIR;
	if (target && target->is_dir && target->live.count > 0)
		return ERR_NOTEMPTY;
	sim__inode_get(inode);
	if (from_dir == to_dir) {
		sim_rename_within(disk, from_dir, from_name, to_name, inode);
	} else {
		sim_dir_change(disk, to_dir, to_name, inode);
		sim_dir_change(disk, from_dir, from_name, NULL);
		sim_dir_settle(disk, to_dir, to_dir->changes.count);
		sim_dir_settle(disk, from_dir, from_dir->changes.count);
	}
	sim__inode_put(disk, inode);
	return 0;
}

int sim__name_rename(struct io *io, const char *from, const char *to)
{
	struct sim_host *host = sim_host_of(io);
	int rc = sim_rename(host, from, to);

	sim_name_log(host, "rename", to, rc);
	return rc;
}

int sim__name_unlink(struct io *io, const char *path)
{
	struct sim_host *host = sim_host_of(io);
	char name[LIMIT_NAME_BYTES + 1];
	struct sim_inode *dir, *inode = NULL;
	int rc = sim_path_parent(host, path, &dir, name);

	if (!rc)
		rc = sim__disk_broken(host, dir);
	if (!rc) {
		inode = sim_dir_get(&dir->live, name);
		rc = !inode ? ERR_NOENT : inode->is_dir ? ERR_ISDIR : 0;
	}
	sim_name_log(host, "unlink", path, rc);
	if (!rc)
		sim_dir_change(&host->disk, dir, name, NULL);
	return rc;
}

int sim__name_sync_dir(struct io *io, const char *path)
{
	struct sim_host *host = sim_host_of(io);
	struct sim_inode *dir = NULL;
	int rc = sim_path_find(host, path, &dir);

	if (!rc && !dir->is_dir)
		rc = ERR_NOTDIR;
	if (!rc)
		rc = sim__disk_fault(host, dir, SIM_FAULT_SYNC);
	sim__disk_cost(host, dir, 0);
	sim_name_log(host, "sync_dir", path, rc);
	sim__sync_point(host, SIM_SYNC_DIR, path);
	if (!rc)
		sim_dir_settle(&host->disk, dir, dir->changes.count);
	return rc;
}

int sim__name_list_dir(struct io *io, const char *path, int (*each)(void *ctx, const char *name), void *ctx)
{
	struct sim_host *host = sim_host_of(io);
	struct sim_inode *dir;
	char **names;
	size_t count;
	int rc = sim_path_find(host, path, &dir);

	if (!rc)
		rc = sim__disk_broken(host, dir);
	if (rc)
		return rc;
	if (!dir->is_dir)
		return ERR_NOTDIR;
	/* `each` may create and remove names. */
	count = dir->live.count;
	names = mem_array(count + 1, sizeof(*names));
	for (size_t i = 0; i < count; i++)
		names[i] = mem_strdup(dir->live.entries[i].name);
	for (size_t i = 0; i < count; i++) {
		if (!rc)
			rc = each(ctx, names[i]);
		mem_free(names[i]);
	}
	mem_free(names);
	return rc;
}

int sim__name_lock(struct io *io, int fd)
{
	struct sim_file *file = sim__fd_get(sim_host_of(io), fd, SIM_FD_FILE);

	if (!file)
		return ERR_BADF;
	if (file->inode->locked_by && file->inode->locked_by != file)
		return ERR_BUSY;
	file->inode->locked_by = file;
	return 0;
}

int sim__name_disk_space(struct io *io, const char *path, uint64_t *ret_total, uint64_t *ret_free)
{
	struct sim_host *host = sim_host_of(io);
	struct sim_inode *inode;
	int rc = sim_path_find(host, path, &inode);

	if (rc)
		return rc;
	*ret_total = host->disk.sectors_total * SIM_SECTOR;
	*ret_free = sim__disk_left(&host->disk) * SIM_SECTOR;
	return 0;
}

/* ---- the test's own hands on the disk ---- */

int sim_flip_bit(struct io *io, const char *path, uint64_t byte_offset, uint8_t bit)
{
	struct sim_host *host = sim_host_of(io);
	struct sim_inode *inode = sim__name_find(host, path);

	if (!inode)
		return ERR_NOENT;
	if (inode->is_dir)
		return ERR_ISDIR;
	if (byte_offset >= inode->bytes)
		return ERR_RANGE;
	sim__inode_flip(inode, byte_offset, bit);
	sim__log(host->sim, host, "flip", (int64_t)byte_offset, bit, 0);
	return 0;
}

int64_t sim_read_raw(struct io *io, const char *path, void *buf, size_t len, uint64_t offset)
{
	struct sim_inode *inode = sim__name_find(sim_host_of(io), path);

	if (!inode)
		return ERR_NOENT;
	if (inode->is_dir)
		return ERR_ISDIR;
	return (int64_t)sim__inode_read(inode, buf, len, offset);
}
