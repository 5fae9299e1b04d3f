/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dataset: a corpus of bytes in the store, packed for training: DIR/index.bin and the shards DIR/data-00000.bin, ... (the
 * format is in docs/FORMATS.md). Written over craton.h only, and shared by `craton dataset pack` and the trainer's loader.
 *
 * The corpus is the concatenation of the packed files in the given order; a shard holds `shard_bytes` of it, the last one
 * the rest. A dataset never changes once it is visible: its id is the SHA-256 of its index, which holds those of the shards.
 *
 * Functions return 0 or a negative errno value and then have written one line to `error`. A struct cr_dataset is used by one
 * thread at a time; the files it hands out follow craton.h.
 */
#ifndef CLIENT_DATASET_H
#define CLIENT_DATASET_H

#include "client/craton.h"

#define CR_DATASET_ID_BYTES 32
#define CR_DATASET_ERROR_BYTES 512
#define CR_DATASET_SHARD_BYTES (256u << 20) /* default */
#define CR_DATASET_SHARD_BYTES_MIN 4096u
#define CR_DATASET_SHARD_BYTES_MAX (1ull << 40)
#define CR_DATASET_SHARDS_MAX 65536u
#define CR_DATASET_FILES_MAX 1000000u
#define CR_DATASET_INDEX_BYTES_MAX (512u << 20)

struct cr_dataset_info {
	uint64_t total_bytes, shard_bytes;
	uint32_t shard_count, file_count;
	uint8_t id[CR_DATASET_ID_BYTES];
};

struct cr_dataset_pack_options {
	uint64_t shard_bytes; /* 0: the default */
	/* Called about every MiB; not 0: packing stops with -ECANCELED. May be NULL. */
	int (*progress)(void *user, uint64_t done_bytes, uint64_t total_bytes);
	void *user;
};

/*
 * Packs local files, and directories with all regular files below them (in byte order of their paths), into the new
 * directory `dest` of the store. `dest` appears whole or not at all; -EEXIST if it exists. -EINVAL: nothing to pack.
 */
int cr_dataset_pack(struct cr_store *store, const char *const *paths, size_t path_count, const char *dest,
	const struct cr_dataset_pack_options *options, struct cr_dataset_info *ret_info,
	char error[CR_DATASET_ERROR_BYTES]);

struct cr_dataset;
struct cr_dataset_file;

/* `path` is in the store; with "file:" before it, on this host (such as inside a mount): then `store` is not used. Reads and checks the index. -ENOENT, -EINVAL (no dataset, or a newer version), -EBADMSG (damaged), errors of craton.h. */
int cr_dataset_open(
	struct cr_store *store, const char *path, struct cr_dataset **ret_dataset, char error[CR_DATASET_ERROR_BYTES]);
void cr_dataset_close(struct cr_dataset *d); /* NULL is allowed; no read may be in flight */
const struct cr_dataset_info *cr_dataset_info(const struct cr_dataset *d);

/* Where byte `offset` lies: the open shard (kept open by the dataset), the offset in it, the bytes that follow there. */
int cr_dataset_locate(struct cr_dataset *d, uint64_t offset, struct cr_dataset_file **ret_file, uint64_t *ret_offset,
	uint64_t *ret_bytes, char error[CR_DATASET_ERROR_BYTES]);
/* As cr_pread_async; of a file on this host the bytes are read, and `done` is called, before this returns. */
void cr_dataset_file_read_async(
	struct cr_dataset_file *f, void *buf, size_t len, uint64_t offset, struct cr_op *op);
/* Blocking; reads exactly `len` bytes. -EINVAL past the end. */
int cr_dataset_read(struct cr_dataset *d, void *buf, size_t len, uint64_t offset, char error[CR_DATASET_ERROR_BYTES]);

#endif
