/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "client/cli/cli.h"

struct values {
	struct cli_common common;
	bool verify;
};

static const struct opt opts[] = {
	{.name = "verify", .type = OPT_FLAG, .offset = offsetof(struct values, verify), .help = "read and check every unit and trailer of all k+m chunks"},
	CLI_COMMON_OPTS(struct values),
	{0},
};

struct walk {
	const struct cli *cli;
	struct buf out;
	struct json json;
	uint64_t chunks, bad, block;
	int min_margin;
};

static const char *state_name(uint8_t state)
{
	switch (state) {
	case CR_CHUNK_OK: return "ok";
	case CR_CHUNK_MISSING: return "missing";
	case CR_CHUNK_DOWN: return "down";
	default: return "corrupt";
	}
}

static void chunk_json(struct json *j, const struct cr_chunk_info *c)
{
	json_object(j, NULL);
	json_u64(j, "block", c->block);
	json_u64(j, "file_offset", c->file_offset);
	json_u64(j, "block_bytes", c->block_bytes);
	json_str(j, "policy", c->policy);
	json_u64(j, "index", c->index);
	json_str(j, "kind", c->index < c->k ? "data" : "parity");
	json_str(j, "state", state_name(c->state));
	json_i64(j, "margin", c->margin);
	json_bool(j, "crowded", c->crowded);
	json_u64(j, "disk", c->disk);
	json_str(j, "server", c->server_name);
	json_name(j, "segment", c->segment);
	json_u64(j, "offset", c->segment_offset);
	json_u64(j, "length", c->chunk_bytes);
	json_u64(j, "trailer_offset", c->trailer_offset);
	json_u64(j, "trailer_bytes", c->trailer_bytes);
	json_bool(j, "bad_trailer", c->bad_trailer);
	json_array(j, "bad_units");
	for (uint32_t i = 0; i < c->bad_unit_count; i++)
		json_u64(j, NULL, c->bad_units[i]);
	json_end_array(j);
	json_end_object(j);
}

static void chunk_text(struct walk *w, const struct cr_chunk_info *c)
{
	if (c->block != w->block || !w->chunks)
		printf("block %llu at %llu, %llu bytes, %s, margin %d%s\n", (unsigned long long)c->block, (unsigned long long)c->file_offset,
		       (unsigned long long)c->block_bytes, c->policy, c->margin, c->crowded ? ", crowded" : "");
	printf("  %2u %-6s %-8s %-12s disk %-4u %10llu bytes  %s @ %llu", c->index, c->index < c->k ? "data" : "parity", state_name(c->state),
	       c->server_name, c->disk, (unsigned long long)c->chunk_bytes, *c->segment ? c->segment : "-",
	       (unsigned long long)c->segment_offset);
	if (c->bad_trailer)
		printf("  trailer damaged");
	for (uint32_t i = 0; i < c->bad_unit_count; i++)
		printf("%s%u", i ? "," : "  bad units ", c->bad_units[i]);
	printf("\n");
}

static int each(const struct cr_chunk_info *c, void *user)
{
	struct walk *w = user;

	if (w->cli->json)
		chunk_json(&w->json, c);
	else
		chunk_text(w, c);
	if (!w->chunks || c->margin < w->min_margin)
		w->min_margin = c->margin;
	w->block = c->block;
	w->chunks++;
	w->bad += c->state != CR_CHUNK_OK;
	return w->out.failed ? -1 : 0;
}

static int run(struct cli *cli)
{
	const struct values *v = cli->values;
	struct walk w = {.cli = cli};
	int exit_code = cli_connect(cli);

	if (exit_code != CLI_OK)
		return exit_code;
	buf_init(&w.out, (size_t)1 << 30);
	json_init(&w.json, &w.out);
	json_object(&w.json, NULL);
	json_name(&w.json, "path", cli->words[0]);
	json_array(&w.json, "chunks");
	if (cr_inspect(cli->store, cli->words[0], v->verify, each, &w) != 0) {
		exit_code = cli_fail(cli, "%s", cr_error());
	} else if (cli->json) {
		json_end_array(&w.json);
		json_u64(&w.json, "chunk_count", w.chunks);
		json_u64(&w.json, "bad_count", w.bad);
		json_i64(&w.json, "min_margin", w.min_margin);
		json_bool(&w.json, "verified", v->verify);
		json_end_object(&w.json);
		cli_print_json(&w.out);
	} else {
		printf("%llu chunks, %llu not ok%s\n", (unsigned long long)w.chunks, (unsigned long long)w.bad,
		       v->verify ? "" : " (contents not read; --verify reads and checks all)");
	}
	buf_fini(&w.out);
	if (exit_code == CLI_OK && w.bad)
		exit_code = CLI_FAILED;
	return exit_code;
}

const struct cli_command cmd_inspect = {
	.name = "inspect",
	.args = "PATH",
	.summary = "show where each block and chunk of a file lies, and its state",
	.details = "Each chunk with its disk, segment file, offset, length and state; each block with its margin: chunks that may still be lost.\n"
	           "Without --verify a chunk is corrupt if somebody found it so, and it was not made anew yet. Exit code 1 if any chunk is not ok.\n"
	           "JSON: path, chunks [block, file_offset, block_bytes, policy, index, kind, state (ok|missing|down|corrupt), margin, crowded,\n"
	           "disk, server, segment, offset, length, trailer_offset, trailer_bytes, bad_trailer, bad_units], chunk_count, bad_count,\n"
	           "min_margin, verified.\n\n"
	           "Examples:\n"
	           "  craton inspect /models/model.bin\n"
	           "  craton inspect --verify --json /models/model.bin\n",
	.opts = opts,
	.values_bytes = sizeof(struct values),
	.min_words = 1,
	.max_words = 1,
	.run = run,
};
