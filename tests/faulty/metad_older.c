/* SPDX-License-Identifier: Apache-2.0 */
/* A metad as of the build before the last raise of the cluster version. Linked with --wrap=metad_start around the real program, for tests/e2e/upgrade.py. */
#include "metad/metad.h"
#include "metad/state/cmd.h"

int __real_metad_start(struct io *io, const struct metad_options *options, struct metad **ret_metad, struct err *err);
int __wrap_metad_start(struct io *io, const struct metad_options *options, struct metad **ret_metad, struct err *err);

int __wrap_metad_start(struct io *io, const struct metad_options *options, struct metad **ret_metad, struct err *err)
{
	struct metad_options older = *options;

	older.supports = STATE_CLUSTER_VERSION - 1;
	return __real_metad_start(io, &older, ret_metad, err);
}
