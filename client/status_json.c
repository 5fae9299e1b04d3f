/* SPDX-License-Identifier: Apache-2.0 */
/*
 * status_json: the one place that names the fields of `craton status --json`. A field is added, never renamed.
 *
 *   {health, reasons: [{code, severity, text}], blocks: {full, crowded, degraded, at_risk, lost, by_margin: []},
 *    servers: [{server, name, address, domain, state, silent_ms, disks: [], version}],
 *    disks: [{disk, server, path, state, generation, capacity_bytes, free_bytes, chunks, error}],
 *    df: {total_bytes, free_bytes, pending_bytes, file_count, dir_count, file_bytes},
 *    repair: {enabled, wanted, helpless, no_target, active, done, failed, bytes, hold_ms, out_wait_ms, reports, damaged},
 *    sessions: {open, expired, lost, forged, out_of_window, orphans}, refused: [{cause, count, ago_ms}],
 *    settings: [{name, type, unit, min, max, default, value, text, default_text, help}] (those not at their default),
 *    cluster, default_policy, version, state_time_ms, applied_index, floor}
 */
#include "client/status_json.h"

#include <stddef.h>
#include "common/base/buf.h"
#include "common/base/json.h"
#include "common/base/mem.h"

enum { STATUS_MAX_BYTES = 16 << 20 };

static void put_reasons(struct json *j, const Craton__StatusReply *r)
{
	json_array(j, "reasons");
	for (size_t i = 0; i < r->n_reasons; i++) {
		json_object(j, NULL);
		json_str(j, "code", r->reasons[i]->code);
		json_str(j, "severity", r->reasons[i]->severity);
		json_str(j, "text", r->reasons[i]->text);
		json_end_object(j);
	}
	json_end_array(j);
}

static void put_blocks(struct json *j, const Craton__BlockCounts *b)
{
	json_object(j, "blocks");
	json_u64(j, "full", b->full);
	json_u64(j, "crowded", b->crowded);
	json_u64(j, "degraded", b->degraded);
	json_u64(j, "at_risk", b->at_risk);
	json_u64(j, "lost", b->lost);
	json_array(j, "by_margin");
	for (size_t i = 0; i < b->n_by_margin; i++)
		json_u64(j, NULL, b->by_margin[i]);
	json_end_array(j);
	json_end_object(j);
}

static void put_servers(struct json *j, const Craton__StatusReply *r)
{
	json_array(j, "servers");
	for (size_t i = 0; i < r->n_servers; i++) {
		const Craton__ServerStatus *s = r->servers[i];

		json_object(j, NULL);
		json_u64(j, "server", s->server);
		json_str(j, "name", s->name);
		json_str(j, "address", s->address);
		json_str(j, "domain", s->domain);
		json_str(j, "state", s->state);
		json_u64(j, "silent_ms", s->silent_ms);
		json_array(j, "disks");
		for (size_t d = 0; d < s->n_disks; d++)
			json_u64(j, NULL, s->disks[d]);
		json_end_array(j);
		json_str(j, "version", s->version);
		json_end_object(j);
	}
	json_end_array(j);
}

static void put_disks(struct json *j, const Craton__StatusReply *r)
{
	json_array(j, "disks");
	for (size_t i = 0; i < r->n_disks; i++) {
		const Craton__DiskStatus *d = r->disks[i];

		json_object(j, NULL);
		json_u64(j, "disk", d->disk);
		json_u64(j, "server", d->server);
		json_name(j, "path", d->path);
		json_str(j, "state", d->state);
		json_u64(j, "generation", d->generation);
		json_u64(j, "capacity_bytes", d->capacity_bytes);
		json_u64(j, "free_bytes", d->free_bytes);
		json_u64(j, "chunks", d->chunks);
		json_str(j, "error", d->error);
		json_end_object(j);
	}
	json_end_array(j);
}

static void put_df(struct json *j, const Craton__DfReply *df)
{
	json_object(j, "df");
	json_u64(j, "total_bytes", df->total_bytes);
	json_u64(j, "free_bytes", df->free_bytes);
	if (df->available_known || df->available_bytes)
		json_u64(j, "available_bytes", df->available_bytes);
	json_u64(j, "pending_bytes", df->pending_bytes);
	json_u64(j, "file_count", df->file_count);
	json_u64(j, "dir_count", df->dir_count);
	json_u64(j, "file_bytes", df->file_bytes);
	json_end_object(j);
}

static void put_settings(struct json *j, Craton__Setting *const *settings, size_t count)
{
	json_array(j, "settings");
	for (size_t i = 0; i < count; i++) {
		const Craton__Setting *s = settings[i];

		json_object(j, NULL);
		json_str(j, "name", s->name);
		json_str(j, "type", s->type);
		json_str(j, "unit", s->unit);
		json_u64(j, "min", s->min);
		json_u64(j, "max", s->max);
		json_u64(j, "default", s->default_value);
		json_u64(j, "value", s->value);
		json_str(j, "text", s->text);
		json_str(j, "default_text", s->default_text);
		json_str(j, "help", s->help);
		json_end_object(j);
	}
	json_end_array(j);
}

static void put_repair(struct json *j, const Craton__RepairStatus *r)
{
	if (!r)
		return;
	json_object(j, "repair");
	json_bool(j, "enabled", r->enabled);
	json_u64(j, "wanted", r->wanted);
	json_u64(j, "helpless", r->helpless);
	json_u64(j, "no_target", r->no_target);
	json_u64(j, "active", r->active);
	json_u64(j, "done", r->done);
	json_u64(j, "failed", r->failed);
	json_u64(j, "bytes", r->bytes);
	json_u64(j, "hold_ms", r->hold_ms);
	json_u64(j, "out_wait_ms", r->out_wait_ms);
	json_u64(j, "reports", r->reports);
	json_u64(j, "damaged", r->damaged);
	json_end_object(j);
}

/* What `out` holds, as a text that is the caller's. */
static char *text_of(struct buf *out)
{
	buf_append(out, "", 1);
	if (out->failed) {
		buf_fini(out);
		return NULL;
	}
	return (char *)out->data;
}

char *config_json(const Craton__ConfigReply *reply)
{
	struct buf out;
	struct json j;

	buf_init(&out, STATUS_MAX_BYTES);
	json_init(&j, &out);
	json_object(&j, NULL);
	put_settings(&j, reply->settings, reply->n_settings);
	json_end_object(&j);
	return text_of(&out);
}

static void put_sessions(struct json *j, const Craton__SessionStatus *s)
{
	json_object(j, "sessions");
	json_u64(j, "open", s->open);
	json_u64(j, "expired", s->expired);
	json_u64(j, "lost", s->lost);
	json_u64(j, "forged", s->forged);
	json_u64(j, "out_of_window", s->out_of_window);
	json_u64(j, "orphans", s->orphans);
	json_end_object(j);
}

static void put_refused(struct json *j, const Craton__StatusReply *r)
{
	json_array(j, "refused");
	for (size_t i = 0; i < r->n_refused; i++) {
		json_object(j, NULL);
		json_str(j, "cause", r->refused[i]->cause);
		json_u64(j, "count", r->refused[i]->count);
		json_u64(j, "ago_ms", r->refused[i]->ago_ms);
		json_end_object(j);
	}
	json_end_array(j);
}

char *status_json(const Craton__StatusReply *reply)
{
	struct buf out;
	struct json j;

	if (!reply->blocks || !reply->df)
		return NULL;
	buf_init(&out, STATUS_MAX_BYTES);
	json_init(&j, &out);
	json_object(&j, NULL);
	json_str(&j, "health", reply->health);
	put_reasons(&j, reply);
	put_blocks(&j, reply->blocks);
	put_servers(&j, reply);
	put_disks(&j, reply);
	put_df(&j, reply->df);
	if (reply->sessions)
		put_sessions(&j, reply->sessions);
	put_refused(&j, reply);
	put_settings(&j, reply->settings, reply->n_settings);
	put_repair(&j, reply->repair);
	json_str(&j, "cluster", reply->cluster);
	json_str(&j, "default_policy", reply->default_policy);
	json_str(&j, "version", reply->version);
	json_u64(&j, "state_time_ms", reply->state_time_ms);
	json_u64(&j, "applied_index", reply->applied_index);
	json_u64(&j, "floor", reply->floor);
	json_end_object(&j);
	return text_of(&out);
}
