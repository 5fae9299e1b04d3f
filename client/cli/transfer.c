/* SPDX-License-Identifier: Apache-2.0 */
#include "client/cli/transfer.h"

#include <errno.h>
#include <semaphore.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "client/cli/process.h"
#include "common/base/mem.h"

int transfer_end(const struct cli *cli, const struct transfer_totals *t)
{
	bool stopped = t->failed && t->several && cli_gives_up(cli);

	if (cli->json)
		printf("{\"files\":%llu,\"bytes\":%llu,\"failed\":%llu,\"stopped\":%s}\n", (unsigned long long)t->files, (unsigned long long)t->bytes,
		       (unsigned long long)t->failed, stopped ? "true" : "false");
	else if (stopped)
		cli_fail(cli, "%llu not copied, %llu copied; the rest was not tried: %s, then give the same command again, which copies all anew",
		         (unsigned long long)t->failed, (unsigned long long)t->files, cli->away ? "see `craton status`" : "make room here or in the store (`craton status`)");
	else if (t->failed && t->failed + t->files > 1)
		cli_fail(cli, "%llu not copied, %llu copied", (unsigned long long)t->failed, (unsigned long long)t->files);
	return t->failed ? CLI_FAILED : CLI_OK;
}

/* Early ones, of servers that are asked no more as they fell silent, cost no time: they neither count nor end the row. */
static void note_failure(struct cli *cli, uint64_t since_ms)
{
	if (process_clock_ms() - since_ms >= (cli->timeout_ms ? cli->timeout_ms : TRANSFER_SILENT_MS))
		cli->away |= ++cli->silences >= TRANSFER_SILENCES;
}

static int copied(struct cli *cli, int exit_code)
{
	if (exit_code == CLI_OK)
		cli->silences = 0;
	return exit_code;
}

enum { PIECE_BYTES = 4 << 20, PIECES = 4 };

int transfer_in(struct cli *cli, int fd, const char *local_name, const char *path, uint32_t mode, bool exclusive, struct progress *p)
{
	struct cr_file *file;
	uint64_t offset = 0, asked_ms;
	uint8_t *buf;
	int exit_code = CLI_OK;
	int r = cr_open(cli->store, path, CR_WRITE | CR_ATOMIC | (exclusive ? CR_EXCL : 0), mode, &file);

	if (r == -ENOENT)
		return cli_fail(cli, "%s; give -p to make missing directories", cr_error());
	if (r < 0)
		return cli_fail_store(cli, r);
	buf = mem_alloc(PIECE_BYTES);
	for (;;) {
		ssize_t n = read(fd, buf, PIECE_BYTES);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			exit_code = cli_fail(cli, "cannot read %s: %s", local_name, strerror(errno));
		if (n <= 0)
			break;
		asked_ms = process_clock_ms();
		r = (int)cr_pwrite(file, buf, (size_t)n, offset);
		if (r < 0) {
			exit_code = cli_fail_store(cli, r);
			note_failure(cli, asked_ms);
			break;
		}
		offset += (uint64_t)n;
		progress_add(p, (uint64_t)n);
	}
	mem_free(buf);
	if (exit_code != CLI_OK) {
		cr_abort(file);
		return exit_code;
	}
	asked_ms = process_clock_ms();
	r = cr_close(file);
	if (r < 0) {
		exit_code = cli_fail_store(cli, r);
		note_failure(cli, asked_ms);
	}
	return copied(cli, exit_code);
}

/* A ring of reads in flight, written out in order. */
struct piece {
	struct cr_op op;
	sem_t done;
	uint8_t *buf;
	uint64_t offset;
	size_t len;
};

static void piece_done(struct cr_op *op)
{
	sem_post(op->user);
}

static void piece_start(struct piece *x, struct cr_file *file, uint64_t *next, uint64_t size)
{
	x->offset = *next;
	x->len = size - *next < PIECE_BYTES ? (size_t)(size - *next) : PIECE_BYTES;
	*next += x->len;
	x->op.done = piece_done;
	x->op.user = &x->done;
	cr_pread_async(file, x->buf, x->len, x->offset, &x->op);
}

static int write_all(int fd, const uint8_t *data, size_t len)
{
	while (len) {
		ssize_t n = write(fd, data, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		data += n;
		len -= (size_t)n;
	}
	return 0;
}

static int copy_out(struct cli *cli, struct cr_file *file, uint64_t size, int fd, const char *local_name, struct progress *p)
{
	struct piece pieces[PIECES];
	uint64_t next = 0, asked_ms = process_clock_ms();
	int exit_code = CLI_OK;
	int in_flight = 0, r;

	for (int i = 0; i < PIECES; i++) {
		sem_init(&pieces[i].done, 0, 0);
		pieces[i].buf = mem_aligned(4096, PIECE_BYTES);
		if (next < size) {
			piece_start(&pieces[i], file, &next, size);
			in_flight++;
		}
	}
	for (int i = 0; in_flight; i = (i + 1) % PIECES) {
		struct piece *x = &pieces[i];

		while (sem_wait(&x->done))
			;
		in_flight--;
		if (exit_code != CLI_OK)
			continue;
		if (x->op.result < 0) {
			cli->away |= cli_is_away((int)x->op.result);
			note_failure(cli, asked_ms);
			exit_code = cli_fail(cli, "%s", x->op.error);
		} else if ((size_t)x->op.result != x->len) {
			exit_code = cli_fail(cli, "the file became shorter while it was read; try again");
		} else if ((r = write_all(fd, x->buf, x->len)) < 0) {
			cli->full |= r == -ENOSPC || r == -EDQUOT;
			exit_code = cli_fail(cli, "cannot write %s: %s", local_name, strerror(-r));
		}
		if (exit_code != CLI_OK)
			continue;
		progress_add(p, x->len);
		asked_ms = process_clock_ms();
		if (next < size) {
			piece_start(x, file, &next, size);
			in_flight++;
		}
	}
	for (int i = 0; i < PIECES; i++) {
		sem_destroy(&pieces[i].done);
		mem_free(pieces[i].buf);
	}
	return exit_code;
}

int transfer_out(struct cli *cli, const char *path, int fd, const char *local_name, struct progress *p)
{
	struct cr_file *file;
	struct cr_stat st;
	int exit_code, r = cr_open(cli->store, path, CR_READ, 0, &file);

	if (r < 0)
		return cli_fail_store(cli, r);
	r = cr_fstat(file, &st);
	if (r < 0)
		exit_code = cli_fail_store(cli, r);
	else if (!st.complete)
		exit_code = cli_fail(cli, "%s is not complete: it is still being written, or its writer died", path);
	else
		exit_code = copy_out(cli, file, st.size, fd, local_name, p);
	r = cr_close(file);
	if (r < 0 && exit_code == CLI_OK)
		exit_code = cli_fail_store(cli, r);
	return copied(cli, exit_code);
}
