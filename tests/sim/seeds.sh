#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Some seeds with faults (tools/soak runs many), and those that have found something once: nothing acknowledged is lost or wrong. A few without
# any, and some with one chunk server at a time away, slow or cut off: there no operation may fail. The same with a group of three metads. Two
# processes side by side.
set -eu
sim=${CRATON_BUILD:-build}/tests/sim/craton-sim
each=${CRATON_SIM_SEEDS:-12}
# A copy that could not be read for a while counted as damaged; a metad ended by a write that had failed before there was room again stayed down.
found="300369 11224"
# A metad that was to join kept the build that the group had left behind.
found_in_groups="18916"
out=$(mktemp)
trap 'rm -f "$out"' EXIT
code=0

"$sim" --faults none --seed 1 --runs 5
"$sim" --faults one --seed 1 --runs 8
"$sim" --seed 1 --runs $each >"$out" &
other=$!
"$sim" --seed $((each + 1)) --runs $each || code=1
wait $other || code=1
cat "$out"
"$sim" --metads 3 --faults none --seed 1 --runs 3 || code=1
"$sim" --metads 3 --faults one --seed 1 --runs 4 || code=1
"$sim" --metads 3 --seed 1 --runs $each || code=1
for seed in $found; do
	"$sim" --seed "$seed" || code=1
done
for seed in $found_in_groups; do
	"$sim" --metads 3 --seed "$seed" || code=1
done
[ $code = 0 ] || exit 1
echo "$((3 * each)) seeds with faults, 12 with one at a time, 8 without: nothing acknowledged was lost or wrong"
