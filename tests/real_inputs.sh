#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Fetches the real, odd CSV, NPY and image files that some tests read, by unpacking Debian packages into a folder:
#   tests/real_inputs.sh /tmp/real_inputs && PENSTOCK_REAL_INPUTS=/tmp/real_inputs ctest
# Nothing is installed and no root is needed. Packages already there are left alone. Offline it says so and ends well;
# the tests then skip what is missing.
set -eu

folder=${1:?"usage: $0 FOLDER [PACKAGE...]"}
shift
if [ $# -eq 0 ]; then
  set -- python3-statsmodels python3-sklearn python3-vega-datasets python3-numpy python3-scipy python-matplotlib-data python-tables-data \
    python3-skimage
fi
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)

if ! command -v apt-get >/dev/null || ! command -v dpkg >/dev/null; then
  echo "real_inputs: no apt-get or dpkg here, nothing fetched"
  exit 0
fi
missing=0
for package in "$@"; do
  stamp=$folder/.$package
  [ -e "$stamp" ] && continue
  download=$(mktemp -d)
  if (cd "$download" && apt-get -q download "$package" >apt.log 2>&1); then
    dpkg -x "$download"/*.deb "$folder"
    touch "$stamp"
  else
    echo "real_inputs: cannot download $package (offline?): $(tail -n 1 "$download/apt.log")"
    missing=1
  fi
  rm -rf "$download"
done
[ "$missing" -eq 1 ] || echo "real_inputs: complete in $folder"
