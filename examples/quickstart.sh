#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the regression trainer and trains it on the prices of 53,940 diamonds: one command on a fresh Debian 12.
#   examples/quickstart.sh [options of the trainer, such as --epochs 10; --help lists them]
# PENSTOCK_BUILD_DIR is where to build, build/quickstart by default; PENSTOCK_OFFLINE=1 installs nothing. Where there are an NVIDIA
# GPU and nvcc the trainer is built with CUDA, and uses it unless told --device cpu; without a GPU that would take time for nothing.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=${PENSTOCK_BUILD_DIR:-$root/build/quickstart}

# Only what the trainer needs: compiler, build tools, Eigen for the network, CLI11 for the options, fast_float for the numbers.
if [[ -z ${PENSTOCK_OFFLINE:-} ]]; then
  sh "$root/tests/setup.sh" --only g++ cmake ninja-build libeigen3-dev libcli11-dev libfast-float-dev
fi

cuda=OFF
if [[ -e /dev/nvidia0 ]] || nvidia-smi -L 2>/dev/null | grep -q GPU; then
  cuda=ON
fi

mkdir -p "$build"
log=$build/quickstart.log
echo "quickstart: building (a minute or two; what the compiler says goes to $log)"
{
  cmake -S "$root" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DPENSTOCK_BUILD_TESTS=OFF -DPENSTOCK_BUILD_BENCHMARKS=OFF \
    -DPENSTOCK_BUILD_EXAMPLES=ON -DPENSTOCK_CUDA=$cuda && cmake --build "$build" --target regression_trainer
} >"$log" 2>&1 || {
  cat "$log"
  exit 1
}

cd "$root"
status=0
"$build/examples/regression_trainer" --data examples/data/diamonds.csv --target price --out "$build/diamonds" "$@" || status=$?
[[ $status -ne 10 ]] || status=0  # an early stop is a good end, too
exit "$status"
