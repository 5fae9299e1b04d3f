#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Groups of one and of three metads: what clients ask of a few names at once, and are told, is linearizable, with conflicts and lost answers
# among it. An exported history is judged as the simulator judged it; with one answer altered it is refused.
set -eu
build=${CRATON_BUILD:-build}
history=$(mktemp)
trap 'rm -f "$history" "$history.bad"' EXIT

for metads in 1 3; do
	sums=$("$build/tests/sim/craton-sim" --metads $metads --seed 101 --runs 6 --json) || { echo "$sums"; exit 1; }
	sums=$(echo "$sums" | tail -n 1)
	for count in name_ops name_conflicts name_unknown; do
		case $sums in
		*"\"$count\": 0,"*) echo "--metads $metads: $count is 0: nothing was shown"; exit 1 ;;
		*"\"$count\": "*) ;;
		*) echo "no $count in $sums"; exit 1 ;;
		esac
	done
done
"$build/tests/sim/craton-sim" --metads 3 --seed 101 --history "$history" >/dev/null
"$build/tests/linear/craton-linear" "$history" || exit 1
# A lookup that found something found something else.
awk '/"lookup".*"ok"/ && !n++ { sub(/"inode":[ ]*/, "&9") } { print }' "$history" >"$history.bad"
code=0
"$build/tests/linear/craton-linear" "$history.bad" >/dev/null || code=$?
[ $code = 1 ] || { echo "an altered history gives $code"; exit 1; }
