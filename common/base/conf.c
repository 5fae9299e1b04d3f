/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/conf.h"

#include <stddef.h>

const char *const conf_names[] = {
	/* all programs */
	"cluster", "metad", "secret-file", "plaintext", "transform",
	/* craton-metad */
	"policy", "cell", "chunk",
	/* craton-chunkd */
	"capacity", "segment", "memory", "beside-metad",
	/* clients */
	"timeout", "tails",
	NULL,
};
