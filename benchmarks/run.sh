#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds a question's benchmark optimised and runs it: benchmarks/run.sh QUESTION [arguments for Google Benchmark]
# Without a question it lists them. PENSTOCK_BUILD_DIR is where to build, build/release by default.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
build=${PENSTOCK_BUILD_DIR:-$here/../build/release}
questions=$(cd "$here" && for source in */*.cpp; do [[ ! -f $source ]] || dirname "$source"; done | sort -u)

question=${1:-}
if [[ -z $question ]]; then
  echo "usage: benchmarks/run.sh QUESTION [ARGUMENTS]; questions:" $questions
  exit 2
fi
if ! grep -qx -- "$question" <<<"$questions"; then
  echo "benchmarks/run.sh: no question $question; there are:" $questions >&2
  exit 2
fi
shift

# The report alone goes to standard output.
{
  cmake -S "$here/.." -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DPENSTOCK_BUILD_TESTS=OFF -DPENSTOCK_BUILD_EXAMPLES=OFF \
    -DPENSTOCK_BUILD_BENCHMARKS=ON
  cmake --build "$build" --target "benchmark_$question"
} >&2
exec "$build/benchmarks/benchmark_$question" "$@"
