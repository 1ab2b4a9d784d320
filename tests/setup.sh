#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs the Debian packages that building and testing use, those that are not there yet, and says which.
# Where that is not possible (offline, no root, another system) it says so and ends well: CMake tells what it cannot do without.
#   tests/setup.sh [--list | --only PACKAGE...]
set -eu

required="g++ cmake ninja-build pkg-config libgtest-dev"
# CSV numbers, range-v3's views, the trainer, the benchmarks, a second compiler's opinion, MPI, image files, HDF5, LibTorch.
optional="libfast-float-dev librange-v3-dev libeigen3-dev libcli11-dev libbenchmark-dev clang-19 libhwloc-dev libopenmpi-dev openmpi-bin
  libclang-rt-19-dev libpng-dev libjpeg-dev libtiff-dev libhdf5-dev libtorch-dev"

if [ "${1:-}" = --list ]; then
  echo "$required $optional"
  exit 0
fi
if [ "${1:-}" = --only ]; then
  shift
  required="$*"
  optional=
fi
if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  echo "setup: no apt here; wanted what Debian calls: $required${optional:+; and if possible: $optional}"
  exit 0
fi

missing() {
  for package in "$@"; do
    status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
    [ "$status" = installed ] || printf '%s ' "$package"
  done
}

absent=$(missing $required $optional)
if [ -z "$absent" ]; then
  echo "setup: every package is there"
  exit 0
fi

root=
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "setup: missing $absent- and neither root nor sudo to install them"
    exit 0
  fi
  root=sudo
fi
apt() {
  $root env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 -q "$@"
}

echo "setup: installing $absent"
apt update || echo "setup: apt-get update failed (offline?), trying with the lists that are here"
absent=$(missing $required)
[ -z "$absent" ] || apt install -y --no-install-recommends $absent || echo "setup: could not install $absent"
for package in $(missing $optional); do
  apt install -y --no-install-recommends "$package" || echo "setup: could not install $package, going on without"
done
absent=$(missing $required $optional)
[ -z "$absent" ] || echo "setup: still missing: $absent"
