/* SPDX-License-Identifier: Apache-2.0 */
/*
 * io_slow: for experiments: disks that are so many times slower than they are. "slow-disk=N" (io_slow_down) delays the end of each file
 * operation by N times the median of what the last ones of its kind and size took.
 *
 * An operation that is held back lies in the loop's heap of timers with its result, as IO_STATE_HELD.
 */
#include <stdlib.h>
#include <string.h>
#include "common/base/mem.h"
#include "common/io/io_real.h"

enum { SLOW_KINDS = 3, SLOW_SIZES = 3, SLOW_SAMPLES = 31, SLOW_FACTOR_MAX = 100000 };
static const size_t slow_size_bytes[SLOW_SIZES] = {16 << 10, 256 << 10, SIZE_MAX};

struct io_slow {
	uint32_t factor;
	struct {
		uint64_t took_ns[SLOW_SAMPLES];
		uint32_t count;
	} kinds[SLOW_KINDS][SLOW_SIZES];
};

int io_slow_new(const char *fault, struct io_slow **ret_slow, struct err *err)
{
	static const char name[] = "slow-disk=";
	char *end = NULL;
	unsigned long factor = 0;

	*ret_slow = NULL;
	if (!fault || !*fault)
		return 0;
	if (strncmp(fault, name, strlen(name)) == 0)
		factor = strtoul(fault + strlen(name), &end, 10);
	if (!end || *end || factor == 0 || factor > SLOW_FACTOR_MAX)
		return err_set(err, ERR_INVAL, "fault '%s': give slow-disk=N", fault);
	*ret_slow = MEM_NEW(struct io_slow);
	(*ret_slow)->factor = (uint32_t)factor;
	return 0;
}

static uint64_t slow_median(const uint64_t *took_ns, uint32_t count)
{
	uint64_t sorted[SLOW_SAMPLES];

	for (uint32_t i = 0; i < count; i++) {
		uint32_t at = i;

		for (; at > 0 && sorted[at - 1] > took_ns[i]; at--)
			sorted[at] = sorted[at - 1];
		sorted[at] = took_ns[i];
	}
	return sorted[count / 2];
}

uint64_t io_slow_delay_ns(struct io_slow *s, const struct io_op *op, uint64_t took_ns)
{
	size_t bytes = op->kind == IO_SYNC ? 0 : io__iov_bytes(op->rw.iov, op->rw.iov_count);
	int kind = op->kind == IO_READ ? 0 : op->kind == IO_WRITE ? 1 : 2, size = 0;
	uint32_t n;

	while (bytes > slow_size_bytes[size])
		size++;
	n = s->kinds[kind][size].count++;
	s->kinds[kind][size].took_ns[n % SLOW_SAMPLES] = took_ns;
	return s->factor * slow_median(s->kinds[kind][size].took_ns, n < SLOW_SAMPLES ? n + 1 : SLOW_SAMPLES);
}
