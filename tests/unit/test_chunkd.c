/* SPDX-License-Identifier: Apache-2.0 */
/* A chunk server spoken to over connections, registered with a real metad, on simulated hosts. */
#include "chunkd/daemon.h"
#include "chunkd/probe.h"
#include "metad/core.h"
#include "tests/lib/chunkd_bed.h"
#include "tests/lib/unit.h"

static const uint64_t SECOND_NS = 1000000000;

START_TEST(test_put_get_lists_stat_receipt)
{
	struct token w = good_token(5, TOKEN_WRITE), r = good_token(5, TOKEN_READ);
	Craton__ListsRequest lists = CRATON__LISTS_REQUEST__INIT;
	Craton__StatRequest stat = CRATON__STAT_REQUEST__INIT;
	Craton__Copy copy;
	uint8_t mac[TOKEN_MAC_BYTES];
	uint64_t generation;

	bed_open(1);
	w = good_token(5, TOKEN_WRITE);
	r = good_token(5, TOKEN_READ);
	copy = copy_of(5);
	ck_assert_int_eq(receipt_of(&w, copy), ERR_NOT_SEALED);
	ck_assert_int_eq(get_one(&r, copy, 0, 1), ERR_NOENT);
	ck_assert_int_eq(put_one(&w, copy, DATA_BYTES, true), 0);
	ck_assert_uint_eq(((Craton__PutReply *)b->m.reply)->mac.len, TOKEN_MAC_BYTES);
	memcpy(mac, ((Craton__PutReply *)b->m.reply)->mac.data, TOKEN_MAC_BYTES);
	generation = ((Craton__PutReply *)b->m.reply)->generation;
	ck_assert_uint_eq(generation, 1);
	ck_assert_int_eq(receipt_of(&w, copy), 0);
	ck_assert_mem_eq(((Craton__PutReply *)b->m.reply)->mac.data, mac, TOKEN_MAC_BYTES);

	r.index = TOKEN_INDEX_ANY;
	r.disk = 0;
	ck_assert_int_eq(get_one(&r, copy, 0, UINT64_MAX), 0);
	ck_assert_uint_eq(b->got_bytes, DATA_BYTES);
	ck_assert_mem_eq(b->got, b->data, DATA_BYTES);
	ck_assert_uint_eq(((Craton__GetPart *)b->m.reply)->chunk_length, DATA_BYTES);
	ck_assert_mem_eq(((Craton__GetPart *)b->m.reply)->list.data, b->crcs, sizeof(b->crcs));
	ck_assert_int_eq(get_one(&r, copy, LIMIT_UNIT_BYTES, LIMIT_UNIT_BYTES), 0);
	ck_assert_uint_eq(b->got_bytes, LIMIT_UNIT_BYTES);
	ck_assert_mem_eq(b->got + LIMIT_UNIT_BYTES, b->data + LIMIT_UNIT_BYTES, LIMIT_UNIT_BYTES);
	ck_assert_int_eq(get_one(&r, copy, 1, 100), ERR_INVAL);
	ck_assert_int_eq(get_one(&r, copy, 7 * LIMIT_UNIT_BYTES, 100), ERR_RANGE);

	lists.token = seal_token(&r);
	lists.copy = &copy;
	ck_assert_int_eq(call(&rpc_chunkd_lists, &lists.base, NULL, 0), 0);
	ck_assert_uint_eq(((Craton__ListsReply *)b->m.reply)->n_lists, 1);
	ck_assert_mem_eq(((Craton__ListsReply *)b->m.reply)->lists[0]->crcs.data, b->crcs, sizeof(b->crcs));
	stat.token = seal_token(&r);
	stat.copy = &copy;
	ck_assert_int_eq(call(&rpc_chunkd_stat, &stat.base, NULL, 0), 0);
	ck_assert_uint_eq(((Craton__StatReply *)b->m.reply)->length, DATA_BYTES);
	ck_assert_str_eq(((Craton__StatReply *)b->m.reply)->segment, "/disk/segments/00000000-medium");
	ck_assert(!((Craton__StatReply *)b->m.reply)->trailer_bad);

	/* Stopped and started again: another generation, the same chunk. */
	stop_chunkd();
	start_chunkd((const char *)b->m.options.secret);
	wait_registered();
	ck_assert_int_eq(receipt_of(&w, copy), 0);
	ck_assert_uint_eq(((Craton__PutReply *)b->m.reply)->generation, 2);
	ck_assert(memcmp(((Craton__PutReply *)b->m.reply)->mac.data, mac, TOKEN_MAC_BYTES) != 0);
	ck_assert_int_eq(get_one(&r, copy, 0, DATA_BYTES), 0);
	ck_assert_mem_eq(b->got, b->data, DATA_BYTES);
	bed_close();
}
END_TEST

START_TEST(test_tokens)
{
	struct token good, t;
	Craton__Copy copy, other;

	bed_open(2);
	good = good_token(6, TOKEN_WRITE);
	copy = copy_of(6);
#define REFUSED(code, change)                                                 \
	do {                                                                  \
		t = good;                                                     \
		other = copy;                                                 \
		change;                                                       \
		ck_assert_int_eq(put_one(&t, other, DATA_BYTES, true), code); \
	} while (0)
	REFUSED(ERR_TOKEN, t.block = 7);
	REFUSED(ERR_TOKEN, t.index = 1);
	REFUSED(ERR_TOKEN, t.incarnation = 5);
	REFUSED(ERR_TOKEN, t.disk = 2);
	REFUSED(ERR_TOKEN, t.disk = 0);
	REFUSED(ERR_TOKEN, t.rights = TOKEN_READ);
	REFUSED(ERR_TOKEN, t.max_chunk_bytes = DATA_BYTES - 1);
	REFUSED(ERR_TOKEN, t.expires_ms = 0);
	REFUSED(ERR_INVAL, t.policy = 99);
	REFUSED(ERR_INVAL, t.index = TOKEN_INDEX_ANY; other.index = 15);
	REFUSED(ERR_INVAL, t.index = TOKEN_INDEX_ANY; other.index = 3); /* rs-1-2 has three chunks */
	REFUSED(ERR_NOENT, t.disk = other.disk = 77);
	ck_assert_int_eq(put_one(&good, copy, DATA_BYTES, true), 0);
	t = good;
	ck_assert_int_eq(get_one(&t, copy, 0, 1), ERR_TOKEN);
	t.rights = TOKEN_READ;
	ck_assert_int_eq(receipt_of(&t, copy), ERR_TOKEN);
	ck_assert_int_eq(get_one(&t, copy, 0, 1), 0);
	/* Another key under the same id. */
	b->m.token_keys[0].key.outer.h[5] ^= 1;
	ck_assert_int_eq(get_one(&t, copy, 0, 1), ERR_TOKEN);
	b->m.token_keys[0].key.outer.h[5] ^= 1;
	/* State time goes on here between heartbeats too. */
	t.expires_ms = b->m.state_ms + 5000;
	ck_assert_int_eq(get_one(&t, copy, 0, 1), 0);
	metad_bed_sleep(&b->m, 10 * 1000);
	ck_assert_int_eq(get_one(&t, copy, 0, 1), ERR_TOKEN);
	ck_assert_uint_eq(b->chunkd->refused.of[REFUSED_TOKEN].count, 1);
	ck_assert_uint_eq(b->chunkd->refused.of[REFUSED_TOKEN_OTHER].count, 9);
	ck_assert_uint_eq(b->chunkd->refused.of[REFUSED_TOKEN_EXPIRED].count, 2);
	/* But it stands still while metad is away: what was counted here meanwhile is taken back. */
	metad_bed_stop(&b->m);
	metad_bed_sleep(&b->m, 2 * 3600 * 1000);
	metad_bed_start(&b->m);
	metad_bed_sleep(&b->m, 30 * 1000);
	t.expires_ms = bed_status(&b->m)->state_time_ms + 60 * 1000;
	ck_assert_int_eq(get_one(&t, copy, 0, 1), 0);
	bed_close();
}
END_TEST

START_TEST(test_requests_without_sense)
{
	Craton__PutRequest put = CRATON__PUT_REQUEST__INIT;
	Craton__GetRequest get = CRATON__GET_REQUEST__INIT;
	Craton__DropUploadRequest drop = CRATON__DROP_UPLOAD_REQUEST__INIT;
	struct token t;
	Craton__Copy copy;

	bed_open(3);
	t = good_token(8, TOKEN_WRITE);
	copy = copy_of(8);
	ck_assert_int_eq(call(&rpc_chunkd_put, &put.base, NULL, 0), ERR_INVAL);
	ck_assert_int_eq(call(&rpc_chunkd_put, &put.base, b->data, 100), ERR_INVAL);
	ck_assert_int_eq(call(&rpc_chunkd_get, &get.base, NULL, 0), ERR_INVAL);
	put.token = seal_token(&t);
	put.copy = &copy;
	put.announced_bytes = 100;
	ck_assert_int_eq(call(&rpc_chunkd_put, &put.base, b->data, 100), ERR_INVAL); /* no CRCs */
	ck_assert_int_eq(call(&rpc_chunkd_put, &put.base, NULL, 0), ERR_INVAL);
	/* Bytes that are not what their CRCs say. */
	put.unit_crcs = bed_bytes("abcd", 4);
	ck_assert_int_eq(call(&rpc_chunkd_put, &put.base, b->data, 100), ERR_CORRUPT);
	/* Left open, then given up: the next one starts anew. */
	ck_assert_int_eq(put_one(&t, copy, 2 * LIMIT_UNIT_BYTES, false), 0);
	ck_assert_int_eq(receipt_of(&t, copy), ERR_NOT_SEALED);
	drop.token = seal_token(&t);
	drop.copy = &copy;
	ck_assert_int_eq(call(&rpc_chunkd_drop_upload, &drop.base, NULL, 0), 0);
	ck_assert_int_eq(call(&rpc_chunkd_drop_upload, &drop.base, NULL, 0), 0);
	ck_assert_int_eq(put_one(&t, copy, DATA_BYTES, true), 0);
	bed_close();
}
END_TEST

START_TEST(test_metad_comes_and_goes)
{
	struct token t;

	bed_open(4);
	metad_bed_restart(&b->m);
	metad_bed_sleep(&b->m, 20 * 1000);
	ck_assert_int_eq(b->fatal, 0);
	(void)bed_lookup_path(&b->m, "", 0); /* the client's host slept: its clock is of then until its loop turns */
	ck_assert_int_eq(bed_register(&b->m, 1, b->m.options.secret), 0);
	t = good_token(9, TOKEN_WRITE);
	ck_assert_int_eq(put_one(&t, copy_of(9), DATA_BYTES, true), 0);
	/* Without metad what is there goes on working, as long as tokens live; and a stop does not wait for it. */
	metad_bed_stop(&b->m);
	metad_bed_sleep(&b->m, 5 * 1000);
	t = good_token(10, TOKEN_WRITE);
	ck_assert_int_eq(put_one(&t, copy_of(10), DATA_BYTES, true), 0);
	bed_close();
}
END_TEST

START_TEST(test_crash_of_the_host)
{
	struct token t, r;

	bed_open(5);
	t = good_token(11, TOKEN_WRITE);
	r = good_token(11, TOKEN_READ);
	ck_assert_int_eq(put_one(&t, copy_of(11), DATA_BYTES, true), 0);
	sim_host_crash(b->host);
	ck_assert_int_lt(get_one(&r, copy_of(11), 0, DATA_BYTES), 0);
	sim_host_restart(b->host);
	start_chunkd((const char *)b->m.options.secret);
	wait_registered();
	ck_assert_int_eq(get_one(&r, copy_of(11), 0, DATA_BYTES), 0);
	ck_assert_mem_eq(b->got, b->data, DATA_BYTES);
	bed_close();
}
END_TEST

static uint64_t odd_number(void)
{
	static const uint64_t base[] = {0, 1, LIMIT_UNIT_BYTES, 5 * LIMIT_UNIT_BYTES, DATA_BYTES, LIMIT_CELL_BYTES,
		4 << 20, LIMIT_CHUNK_BYTES, 10ull * LIMIT_CHUNK_BYTES, UINT32_MAX, 1ull << 32, 1ull << 63, UINT64_MAX};
	uint64_t r = sim_random(b->m.sim);

	return base[r % ARRAY_COUNT(base)] + r / 100 % 3 - 1;
}

/* Numbers at every edge, in requests whose token and checksums are right: an answer each time, and the server goes on. */
static int odd_put(uint64_t block)
{
	static uint8_t lists[LIMIT_TRAILER_BYTES + 4];
	Craton__PutRequest req = CRATON__PUT_REQUEST__INIT;
	Craton__Seal s = CRATON__SEAL__INIT;
	uint64_t r = sim_random(b->m.sim);
	uint32_t len = (uint32_t)(odd_number() % (DATA_BYTES + 1));
	struct token t = good_token(block, TOKEN_WRITE | TOKEN_READ);
	Craton__Copy copy = copy_of(block);

	t.max_chunk_bytes = UINT64_MAX;
	t.index = TOKEN_INDEX_ANY;
	t.policy = r % 4 ? POLICY_COPIES : (uint8_t)(r / 4 % 9);
	copy.index = (uint32_t)(r / 64 % (r % 4 ? 3 : LIMIT_WIDTH));
	req.token = seal_token(&t);
	req.copy = &copy;
	req.offset = r % 3 ? 0 : odd_number();
	req.announced_bytes = r % 5 ? DATA_BYTES : odd_number();
	ec_unit_crcs(b->data, len, b->crcs);
	stripe_mask_units(
		block, (uint8_t)copy.index, (uint32_t)(req.offset / LIMIT_UNIT_BYTES), stripe_unit_count(len), b->crcs);
	req.unit_crcs = bed_bytes(b->crcs, r % 7 ? stripe_unit_count(len) * 4 : sizeof(b->crcs));
	r = sim_random(b->m.sim);
	s.length = r % 8 ? req.offset + len : odd_number();
	s.block_length = r / 8 % 8 ? s.length : odd_number();
	s.chunk_crc = r / 64 % 8 ? crc32c(b->data, len) : 77;
	s.cell_bytes = r / 512 % 8 ? LIMIT_CELL_BYTES : (uint32_t)odd_number();
	s.data_lists = copy.index ? req.unit_crcs : bed_bytes(lists, 0);
	if (r / 4096 % 8 == 0)
		s.data_lists = bed_bytes(lists, odd_number() % sizeof(lists));
	if (r / 32768 % 4)
		req.seal = &s;
	return call(&rpc_chunkd_put, &req.base, b->data, len);
}

START_TEST(test_odd_numbers)
{
	uint32_t sealed = 0, taken = 0;
	Craton__Copy copy;
	struct token t;

	bed_open(8);
	for (uint64_t i = 0; i < 3000; i++) {
		int code = odd_put(100 + i % 50);

		taken += code == 0;
		sealed += code == 0 && ((Craton__PutReply *)b->m.reply)->mac.len > 0;
		ck_assert_int_ne(code, ERR_CONNRESET);
		ck_assert_int_ne(code, ERR_DISK_FAILED);
		t = good_token(100 + i % 50, TOKEN_READ);
		copy = copy_of(100 + i % 50);
		if (get_one(&t, copy, odd_number(), 0) == 0 ||
			(i % 8 == 0 && get_one(&t, copy, odd_number(), odd_number()) == 0))
			ck_assert_uint_gt(b->got_bytes, 0);
	}
	ck_assert_uint_gt(sealed, 10);
	ck_assert_uint_gt(taken, sealed);
	ck_assert_int_eq(b->fatal, 0);
	t = good_token(9, TOKEN_WRITE);
	ck_assert_int_eq(put_one(&t, copy_of(9), DATA_BYTES, true), 0);
	bed_close();
}
END_TEST

/* A file system that is full at the start: the disk waits for room, it has not failed. */
START_TEST(test_no_space_for_the_superblock)
{
	struct token t, r;

	bed_open(7);
	t = good_token(12, TOKEN_WRITE);
	r = good_token(12, TOKEN_READ);
	ck_assert_int_eq(put_one(&t, copy_of(12), DATA_BYTES, true), 0);
	stop_chunkd();
	start_chunkd((const char *)b->m.options.secret);
	sim_fault_after(b->host, SIM_FAULT_WRITE, 1, ERR_NOSPC);
	metad_bed_sleep(&b->m, 1000);
	sim_fault_after(b->host, SIM_FAULT_WRITE, 0, 0);
	wait_registered();
	ck_assert_int_eq(receipt_of(&t, copy_of(12)), 0);
	ck_assert_uint_eq(((Craton__PutReply *)b->m.reply)->generation, 2);
	ck_assert_int_eq(get_one(&r, copy_of(12), 0, DATA_BYTES), 0);
	t = good_token(13, TOKEN_WRITE);
	ck_assert_int_eq(put_one(&t, copy_of(13), DATA_BYTES, true), 0);
	bed_close();
}
END_TEST

struct beats {
	uint64_t last_ns;
	unsigned count;
};

static bool count_beats(void *ctx)
{
	uint64_t heard_ns = b->m.md->servers[1].heard_ns;
	struct beats *beats = ctx;

	beats->count += heard_ns != beats->last_ns;
	beats->last_ns = heard_ns;
	return false;
}

/* A file system that stays full: each heartbeat tries once more, and none comes sooner for that it was in vain. */
START_TEST(test_heartbeats_beside_a_full_file_system)
{
	struct beats beats = {0};
	uint64_t end_ns;

	bed_open(8);
	stop_chunkd();
	start_chunkd((const char *)b->m.options.secret);
	end_ns = sim_now_ns(b->m.sim) + 20 * b->m.heartbeat_ms * 1000000ull;
	while (sim_now_ns(b->m.sim) < end_ns) {
		sim_fault_after(b->host, SIM_FAULT_SYNC, 1, ERR_NOSPC);
		sim_dir_stall(b->host, "/disk", SECOND_NS / 50); /* it says no later than metad answers, mostly */
		sim_run(b->m.sim, count_beats, &beats, sim_now_ns(b->m.sim) + SECOND_NS / 40);
	}
	ck_assert_uint_ge(beats.count, 15);
	ck_assert_uint_le(beats.count, 25);
	sim_fault_after(b->host, SIM_FAULT_SYNC, 0, 0);
	wait_registered();
	bed_close();
}
END_TEST

static const char *reason_text(const Craton__StatusReply *status, const char *code)
{
	for (size_t i = 0; i < status->n_reasons; i++)
		if (!strcmp(status->reasons[i]->code, code))
			return status->reasons[i]->text;
	return "";
}

/* Segments that cannot be made: metad counts no room on the disk, says why, and both pass by themselves. */
START_TEST(test_segments_that_cannot_be_made)
{
	static const char in_the_way[] = "/disk/segments/new-00000000-medium";
	struct token t;

	bed_open(14);
	t = good_token(12, TOKEN_WRITE);
	ck_assert_int_eq(io_mkdir(b->host, in_the_way, 0700), 0);
	ck_assert_int_eq(put_one(&t, copy_of(12), DATA_BYTES, true), ERR_OVERLOADED);
	metad_bed_sleep(&b->m, 500);
	ck_assert_int_eq(put_one(&t, copy_of(12), DATA_BYTES, true), ERR_NO_EXTENT);
	metad_bed_silence(&b->m, 2000);
	ck_assert_ptr_nonnull(strstr(reason_text(bed_status(&b->m), "disk-stuck"), "segments cannot be made"));
	ck_assert_str_eq(reason_text(bed_status(&b->m), "disk-full"), "");
	ck_assert_ptr_nonnull(strstr(bed_status(&b->m)->disks[0]->error, "segments cannot be made"));
	ck_assert_str_eq(bed_status(&b->m)->disks[0]->state, "up");
	ck_assert_uint_eq(bed_status(&b->m)->disks[0]->free_bytes, 0);
	ck_assert_int_eq(io_rename(b->host, in_the_way, "/disk/away"), 0);
	metad_bed_silence(&b->m, 20 * 1000);
	ck_assert_str_eq(reason_text(bed_status(&b->m), "disk-stuck"), "");
	ck_assert_uint_gt(bed_status(&b->m)->disks[0]->free_bytes, 0);
	ck_assert_int_eq(put_one(&t, copy_of(12), DATA_BYTES, true), 0);
	bed_close();
}
END_TEST

static bool disk_is_failed(void *ctx)
{
	(void)ctx;
	return !strcmp(bed_status(&b->m)->disks[0]->state, "failed");
}

/* The one disk cannot take its new generation in: metad hears that it failed, it does not just stay down. */
START_TEST(test_superblock_that_cannot_be_written_is_told)
{
	bed_open(9);
	stop_chunkd();
	sim_fault_after(b->host, SIM_FAULT_WRITE, 0, 0);
	start_chunkd((const char *)b->m.options.secret);
	sim_fault_after(b->host, SIM_FAULT_WRITE, 1, ERR_IO);
	for (int i = 0; i < 30 && !disk_is_failed(NULL); i++)
		metad_bed_sleep(&b->m, 1000);
	ck_assert_str_eq(bed_status(&b->m)->disks[0]->state, "failed");
	ck_assert_uint_eq(bed_status(&b->m)->disks[0]->generation, 2); /* it does not register again and again */
	ck_assert_ptr_nonnull(strstr(reason_text(bed_status(&b->m), "disk-failed"), "superblock"));
	/* It still says 1, and is let in: that it was told 2 is not that it knows 2. */
	sim_fault_after(b->host, SIM_FAULT_WRITE, 0, 0);
	stop_chunkd();
	start_chunkd((const char *)b->m.options.secret);
	wait_registered();
	ck_assert_str_eq(bed_status(&b->m)->disks[0]->state, "up");
	bed_close();
}
END_TEST

static bool is_failed_within(uint32_t seconds)
{
	for (uint32_t i = 0; i < seconds && !disk_is_failed(NULL); i++)
		metad_bed_silence(&b->m, 1000);
	return disk_is_failed(NULL);
}

/* Nobody writes to it, nobody reads it: it is gone all the same. */
START_TEST(test_idle_disk_that_is_gone)
{
	bed_open(13);
	sim_disk_full(b->host, true); /* which is no reason, and the first write needs room */
	ck_assert(!is_failed_within(60));
	sim_disk_full(b->host, false);
	sim_dir_fail(b->host, "/disk", ERR_IO); /* for a moment */
	ck_assert(!is_failed_within(25));
	sim_dir_fail(b->host, NULL, 0);
	ck_assert(!is_failed_within(60));
	sim_dir_fail(b->host, "/disk", ERR_IO);
	ck_assert(!is_failed_within(25));
	ck_assert(is_failed_within(25));
	ck_assert_ptr_nonnull(strstr(reason_text(bed_status(&b->m), "disk-failed"), "whether it is there, failed"));
	sim_dir_fail(b->host, NULL, 0);
	stop_chunkd();
	start_chunkd((const char *)b->m.options.secret);
	b->m.done = false;
	wait_registered();
	ck_assert(!is_failed_within(30));
	bed_close();
}
END_TEST

/* The only one: nothing tells its silence from that of all that lies below it, and a disk that failed needs a person. */
START_TEST(test_idle_disk_that_does_not_answer)
{
	struct token t;

	bed_open(14);
	sim_disk_stall(b->host, 45 * SECOND_NS); /* slow is not gone */
	ck_assert(!is_failed_within(120));
	t = good_token(9, TOKEN_WRITE);
	t.expires_ms = bed_status(&b->m)->state_time_ms + 60 * 1000;
	ck_assert_int_eq(put_one(&t, copy_of(9), DATA_BYTES, true), 0);
	sim_disk_stall(b->host, 400 * SECOND_NS);
	ck_assert(is_failed_within(350));
	ck_assert_ptr_nonnull(strstr(reason_text(bed_status(&b->m), "disk-failed"), "does not end"));
	metad_bed_silence(&b->m, 200 * 1000);
	bed_close();
}
END_TEST

/* A chunk server with a disk more, of a host of its own. */
static void open_two(uint64_t seed)
{
	static const char *const two[] = {"/disk", "/other"};
	struct err err = {0};

	bed_open(seed);
	stop_chunkd();
	ck_assert_int_eq(io_mkdir(b->host, "/other", 0755), 0);
	ck_assert_int_eq(try_start((const char *)b->m.options.secret, two, 2, &err), 0);
	wait_registered();
}

/* Two disks that do not answer may wait for the same thing below them. */
START_TEST(test_idle_disks_that_do_not_answer)
{
	open_two(16);
	sim_disk_stall(b->host, 200 * SECOND_NS);
	ck_assert(!is_failed_within(250));
	sim_disk_stall(b->host, 400 * SECOND_NS);
	ck_assert(is_failed_within(350));
	metad_bed_silence(&b->m, 200 * 1000);
	bed_close();
	ck_assert(!probe_says_gone(PROBE_GONE_MS - 1, true) && probe_says_gone(PROBE_GONE_MS, true));
	ck_assert(!probe_says_gone(PROBE_ALL_GONE_MS - 1, false) && probe_says_gone(PROBE_ALL_GONE_MS, false));
}
END_TEST

/* One of two that does not answer while the other one does. */
START_TEST(test_one_of_two_does_not_answer)
{
	open_two(17);
	sim_dir_stall(b->host, "/other", 3600 * SECOND_NS);
	metad_bed_silence(&b->m, 60 * 1000);
	ck_assert_int_eq(b->chunkd->disks[0]->failed, 0);
	ck_assert_int_eq(b->chunkd->disks[1]->failed, ERR_TIMEDOUT);
	metad_bed_silence(&b->m, 3600 * 1000);
	bed_close();
}
END_TEST

/* The one that is left of two is judged as an only one. */
START_TEST(test_second_of_two_does_not_answer)
{
	open_two(18);
	sim_dir_fail(b->host, "/other", ERR_IO);
	metad_bed_silence(&b->m, 90 * 1000);
	sim_dir_fail(b->host, NULL, 0);
	ck_assert_int_eq(b->chunkd->disks[1]->failed, ERR_IO);
	sim_disk_stall(b->host, 60 * SECOND_NS);
	metad_bed_silence(&b->m, 120 * 1000);
	ck_assert_int_eq(b->chunkd->disks[0]->failed, 0);
	bed_close();
}
END_TEST

/* As metad has the disk of that directory. */
static Craton__DiskStatus *disk_row(const char *path)
{
	const Craton__StatusReply *status = bed_status(&b->m);

	for (size_t i = 0; i < status->n_disks; i++)
		if (!strcmp(status->disks[i]->path, path))
			return status->disks[i];
	ck_abort_msg("metad knows no disk %s", path);
}

/* metad was away, or took the server for dead: its disks register again. */
static void register_again(void)
{
	sim_cut(b->host, b->m.server_io);
	metad_bed_silence(&b->m, 60 * 1000);
	sim_heal(b->host, b->m.server_io);
	metad_bed_silence(&b->m, 60 * 1000);
}

/* A disk that failed, for hanging, takes part in a registration; nothing is written to it for that, and nobody waits for it. */
START_TEST(test_hung_disk_registers_again)
{
	const struct state_disk *row;
	uint64_t generation, out_ms;

	open_two(20);
	sim_dir_stall(b->host, "/other", 24 * 3600 * SECOND_NS);
	metad_bed_silence(&b->m, 60 * 1000);
	ck_assert_str_eq(disk_row("/other")->state, "failed");
	generation = disk_row("/other")->generation;
	row = state_disk_at(&b->m.md->state, disk_row("/other")->disk);
	out_ms = row->out_ms;
	ck_assert(row->out && out_ms);
	register_again();
	ck_assert_str_eq(disk_row("/disk")->state, "up");
	ck_assert_str_eq(disk_row("/other")->state, "failed");
	ck_assert_ptr_nonnull(strstr(disk_row("/other")->error, "does not end"));
	ck_assert_uint_gt(row->generation, generation);
	ck_assert(row->out);
	ck_assert_uint_eq(row->out_ms, out_ms);
	ck_assert(!b->chunkd->disks[1]->identity.busy);
	metad_bed_silence(&b->m, 60 * 1000);
	ck_assert_str_eq(disk_row("/disk")->state, "up");
	metad_bed_silence(&b->m, 24 * 3600 * 1000);
	bed_close();
}
END_TEST

/* A superblock that takes longer than metad waits for heartbeats is waited for, and the server stays up. */
static void slow_superblock(const char *dir)
{
	uint64_t generation;

	register_again();
	generation = disk_row("/disk")->generation;
	sim_cut(b->host, b->m.server_io);
	metad_bed_silence(&b->m, 25 * 1000);
	sim_dir_stall(b->host, dir, 25 * SECOND_NS);
	sim_heal(b->host, b->m.server_io);
	metad_bed_silence(&b->m, 24 * 1000);
	ck_assert_uint_eq(disk_row("/disk")->generation, generation + 1);
	metad_bed_silence(&b->m, 60 * 1000);
	ck_assert_uint_eq(disk_row("/disk")->generation, generation + 1);
	ck_assert_str_eq(disk_row("/disk")->state, "up");
	ck_assert(b->chunkd->disks[0]->registered && b->chunkd->disks[1]->registered);
}

START_TEST(test_slow_superblocks)
{
	open_two(21);
	slow_superblock("/other");
	slow_superblock("/disk");
	bed_close();
}
END_TEST

/* The next registration comes while the superblock is still being written for the one before. */
START_TEST(test_superblock_is_overtaken)
{
	uint64_t generation;

	bed_open(22);
	generation = disk_row("/disk")->generation;
	sim_dir_stall(b->host, "/disk", 230 * SECOND_NS);
	register_again();
	ck_assert_uint_eq(disk_row("/disk")->generation, generation + 1);
	register_again();
	ck_assert_uint_eq(disk_row("/disk")->generation, generation + 2);
	ck_assert_int_eq(b->chunkd->disks[0]->failed, 0);
	ck_assert(b->chunkd->disks[0]->registered);
	ck_assert_uint_eq(b->chunkd->disks[0]->sb.generation, generation + 2);
	bed_close();
}
END_TEST

/* The machine stood still for longer than any disk may: that the disk was no quicker says nothing of it. */
START_TEST(test_pause_is_not_of_the_disk)
{
	bed_open(19);
	sim_dir_stall(b->host, "/disk", 430 * SECOND_NS);
	metad_bed_silence(&b->m, 15 * 1000); /* what is written to it waits */
	sim_host_pause(b->host, 400 * SECOND_NS);
	metad_bed_silence(&b->m, 450 * 1000);
	ck_assert_int_eq(b->chunkd->disks[0]->failed, 0);
	sim_dir_fail(b->host, "/disk", ERR_IO);
	metad_bed_silence(&b->m, 15 * 1000); /* one went wrong */
	sim_host_pause(b->host, 60 * SECOND_NS);
	metad_bed_silence(&b->m, 60 * 1000 + 2); /* and another; it does not register again before that */
	sim_dir_fail(b->host, NULL, 0);
	metad_bed_silence(&b->m, 30 * 1000);
	ck_assert_int_eq(b->chunkd->disks[0]->failed, 0);
	bed_close();
}
END_TEST

static void set(void *ctx)
{
	*(bool *)ctx = true;
}

static bool is_set(void *ctx)
{
	return *(bool *)ctx;
}

static bool run_until(bool *flag, uint64_t seconds)
{
	return sim_run(b->m.sim, is_set, flag, sim_now_ns(b->m.sim) + seconds * 1000000000);
}

/* A stop waits for a disk that hangs and says for which; the other one is closed, and can be opened, and nothing is acknowledged. */
START_TEST(test_stop_with_a_disk_that_hangs)
{
	static const char *const two[] = {"/disk", "/other"};
	struct disk_options other = {.dir = "/other", .cluster = metad_bed_cluster, .backend = &kv_mem, .log = &b->m.log};
	struct err err = {0};
	bool stopped = false, closed = false;
	struct disk *disk;
	char text[200];

	bed_open(17);
	stop_chunkd();
	ck_assert_int_eq(io_mkdir(b->host, "/other", 0755), 0);
	ck_assert_int_eq(try_start((const char *)b->m.options.secret, two, 2, &err), 0);
	wait_registered();
	sim_dir_stall(b->host, "/disk", 100ull * 1000000000);
	metad_bed_silence(&b->m, 20 * 1000); /* a small write, to see whether it is there */
	chunkd_stop(b->chunkd, set, &stopped);
	ck_assert(!run_until(&stopped, 30));
	chunkd_waits_for(b->chunkd, text, sizeof(text));
	ck_assert_str_eq(text, "/disk does not end what it was given");
	other.pool = bufpool_new(b->host, 1 << 20);
	ck_assert_msg(disk_open(b->host, &other, &disk, &err) == 0, "%s", err.text);
	disk_close(disk, set, &closed);
	ck_assert(run_until(&closed, 30));
	bufpool_free(other.pool);
	ck_assert(!stopped && run_until(&stopped, 200));
	start_chunkd((const char *)b->m.options.secret);
	bed_close();
}
END_TEST

/* A superblock that a disk never finishes is that disk's matter: metad hears at once that the server stops. */
START_TEST(test_goodbye_beside_a_superblock_that_hangs)
{
	bool stopped = false;
	char text[200];

	open_two(23);
	sim_cut(b->host, b->m.server_io);
	metad_bed_silence(&b->m, 25 * 1000);
	sim_dir_stall(b->host, "/other", 100 * SECOND_NS);
	sim_heal(b->host, b->m.server_io);
	metad_bed_silence(&b->m, 10 * 1000);
	ck_assert_str_eq(disk_row("/disk")->state, "up");
	ck_assert(b->chunkd->disks[1]->identity.busy);
	chunkd_stop(b->chunkd, set, &stopped);
	ck_assert(!run_until(&stopped, 1));
	ck_assert_str_eq(disk_row("/disk")->state, "down");
	chunkd_waits_for(b->chunkd, text, sizeof(text));
	ck_assert_str_eq(text, "/other does not end what it was given");
	ck_assert(run_until(&stopped, 200));
	start_chunkd((const char *)b->m.options.secret);
	bed_close();
}
END_TEST

/* What a reader finds does not wait for the next look. */
START_TEST(test_unreadable_disk_is_looked_at)
{
	struct token t;
	uint64_t from_ns;

	bed_open(15);
	t = good_token(9, TOKEN_WRITE);
	ck_assert_int_eq(put_one(&t, copy_of(9), DATA_BYTES, true), 0);
	metad_bed_silence(&b->m, 10 * 1000); /* one has just been */
	sim_dir_fail(b->host, "/disk", ERR_IO);
	from_ns = sim_now_ns(b->m.sim);
	t = good_token(9, TOKEN_READ);
	ck_assert_int_lt(get_one(&t, copy_of(9), 0, DATA_BYTES), 0);
	ck_assert(is_failed_within(60));
	ck_assert_uint_lt(sim_now_ns(b->m.sim) - from_ns, 35ull * 1000000000);
	sim_dir_fail(b->host, NULL, 0);
	bed_close();
}
END_TEST

START_TEST(test_one_bad_disk_of_two)
{
	static const char *const disks[] = {"/nowhere", "/disk"};
	struct token t;
	struct err err = {0};

	bed_open(10);
	stop_chunkd();
	ck_assert_int_eq(try_start((const char *)b->m.options.secret, disks, 2, &err), 0);
	ck_assert_uint_eq(chunkd_disk_count(b->chunkd), 1);
	wait_registered();
	t = good_token(14, TOKEN_WRITE);
	ck_assert_int_eq(put_one(&t, copy_of(14), DATA_BYTES, true), 0);
	metad_bed_sleep(&b->m, 2000);
	ck_assert_ptr_nonnull(
		strstr(reason_text(bed_status(&b->m), "disk-unusable"), "chunkd-9 cannot serve /nowhere"));
	metad_bed_restart(&b->m); /* which forgets what it only heard */
	metad_bed_sleep(&b->m, 15 * 1000);
	ck_assert_ptr_nonnull(strstr(reason_text(bed_status(&b->m), "disk-unusable"), "/nowhere"));
	stop_chunkd();
	start_chunkd((const char *)b->m.options.secret);
	wait_registered();
	metad_bed_sleep(&b->m, 2000);
	ck_assert_str_eq(reason_text(bed_status(&b->m), "disk-unusable"), "");
	bed_close();
}
END_TEST

/* A disk that has rows and is not served any more: one reason, with the cause, not two. */
START_TEST(test_disk_that_went_bad)
{
	static const char *const two[] = {"/disk", "/other"};
	struct err err = {0};

	bed_open(11);
	stop_chunkd();
	ck_assert_int_eq(io_mkdir(b->host, "/other", 0755), 0);
	ck_assert_int_eq(try_start((const char *)b->m.options.secret, two, 2, &err), 0);
	wait_registered();
	stop_chunkd();
	ck_assert_int_eq(io_write_file(b->host, "/other/superblock", "rubbish", 7, 0600), 0);
	ck_assert_int_eq(try_start((const char *)b->m.options.secret, two, 2, &err), 0);
	wait_registered();
	metad_bed_sleep(&b->m, 2000);
	ck_assert_ptr_nonnull(strstr(reason_text(bed_status(&b->m), "disk-unusable"), "/other"));
	ck_assert_str_eq(reason_text(bed_status(&b->m), "disk-down"), "");
	bed_close();
}
END_TEST

START_TEST(test_disk_named_twice)
{
	static const char *const twice[] = {"/fresh", "/disk", "/fresh/"};
	struct err err = {0};
	char *text;
	size_t len;

	bed_open(12);
	stop_chunkd();
	ck_assert_int_eq(io_mkdir(b->host, "/fresh", 0755), 0);
	ck_assert_int_eq(try_start((const char *)b->m.options.secret, twice, 3, &err), ERR_INVAL);
	ck_assert_ptr_nonnull(strstr(err.text, "/fresh/ is given twice"));
	ck_assert_int_eq(io_read_file(b->host, "/fresh/superblock", 8192, &text, &len), ERR_NOENT);
	start_chunkd((const char *)b->m.options.secret);
	wait_registered();
	bed_close();
}
END_TEST

START_TEST(test_wrong_secret_is_said)
{
	bed_open(6);
	stop_chunkd();
	start_chunkd("another secret, of another store");
	ck_assert(sim_run(b->m.sim, has_fatal, b, sim_now_ns(b->m.sim) + 60ull * 1000000000));
	ck_assert_int_eq(b->fatal, ERR_ACCES);
	bed_close();
}
END_TEST

UNIT_MAIN("chunkd", test_put_get_lists_stat_receipt, test_tokens, test_requests_without_sense,
	test_metad_comes_and_goes, test_crash_of_the_host, test_odd_numbers, test_no_space_for_the_superblock, test_heartbeats_beside_a_full_file_system,
	test_superblock_that_cannot_be_written_is_told, test_segments_that_cannot_be_made, test_idle_disk_that_is_gone,
	test_idle_disk_that_does_not_answer, test_idle_disks_that_do_not_answer, test_one_of_two_does_not_answer,
	test_stop_with_a_disk_that_hangs, test_goodbye_beside_a_superblock_that_hangs,
	test_second_of_two_does_not_answer, test_pause_is_not_of_the_disk,
	test_hung_disk_registers_again, test_slow_superblocks, test_superblock_is_overtaken, test_unreadable_disk_is_looked_at,
	test_one_bad_disk_of_two, test_disk_that_went_bad, test_disk_named_twice, test_wrong_secret_is_said)
