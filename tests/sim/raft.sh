#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Random histories of Raft groups: crashes, torn logs, partitions, changes of members. One seed is one history: the same twice.
set -eu
histories=${CRATON_BUILD:-build}/tests/raft/craton-raft-histories
once=$("$histories" --seed 7 --count 3)
[ "$once" = "$("$histories" --seed 7 --count 3)" ] || { echo "seed 7 is not the same history twice"; exit 1; }
"$histories" --count 300
