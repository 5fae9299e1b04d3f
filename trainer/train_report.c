/* SPDX-License-Identifier: Apache-2.0 */
/* train_report: see train_report.h. Every line is flushed: whoever reads it may wait for it. */
#include "trainer/train_report.h"

#include <inttypes.h>
#include <math.h>

static void train_report_string(const struct train_report *r, const char *key, const char *value)
{
	fprintf(r->out, ", \"%s\": \"", key);
	for (; *value; value++) {
		if (*value == '"' || *value == '\\')
			fprintf(r->out, "\\%c", *value);
		else if ((unsigned char)*value < 0x20)
			fprintf(r->out, "\\u%04x", (unsigned char)*value);
		else
			putc(*value, r->out);
	}
	putc('"', r->out);
}

static void train_report_real(const struct train_report *r, const char *key, double value)
{
	if (isfinite(value))
		fprintf(r->out, ", \"%s\": %.17g", key, value);
	else
		fprintf(r->out, ", \"%s\": null", key);
}

static void train_report_begin(const struct train_report *r, const char *event, uint64_t step)
{
	fprintf(r->out, "{\"event\": \"%s\", \"step\": %" PRIu64, event, step);
}

static void train_report_end(const struct train_report *r)
{
	fputs("}\n", r->out);
	fflush(r->out);
}

void train_report_start(const struct train_report *r, const struct manifest_meta *m, uint64_t params, unsigned threads,
	const char *vectors, uint64_t dataset_bytes, uint64_t epoch_samples)
{
	if (!r->json) {
		fprintf(r->out,
			"model: %" PRIu64
			" parameters (%u layers, width %u, %u heads, sequences of %u); %u threads, %s\n"
			"data: %s, %" PRIu64 " bytes, %" PRIu64 " samples an epoch, last %u %% held out\n",
			params, m->shape.layers, m->shape.width, m->shape.heads, m->shape.seq_len, threads, vectors,
			m->data_path, dataset_bytes, epoch_samples, m->holdout_percent);
		fflush(r->out);
		return;
	}
	train_report_begin(r, "start", m->step);
	fprintf(r->out,
		", \"params\": %" PRIu64
		", \"layers\": %u, \"width\": %u, \"heads\": %u, \"seq_len\": %u, \"batch_size\": %u, "
		"\"lanes\": %u, \"threads\": %u, \"seed\": %" PRIu64 ", \"dataset_bytes\": %" PRIu64
		", \"epoch_samples\": %" PRIu64,
		params, m->shape.layers, m->shape.width, m->shape.heads, m->shape.seq_len, m->batch_size, m->lanes,
		threads, m->seed, dataset_bytes, epoch_samples);
	train_report_string(r, "data", m->data_path);
	train_report_end(r);
}

void train_report_resume(const struct train_report *r, const char *path, uint64_t step)
{
	if (!r->json) {
		fprintf(r->out, "resumed from %s (step %" PRIu64 ")\n", path, step);
		fflush(r->out);
		return;
	}
	train_report_begin(r, "resume", step);
	train_report_string(r, "path", path);
	train_report_end(r);
}

void train_report_step(const struct train_report *r, uint64_t step, double loss, double lr, double norm,
	double tokens_per_s, double step_ms, double data_wait_ms)
{
	if (!r->json) {
		fprintf(r->out, "step %6" PRIu64 "  loss %.4f  lr %.2e  norm %.2f  %7.0f tokens/s  %.0f ms/step\n",
			step, loss, lr, norm, tokens_per_s, step_ms);
		fflush(r->out);
		return;
	}
	train_report_begin(r, "step", step);
	train_report_real(r, "loss", loss);
	train_report_real(r, "lr", lr);
	train_report_real(r, "grad_norm", norm);
	fprintf(r->out, ", \"tokens_per_s\": %.1f, \"step_ms\": %.3f, \"data_wait_ms\": %.3f", tokens_per_s, step_ms,
		data_wait_ms);
	train_report_end(r);
}

void train_report_heldout(const struct train_report *r, uint64_t step, double loss, uint32_t samples, double seconds)
{
	if (!r->json) {
		fprintf(r->out, "step %6" PRIu64 "  held-out loss %.4f nats a byte\n", step, loss);
		fflush(r->out);
		return;
	}
	train_report_begin(r, "heldout", step);
	train_report_real(r, "loss", loss);
	fprintf(r->out, ", \"samples\": %u, \"seconds\": %.3f", samples, seconds);
	train_report_end(r);
}

void train_report_save_start(const struct train_report *r, uint64_t step, double stall_ms, uint64_t late_steps)
{
	if (!r->json)
		return; /* people see the save when it is over */
	train_report_begin(r, "save-start", step);
	fprintf(r->out, ", \"stall_ms\": %.3f, \"late_steps\": %" PRIu64, stall_ms, late_steps);
	train_report_end(r);
}

void train_report_save(const struct train_report *r, const struct checkpoint_result *c)
{
	if (!r->json) {
		if (c->rc)
			fprintf(r->out, "step %6" PRIu64 "  SAVE FAILED after %.2f s: %s\n", c->step, c->seconds,
				c->error.text);
		else
			fprintf(r->out, "step %6" PRIu64 "  saved %s: %.1f MB in %.2f s\n", c->step, c->path,
				(double)c->bytes / 1e6, c->seconds);
		if (c->warning.text[0])
			fprintf(r->out, "warning: %s\n", c->warning.text);
		fflush(r->out);
		return;
	}
	train_report_begin(r, c->rc ? "save-failed" : "save", c->step);
	fprintf(r->out, ", \"bytes\": %" PRIu64 ", \"seconds\": %.6f, \"pruned\": %u", c->bytes, c->seconds, c->pruned);
	train_report_string(r, "path", c->path);
	if (c->rc)
		train_report_string(r, "error", c->error.text);
	if (c->warning.text[0])
		train_report_string(r, "warning", c->warning.text);
	train_report_end(r);
}

void train_report_note(const struct train_report *r, const char *event, const char *text)
{
	if (!r->json) {
		fprintf(r->out, "%s: %s\n", event, text);
		fflush(r->out);
		return;
	}
	fprintf(r->out, "{\"event\": \"%s\"", event);
	train_report_string(r, "text", text);
	train_report_end(r);
}

/* Those that there are: none of a run that took no step, no held-out one after an error. */
static void train_report_losses(const struct train_report *r, const struct train_report_summary *s)
{
	bool loss = isfinite(s->loss), heldout = isfinite(s->heldout);

	if (loss)
		fprintf(r->out, "loss %.4f%s", s->loss, heldout ? ", " : "");
	if (heldout)
		fprintf(r->out, "held-out loss %.4f", s->heldout);
	if (loss || heldout)
		fputs(" nats a byte\n", r->out);
}

void train_report_summary(const struct train_report *r, const struct train_report_summary *s)
{
	double rate = s->train_seconds > 0 ? (double)s->tokens / s->train_seconds : 0;

	if (!r->json) {
		fprintf(r->out,
			"done: step %" PRIu64 " (%s), %" PRIu64 " steps and %" PRIu64
			" tokens in %.1f s, %.0f tokens/s\n",
			s->step, s->stopped, s->step - s->first_step, s->tokens, s->seconds, rate);
		train_report_losses(r, s);
		fprintf(r->out,
			"saves: %" PRIu64 " good, %" PRIu64
			" failed; training stood still for them %.1f ms in all, %.1f ms at most, "
			"for data %.1f ms\nweights sha256 %s\n",
			s->saves, s->failed_saves, s->sum_stall_ms, s->max_stall_ms, s->data_wait_ms,
			s->weights_sha256);
		fflush(r->out);
		return;
	}
	train_report_begin(r, "summary", s->step);
	fprintf(r->out,
		", \"first_step\": %" PRIu64 ", \"tokens\": %" PRIu64 ", \"seconds\": %.3f, \"tokens_per_s\": %.1f",
		s->first_step, s->tokens, s->seconds, rate);
	train_report_real(r, "loss", s->loss);
	train_report_real(r, "heldout_loss", s->heldout);
	fprintf(r->out,
		", \"saves\": %" PRIu64 ", \"failed_saves\": %" PRIu64
		", \"last_save_failed\": %s, \"max_stall_ms\": %.3f, "
		"\"sum_stall_ms\": %.3f, \"data_wait_ms\": %.3f",
		s->saves, s->failed_saves, s->last_save_failed ? "true" : "false", s->max_stall_ms, s->sum_stall_ms,
		s->data_wait_ms);
	train_report_string(r, "stopped", s->stopped);
	train_report_string(r, "weights_sha256", s->weights_sha256);
	train_report_end(r);
}
