// SPDX-License-Identifier: Apache-2.0
/* metrics_http: requests of people and of others, over simulated connections. */
#include "common/rpc/metrics_http.h"
#include "common/base/check.h"
#include "common/io/io_sim.h"
#include "tests/lib/unit.h"

static struct bed {
	struct sim *sim;
	struct io *server_io, *client_io;
	struct metrics_http *http;
	bool done;
	uint32_t writes;
	bool huge;
	struct refused refused;
	struct log log;
	uint32_t lines;
} bed, *const b = &bed;

/* One who asks. */
struct asker {
	struct io_op op;
	int fd, code;
	const char *say;
	size_t say_len, got;
	struct iovec iov;
	char text[4096];
	bool done;
};

static void write_metrics(void *ctx, struct metrics *m)
{
	static const struct metric answers = {"craton_answers_total", METRIC_COUNTER, "Answers."};

	(void)ctx;
	metrics_one(m, &answers, ++b->writes);
	for (int i = 0; b->huge && i < 400000; i++)
		metrics_value(m, NULL, 1);
}

static void count_line(void *ctx, enum log_level level, const char *line)
{
	(void)ctx;
	b->lines += level == LOG_WARN && strstr(line, " metrics-refused cause=") != NULL;
}

static void bed_open(void)
{
	struct metrics_http_options o = {.write = write_metrics, .log = &b->log, .refused = &b->refused};
	struct err err;

	memset(b, 0, sizeof(*b));
	b->log = (struct log){.min_level = LOG_DEBUG, .write = count_line, .name = "metad-1"};
	b->sim = sim_new(&(struct sim_options){.seed = 1});
	b->server_io = sim_host_add(b->sim, "server", 1 << 20);
	b->client_io = sim_host_add(b->sim, "client", 1 << 20);
	o.listen = sim_host_addr(b->server_io, 9000);
	ck_assert_int_eq(metrics_http_open(b->server_io, &o, &b->http, &err), 0);
}

static void on_closed(void *ctx)
{
	(void)ctx;
	b->done = true;
}

static bool is_set(void *flag)
{
	return *(bool *)flag;
}

static void wait_for(bool *flag)
{
	ck_assert(sim_run(b->sim, is_set, flag, sim_now_ns(b->sim) + 60ull * 1000000000));
}

static void bed_close(void)
{
	metrics_http_close(b->http, on_closed, NULL);
	wait_for(&b->done);
	sim_free(b->sim);
}

static void on_got(struct io_op *op)
{
	struct asker *a = CONTAINER_OF(op, struct asker, op);

	if (op->result <= 0) {
		a->code = (int)op->result;
		a->done = true;
		return;
	}
	a->got += (size_t)op->result;
	a->iov = (struct iovec){a->text + a->got, sizeof(a->text) - 1 - a->got};
	io_prep_recv(&a->op, a->fd, &a->iov, 1, 0, on_got);
	io_submit(b->client_io, &a->op);
}

static void on_said(struct io_op *op)
{
	struct asker *a = CONTAINER_OF(op, struct asker, op);

	op->result = op->result < 0 ? op->result : 0;
	a->iov = (struct iovec){a->text, sizeof(a->text) - 1};
	io_prep_recv(&a->op, a->fd, &a->iov, 1, 0, on_got);
	io_submit(b->client_io, &a->op);
}

static void on_connected(struct io_op *op)
{
	struct asker *a = CONTAINER_OF(op, struct asker, op);

	ck_assert_int_ge((int)op->result, 0);
	a->fd = (int)op->result;
	a->iov = (struct iovec){(void *)(uintptr_t)a->say, a->say_len};
	io_prep_send(&a->op, a->fd, &a->iov, 1, on_said);
	io_submit(b->client_io, &a->op);
}

static void ask_begin(struct asker *a, const char *say, size_t len)
{
	struct io_addr addr = metrics_http_addr(b->http);

	memset(a, 0, sizeof(*a));
	a->say = say;
	a->say_len = len;
	io_prep_connect(&a->op, &addr, on_connected);
	io_submit(b->client_io, &a->op);
}

static void ask_end(struct asker *a)
{
	wait_for(&a->done);
	io_close(b->client_io, a->fd);
}

static const char *ask(const char *say)
{
	static struct asker a;

	ask_begin(&a, say, strlen(say));
	ask_end(&a);
	ck_assert_int_eq(a.code, 0); /* closed in order */
	return a.text;
}

START_TEST(test_get)
{
	const char *text;

	bed_open();
	text = ask("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
	ck_assert_ptr_eq(strstr(text, "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4"), text);
	ck_assert_uint_eq(strtoul(strstr(text, "Content-Length: ") + 16, NULL, 10), strlen(strstr(text, "\r\n\r\n") + 4));
	ck_assert_ptr_nonnull(strstr(text, "\r\n\r\n# HELP craton_answers_total Answers.\n"));
	ck_assert_ptr_nonnull(strstr(text, "craton_answers_total 1\n"));
	ck_assert_ptr_nonnull(strstr(ask("GET /metrics?x=y HTTP/1.0\r\n\r\n"), "craton_answers_total 2\n"));
	bed_close();
}
END_TEST

START_TEST(test_refusals)
{
	bed_open();
	ck_assert_ptr_nonnull(strstr(ask("GET / HTTP/1.1\r\n\r\n"), " 404 Not Found\r\n"));
	ck_assert_ptr_nonnull(strstr(ask("GET /metricsx HTTP/1.1\r\n\r\n"), " 404 "));
	ck_assert_ptr_nonnull(strstr(ask("POST /metrics HTTP/1.1\r\n\r\n"), " 405 Method Not Allowed\r\n"));
	ck_assert_ptr_nonnull(strstr(ask("GET /metrics HTTP/2.0\r\n\r\n"), " 505 "));
	ck_assert_ptr_nonnull(strstr(ask("rubbish\r\n\r\n"), " 400 "));
	ck_assert_ptr_nonnull(strstr(ask(" / HTTP/1.1\r\n\r\n"), " 400 "));
	ck_assert_uint_eq(b->writes, 0);
	ck_assert_uint_eq(b->refused.of[REFUSED_METRICS_REQUEST].count, 6);
	b->huge = true; /* more than an answer may hold: an error, and no half of it */
	ck_assert_ptr_nonnull(strstr(ask("GET /metrics HTTP/1.1\r\n\r\n"), " 500 "));
	bed_close();
}
END_TEST

START_TEST(test_judge)
{
	static char head[METRICS_HTTP_HEAD_BYTES];
	static const char good[] = "GET /metrics HTTP/1.1\r\nA: b\r\n\r\n";

	for (size_t i = 0; i < sizeof(good) - 1; i++)
		ck_assert_int_eq(metrics_http_judge(slice_of(good, i)), 0);
	ck_assert_int_eq(metrics_http_judge(slice_of(good, sizeof(good) - 1)), 200);
	memset(head, 'a', sizeof(head));
	ck_assert_int_eq(metrics_http_judge(slice_of(head, sizeof(head) - 1)), 0);
	ck_assert_int_eq(metrics_http_judge(slice_of(head, sizeof(head))), 431);
	ck_assert_int_eq(metrics_http_judge(slice_of("GET\0/metrics", 12)), 400);
}
END_TEST

static bool two_are_done(void *ctx)
{
	struct asker *a = ctx;
	int done = 0;

	for (int i = 0; i < METRICS_HTTP_CONNS + 2; i++)
		done += a[i].done;
	return done == 2;
}

/* Half a request, and nothing more: the slot comes back after METRICS_HTTP_MS; until then others beyond the bound are turned away. */
START_TEST(test_slow_and_many)
{
	static struct asker slow[METRICS_HTTP_CONNS + 2];
	uint64_t began;

	bed_open();
	began = sim_now_ns(b->sim);
	for (int i = 0; i < METRICS_HTTP_CONNS + 2; i++)
		ask_begin(&slow[i], "GET /met", 8);
	ck_assert(sim_run(b->sim, two_are_done, slow, began + METRICS_HTTP_MS * 1000000ull / 2));
	for (int i = 0; i < METRICS_HTTP_CONNS + 2; i++) {
		ask_end(&slow[i]);
		ck_assert_uint_eq(slow[i].got, 0);
	}
	ck_assert_uint_ge(sim_now_ns(b->sim) - began, METRICS_HTTP_MS * 1000000ull);
	ck_assert_uint_eq(b->refused.of[REFUSED_METRICS_CONNECTIONS].count, 2);
	ck_assert_uint_eq(b->refused.of[REFUSED_METRICS_SLOW].count, METRICS_HTTP_CONNS);
	ck_assert_uint_eq(b->lines, 2); /* one for each cause: all came within a second */
	ck_assert_ptr_nonnull(strstr(ask("GET /metrics HTTP/1.1\r\n\r\n"), " 200 OK"));
	/* those that ask while it closes are let go */
	for (int i = 0; i < 3; i++)
		ask_begin(&slow[i], "GET /met", 8);
	bed_close();
}
END_TEST

UNIT_MAIN("metrics_http", test_get, test_refusals, test_judge, test_slow_and_many)
