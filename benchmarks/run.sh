#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Asks a question of the benchmarks, or all of them: installs what it needs, builds it optimised and runs it.
#   benchmarks/run.sh [QUESTION] [--readers N --depth N --batch N --row BYTES --read-us N --copy-us N --kernel-us N --cpus 0,1]
#                     [--out DIR] [arguments for Google Benchmark, such as --benchmark_repetitions=15]
# Every sample goes to a JSON file in the build folder, or to DIR. PENSTOCK_BUILD_DIR is where to build, build/release by default;
# PENSTOCK_OFFLINE=1 installs nothing; PENSTOCK_RIVALS=all also installs those rivals that take a gigabyte. Rivals that are
# not there are listed as left out, and so are questions about a GPU where there is no nvcc or no GPU.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
build=${PENSTOCK_BUILD_DIR:-$here/../build/release}
questions=$(cd "$here" && for source in */*.cpp; do [[ ! -f $source ]] || dirname "$source"; done | sort -u)

asked=$questions
if [[ -n ${1:-} && ${1:0:1} != - ]]; then
  asked=$1
  shift
  if ! grep -qx -- "$asked" <<<"$questions"; then
    echo "benchmarks/run.sh: no question $asked; there are:" $questions >&2
    exit 2
  fi
fi

# What has kernels needs nvcc to be built, and a GPU to be asked.
if ! command -v nvcc >/dev/null && [[ ! -x ${CUDACXX:-/usr/local/cuda/bin/nvcc} ]]; then
  rest=
  for question in $asked; do
    if compgen -G "$here/$question/*.cu" >/dev/null; then
      echo "$question: left out: no nvcc"
    else
      rest+="$question "
    fi
  done
  asked=$rest
  [[ -n $asked ]] || exit 0
fi

# A question's sources name its packages: `// packages: ...` are its rivals, `// large packages: ...` those for PENSTOCK_RIVALS=all.
kinds='^// packages: '
[[ ${PENSTOCK_RIVALS:-} != all ]] || kinds='^// (large )?packages: '
packages=$(cd "$here" && { grep -hE "$kinds" $(printf '%s/*.cpp ' $asked) || true; } | sed -E "s|$kinds||" | tr ' ' '\n' | sort -u)

# The report alone goes to standard output.
{
  [[ -n ${PENSTOCK_OFFLINE:-} ]] || sh "$here/../tests/setup.sh" --only g++ cmake ninja-build libbenchmark-dev $packages
  cmake -S "$here/.." -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DPENSTOCK_BUILD_TESTS=OFF -DPENSTOCK_BUILD_EXAMPLES=ON \
    -DPENSTOCK_BUILD_BENCHMARKS=ON
  cmake --build "$build" --target $(printf 'benchmark_%s ' $asked)
} >&2

PENSTOCK_COMMIT=$(git -C "$here" describe --always --dirty 2>/dev/null || echo unknown)
export PENSTOCK_COMMIT
status=0
for question in $asked; do
  result=0
  "$build/benchmarks/benchmark_$question" "$@" || result=$?
  ((result == 0 || result == 77)) || status=$result  # 77: says itself why it is left out
  echo
done
exit "$status"
