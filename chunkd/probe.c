/* SPDX-License-Identifier: Apache-2.0 */
#include "chunkd/probe.h"

#include "chunkd/daemon.h"
#include "common/base/mem.h"

static const uint64_t MS_NS = 1000 * 1000;

struct probe {
	struct probes *all;
	struct disk *disk;
	struct io_op op;
	struct iovec iov;
	uint64_t began_ns;
	uint64_t wrong_ns; /* since then each went wrong; 0: the last one was good */
	bool closed;
};

struct probes {
	struct chunkd *ch;
	struct io_op timer;
	uint64_t due_ns;      /* of the timer */
	bool sooner;          /* it is being cancelled, to be set anew */
	uint64_t answered_ns; /* when the last write that ended began, of whichever disk */
	uint8_t bytes[PROBE_BYTES];
	struct probe *each; /* one a disk */
	bool closing;
	size_t open; /* of each */
	void (*quiet)(void *ctx, struct disk *disk);
	void *quiet_ctx;
};

static void on_timer(struct io_op *op);

static void set_timer(struct probes *p, uint64_t at_ns)
{
	p->due_ns = at_ns;
	io_prep_timer(&p->timer, at_ns, on_timer);
	io_submit(p->ch->io, &p->timer);
}

/* The last one may free the server. */
static void close_one(struct probe *probe)
{
	struct probes *p = probe->all;
	void (*quiet)(void *ctx, struct disk *disk) = p->quiet;
	void *ctx = p->quiet_ctx;
	struct disk *disk = probe->disk;

	probe->closed = true;
	if (--p->open == 0) {
		p->ch->probes = NULL;
		mem_free(p->each);
		mem_free(p);
	}
	quiet(ctx, disk);
}

static void close_quiet(struct probes *p)
{
	size_t count = p->ch->disk_count, left = p->open;

	if (!p->closing || io_pending(&p->timer))
		return;
	for (size_t i = 0; i < count && left > 0; i++) {
		if (p->each[i].closed || io_pending(&p->each[i].op))
			continue;
		left--;
		close_one(&p->each[i]);
	}
}

static void fail(struct probe *probe, int code, const char *what)
{
	disk_fail(probe->disk, code, what);
	registrar_kick(probe->all->ch);
}

bool probe_says_gone(uint64_t waited_ms, bool others_answer)
{
	return waited_ms >= (others_answer ? PROBE_GONE_MS : PROBE_ALL_GONE_MS);
}

static void on_written(struct io_op *op)
{
	struct probe *probe = CONTAINER_OF(op, struct probe, op);

	if (probe->began_ns > probe->all->answered_ns)
		probe->all->answered_ns = probe->began_ns;
	/* A full disk is there. */
	if (op->result >= 0 || op->result == ERR_NOSPC)
		probe->wrong_ns = 0;
	else if (!probe->wrong_ns)
		probe->wrong_ns = probe->began_ns;
	else if (probe->began_ns - probe->wrong_ns >= PROBE_GONE_MS * MS_NS)
		fail(probe, (int)op->result, "small writes, to see whether it is there, failed for a while");
	close_quiet(probe->all);
}

/* If it was we who stood still (stopped, a machine that paused), that time says nothing of a disk. */
static void forget_wait(struct probe *probe, uint64_t now_ns)
{
	if (io_pending(&probe->op))
		probe->began_ns = now_ns;
	if (probe->wrong_ns)
		probe->wrong_ns = now_ns;
}

static void look(struct probe *probe)
{
	struct io *io = probe->all->ch->io;
	uint64_t now_ns = io_now_ns(io);

	if (probe->disk->failed)
		return;
	if (io_pending(&probe->op)) {
		if (probe_says_gone((now_ns - probe->began_ns) / MS_NS, probe->all->answered_ns > probe->began_ns))
			fail(probe, ERR_TIMEDOUT, "a small write, to see whether it is there, does not end");
		return;
	}
	probe->began_ns = now_ns;
	probe->iov = (struct iovec){probe->all->bytes, PROBE_BYTES};
	io_prep_write(&probe->op, probe->disk->lock_fd, &probe->iov, 1, 0, IO_DSYNC, on_written);
	io_submit(io, &probe->op);
}

static void on_timer(struct io_op *op)
{
	struct probes *p = CONTAINER_OF(op, struct probes, timer);
	uint64_t now_ns = io_now_ns(p->ch->io);

	if (p->closing) {
		close_quiet(p);
		return;
	}
	if (p->sooner) {
		p->sooner = false;
		set_timer(p, now_ns + PROBE_SOON_MS * MS_NS);
		return;
	}
	for (size_t i = 0; i < p->ch->disk_count; i++) {
		if (now_ns - p->due_ns > PROBE_MS * MS_NS)
			forget_wait(&p->each[i], now_ns);
		look(&p->each[i]);
	}
	set_timer(p, now_ns + PROBE_MS * MS_NS);
}

void probes_soon(struct probes *p)
{
	if (p->closing || p->sooner || p->due_ns <= io_now_ns(p->ch->io) + PROBE_SOON_MS * MS_NS)
		return;
	p->sooner = true;
	io_cancel(p->ch->io, &p->timer);
}

struct probes *probes_new(struct chunkd *ch)
{
	struct probes *p = MEM_NEW(struct probes);

	p->ch = ch;
	p->each = mem_array(ch->disk_count, sizeof(*p->each));
	for (size_t i = 0; i < ch->disk_count; i++) {
		p->each[i].all = p;
		p->each[i].disk = ch->disks[i];
	}
	set_timer(p, io_now_ns(ch->io) + PROBE_MS * MS_NS);
	return p;
}

bool probes_writing(const struct probes *p, const struct disk *disk)
{
	for (size_t i = 0; i < p->ch->disk_count; i++)
		if (p->each[i].disk == disk && io_pending(&p->each[i].op))
			return true;
	return false;
}

void probes_close(struct probes *p, void (*quiet)(void *ctx, struct disk *disk), void *ctx)
{
	p->closing = true;
	p->open = p->ch->disk_count;
	p->quiet = quiet;
	p->quiet_ctx = ctx;
	io_cancel(p->ch->io, &p->timer);
	close_quiet(p);
}
