/* SPDX-License-Identifier: Apache-2.0 */
/* train_options: see train_options.h. "--name value" and "--name=value"; an option given twice is refused. */
#include "trainer/train_options.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include "trainer/loader.h"
#include "trainer/model.h"
#include "trainer/step.h"

enum train_option_type { OPTION_STRING, OPTION_NUMBER, OPTION_REAL, OPTION_FLAG };

struct train_option {
	const char *name;
	char letter;
	enum train_option_type type;
	size_t offset;
	const char *standard; /* default as text; NULL: none */
	double min, max;
	const char *arg, *help;
};

#define AT(member) offsetof(struct train_options, member)
#define STEPS_MAX 1e15

static const struct train_option train_option_table[] = {
	{"config", 'c', OPTION_STRING, AT(config), NULL, 0, 0, "FILE",
		"configuration of the store (else as for craton)"},
	{"data", 0, OPTION_STRING, AT(data), NULL, 0, 0, "PATH",
		"dataset in the store, made by `craton dataset pack`; file:DIR: on this host, such as in a mount"},
	{"checkpoint-dir", 0, OPTION_STRING, AT(checkpoint_dir), NULL, 0, 0, "PATH",
		"directory in the store for checkpoints of this run; without it nothing is saved"},
	{"resume", 0, OPTION_STRING, AT(resume), "auto", 0, 0, "auto|none|PATH",
		"go on from the newest whole checkpoint, start anew, or from this one"},
	{"save-every", 0, OPTION_NUMBER, AT(save_every), "100", 1, STEPS_MAX, "STEPS", "steps between checkpoints"},
	{"keep", 0, OPTION_NUMBER, AT(keep), "3", 1, 100000, "N", "checkpoints to keep"},
	{"max-steps", 0, OPTION_NUMBER, AT(max_steps), "1000", 1, STEPS_MAX, "STEPS",
		"stop after this step, counted from the first run"},
	{"batch-size", 0, OPTION_NUMBER, AT(batch_size), "16", 1, LOADER_BATCH_MAX, "N", "sequences a step"},
	{"seq-len", 0, OPTION_NUMBER, AT(seq_len), "128", 2, MODEL_SEQ_MAX, "BYTES", "length of a sequence"},
	{"layers", 0, OPTION_NUMBER, AT(layers), "4", 1, MODEL_LAYERS_MAX, "N", "layers of the model"},
	{"width", 0, OPTION_NUMBER, AT(width), "192", 8, MODEL_WIDTH_MAX, "N", "width of the model"},
	{"heads", 0, OPTION_NUMBER, AT(heads), "6", 1, MODEL_WIDTH_MAX, "N", "attention heads; must divide the width"},
	{"lr", 0, OPTION_REAL, AT(lr), "0.002", 0, 10, "RATE", "peak of the learning rate"},
	{"warmup-steps", 0, OPTION_NUMBER, AT(warmup_steps), "50", 0, STEPS_MAX, "STEPS", "steps up to the peak"},
	{"decay-steps", 0, OPTION_NUMBER, AT(decay_steps), "2000", 0, STEPS_MAX, "STEPS",
		"steps of the cosine from the peak down to a tenth of it"},
	{"weight-decay", 0, OPTION_REAL, AT(weight_decay), "0.1", 0, 10, "RATE",
		"of matrices, times the learning rate"},
	{"clip", 0, OPTION_REAL, AT(clip), "1", 0, 1e6, "NORM", "greatest norm of a gradient; 0: no limit"},
	{"seed", 0, OPTION_NUMBER, AT(seed), "1", 0, 9007199254740992.0, "N",
		"of the weights and of the order of samples"},
	{"holdout-percent", 0, OPTION_NUMBER, AT(holdout_percent), "5", 1, 90, "N",
		"last part of the corpus, never trained on"},
	{"eval-every", 0, OPTION_NUMBER, AT(eval_every), "100", 1, STEPS_MAX, "STEPS", "steps between held-out losses"},
	{"eval-samples", 0, OPTION_NUMBER, AT(eval_samples), "128", 1, 65536, "N",
		"sequences of a held-out loss, at most"},
	{"log-every", 0, OPTION_NUMBER, AT(log_every), "10", 1, STEPS_MAX, "STEPS", "steps between lines"},
	{"lanes", 0, OPTION_NUMBER, AT(lanes), "4", 1, STEP_LANES_MAX, "N",
		"parts of a batch that are computed independently; part of what a run is"},
	{"threads", 0, OPTION_NUMBER, AT(threads), "0", 0, STEP_LANES_MAX, "N",
		"computing threads, at most one a lane; the result does not depend on it; 0: one a processor"},
#ifdef HAVE_CUDA
	{"device", 0, OPTION_STRING, AT(device), "cpu", 0, 0, "cpu|cuda", "where the optimizer runs"},
#endif
	{"timeout-ms", 0, OPTION_NUMBER, AT(timeout_ms), "0", 0, 3600000, "MS",
		"greatest time of one call to the store; 0: its default"},
	{"json", 0, OPTION_FLAG, AT(json), NULL, 0, 0, NULL, "print JSON lines"},
	{"help", 'h', OPTION_FLAG, AT(help), NULL, 0, 0, NULL, "print this"},
	{"version", 0, OPTION_FLAG, AT(version), NULL, 0, 0, NULL, "print the version"},
};

enum { TRAIN_OPTION_COUNT = sizeof(train_option_table) / sizeof(train_option_table[0]) };
_Static_assert(TRAIN_OPTION_COUNT <= 64, "given is one word");

static int train_options_set(struct train_options *o, const struct train_option *t, const char *text, struct terr *e)
{
	void *to = (char *)o + t->offset;
	char *end;
	double v;

	if (t->type == OPTION_FLAG) {
		*(bool *)to = true;
		return 0;
	}
	if (t->type == OPTION_STRING) {
		if (!*text)
			return terr_set(e, -EINVAL, "--%s: give %s", t->name, t->arg);
		*(const char **)to = text;
		return 0;
	}
	v = strtod(text, &end);
	if (end == text || *end || !(v >= t->min && v <= t->max) || (t->type == OPTION_NUMBER && v != floor(v)))
		return terr_set(
			e, -EINVAL, "--%s %.100s: give a number from %.15g to %.15g", t->name, text, t->min, t->max);
	if (t->type == OPTION_NUMBER)
		*(uint64_t *)to = (uint64_t)v;
	else
		*(double *)to = v;
	return 0;
}

static int train_options_find(const char *word, size_t len, struct terr *e)
{
	for (int i = 0; i < TRAIN_OPTION_COUNT; i++) {
		const struct train_option *t = &train_option_table[i];

		if (word[1] == '-' ? strlen(t->name) == len - 2 && !memcmp(t->name, word + 2, len - 2)
				   : t->letter && len == 2 && word[1] == t->letter)
			return i;
	}
	return terr_set(
		e, -EINVAL, "%.*s: no such option; `craton-train --help` lists them", len < 200 ? (int)len : 200, word);
}

int train_options_parse(struct train_options *o, int argc, char **argv, struct terr *e)
{
	memset(o, 0, sizeof(*o));
	for (int i = 0; i < TRAIN_OPTION_COUNT; i++)
		if (train_option_table[i].standard &&
			train_options_set(o, &train_option_table[i], train_option_table[i].standard, e))
			return -EINVAL;
	for (int i = 1; i < argc; i++) {
		const char *word = argv[i], *value = NULL, *equals = strchr(word, '=');
		const struct train_option *t;
		int found;

		if (word[0] != '-' || !word[1])
			return terr_set(
				e, -EINVAL, "%.200s: craton-train takes options only; try --data %.200s", word, word);
		found = train_options_find(word, equals ? (size_t)(equals - word) : strlen(word), e);
		if (found < 0)
			return found;
		t = &train_option_table[found];
		if (o->given >> found & 1)
			return terr_set(e, -EINVAL, "--%s: given twice", t->name);
		if (t->type == OPTION_FLAG && equals)
			return terr_set(e, -EINVAL, "--%s: takes no value", t->name);
		if (t->type != OPTION_FLAG) {
			value = equals ? equals + 1 : ++i < argc ? argv[i] : NULL;
			if (!value)
				return terr_set(e, -EINVAL, "--%s: give %s", t->name, t->arg);
		}
		o->given |= (uint64_t)1 << found;
		if (train_options_set(o, t, value, e))
			return -EINVAL;
	}
	if (!o->help && !o->version && !o->data)
		return terr_set(e, -EINVAL,
			"--data: give the path of a dataset in the store (`craton dataset pack` makes one)");
	return 0;
}

static int train_options_row(const struct train_options *o, const void *member)
{
	for (int i = 0; i < TRAIN_OPTION_COUNT; i++)
		if ((const char *)o + train_option_table[i].offset == (const char *)member)
			return i;
	abort(); /* a member without a row: our own mistake */
}

bool train_options_given(const struct train_options *o, const void *member)
{
	return o->given >> train_options_row(o, member) & 1;
}

const char *train_options_name(const struct train_options *o, const void *member)
{
	return train_option_table[train_options_row(o, member)].name;
}

void train_options_help(FILE *out)
{
	fprintf(out,
		"Usage: craton-train --data PATH [options]\n\n"
		"Trains a small byte-level GPT on a dataset in a Craton store, saving checkpoints there in the background.\n\n"
		"Options:\n");
	for (int i = 0; i < TRAIN_OPTION_COUNT; i++) {
		const struct train_option *t = &train_option_table[i];
		char left[64], letter[8] = "    ";

		if (t->letter)
			snprintf(letter, sizeof(letter), "-%c, ", t->letter);
		snprintf(left, sizeof(left), "%s--%s %s", letter, t->name, t->arg ? t->arg : "");
		fprintf(out, "  %-34s %s%s%s%s\n", left, t->help, t->standard ? " [" : "",
			t->standard ? t->standard : "", t->standard ? "]" : "");
	}
	fprintf(out,
		"\n"
		"A resumed run takes its options from the checkpoint; one given on the command line must agree with it,\n"
		"except --lr, --warmup-steps, --decay-steps, --weight-decay and --clip, which may change.\n"
		"SIGTERM and SIGINT save a checkpoint and stop. Exit code: 0, 1 (failure, or the last save failed), 2 (usage).\n\n"
		"Examples:\n"
		"  craton dataset pack corpus.txt /data/corpus\n"
		"  craton-train --data /data/corpus --checkpoint-dir /ckpt/run1 --max-steps 600\n"
		"  craton-train --data /data/corpus --checkpoint-dir /ckpt/run1 --max-steps 1200    # goes on at step 600\n"
		"  craton-train --data file:/mnt/craton/data/corpus --max-steps 600    # the same bytes through a mount\n"
		"  craton-train --data /data/corpus --resume /ckpt/run1/step-00000500 --json | tee log.jsonl\n");
}
