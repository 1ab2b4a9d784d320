#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the patch trainer and trains it to take noise out of photos: one command on a fresh Debian 12, some five minutes.
#   examples/denoise.sh [options of the trainer, such as --photos FOLDER --epochs 10; --help lists them]
# Trains on 14 photos of the packages lomiri-wallpapers-16.04 and -20.04, which are unpacked and not installed, and reports on
# five more; offline, or with PENSTOCK_OFFLINE=1, on the six small ones in examples/data/photos, which are few for it.
# PENSTOCK_BUILD_DIR is where to build, build/denoise by default. LibTorch is the package libtorch-dev, or any of 1.13 or later:
#   CMAKE_PREFIX_PATH=$(python3 -c 'import torch; print(torch.utils.cmake_prefix_path)') examples/denoise.sh
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=${PENSTOCK_BUILD_DIR:-$root/build/denoise}

if [[ -z ${PENSTOCK_OFFLINE:-} ]]; then
  torch=libtorch-dev
  [[ -z ${CMAKE_PREFIX_PATH:-} ]] || torch=
  sh "$root/tests/setup.sh" --only g++ cmake ninja-build libcli11-dev libpng-dev libjpeg-dev libtiff-dev $torch
  sh "$root/tests/real_inputs.sh" "$build/packages" lomiri-wallpapers-16.04 lomiri-wallpapers-20.04
fi
photos=$build/packages/usr/share/backgrounds
more=(--held-out 5)
if [[ -z $(find "$photos" -name '*.jpg' 2>/dev/null) ]]; then
  echo "denoise: without the packages' photos: on the six small ones of examples/data/photos"
  photos=$root/examples/data/photos
  more=(--held-out 2)
fi

mkdir -p "$build"
log=$build/denoise.log
echo "denoise: building (a minute or two; what the compiler says goes to $log)"
{
  cmake -S "$root" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DPENSTOCK_BUILD_TESTS=OFF -DPENSTOCK_BUILD_BENCHMARKS=OFF \
    -DPENSTOCK_BUILD_EXAMPLES=ON -DPENSTOCK_CUDA=OFF && cmake --build "$build" --target patch_trainer
} >"$log" 2>&1 || {
  cat "$log"
  echo "denoise: the patch trainer was not built; is there LibTorch (package libtorch-dev)?"
  exit 1
}

cd "$root"
exec "$build/examples/patch_trainer" --photos "$photos" "${more[@]}" --out "$build/denoiser" "$@"
