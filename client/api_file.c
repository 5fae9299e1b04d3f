/* SPDX-License-Identifier: Apache-2.0 */
/* api_file: the calls of craton.h on open files, blocking and asynchronous. */
#include "client/api_priv.h"

#include "common/base/mem.h"

int cr_open(struct cr_store *store, const char *path, uint32_t flags, uint32_t mode, struct cr_file **ret_file)
{
	struct api_call *c = api__call_new(CLIENT_OPEN, path);
	struct cr_file *file = MEM_NEW(struct cr_file);
	int code;

	file->store = store;
	file->sequential = flags & CR_SEQUENTIAL;
	c->op.flags = flags & ~(uint32_t)CR_SEQUENTIAL;
	c->op.mode = mode;
	c->handle = file;
	code = api__call_run(store, c);
	if (code == 0)
		*ret_file = file;
	else
		mem_free(file);
	mem_free(c);
	return code;
}

static struct api_call *file_call(
	struct cr_file *file, enum client_op_kind kind, void *buf, size_t len, uint64_t offset, uint32_t flags)
{
	struct api_call *c = api__call_new(kind, NULL);

	if (kind == CLIENT_CLOSE || kind == CLIENT_ABORT)
		c->handle = file;
	c->op.file = file->file;
	c->op.buf = buf;
	c->op.len = len;
	c->op.offset = offset;
	c->op.flags = flags;
	return c;
}

int cr_fstat(struct cr_file *file, struct cr_stat *ret_stat)
{
	struct api_call *c = file_call(file, CLIENT_FSTAT, NULL, 0, 0, 0);
	int code = api__call_run(file->store, c);

	if (code == 0)
		*ret_stat = c->op.attr;
	mem_free(c);
	return code;
}

static ssize_t transfer(struct cr_file *file, struct api_call *c)
{
	ssize_t result = api__call_run(file->store, c);

	if (result == 0)
		result = (ssize_t)c->op.count;
	mem_free(c);
	return result;
}

ssize_t cr_pread(struct cr_file *file, void *buf, size_t len, uint64_t offset)
{
	return transfer(file, file_call(file, CLIENT_READ, buf, len, offset, CLIENT_READ_AHEAD));
}

ssize_t cr_pwrite(struct cr_file *file, const void *buf, size_t len, uint64_t offset)
{
	return transfer(file, file_call(file, CLIENT_WRITE, (void *)(uintptr_t)buf, len, offset, CLIENT_WRITE_COPY));
}

int cr_fsync(struct cr_file *file)
{
	return api__run_and_free(file->store, file_call(file, CLIENT_FSYNC, NULL, 0, 0, 0));
}

int cr_close(struct cr_file *file)
{
	if (!file)
		return api__fail_text(ERR_BADF, "no file");
	return api__run_and_free(file->store, file_call(file, CLIENT_CLOSE, NULL, 0, 0, 0));
}

void cr_abort(struct cr_file *file)
{
	if (!file)
		return;
	api__run_and_free(file->store, file_call(file, CLIENT_ABORT, NULL, 0, 0, 0));
}

void cr_pread_async(struct cr_file *file, void *buf, size_t len, uint64_t offset, struct cr_op *op)
{
	api__call_async(file->store, file_call(file, CLIENT_READ, buf, len, offset, file->sequential ? CLIENT_READ_AHEAD : 0), op);
}

void cr_pwrite_async(struct cr_file *file, const void *buf, size_t len, uint64_t offset, struct cr_op *op)
{
	api__call_async(file->store, file_call(file, CLIENT_WRITE, (void *)(uintptr_t)buf, len, offset, 0), op);
}

void cr_pwrite_copy_async(struct cr_file *file, const void *buf, size_t len, uint64_t offset, struct cr_op *op)
{
	api__call_async(file->store, file_call(file, CLIENT_WRITE, (void *)(uintptr_t)buf, len, offset, CLIENT_WRITE_COPY), op);
}

void cr_fsync_async(struct cr_file *file, struct cr_op *op)
{
	api__call_async(file->store, file_call(file, CLIENT_FSYNC, NULL, 0, 0, 0), op);
}

void cr_close_async(struct cr_file *file, struct cr_op *op)
{
	api__call_async(file->store, file_call(file, CLIENT_CLOSE, NULL, 0, 0, 0), op);
}
