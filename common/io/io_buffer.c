// SPDX-License-Identifier: Apache-2.0
/*
 * io_buffer: page-aligned memory for bulk data. Large ones lie on 2 MiB boundaries and ask for huge pages. Every page
 * is touched here, once: in a guest the first touch of fresh memory costs more than the I/O through it. (The simulator's
 * buffers are not touched and have small pages: most of them are never used.)
 */
#include <errno.h>
#include <sys/mman.h>
#include "common/io/io_real.h"

enum { IO_PAGE = 4096, IO_HUGE = 2 << 20 };

static size_t io_pages_round(size_t bytes)
{
	size_t unit = bytes >= IO_HUGE ? IO_HUGE : IO_PAGE;

	return (bytes + unit - 1) / unit * unit;
}

static void io_pages_touch(char *p, size_t bytes)
{
#ifdef MADV_POPULATE_WRITE
	if (madvise(p, bytes, MADV_POPULATE_WRITE) == 0)
		return;
#endif
	for (size_t i = 0; i < bytes; i += IO_PAGE)
		((volatile char *)p)[i] = 0;
}

void *io__pages_alloc(size_t bytes, bool touch)
{
	size_t size = io_pages_round(bytes);
	size_t slack = touch && size >= IO_HUGE ? IO_HUGE : 0;
	char *p = mmap(NULL, size + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(p != MAP_FAILED);
	if (slack) {
		size_t head = (IO_HUGE - (uintptr_t)p % IO_HUGE) % IO_HUGE;

		if (head)
			CHECK(munmap(p, head) == 0);
		if (slack - head)
			CHECK(munmap(p + head + size, slack - head) == 0);
		p += head;
		(void)madvise(p, size, MADV_HUGEPAGE); /* only advice: kernels without huge pages refuse */
	}
	if (touch)
		io_pages_touch(p, size);
	return p;
}

void io__pages_free(void *buf, size_t bytes)
{
	CHECK(munmap(buf, io_pages_round(bytes)) == 0);
}
