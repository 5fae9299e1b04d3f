/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dataset_pack: see dataset.h. Everything is written into a hidden directory beside the destination, which gets its name by
 * one rename at the end; a pack that was killed leaves only that directory, and the next one of the same name removes it.
 *
 * The files are listed with their sizes first, for the shards to be cut and for progress; a file that has changed its size
 * when it is read fails the pack.
 */
#include "client/dataset.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "client/dataset_index.h"

enum {
	PACK_BUFFER_BYTES = 1 << 20,
	PACK_DEPTH_MAX = 64, /* directories below each other */
};

struct pack_file {
	char *path;
	uint64_t bytes;
};

struct pack_shard {
	uint64_t bytes;
	uint8_t sha256[CR_DATASET_ID_BYTES];
};

struct pack {
	struct cr_store *store;
	const struct cr_dataset_pack_options *options;
	char *error;
	char dest[CR_PATH_MAX], temp[CR_PATH_MAX]; /* dest without slashes at its end */
	uint64_t shard_bytes, total_bytes, done_bytes;
	struct pack_file *files;
	size_t file_count, file_cap;
	struct pack_shard *shards;
	uint32_t shard_count;
	struct cr_file *out; /* the shard being written */
	uint64_t out_bytes;
	EVP_MD_CTX *hash;
	uint8_t *buffer;
};

static int pack_add_file(struct pack *p, const char *path, uint64_t bytes)
{
	if (strlen(path) >= CR_PATH_MAX)
		return dataset__fail(p->error, -ENAMETOOLONG, "%.100s...: the path is too long", path);
	if (p->file_count == CR_DATASET_FILES_MAX)
		return dataset__fail(p->error, -E2BIG, "more than %u files: pack them in parts", CR_DATASET_FILES_MAX);
	if (p->file_count == p->file_cap) {
		size_t cap = p->file_cap ? 2 * p->file_cap : 16;
		struct pack_file *files = realloc(p->files, cap * sizeof(*files));

		if (!files)
			return dataset__fail(p->error, -ENOMEM, "out of memory");
		p->files = files;
		p->file_cap = cap;
	}
	p->files[p->file_count].path = strdup(path);
	if (!p->files[p->file_count].path)
		return dataset__fail(p->error, -ENOMEM, "out of memory");
	p->files[p->file_count++].bytes = bytes;
	p->total_bytes += bytes;
	return 0;
}

static int pack_name_order(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

static int pack_list(struct pack *p, const char *path, int depth)
{
	struct dirent **names = NULL;
	struct stat st;
	int n, rc = 0;

	if (stat(path, &st) < 0)
		return dataset__fail(p->error, -errno, "%.300s: %s", path, strerror(errno));
	if (S_ISREG(st.st_mode))
		return pack_add_file(p, path, (uint64_t)st.st_size);
	if (!S_ISDIR(st.st_mode))
		return dataset__fail(p->error, -EINVAL, "%.300s: neither a file nor a directory", path);
	if (depth == PACK_DEPTH_MAX)
		return dataset__fail(p->error, -ELOOP, "%.300s: more than %d directories deep", path, PACK_DEPTH_MAX);
	n = scandir(path, &names, NULL, pack_name_order);
	if (n < 0)
		return dataset__fail(p->error, -errno, "%.300s: %s", path, strerror(errno));
	for (int i = 0; i < n; i++) {
		char *below = NULL;

		if (rc == 0 && strcmp(names[i]->d_name, ".") && strcmp(names[i]->d_name, "..")) {
			if (asprintf(&below, "%s/%s", path, names[i]->d_name) < 0) {
				below = NULL;
				rc = dataset__fail(p->error, -ENOMEM, "out of memory");
			} else {
				rc = pack_list(p, below, depth + 1);
			}
		}
		free(below);
		free(names[i]);
	}
	free(names);
	return rc;
}

/* ---- shards ---- */

static int pack_store_error(struct pack *p, int rc, const char *what)
{
	return dataset__fail(p->error, rc, "%.200s: %.240s", what, cr_error());
}

static int pack_shard_open(struct pack *p)
{
	char name[CR_PATH_MAX + 32];
	int rc;

	snprintf(name, sizeof(name), "%s/data-%05u.bin", p->temp, p->shard_count);
	rc = cr_open(p->store, name, CR_WRITE | CR_EXCL, 0644, &p->out);
	if (rc) {
		p->out = NULL;
		return pack_store_error(p, rc, name);
	}
	p->out_bytes = 0;
	return EVP_DigestInit_ex(p->hash, EVP_sha256(), NULL) == 1 ? 0
								   : dataset__fail(p->error, -EIO, "SHA-256 failed");
}

static int pack_shard_close(struct pack *p)
{
	struct pack_shard *s = &p->shards[p->shard_count];
	struct cr_file *out = p->out;
	int rc;

	p->out = NULL;
	rc = cr_close(out);
	if (rc)
		return pack_store_error(p, rc, p->temp);
	s->bytes = p->out_bytes;
	if (EVP_DigestFinal_ex(p->hash, s->sha256, NULL) != 1)
		return dataset__fail(p->error, -EIO, "SHA-256 failed");
	p->shard_count++;
	return 0;
}

static int pack_bytes(struct pack *p, const uint8_t *data, size_t len)
{
	while (len) {
		uint64_t room;
		size_t n;
		ssize_t rc;

		if (!p->out && (rc = pack_shard_open(p)))
			return (int)rc;
		room = p->shard_bytes - p->out_bytes;
		n = len < room ? len : (size_t)room;
		rc = cr_pwrite(p->out, data, n, p->out_bytes);
		if (rc < 0)
			return pack_store_error(p, (int)rc, p->temp);
		if (EVP_DigestUpdate(p->hash, data, n) != 1)
			return dataset__fail(p->error, -EIO, "SHA-256 failed");
		p->out_bytes += n;
		data += n;
		len -= n;
		if (p->out_bytes == p->shard_bytes && (rc = pack_shard_close(p)))
			return (int)rc;
	}
	return 0;
}

static int pack_file(struct pack *p, const struct pack_file *f)
{
	int fd = open(f->path, O_RDONLY | O_CLOEXEC), rc = 0;
	uint64_t seen = 0;

	if (fd < 0)
		return dataset__fail(p->error, -errno, "%.300s: %s", f->path, strerror(errno));
	while (rc == 0) {
		ssize_t n = read(fd, p->buffer, PACK_BUFFER_BYTES);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			rc = dataset__fail(p->error, -errno, "%.300s: %s", f->path, strerror(errno));
		if (n <= 0)
			break;
		seen += (uint64_t)n;
		if (seen > f->bytes)
			break;
		rc = pack_bytes(p, p->buffer, (size_t)n);
		p->done_bytes += (uint64_t)n;
		if (rc == 0 && p->options && p->options->progress &&
			p->options->progress(p->options->user, p->done_bytes, p->total_bytes))
			rc = dataset__fail(p->error, -ECANCELED, "stopped on request");
	}
	close(fd);
	if (rc == 0 && seen != f->bytes)
		rc = dataset__fail(
			p->error, -EAGAIN, "%.300s: changed its size while it was packed; pack again", f->path);
	return rc;
}

/* ---- index ---- */

static uint8_t *pack_put(uint8_t *p, uint64_t v, int bytes)
{
	for (; bytes--; v >>= 8)
		*p++ = (uint8_t)v;
	return p;
}

static uint8_t *pack_encode(const struct pack *p, size_t *ret_len)
{
	size_t len = DATASET_HEAD_BYTES + (size_t)p->shard_count * DATASET_SHARD_ROW_BYTES + CR_DATASET_ID_BYTES;
	uint8_t *data, *at;

	for (size_t i = 0; i < p->file_count; i++)
		len += 10 + strlen(p->files[i].path);
	at = data = malloc(len);
	if (!data)
		return NULL;
	memcpy(at, DATASET_MAGIC, 8);
	at = pack_put(at + 8, DATASET_VERSION, 4);
	at = pack_put(at, 0, 4);
	at = pack_put(at, p->total_bytes, 8);
	at = pack_put(at, p->shard_bytes, 8);
	at = pack_put(at, p->shard_count, 4);
	at = pack_put(at, p->file_count, 4);
	for (uint32_t i = 0; i < p->shard_count; i++) {
		at = pack_put(at, p->shards[i].bytes, 8);
		memcpy(at, p->shards[i].sha256, CR_DATASET_ID_BYTES);
		at += CR_DATASET_ID_BYTES;
	}
	for (size_t i = 0; i < p->file_count; i++) {
		size_t n = strlen(p->files[i].path);

		at = pack_put(at, p->files[i].bytes, 8);
		at = pack_put(at, n, 2);
		memcpy(at, p->files[i].path, n);
		at += n;
	}
	if (dataset__sha256(data, (size_t)(at - data), at)) {
		free(data);
		return NULL;
	}
	*ret_len = len;
	return data;
}

static int pack_write_index(struct pack *p, struct cr_dataset_info *ret_info)
{
	char name[CR_PATH_MAX + 16];
	struct cr_file *file;
	size_t len;
	uint8_t *data = pack_encode(p, &len);
	ssize_t n;
	int rc;

	if (!data)
		return dataset__fail(p->error, -ENOMEM, "out of memory");
	if (len > CR_DATASET_INDEX_BYTES_MAX || dataset__parse(data, len, ret_info)) {
		free(data);
		return dataset__fail(p->error, -E2BIG, "the index would be too long: pack fewer files");
	}
	snprintf(name, sizeof(name), "%s/index.bin", p->temp);
	rc = cr_open(p->store, name, CR_WRITE | CR_EXCL, 0644, &file);
	if (rc) {
		free(data);
		return pack_store_error(p, rc, name);
	}
	n = cr_pwrite(file, data, len, 0);
	free(data);
	if (n < 0) {
		pack_store_error(p, (int)n, name);
		cr_abort(file);
		return (int)n;
	}
	rc = cr_close(file);
	return rc ? pack_store_error(p, rc, name) : 0;
}

/* ---- the hidden directory ---- */

static int pack_temp_name(struct pack *p, const char *dest)
{
	size_t n = strlen(dest);
	const char *slash;

	while (n > 1 && dest[n - 1] == '/')
		n--;
	if (n == 0 || dest[0] != '/' || n == 1)
		return dataset__fail(p->error, -EINVAL,
			"'%.300s': give the path of a directory to make in the store, as in /data/corpus", dest);
	slash = memrchr(dest, '/', n);
	if (n + sizeof(".tmp-pack-") > CR_PATH_MAX || (size_t)(dest + n - slash) + sizeof(".tmp-pack-") > CR_NAME_MAX)
		return dataset__fail(p->error, -ENAMETOOLONG, "%.100s...: the path is too long", dest);
	snprintf(p->dest, sizeof(p->dest), "%.*s", (int)n, dest);
	snprintf(p->temp, sizeof(p->temp), "%.*s/.tmp-pack-%.*s", (int)(slash - dest), dest,
		(int)(dest + n - slash - 1), slash + 1);
	return 0;
}

/* Removes a directory of plain files; what is not there is no error. */
static int pack_remove_temp(struct pack *p)
{
	struct cr_dirent *e = malloc(sizeof(*e));
	char name[CR_PATH_MAX + CR_NAME_MAX + 2];
	int rc = 0, more = 1;

	if (!e)
		return -ENOMEM;
	while (rc == 0 && more) { /* one name at a time: a listing is not changed under its own feet */
		struct cr_dir *dir;

		rc = cr_opendir(p->store, p->temp, &dir);
		if (rc)
			break;
		more = cr_readdir(dir, e);
		cr_closedir(dir);
		if (more < 0) {
			rc = more;
		} else if (more) {
			snprintf(name, sizeof(name), "%s/%s", p->temp, e->name);
			rc = cr_unlink(p->store, name);
		}
	}
	free(e);
	if (rc == 0)
		rc = cr_rmdir(p->store, p->temp);
	return rc == -ENOENT ? 0 : rc;
}

static int pack_prepare(struct pack *p, const char *const *paths, size_t path_count, const char *dest)
{
	struct cr_stat st;
	uint64_t shards;
	int rc = pack_temp_name(p, dest);

	p->shard_bytes = p->options && p->options->shard_bytes ? p->options->shard_bytes : CR_DATASET_SHARD_BYTES;
	if (rc)
		return rc;
	if (p->shard_bytes < CR_DATASET_SHARD_BYTES_MIN || p->shard_bytes > CR_DATASET_SHARD_BYTES_MAX)
		return dataset__fail(p->error, -EINVAL, "shard size %llu: give %u bytes to 1 TiB",
			(unsigned long long)p->shard_bytes, CR_DATASET_SHARD_BYTES_MIN);
	for (size_t i = 0; i < path_count && rc == 0; i++)
		rc = pack_list(p, paths[i], 0);
	if (rc)
		return rc;
	if (p->total_bytes == 0)
		return dataset__fail(p->error, -EINVAL, "nothing to pack: the files given are empty");
	shards = (p->total_bytes + p->shard_bytes - 1) / p->shard_bytes;
	if (shards > CR_DATASET_SHARDS_MAX)
		return dataset__fail(
			p->error, -EINVAL, "%llu shards: give a larger shard size", (unsigned long long)shards);
	rc = cr_stat(p->store, p->dest, &st);
	if (rc == 0)
		return dataset__fail(
			p->error, -EEXIST, "%.300s: exists; remove it (craton rm -r) or give another name", dest);
	if (rc != -ENOENT)
		return pack_store_error(p, rc, p->dest);
	p->shards = calloc(shards, sizeof(*p->shards));
	p->buffer = malloc(PACK_BUFFER_BYTES);
	p->hash = EVP_MD_CTX_new();
	if (!p->shards || !p->buffer || !p->hash)
		return dataset__fail(p->error, -ENOMEM, "out of memory");
	return 0;
}

static int pack_write(struct pack *p, struct cr_dataset_info *ret_info)
{
	int rc = pack_remove_temp(p);

	if (rc)
		return pack_store_error(p, rc, p->temp);
	rc = cr_mkdir_parents(p->store, p->temp, 0755);
	if (rc)
		return pack_store_error(p, rc, p->temp);
	for (size_t i = 0; i < p->file_count && rc == 0; i++)
		rc = pack_file(p, &p->files[i]);
	if (rc == 0 && p->out)
		rc = pack_shard_close(p);
	if (rc == 0)
		rc = pack_write_index(p, ret_info);
	if (rc == 0) {
		rc = cr_rename(p->store, p->temp, p->dest, CR_RENAME_NOREPLACE);
		if (rc)
			pack_store_error(p, rc, p->dest);
	}
	if (rc) {
		if (p->out)
			cr_abort(p->out);
		pack_remove_temp(p); /* best effort: the next pack of this name tries again */
	}
	return rc;
}

int cr_dataset_pack(struct cr_store *store, const char *const *paths, size_t path_count, const char *dest,
	const struct cr_dataset_pack_options *options, struct cr_dataset_info *ret_info,
	char error[CR_DATASET_ERROR_BYTES])
{
	struct pack p = {.store = store, .options = options, .error = error};
	struct cr_dataset_info info;
	int rc = pack_prepare(&p, paths, path_count, dest);

	if (rc == 0)
		rc = pack_write(&p, &info);
	for (size_t i = 0; i < p.file_count; i++)
		free(p.files[i].path);
	free(p.files);
	free(p.shards);
	free(p.buffer);
	EVP_MD_CTX_free(p.hash);
	if (rc == 0)
		*ret_info = info;
	return rc;
}
