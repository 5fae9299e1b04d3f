/* SPDX-License-Identifier: Apache-2.0 */
/* Crashes of metad at any moment: what was acknowledged is there, what was not is there whole or not at all. */
#include "common/io/io_word.h"
#include "metad/core.h"
#include "tests/lib/metad_bed.h"
#include "tests/lib/no_leaks.h"
#include "tests/lib/unit.h"

static struct metad_bed bed, *const b = &bed;

static int lookup(const char *path)
{
	return bed_lookup_path(b, path, strlen(path));
}

START_TEST(test_time_goes_on_after_a_crash)
{
	uint64_t before, inode, epoch;

	metad_bed_open_sim(b, 1);
	ck_assert_int_eq(bed_open_file(b, "f", false, &inode, &epoch), 0);
	metad_bed_sleep(b, 3600 * 1000);
	before = bed_status(b)->state_time_ms;
	ck_assert_uint_ge(before, 3600 * 1000);
	metad_bed_crash(b);
	ck_assert_int_eq(lookup("f"), 0);
	/* a crash takes back what no entry had recorded: one tick's worth */
	ck_assert_uint_ge(bed_status(b)->state_time_ms + 11 * 1000, before);
	metad_bed_close(b);
}
END_TEST

/* ---- bulk of its host is asked to make way (io_way.h) ---- */

static void look_up_for(uint64_t ms)
{
	uint64_t until_ns = sim_now_ns(b->sim) + ms * 1000000;

	while (sim_now_ns(b->sim) < until_ns)
		ck_assert_int_eq(lookup("nothing"), ERR_NOENT);
}

START_TEST(test_who_waits_for_a_processor_asks_for_way)
{
	struct io_word word;

	metad_bed_open_sim(b, 1);
	metad_bed_say_waited(b->server_io, 1000);
	b->options.way_path = "/way";
	metad_bed_restart(b);
	ck_assert_int_eq(io_word_open(&word, b->server_io, "/way"), 0);
	look_up_for(3000);
	ck_assert(!io_word_heard(&word, UINT64_MAX));
	metad_bed_say_waited(b->server_io, 2000000000);
	look_up_for(3000);
	ck_assert(io_word_heard(&word, 300000000));
	ck_assert(b->md->way.asks);
	/* Where it cannot be said, it is not asked for, and said when it can be. */
	ck_assert_int_eq(io_unlink(b->server_io, "/way"), 0);
	ck_assert_int_eq(io_mkdir(b->server_io, "/way", 0700), 0);
	look_up_for(IO_WORD_OPEN_NS / 1000000 + 3000);
	metad_bed_say_waited(b->server_io, 200000000000);
	look_up_for(3000);
	ck_assert(!b->md->way.asks);
	ck_assert_int_eq(io_rename(b->server_io, "/way", "/away"), 0);
	look_up_for(IO_WORD_OPEN_NS / 1000000 + 3000);
	metad_bed_say_waited(b->server_io, 400000000000);
	look_up_for(3000);
	ck_assert(b->md->way.asks);
	ck_assert(io_word_heard(&word, 300000000));
	/* Without work it is asked no more, however long it waits. */
	metad_bed_sleep(b, 2000);
	metad_bed_say_waited(b->server_io, 900000000000);
	metad_bed_sleep(b, 2000);
	ck_assert(!io_word_heard(&word, 2500000000));
	io_word_close(&word);
	metad_bed_close(b);
}
END_TEST

/* ---- GET /metrics while a snapshot takes the place of the table ---- */

static struct asker {
	struct io_op op;
	struct iovec iov;
	int fd;
	size_t got;
	char text[128 << 10];
} asker;

static void on_got(struct io_op *op)
{
	ck_assert_int_ge(op->result, 0);
	if (op->result == 0) {
		metad_bed_set_done(b);
		return;
	}
	asker.got += (size_t)op->result;
	ck_assert_uint_lt(asker.got, sizeof(asker.text) - 1);
	asker.iov = (struct iovec){asker.text + asker.got, sizeof(asker.text) - 1 - asker.got};
	io_prep_recv(op, asker.fd, &asker.iov, 1, 0, on_got);
	io_submit(b->client_io, op);
}

static void on_said(struct io_op *op)
{
	ck_assert_int_gt(op->result, 0);
	asker.iov = (struct iovec){asker.text, sizeof(asker.text) - 1};
	io_prep_recv(op, asker.fd, &asker.iov, 1, 0, on_got);
	io_submit(b->client_io, op);
}

static void on_connected(struct io_op *op)
{
	static char say[] = "GET /metrics HTTP/1.0\r\n\r\n";

	ck_assert_int_ge(op->result, 0);
	asker.fd = (int)op->result;
	asker.iov = (struct iovec){say, sizeof(say) - 1};
	io_prep_send(op, asker.fd, &asker.iov, 1, on_said);
	io_submit(b->client_io, op);
}

static const char *ask_metrics(void)
{
	struct io_addr addr = metad_metrics_addr(b->md);

	memset(&asker, 0, sizeof(asker));
	io_prep_connect(&asker.op, &addr, on_connected);
	io_submit(b->client_io, &asker.op);
	metad_bed_wait(b);
	io_close(b->client_io, asker.fd);
	return asker.text;
}

START_TEST(test_metrics_without_a_table)
{
	const char *text;
	struct kv *kv;

	metad_bed_open_sim(b, 3);
	b->options.metrics = sim_host_addr(b->server_io, 9100);
	metad_bed_restart(b);
	text = ask_metrics();
	ck_assert(strstr(text, "craton_build_info") && strstr(text, "craton_files ") && strstr(text, "craton_available_bytes "));
	kv = b->md->state.kv; /* as a replica that installs a snapshot: nothing reads rows meanwhile */
	b->md->state.kv = NULL;
	text = ask_metrics();
	b->md->state.kv = kv;
	ck_assert_ptr_nonnull(strstr(text, "craton_refused_total{cause=\"receipt\"} 0\n"));
	ck_assert(strstr(text, "craton_build_info") && !strstr(text, "craton_files "));
	ck_assert_ptr_nonnull(strstr(ask_metrics(), "craton_files "));
	metad_bed_close(b);
}
END_TEST

enum { FILES = 60, SPREAD = 8 };

struct creation {
	struct rpc_call call;
	Craton__CreateRequest req;
	Craton__RequestId id;
	char path[16];
	bool acknowledged, failed, counted;
};

static uint32_t ended;

static void created(struct rpc_call *call, int status, const ProtobufCMessage *msg, uint32_t payload_len)
{
	struct creation *c = CONTAINER_OF(call, struct creation, call);

	(void)msg, (void)payload_len;
	c->acknowledged = status == 0;
	c->failed = status != 0;
	ended++;
}

static bool some_ended(void *ctx)
{
	return ended >= *(uint32_t *)ctx;
}

/* Creates in flight, a crash after some were acknowledged; again and again. Returns the hash of all that happened. */
static uint64_t crash_while_creating(uint64_t seed, uint32_t *ret_acknowledged, uint32_t *ret_lost)
{
	static struct creation c[FILES];
	uint64_t hash;

	metad_bed_open_sim(b, seed);
	memset(c, 0, sizeof(c));
	ck_assert_int_eq(bed_open_session(b, &b->session), 0);
	for (uint32_t first = 0; first < FILES; first += SPREAD) {
		uint32_t want = (uint32_t)(sim_random(b->sim) % SPREAD);
		uint32_t last = first + SPREAD < FILES ? first + SPREAD : FILES;

		ended = 0;
		for (uint32_t i = first; i < last; i++) {
			snprintf(c[i].path, sizeof(c[i].path), "f%u", i);
			craton__create_request__init(&c[i].req);
			c[i].req.parent = INODE_ROOT;
			c[i].req.path = bed_text(c[i].path);
			c[i].id = b->session;
			c[i].id.number = i + 1;
			c[i].id.unanswered = first + 1;
			c[i].req.id = &c[i].id;
			c[i].call = (struct rpc_call){
				.method = &rpc_metad_create, .request = &c[i].req.base, .done = created};
			c[i].call.deadline_ns = io_clock_ns(b->client_io) + 10ull * 1000000000;
			rpc_call_start(b->peer, &c[i].call);
			/* some of them in a turn of their own */
			if (sim_random(b->sim) % 3 == 0)
				metad_bed_sleep(b, 1);
		}
		sim_run(b->sim, some_ended, &want, sim_now_ns(b->sim) + 1000000000);
		sim_run(b->sim, metad_bed_never, NULL, sim_now_ns(b->sim) + sim_random(b->sim) % 300000);
		metad_bed_crash(b);
		want = last - first;
		ck_assert(sim_run(b->sim, some_ended, &want, sim_now_ns(b->sim) + 60ull * 1000000000));
	}
	for (uint32_t i = 0; i < FILES; i++) {
		int code = lookup(c[i].path);

		ck_assert(code == 0 || (code == ERR_NOENT && !c[i].acknowledged));
		*ret_acknowledged += c[i].acknowledged;
		*ret_lost += code == ERR_NOENT;
	}
	hash = sim_event_hash(b->sim);
	metad_bed_close(b);
	return hash;
}

START_TEST(test_crash_while_creating)
{
	uint32_t acknowledged = 0, lost = 0;

	for (uint64_t seed = 1; seed <= 8; seed++)
		crash_while_creating(seed, &acknowledged, &lost);
	ck_assert_uint_gt(acknowledged, 100);
	ck_assert_uint_gt(lost, 10); /* the crashes did hit */
}
END_TEST

START_TEST(test_same_seed_same_events)
{
	uint32_t acknowledged = 0, lost = 0;
	uint64_t hash = crash_while_creating(99, &acknowledged, &lost);

	ck_assert_uint_eq(crash_while_creating(99, &acknowledged, &lost), hash);
	ck_assert_uint_ne(crash_while_creating(100, &acknowledged, &lost), hash);
}
END_TEST

/* Who founds a group has no core until that is durable. */
START_TEST(test_metrics_while_a_group_is_founded)
{
	struct sim *sim = sim_new(&(struct sim_options){.seed = 5});
	const char *text;

	metad_bed_make_group(b, 1, sim, 7000);
	b->options.metrics = sim_host_addr(b->server_io, 9100);
	sim_disk_stall(b->server_io, 5000000000ull);
	metad_bed_start(b);
	text = ask_metrics();
	ck_assert_ptr_nonnull(strstr(text, "craton_metad_letters_refused_total{cause=\"contradicting\"} 0\n"));
	ck_assert_ptr_nonnull(strstr(text, "craton_metad_leads 0\n"));
	metad_bed_close(b);
}
END_TEST

UNIT_MAIN("metad_sim", test_metrics_while_a_group_is_founded, test_time_goes_on_after_a_crash, test_who_waits_for_a_processor_asks_for_way, test_metrics_without_a_table, test_crash_while_creating, test_same_seed_same_events)
