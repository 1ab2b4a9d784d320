#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what is missing, builds every test (also under ThreadSanitizer and AddressSanitizer + UBSan) and runs ctest:
#   tests/run.sh                    everything
#   tests/run.sh -L laws -LE tsan   arguments go on to ctest
# PENSTOCK_SANITIZERS= (empty) leaves the sanitizers' builds out; PENSTOCK_BUILD_DIR is where to build, build/tests by default;
# PENSTOCK_REAL_INPUTS is where real files are fetched to, real_inputs in there; PENSTOCK_OFFLINE=1 neither installs nor fetches.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=${PENSTOCK_BUILD_DIR:-$root/build/tests}
sanitizers=${PENSTOCK_SANITIZERS-thread;address}
export PENSTOCK_REAL_INPUTS=${PENSTOCK_REAL_INPUTS:-$build/real_inputs}

if [[ -z ${PENSTOCK_OFFLINE:-} ]]; then
  sh "$root/tests/setup.sh"
  sh "$root/tests/real_inputs.sh" "$PENSTOCK_REAL_INPUTS"
fi

# -O1, of which examples have enough here, for three quarters of the time that -O2 takes; tests say for themselves how they are to be
# optimised. Only what sanitizers watch has debug information, for the lines of their stack traces: it takes time, too.
cmake -S "$root" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo "-DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-O1" \
  "-DPENSTOCK_SANITIZERS=$sanitizers" -DPENSTOCK_BUILD_TESTS=ON -DPENSTOCK_BUILD_EXAMPLES=ON -DPENSTOCK_BUILD_BENCHMARKS=OFF

# A test that does not compile is one that fails: the others are built and run, and ctest lists it as not run.
cmake --build "$build" -- -k 0 || echo "run.sh: not everything was built; ctest tells which tests could not run" >&2

# Three at a time keep two processors busy, as some tests mostly wait.
exec ctest --test-dir "$build" --parallel "${CTEST_PARALLEL_LEVEL:-3}" --output-on-failure "$@"
