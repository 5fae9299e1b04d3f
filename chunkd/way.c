/* SPDX-License-Identifier: Apache-2.0 */
#include "chunkd/way.h"

#include "common/base/err.h"
#include "common/base/mem.h"

void way_init(struct way *way, struct io *io, const char *path, uint64_t bytes_per_s, uint64_t memory_bytes, const struct log *log)
{
	int rc;

	*way = (struct way){.word = {.io = io, .fd = -1}, .bytes_per_s = bytes_per_s, .most_held_bytes = memory_bytes / 4};
	if (!path || !bytes_per_s)
		return;
	way->path = mem_strdup(path);
	rc = io_word_open(&way->word, io, way->path);
	if (rc < 0)
		log_line(log, LOG_WARN, "no-way", "path=%s error=%s text=\"till it can be opened bulk writes make no way for a metad of this host\"", path, err_name(rc));
}

void way_fini(struct way *way)
{
	io_word_close(&way->word);
	mem_free(way->path);
	way->path = NULL;
}

bool way_asked(struct way *way)
{
	uint64_t now_ns;

	if (!way->word.path)
		return false;
	now_ns = io_now_ns(way->word.io);
	if (now_ns - way->looked_ns >= WAY_LOOK_NS) {
		way->looked_ns = now_ns;
		way->asked = io_word_heard(&way->word, WAY_HEARD_NS);
	}
	return way->asked;
}
