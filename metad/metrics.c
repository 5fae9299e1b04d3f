/* SPDX-License-Identifier: Apache-2.0 */
/* metrics: what GET /metrics of metad shows. Nothing here changes anything but the count of blocks, which is made anew now and then. */
#include "metad/core.h"
#include <stdio.h>
#include "common/base/check.h"
#include "metad/raft_links.h"

#ifndef PACKAGE_VERSION
#define PACKAGE_VERSION "0.1.0"
#endif

static const uint64_t MS_NS = 1000 * 1000;

static void write_log(struct metad *md, struct metrics *m)
{
	static const struct metric applied = {"craton_metad_applied_index", METRIC_GAUGE, "Log index of the last entry applied."},
				   state = {"craton_metad_state_time_seconds", METRIC_GAUGE,
					   "State time: the clock of everything that expires."},
				   entries = {"craton_metad_log_entries_total", METRIC_COUNTER, "Log entries written and applied."},
				   commands = {"craton_metad_commands_total", METRIC_COUNTER, "Commands in those entries."},
				   seconds = {"craton_metad_log_entry_seconds", METRIC_HISTOGRAM,
					   "Time from a log entry's submission to its application, its sync included."},
				   hangs = {"craton_metad_log_hangs", METRIC_GAUGE, "1: of a group: the log here does not answer, and others lead."},
				   stands = {"craton_metad_table_stands", METRIC_GAUGE, "1: of a group: the table here takes no entries, and others lead."},
				   asks = {"craton_metad_asks_way", METRIC_GAUGE, "1: bulk writes of this host are asked to make way."},
				   asked = {"craton_metad_asked_way_seconds_total", METRIC_COUNTER, "Time for which they were."};

	metrics_one(m, &applied, ledger_applied(md->ledger));
	metrics_begin(m, &state);
	metrics_seconds(m, NULL, metad__now_ms(md) * MS_NS);
	metrics_one(m, &entries, md->batcher.entries);
	metrics_one(m, &commands, md->batcher.commands);
	metrics_begin(m, &seconds);
	metrics_histogram(m, NULL, &md->batcher.seconds);
	metrics_one(m, &hangs, ledger_ill(md->ledger) == LEDGER_LOG_HANGS);
	metrics_one(m, &stands, ledger_ill(md->ledger) == LEDGER_ROWS_STAND);
	metrics_one(m, &asks, md->way.asks);
	metrics_begin(m, &asked);
	metrics_seconds(m, NULL, md->way.asked_ns);
}

static void write_kv(struct metad *md, struct metrics *m)
{
	static const struct metric memory = {"craton_kv_memory_bytes", METRIC_GAUGE, "Rows in memory, not committed to the table yet."},
				   bytes = {"craton_kv_table_bytes", METRIC_GAUGE, "Size of the table on disk."},
				   rows = {"craton_kv_table_rows", METRIC_GAUGE, "Rows of the table on disk."},
				   commits = {"craton_kv_commits_total", METRIC_COUNTER, "Commits of the table."},
				   committed = {"craton_kv_committed_rows_total", METRIC_COUNTER, "Rows that these wrote."},
				   last = {"craton_kv_last_commit_seconds", METRIC_GAUGE, "Time that the last commit took."},
				   longest = {"craton_kv_longest_commit_seconds", METRIC_GAUGE,
					   "Time that the longest commit since the start took."};
	struct kv_stats s;

	if (!md->state.kv)
		return; /* another table takes its place just now */
	kv_get_stats(md->state.kv, &s);
	metrics_one(m, &memory, s.memory_bytes);
	metrics_one(m, &bytes, s.backing_bytes);
	metrics_one(m, &rows, s.backing_rows);
	metrics_one(m, &commits, s.commits);
	metrics_one(m, &committed, s.committed_rows);
	metrics_begin(m, &last);
	metrics_seconds(m, NULL, s.last_commit_ns);
	metrics_begin(m, &longest);
	metrics_seconds(m, NULL, s.longest_commit_ns);
}

static void write_space(struct metad *md, struct metrics *m)
{
	static const struct metric_field of_space[] = {
		METRIC_FIELD("craton_raw_capacity_bytes", METRIC_GAUGE, Craton__DfReply, total_bytes, "Raw space of all disks that are not failed."),
		METRIC_FIELD("craton_raw_free_bytes", METRIC_GAUGE, Craton__DfReply, free_bytes, "Raw space that is free."),
		METRIC_FIELD("craton_available_bytes", METRIC_GAUGE, Craton__DfReply, available_bytes,
			"User data that fits yet, under the root's policy and without the reserve for repair."),
		METRIC_FIELD("craton_pending_bytes", METRIC_GAUGE, Craton__DfReply, pending_bytes, "Raw space of deleted data not reclaimed yet."),
		METRIC_FIELD("craton_files", METRIC_GAUGE, Craton__DfReply, file_count, "Files with a name."),
		METRIC_FIELD("craton_directories", METRIC_GAUGE, Craton__DfReply, dir_count, "Directories."),
		METRIC_FIELD("craton_file_bytes", METRIC_GAUGE, Craton__DfReply, file_bytes, "Bytes of files with a name."),
		{{0}, 0},
	};
	Craton__DfReply df = CRATON__DF_REPLY__INIT;

	metad__fill_df(md, &df);
	metrics_fields(m, of_space, &df);
}

static void write_state(struct metrics *m, const char *state, uint64_t count)
{
	struct metrics_labels l;

	metrics_labels_init(&l);
	metrics_value(m, metrics_label(&l, "state", state), count);
}

static void write_fleet(struct metad *md, struct metrics *m)
{
	static const struct metric servers = {"craton_servers", METRIC_GAUGE, "Chunk servers by state."},
				   disks = {"craton_disks", METRIC_GAUGE, "Disks by state; those of a server that is down are down."};
	uint64_t up = 0, all = 0, by_state[STATE_DISK_FAILED + 1] = {0};

	for (uint32_t id = 1; id < md->state.server_cap; id++) {
		const struct state_server *server = state_server_at(&md->state, id);

		all += server != NULL;
		up += server && server->up;
	}
	for (uint32_t id = 1; id < md->state.disk_cap; id++) {
		const struct state_disk *disk = state_disk_at(&md->state, id);

		if (disk)
			by_state[disk->state == STATE_DISK_FAILED || state_disk_counts(&md->state, id) ? disk->state
												       : STATE_DISK_DOWN]++;
	}
	metrics_begin(m, &servers);
	write_state(m, "up", up);
	write_state(m, "down", all - up);
	metrics_begin(m, &disks);
	write_state(m, "up", by_state[STATE_DISK_UP]);
	write_state(m, "down", by_state[STATE_DISK_DOWN]);
	write_state(m, "draining", by_state[STATE_DISK_DRAINING]);
	write_state(m, "failed", by_state[STATE_DISK_FAILED]);
}

/* The last count: there is none in the first moments. */
static void write_blocks(struct metad *md, struct metrics *m)
{
	static const struct metric blocks = {
		"craton_blocks", METRIC_GAUGE, "Blocks by state, as of the last count, made anew at most every 15 s."};
	const struct block_counts *c = &md->scan.done;

	metad__scan_refresh(md);
	if (!md->scan.valid)
		return;
	metrics_begin(m, &blocks);
	write_state(m, "full", c->full);
	write_state(m, "crowded", c->crowded);
	write_state(m, "degraded", c->degraded);
	write_state(m, "at_risk", c->at_risk);
	write_state(m, "lost", c->lost);
}

static void write_garbage(struct metad *md, struct metrics *m)
{
	static const struct metric dropped = {"craton_gc_dropped_copies_total", METRIC_COUNTER, "Copies that chunk servers have dropped."},
				   orphans = {"craton_gc_orphans_total", METRIC_COUNTER, "Copies found that no row named."},
				   missing = {"craton_gc_missing_total", METRIC_COUNTER, "Copies that rows named and that were not there."},
				   intents = {"craton_repair_intents", METRIC_GAUGE, "Rebuilds and moves under way."};

	metrics_one(m, &dropped, md->gc.dropped);
	metrics_one(m, &orphans, md->gc.orphans);
	metrics_one(m, &missing, md->gc.missing);
	metrics_one(m, &intents, md->state.intent_count);
}

static void write_sessions(struct metad *md, struct metrics *m)
{
	static const struct metric expired = {"craton_sessions_expired_total", METRIC_COUNTER, "Sessions ended because their clients fell silent."},
				   lost = {"craton_sessions_lost_total", METRIC_COUNTER, "Requests of sessions that have ended."};

	metrics_one(m, &expired, md->sessions.expired);
	metrics_one(m, &lost, md->sessions.lost);
}

static void write_members(struct metad *md, struct metrics *m)
{
	static const struct metric lag = {"craton_metad_member_lag_entries", METRIC_GAUGE, "Of a leader: log entries that a member lacks."},
				   silent = {"craton_metad_member_silent_seconds", METRIC_GAUGE, "Of a leader: since a member was heard."};
	const struct metric *shown[] = {&lag, &silent};
	struct metrics_labels l;
	struct ledger_view view;
	char name[32];

	ledger_view(md->ledger, &view);
	for (size_t which = 0; which < ARRAY_COUNT(shown); which++) {
		metrics_begin(m, shown[which]);
		for (uint32_t i = 0; i < view.count; i++) {
			const struct ledger_member *member = &view.members[i];

			snprintf(name, sizeof(name), "metad-%llu", (unsigned long long)member->id);
			metrics_labels_init(&l);
			metrics_label(&l, "member", name);
			if (shown[which] == &silent)
				metrics_seconds(m, &l, member->silent_ms * MS_NS);
			else
				metrics_value(m, &l, view.last > member->match ? view.last - member->match : 0);
		}
	}
}

/* Letters of members, or of who says that he is one, that came to nothing, by cause. */
static void write_letters(struct metad *md, struct metrics *m)
{
	static const struct metric refused = {"craton_metad_letters_refused_total", METRIC_COUNTER, "Letters of members, or of others, that were refused, by cause."};
	const struct raft_links_counts *links = ledger_link_counts(md->ledger);
	struct metrics_labels l;

	if (!links)
		return;
	const struct {
		const char *cause;
		uint64_t count;
	} causes[] = {
		{"version", links->wrong_version},
		{"cluster", links->wrong_cluster},
		{"secret", links->wrong_signature},
		{"malformed", links->malformed},
		{"not_here", links->not_here},
		{"unstamped", links->unstamped},
		{"replayed", links->replayed},
		{"contradicting", ledger_contradictions(md->ledger)},
		{"dropped", ledger_dropped(md->ledger)},
	};
	metrics_begin(m, &refused);
	for (size_t i = 0; i < ARRAY_COUNT(causes); i++) {
		metrics_labels_init(&l);
		metrics_value(m, metrics_label(&l, "cause", causes[i].cause), causes[i].count);
	}
}

/* Of a group. */
static void write_group(struct metad *md, struct metrics *m)
{
	static const struct metric_field of_group[] = {
		METRIC_FIELD("craton_metad_letters_malformed_total", METRIC_COUNTER, struct replica_counts, malformed, "Letters of other members that made no sense."),
		METRIC_FIELD("craton_metad_letters_dropped_total", METRIC_COUNTER, struct replica_counts, dropped, "Letters of other members that found no room."),
		METRIC_FIELD("craton_metad_snapshots_offered_total", METRIC_COUNTER, struct replica_counts, snapshots_offered,
			"Times that the table was offered to a member that lacks too much of the log."),
		METRIC_FIELD("craton_metad_snapshot_parts_sent_total", METRIC_COUNTER, struct replica_counts, parts_sent, "Parts of the table sent."),
		METRIC_FIELD("craton_metad_snapshots_installed_total", METRIC_COUNTER, struct replica_counts, snapshots_installed, "Tables of a leader that took the place of the own one."),
		METRIC_FIELD("craton_metad_snapshots_failed_total", METRIC_COUNTER, struct replica_counts, snapshots_failed, "Tables of a leader that did not arrive whole and right."),
		METRIC_FIELD("craton_metad_snapshot_parts_received_total", METRIC_COUNTER, struct replica_counts, parts_received, "Parts of a leader's table that came."),
		{{0}, 0},
	};
	static const struct metric term = {"craton_metad_term", METRIC_GAUGE, "Of a group: the term that this metad is in."};
	const struct replica_counts *counts = ledger_counts(md->ledger);

	metrics_one(m, &term, md->role.term);
	if (counts)
		metrics_fields(m, of_group, counts);
	write_letters(md, m);
	if (md->ready)
		write_members(md, m);
}

static void write_role(struct metad *md, struct metrics *m)
{
	static const struct metric leads = {"craton_metad_leads", METRIC_GAUGE, "1: it serves the store; 0: of a group, another one does, or none."};

	metrics_one(m, &leads, md->ready);
	if (md->options.group.id)
		write_group(md, m);
}

static void write_metrics(void *ctx, struct metrics *m)
{
	static const struct metric build = {"craton_build_info", METRIC_GAUGE, "What runs here; always 1."};
	struct metad *md = metad__of(ctx);
	struct metrics_labels l;

	metrics_labels_init(&l);
	metrics_label(&l, "version", PACKAGE_VERSION);
	metrics_label(&l, "program", "craton-metad");
	metrics_begin(m, &build);
	metrics_value(m, metrics_label(&l, "name", md->options.name), 1);
	refused_write(&md->refused, m);
	if (md->stopping || md->failed || !md->state.kv) /* or a snapshot is taking the place of the table */
		return;
	write_role(md, m);
	write_log(md, m);
	write_kv(md, m);
	if (md->ready) { /* else these are figures of another time */
		write_space(md, m);
		write_fleet(md, m);
		write_blocks(md, m);
		write_garbage(md, m);
		write_sessions(md, m);
	}
	rpc_server_write_metrics(md->server, m);
}

int metad__metrics_open(struct metad *md, struct err *err)
{
	struct metrics_http_options o = {.listen = md->options.metrics,
		.log = md->options.log,
		.refused = &md->refused,
		.write = write_metrics,
		.ctx = md};

	return o.listen.family ? metrics_http_open(md->io, &o, &md->http, err) : 0;
}

void metad__metrics_close(struct metad *md, void (*closed)(void *ctx))
{
	struct metrics_http *http = md->http;

	md->http = NULL;
	if (http)
		metrics_http_close(http, closed, md);
	else
		closed(md);
}

struct io_addr metad_metrics_addr(const struct metad *md)
{
	return md->http ? metrics_http_addr(md->http) : (struct io_addr){0};
}
