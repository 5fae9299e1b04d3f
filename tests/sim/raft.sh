#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Random histories of Raft groups (tools/prove raft-histories runs many): a seed is the same history twice.
set -eu
histories=${CRATON_BUILD:-build}/tests/raft/craton-raft-histories
"$histories-few" --seed 7 --count 20 >/dev/null || { echo "with few terms remembered:"; "$histories-few" --seed 7 --count 20; exit 1; }
once=$("$histories" --seed 7 --count 20)
[ "$once" = "$("$histories" --seed 7 --count 20)" ] || { echo "seeds 7 to 26 are not the same histories twice"; exit 1; }
echo "seeds 7 to 26 are the same histories twice: $once"
