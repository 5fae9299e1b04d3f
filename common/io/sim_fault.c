// SPDX-License-Identifier: Apache-2.0
/* sim_fault: what goes wrong on purpose: cuts, resets, delays, disks that fail, fill, stall or stop, clocks that are set, work and hosts that stand still. */
#include <string.h>
#include "common/io/sim_impl.h"

/* ---- the network ---- */

static void sim_set_cut(struct io *from, struct io *to, bool is_cut)
{
	struct sim_host *x = sim_host_of(from), *y = sim_host_of(to);
	uint32_t bit = 1u << (y->number % 32);

	sim_note(x->sim, "%s %s %s", is_cut ? "cut" : "heal", x->name, y->name);
	if (is_cut)
		x->cut[y->number / 32] |= bit;
	else
		x->cut[y->number / 32] &= ~bit;
}

void sim_cut(struct io *a, struct io *b)
{
	sim_set_cut(a, b, true);
	sim_set_cut(b, a, true);
}

void sim_cut_one_way(struct io *a, struct io *b)
{
	sim_set_cut(a, b, true);
}

void sim_heal(struct io *a, struct io *b)
{
	sim_set_cut(a, b, false);
	sim_set_cut(b, a, false);
}

void sim_reset(struct io *a, struct io *b)
{
	struct sim_host *x = sim_host_of(a), *y = sim_host_of(b);

	sim_note(x->sim, "reset %s %s", x->name, y->name);
	sim__net_reset(x, y);
}

void sim_net_delay(struct io *io, uint64_t most_ns)
{
	sim_host_of(io)->delay_ns = most_ns;
}

/* ---- the disk ---- */

void sim_faults_after(struct io *io, enum sim_fault what, uint64_t n, uint64_t more, int code)
{
	sim_host_of(io)->disk.faults[what] = (struct sim_fault_row){.left = n, .more = more, .code = code};
}

void sim_fault_after(struct io *io, enum sim_fault what, uint64_t n, int code)
{
	sim_faults_after(io, what, n, 0, code);
}

void sim_disk_slow(struct io *io, uint32_t factor)
{
	CHECK(factor > 0);
	sim_host_of(io)->disk.slow_factor = factor;
}

void sim_disk_stall(struct io *io, uint64_t ns)
{
	struct sim_host *host = sim_host_of(io);
	uint64_t until_ns = host->sim->now_ns + ns;

	if (host->disk.free_at_ns < until_ns)
		host->disk.free_at_ns = until_ns;
}

void sim_disk_full(struct io *io, bool is_full)
{
	sim_host_of(io)->disk.is_full = is_full;
}

void sim_disk_leave(struct io *io, uint64_t bytes)
{
	struct sim_disk *disk = &sim_host_of(io)->disk;
	uint64_t left = disk->sectors_total - disk->sectors_used, keep = bytes / SIM_SECTOR;

	disk->sectors_taken = left > keep ? left - keep : 0;
}

void sim_dir_fail(struct io *io, const char *path, int code)
{
	struct sim_host *host = sim_host_of(io);
	struct sim_inode *dir = path ? sim__name_find(host, path) : NULL;

	CHECK(!path || (dir && dir->tree == dir->number));
	host->disk.failing_tree = dir ? dir->number : 0;
	host->disk.failing_code = code;
	host->disk.failing_reads = false;
}

void sim_dir_unreadable(struct io *io, const char *path, int code)
{
	sim_dir_fail(io, path, code);
	sim_host_of(io)->disk.failing_reads = true;
}

static int is_failing(const struct sim_host *host, const struct sim_inode *inode)
{
	return host->disk.failing_tree && inode->tree == host->disk.failing_tree ? host->disk.failing_code : 0;
}

void sim_dir_stall(struct io *io, const char *path, uint64_t ns)
{
	struct sim_host *host = sim_host_of(io);
	struct sim_inode *dir = sim__name_find(host, path);

	CHECK(dir && dir->tree == dir->number);
	host->disk.stalled_tree = dir->number;
	host->disk.stalled_until_ns = host->sim->now_ns + ns;
}

uint64_t sim__disk_stalled_ns(const struct sim_host *host, const struct sim_inode *inode)
{
	uint64_t until_ns = host->disk.stalled_until_ns, now_ns = host->sim->now_ns;

	return inode->tree == host->disk.stalled_tree && until_ns > now_ns ? until_ns - now_ns : 0;
}

int sim__disk_broken(const struct sim_host *host, const struct sim_inode *inode)
{
	return host->disk.failing_reads ? 0 : is_failing(host, inode);
}

int sim__disk_fault(struct sim_host *host, const struct sim_inode *inode, enum sim_fault what)
{
	struct sim_fault_row *row = &host->disk.faults[what];
	int code = what == SIM_FAULT_READ ? is_failing(host, inode) : sim__disk_broken(host, inode);

	if (code || row->left == 0 || --row->left > 0)
		return code;
	if (row->more > 0) {
		row->more--;
		row->left = 1;
	}
	sim__log(host->sim, host, "fault", what, row->code, 0);
	return row->code;
}

void sim_set_loss(struct io *io, enum sim_loss loss)
{
	sim_host_of(io)->disk.loss = loss;
}

/* ---- stopping at a sync ---- */

void sim_stop_at_sync(struct io *io, uint64_t n, void (*stopped)(void *ctx), void *ctx)
{
	struct sim_disk *disk = &sim_host_of(io)->disk;

	disk->stop.left = n;
	disk->stop.stopped = stopped;
	disk->stop.ctx = ctx;
}

void sim__sync_point(struct sim_host *host, enum sim_sync kind, const char *path)
{
	struct sim *sim = host->sim;

	if (sim->options.synced)
		sim->options.synced(sim->options.ctx, &host->io, kind, path);
	/* Without a way out it is the test itself that syncs. */
	if (!host->disk.stop.left || !sim->way_out || --host->disk.stop.left > 0)
		return;
	sim_note(sim, "stopped %s at the sync of %s", host->name, path);
	sim->stopped = host;
	longjmp(*sim->way_out, 1);
}

/* ---- clocks, pauses ---- */

void sim_wall_jump(struct io *io, int64_t delta_ns)
{
	sim_host_of(io)->wall_offset_ns += delta_ns;
}

void sim_work_stall(struct io *io, uint64_t ns)
{
	sim_host_of(io)->work_stall_ns = ns;
}

void sim_host_pause(struct io *io, uint64_t ns)
{
	struct sim_host *host = sim_host_of(io);

	if (host->busy_until_ns < host->sim->now_ns + ns)
		host->busy_until_ns = host->sim->now_ns + ns;
	if (host->turn.node.idx) {
		sim__unschedule(host->sim, &host->turn);
		sim__schedule(host->sim, &host->turn, host->busy_until_ns);
	}
}
