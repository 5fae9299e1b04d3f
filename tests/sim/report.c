// SPDX-License-Identifier: Apache-2.0
/* report: see the header. */
#include "tests/sim/report.h"

#include <stdio.h>

#define U(x) (unsigned long long)(x)

static const char *const count_names[] = {
#define REPORT_X(name) #name,
	RUN_COUNTS(REPORT_X)
#undef REPORT_X
};

void report_line(const struct run_result *r)
{
	printf("seed %llu: %s", U(r->seed), r->ok ? "ok" : "FAILED");
	for (int i = 0; i < RUN_COUNT; i++)
		if (r->counts[i])
			printf(" %s=%llu", count_names[i], U(r->counts[i]));
	for (int i = 0; i < FAULTS_KINDS; i++)
		if (r->faults[i])
			printf(" %s=%llu", faults_name(i), U(r->faults[i]));
	printf(" hash=%016llx virtual=%.3f s cpu=%.3f s\n", U(r->hash), r->virtual_s, r->cpu_s);
}

/* Of our own texts: quotes, backslashes and bytes that JSON does not want become '?'. */
static void print_text(const char *text)
{
	putchar('"');
	for (; *text; text++)
		putchar(*text == '"' || *text == '\\' || (unsigned char)*text < ' ' ? '?' : *text);
	putchar('"');
}

static void print_rest(const struct run_result *r)
{
	for (int i = 0; i < RUN_COUNT; i++)
		printf(", \"%s\": %llu", count_names[i], U(r->counts[i]));
	printf(", \"virtual_s\": %.3f, \"cpu_s\": %.3f, \"faults\": {", r->virtual_s, r->cpu_s);
	for (int i = 0; i < FAULTS_KINDS; i++)
		printf("%s\"%s\": %llu", i ? ", " : "", faults_name(i), U(r->faults[i]));
	printf("}, \"marks\": {");
	for (size_t i = 0; i < marks_count(); i++)
		printf("%s\"%s\": %llu", i ? ", " : "", marks_name(i), U(r->marks[i]));
	printf("}}\n");
}

void report_json(const struct run_result *r)
{
	printf("{\"seed\": %llu, \"ok\": %s, \"hash\": \"%016llx\", \"text\": ", U(r->seed), r->ok ? "true" : "false",
		U(r->hash));
	print_text(r->text);
	print_rest(r);
}

void report_json_sum(const struct run_result *sum, uint64_t seeds, uint64_t failed)
{
	printf("{\"seeds\": %llu, \"failed\": %llu", U(seeds), U(failed));
	print_rest(sum);
}

void report_add(struct run_result *sum, const struct run_result *r)
{
	for (int i = 0; i < RUN_COUNT; i++)
		sum->counts[i] += r->counts[i];
	for (int i = 0; i < FAULTS_KINDS; i++)
		sum->faults[i] += r->faults[i];
	for (size_t i = 0; i < MARKS_MAX; i++)
		sum->marks[i] += r->marks[i];
	sum->virtual_s += r->virtual_s;
	sum->cpu_s += r->cpu_s;
}
