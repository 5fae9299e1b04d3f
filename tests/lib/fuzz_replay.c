/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_replay: the main of a fuzz target in builds without libFuzzer, so that `make check` runs each target over its corpus,
 * tests/fuzz/corpus/NAME/ for fuzz_NAME, and over a fixed number of seeded mutations of each input: MUTATIONS, or as many as a target that takes
 * its time says by `fuzz_mutations`.
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/base/rng.h"

enum { MAX_INPUT_BYTES = 1 << 20, MUTATIONS = 2000 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
extern __attribute__((weak)) const int fuzz_mutations;

/* Inputs are given in memory of their exact size, so that AddressSanitizer sees the first byte read past the end. */
static void run_exact(const uint8_t *data, size_t len)
{
	uint8_t *copy = malloc(len ? len : 1);

	memcpy(copy, data, len);
	LLVMFuzzerTestOneInput(copy, len);
	free(copy);
}

static size_t mutate(struct rng *rng, uint8_t *data, size_t len)
{
	for (uint64_t changes = rng_between(rng, 1, 4); changes > 0 && len > 0; changes--) {
		size_t at = rng_below(rng, len);

		switch (rng_below(rng, 5)) {
		case 0:
			data[at] ^= (uint8_t)(1u << rng_below(rng, 8));
			break;
		case 1:
			data[at] = (uint8_t)rng_u64(rng);
			break;
		case 2:
			data[at] = rng_chance(rng, 1, 2) ? 0xff : 0;
			break;
		case 3:
			len = at;
			break;
		default:
			memmove(data + at, data + at + 1, len - at - 1);
			len--;
		}
	}
	return len;
}

static int mutations(void)
{
	return &fuzz_mutations ? fuzz_mutations : MUTATIONS;
}

static void replay(struct rng *rng, const char *path)
{
	static uint8_t input[MAX_INPUT_BYTES], changed[MAX_INPUT_BYTES];
	FILE *f = fopen(path, "rb");
	size_t len;

	if (!f) {
		perror(path);
		exit(1);
	}
	len = fread(input, 1, sizeof(input), f);
	fclose(f);
	run_exact(input, len);
	for (int i = 0; i < mutations(); i++) {
		memcpy(changed, input, len);
		run_exact(changed, mutate(rng, changed, len));
	}
}

int main(int argc, char **argv)
{
	const char *srcdir = getenv("srcdir"), *name = strstr(argv[0], "fuzz_");
	char folder[1024], path[2048];
	struct dirent **entries;
	struct rng rng;
	int count, inputs = 0;

	(void)argc;
	for (const char *next = name; next; next = strstr(next + 1, "fuzz_"))
		name = next;
	if (!name)
		return 1;
	snprintf(folder, sizeof(folder), "%s/tests/fuzz/corpus/%s", srcdir ? srcdir : ".", name + strlen("fuzz_"));
	rng_init(&rng, 1);
	run_exact((const uint8_t *)"", 0);
	count = scandir(folder, &entries, NULL, alphasort); /* the same order everywhere */
	for (int i = 0; i < count; i++) {
		if (entries[i]->d_name[0] != '.') {
			snprintf(path, sizeof(path), "%s/%s", folder, entries[i]->d_name);
			replay(&rng, path);
			inputs++;
		}
		free(entries[i]);
	}
	if (count >= 0)
		free(entries);
	printf("%s: %d inputs of %s, %d mutations of each\n", name, inputs, folder, mutations());
	return inputs > 0 ? 0 : 1;
}
