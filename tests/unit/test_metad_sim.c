/* SPDX-License-Identifier: Apache-2.0 */
/* Crashes of metad at any moment: what was acknowledged is there, what was not is there whole or not at all. */
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

UNIT_MAIN("metad_sim", test_time_goes_on_after_a_crash, test_crash_while_creating, test_same_seed_same_events)
