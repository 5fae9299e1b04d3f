/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Logs forged frame by frame, so that every state a crash or a bad disk can leave is made on purpose: what is read, what is
 * cut, and what is refused.
 */
#include "common/base/limits.h"
#include "common/base/mem.h"
#include "common/base/rng.h"
#include "common/kv/wal_private.h"
#include "tests/lib/real_loop.h"
#include "tests/lib/unit.h"
#include <fcntl.h>
#include <inttypes.h>
#include <unistd.h>

enum { SEGMENT_BYTES = 1 << 20, SEGMENTS_MAX = 4, FRAMES_MAX = 128 };

/* The image of a log, and where its frames lie. */
struct forge {
	uint8_t *image[SEGMENTS_MAX]; /* of segment 1, 2 ... */
	uint64_t offset;
	struct wal_frame next; /* what the next frame will say */
	struct {
		uint64_t segment, offset, bytes, first_index;
		uint32_t entries;
	} frame[FRAMES_MAX];
	uint32_t frames;
};

struct bed {
	struct real_loop l;
	struct wal *wal;
	struct forge forge;
	uint64_t replayed; /* highest index; entries say their own */
	struct err err;
};

static void bed_init(struct bed *bed)
{
	memset(bed, 0, sizeof(*bed));
	real_loop_init(&bed->l);
	bed->forge.next = (struct wal_frame){.version = WAL_FRAME_PLAIN,
		.number = 1,
		.first_index = 1,
		.segment = 1,
		.segment_bytes = SEGMENT_BYTES,
		.log_id = "this log's name",
		.nonce = "nonce of epoch "};
}

static void bed_fini(struct bed *bed)
{
	for (int i = 0; i < SEGMENTS_MAX; i++)
		mem_free(bed->forge.image[i]);
	real_loop_fini(&bed->l);
}

static uint8_t *image(struct forge *f, uint64_t segment)
{
	if (!f->image[segment - 1])
		f->image[segment - 1] = mem_zalloc(SEGMENT_BYTES);
	return f->image[segment - 1];
}

/* Adds a frame where the writer would; its entries are `bytes` long and start with their index. */
static void add(struct forge *f, enum wal_frame_type type, uint32_t entries, size_t bytes, uint64_t mark)
{
	static uint8_t out[WAL_FRAME_MAX_BYTES], entry[LIMIT_LOG_ENTRY_BYTES];
	size_t body = 0, len;

	for (uint32_t i = 0; i < entries; i++) {
		uint64_t index = f->next.first_index + i;

		memset(entry, (int)index, bytes);
		memcpy(entry, &index, sizeof(index));
		body = wal_frame_put(WAL_FRAME_PLAIN, out, body, slice_of(entry, bytes));
	}
	len = wal_frame_bytes(WAL_FRAME_PLAIN, body);
	if (f->offset + len > SEGMENT_BYTES) {
		f->offset = 0;
		f->next.segment++;
	}
	f->next.type = (uint8_t)type;
	f->next.entry_count = entries;
	f->next.mark = mark;
	wal_frame_encode(out, body, &f->next);
	memcpy(image(f, f->next.segment) + f->offset, out, len);
	f->frame[f->frames].segment = f->next.segment;
	f->frame[f->frames].offset = f->offset;
	f->frame[f->frames].bytes = WAL_FRAME_PLAIN_HEADER_BYTES + body;
	f->frame[f->frames].first_index = f->next.first_index;
	f->frame[f->frames].entries = entries;
	f->frames++;
	f->offset += len;
	f->next.number++;
	f->next.prev_crc = f->next.crc;
	f->next.first_index += entries;
}

/* Flips a bit of frame `number`. */
static void flip(struct forge *f, uint32_t number, uint64_t at)
{
	image(f, f->frame[number - 1].segment)[f->frame[number - 1].offset + at] ^= 4;
}

static void segment_path(struct bed *bed, int segment, char path[96])
{
	snprintf(path, 96, "%s/log-%016x", bed->l.dir, (unsigned)segment);
}

static void write_files(struct bed *bed)
{
	char path[96];
	int fd;

	for (int i = 0; i < SEGMENTS_MAX; i++) {
		segment_path(bed, i + 1, path);
		(void)unlink(path);
		if (!bed->forge.image[i])
			continue;
		fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
		ck_assert_int_ge(fd, 0);
		ck_assert_int_eq(write(fd, bed->forge.image[i], SEGMENT_BYTES), SEGMENT_BYTES);
		close(fd);
	}
}

static void expect_untouched(struct bed *bed)
{
	uint8_t *now = mem_alloc(SEGMENT_BYTES);
	char path[96];
	int fd;

	for (int i = 0; i < SEGMENTS_MAX; i++) {
		segment_path(bed, i + 1, path);
		fd = open(path, O_RDONLY);
		if (!bed->forge.image[i]) {
			ck_assert_int_lt(fd, 0);
			continue;
		}
		ck_assert_int_eq(read(fd, now, SEGMENT_BYTES), SEGMENT_BYTES);
		ck_assert_int_eq(memcmp(now, bed->forge.image[i], SEGMENT_BYTES), 0);
		close(fd);
	}
	mem_free(now);
}

static int on_replay(void *ctx, uint64_t index, struct slice data, struct err *err)
{
	struct bed *bed = ctx;
	uint64_t said;

	(void)err;
	ck_assert_uint_eq(index, bed->replayed + 1);
	ck_assert_uint_ge(data.len, sizeof(said));
	memcpy(&said, data.data, sizeof(said));
	ck_assert_uint_eq(said, index);
	bed->replayed = index;
	return 0;
}

static int try_open(struct bed *bed)
{
	const struct wal_options options = {.dir = bed->l.dir, .buffered = bed->l.buffered};

	bed->replayed = 0;
	return wal_open(bed->l.io, &options, 1, on_replay, bed, &bed->wal, &bed->err);
}

/* Opens (as after a crash), and again (the start frame of the first open is there now): both must replay to `last`. */
static void expect_log_to(struct bed *bed, uint64_t last)
{
	for (int i = 0; i < 3; i++) {
		int rc = try_open(bed);

		ck_assert_msg(rc == 0, "%s", bed->err.text);
		ck_assert_uint_eq(bed->replayed, last);
		ck_assert_uint_eq(wal_next_index(bed->wal), last + 1);
		wal_abandon(bed->wal);
	}
}

static void expect_corrupt(struct bed *bed, uint32_t frame)
{
	char want[96];

	ck_assert_int_eq(try_open(bed), ERR_CORRUPT);
	snprintf(want, sizeof(want), "log-%016x: offset %" PRIu64 ":", (unsigned)bed->forge.frame[frame - 1].segment,
		bed->forge.frame[frame - 1].offset);
	ck_assert_msg(strstr(bed->err.text, want) != NULL, "%s", bed->err.text);
	snprintf(want, sizeof(want), "index %" PRIu64 " ", bed->forge.frame[frame - 1].first_index);
	ck_assert_msg(frame == 1 || strstr(bed->err.text, want) != NULL, "%s", bed->err.text);
	expect_untouched(bed);
}

/* Start, three entries, two entries; the log was written by somebody else's hand and is read. */
START_TEST(test_example)
{
	struct bed bed;

	bed_init(&bed);
	add(&bed.forge, WAL_FRAME_START, 0, 0, 0);
	add(&bed.forge, WAL_FRAME_ENTRIES, 3, 100, 1);
	add(&bed.forge, WAL_FRAME_ENTRIES, 2, 9000, 2);
	write_files(&bed);
	expect_log_to(&bed, 5);
	bed_fini(&bed);
}
END_TEST

/* Two writes were in flight and the first was torn: it and the whole one behind it are cut, and never come back. */
START_TEST(test_torn_tail)
{
	for (int torn_block = 0; torn_block < 3; torn_block++) {
		struct bed bed;

		bed_init(&bed);
		add(&bed.forge, WAL_FRAME_START, 0, 0, 0);
		add(&bed.forge, WAL_FRAME_ENTRIES, 2, 100, 1);
		add(&bed.forge, WAL_FRAME_ENTRIES, 1, 9000, 2);
		add(&bed.forge, WAL_FRAME_ENTRIES, 1, 100, 2);
		memset(image(&bed.forge, 1) + bed.forge.frame[2].offset + torn_block * WAL_FRAME_ALIGN, 0,
			WAL_FRAME_ALIGN);
		write_files(&bed);
		expect_log_to(&bed, 2);
		bed_fini(&bed);
	}
}
END_TEST

/* The same with a mark at the torn frame in the one behind it: that frame was durable once. */
START_TEST(test_corruption_is_not_a_torn_tail)
{
	struct bed bed;

	bed_init(&bed);
	add(&bed.forge, WAL_FRAME_START, 0, 0, 0);
	add(&bed.forge, WAL_FRAME_ENTRIES, 2, 100, 1);
	add(&bed.forge, WAL_FRAME_ENTRIES, 1, 9000, 2);
	add(&bed.forge, WAL_FRAME_ENTRIES, 1, 100, 3);
	flip(&bed.forge, 3, 5000);
	write_files(&bed);
	expect_corrupt(&bed, 3);
	bed_fini(&bed);
}
END_TEST

/* A long log over three segments and two epochs that ends in a mark: a flipped bit in any frame but the last is named. */
START_TEST(test_damage_anywhere)
{
	struct bed bed;
	struct rng rng;
	uint32_t last;

	rng_init(&rng, 3);
	bed_init(&bed);
	add(&bed.forge, WAL_FRAME_START, 0, 0, 0);
	for (uint32_t i = 0; i < 20; i++) {
		if (i == 7) {
			memset(bed.forge.next.nonce, 9, WAL_ID_BYTES);
			add(&bed.forge, WAL_FRAME_START, 0, 0, bed.forge.next.number - 1);
		}
		add(&bed.forge, WAL_FRAME_ENTRIES, 1 + i % 3, i % 2 ? 60000 : 100, bed.forge.next.number - 1 - i % 2);
	}
	add(&bed.forge, WAL_FRAME_MARK, 0, 0, bed.forge.next.number - 1);
	last = bed.forge.frames;
	ck_assert_uint_eq(bed.forge.next.segment, 2);
	image(&bed.forge, 3); /* a ready one */
	for (uint32_t n = 1; n <= last; n++) {
		uint64_t at = rng_chance(&rng, 1, 2) ? rng_below(&rng, WAL_FRAME_PLAIN_HEADER_BYTES)
						     : rng_below(&rng, bed.forge.frame[n - 1].bytes);

		flip(&bed.forge, n, at);
		write_files(&bed);
		if (n < last)
			expect_corrupt(&bed, n);
		else
			expect_log_to(&bed, bed.forge.next.first_index - 1); /* of a mark nothing is lost */
		flip(&bed.forge, n, at);
	}
	write_files(&bed);
	expect_log_to(&bed, bed.forge.next.first_index - 1);
	bed_fini(&bed);
}
END_TEST

/* A whole stretch of the log is gone, up to a whole segment. */
START_TEST(test_lost_stretch)
{
	struct bed bed;
	char path[96];

	bed_init(&bed);
	add(&bed.forge, WAL_FRAME_START, 0, 0, 0);
	for (uint32_t i = 0; i < 12; i++)
		add(&bed.forge, WAL_FRAME_ENTRIES, 1, 200000, bed.forge.next.number - 1);
	ck_assert_uint_eq(bed.forge.next.segment, 3);
	write_files(&bed);
	segment_path(&bed, 2, path);
	ck_assert_int_eq(unlink(path), 0);
	ck_assert_int_eq(try_open(&bed), ERR_CORRUPT);
	write_files(&bed);
	segment_path(&bed, 1, path);
	ck_assert_int_eq(truncate(path, SEGMENT_BYTES - WAL_FRAME_ALIGN), 0);
	ck_assert_int_eq(try_open(&bed), ERR_CORRUPT);
	ck_assert_ptr_nonnull(strstr(bed.err.text, path));
	memset(image(&bed.forge, 1) + bed.forge.frame[1].offset, 0, SEGMENT_BYTES - WAL_FRAME_ALIGN);
	write_files(&bed);
	expect_corrupt(&bed, 2);
	bed_fini(&bed);
}
END_TEST

/* An intact frame with one thing wrong does not continue the log: here each is what only that check can tell. */
START_TEST(test_what_continues_a_log)
{
	for (int wrong = 0; wrong <= 7; wrong++) {
		struct wal_frame *next;
		struct bed bed;

		bed_init(&bed);
		next = &bed.forge.next;
		add(&bed.forge, WAL_FRAME_START, 0, 0, 0);
		add(&bed.forge, WAL_FRAME_ENTRIES, 2, 100, 1);
		switch (wrong) {
		case 1:
			next->number++;
			break;
		case 2:
			next->prev_crc++;
			break;
		case 3:
			next->nonce[15]++;
			break;
		case 4:
			next->log_id[0]++;
			break;
		case 5:
			next->segment_bytes += WAL_FRAME_ALIGN;
			break;
		case 6: { /* the image of a segment that was renamed */
			uint64_t segment = next->segment;
			uint8_t *here = image(&bed.forge, segment);

			next->segment = 2;
			add(&bed.forge, WAL_FRAME_ENTRIES, 1, 100, 1);
			memcpy(here + bed.forge.offset - WAL_FRAME_ALIGN,
				image(&bed.forge, 2) + bed.forge.offset - WAL_FRAME_ALIGN, WAL_FRAME_ALIGN);
			mem_free(bed.forge.image[1]);
			bed.forge.image[1] = NULL;
			break;
		}
		case 7:
			next->first_index++;
			break;
		}
		if (wrong != 6)
			add(&bed.forge, WAL_FRAME_ENTRIES, 1, 100, 1);
		write_files(&bed);
		expect_log_to(&bed, wrong ? 2 : 3);
		bed_fini(&bed);
	}
}
END_TEST

/*
 * A tail is cut; the new epoch's start frame takes the place of the first bad frame, and right behind it lies a whole frame of
 * the old epoch with the number, index and mark that the next one would have.
 */
START_TEST(test_stale_frame_behind_a_cut)
{
	struct bed bed;

	bed_init(&bed);
	add(&bed.forge, WAL_FRAME_START, 0, 0, 0);
	add(&bed.forge, WAL_FRAME_ENTRIES, 1, 100, 1);
	add(&bed.forge, WAL_FRAME_MARK, 0, 0, 2);
	add(&bed.forge, WAL_FRAME_ENTRIES, 1, 100, 2);
	flip(&bed.forge, 3, 16);
	write_files(&bed);
	expect_log_to(&bed, 1);
	bed_fini(&bed);
}
END_TEST

/* An entry that contains the image of a frame with a high mark: no proof of anything, as it cannot know the log's id. */
START_TEST(test_forged_proof_in_an_entry)
{
	static uint8_t block[WAL_FRAME_ALIGN];
	struct bed bed;
	struct wal_frame forged;

	bed_init(&bed);
	add(&bed.forge, WAL_FRAME_START, 0, 0, 0);
	add(&bed.forge, WAL_FRAME_ENTRIES, 1, 100, 1);
	add(&bed.forge, WAL_FRAME_ENTRIES, 1, 20000, 2);
	forged = bed.forge.next;
	memset(forged.log_id, 0, WAL_ID_BYTES);
	forged.type = WAL_FRAME_MARK;
	forged.entry_count = 0;
	forged.number = 1000;
	forged.mark = 999;
	wal_frame_encode(block, 0, &forged);
	memcpy(image(&bed.forge, 1) + bed.forge.frame[2].offset + WAL_FRAME_ALIGN, block, WAL_FRAME_ALIGN);
	write_files(&bed);
	expect_log_to(&bed, 1); /* the third frame is torn, as its CRC does not fit; nothing says that it was durable */
	bed_fini(&bed);
}
END_TEST

/* A segment that ends to the last byte in a frame, and one in which the next frame did not fit. */
START_TEST(test_segment_ends)
{
	for (int i = 0; i < 2; i++) {
		struct bed bed;

		bed_init(&bed);
		add(&bed.forge, WAL_FRAME_START, 0, 0, 0);
		for (int n = 0; n < 3; n++)
			add(&bed.forge, WAL_FRAME_ENTRIES, 1, 250000, bed.forge.next.number - 1);
		while (bed.forge.offset + WAL_FRAME_ALIGN * (i ? 3 : 0) < SEGMENT_BYTES)
			add(&bed.forge, WAL_FRAME_ENTRIES, 1, 100, bed.forge.next.number - 1);
		write_files(&bed);
		expect_log_to(&bed, bed.forge.next.first_index - 1); /* the start frames go on in a new segment */
		add(&bed.forge, WAL_FRAME_ENTRIES, 1, 250000, bed.forge.next.number - 1);
		ck_assert_uint_eq(bed.forge.next.segment, 2);
		write_files(&bed);
		expect_log_to(&bed, bed.forge.next.first_index - 1);
		bed_fini(&bed);
	}
}
END_TEST

/* What is in the directory beside the log does not matter; an unfinished segment is made anew. */
START_TEST(test_other_files)
{
	static const char *const names[] = {
		"log-new", "log-1", "log-000000000000000G", "log-00000000000000010", "other"};
	struct bed bed;
	char path[96];

	bed_init(&bed);
	add(&bed.forge, WAL_FRAME_START, 0, 0, 0);
	add(&bed.forge, WAL_FRAME_ENTRIES, 2, 100, 1);
	write_files(&bed);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		snprintf(path, sizeof(path), "%s/%s", bed.l.dir, names[i]);
		ck_assert_int_eq(io_write_file(bed.l.io, path, "x", 1, 0600), 0);
	}
	expect_log_to(&bed, 2);
	bed_fini(&bed);
}
END_TEST

UNIT_MAIN("wal_recover", test_example, test_torn_tail, test_corruption_is_not_a_torn_tail, test_damage_anywhere,
	test_lost_stretch, test_what_continues_a_log, test_stale_frame_behind_a_cut, test_forged_proof_in_an_entry,
	test_segment_ends, test_other_files)
