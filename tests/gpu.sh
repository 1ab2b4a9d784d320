#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks and measures everything on a GPU, in one call of a few minutes, and ends with a short table:
#   tests/gpu.sh LOGS                 builds for the GPU that is here, runs, and puts full logs (8 files at most) into LOGS
#   tests/gpu.sh --devices 0,1 LOGS   the same, with replicas on those devices, too
#   tests/gpu.sh --build-only LOGS    builds only: for PENSTOCK_GPU_ARCH, else for the GPU that is here, else for sm_90
#   tests/gpu.sh --prepare [DIR]      collects in DIR what a machine without packages lacks: take it along, as .gpu in here.
#                                     Needs Debian's packages; DIR is .gpu unless given
# Wanted are a C++ compiler, the CUDA toolkit, CMake and make. GoogleTest, Google Benchmark, Eigen, CLI11 and fast_float come from
# PENSTOCK_GPU_DEPENDENCIES, .gpu unless given, where that is there, or from the system; what needs one that is nowhere is left out.
# PENSTOCK_BUILD_DIR is where to build, build/gpu unless given; PENSTOCK_GPU_SECONDS is when to be done, 235 unless given.
# Exit status: 0, 1 if a check failed, 77 where there is no GPU.
set -uo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
usage() {
  sed -n 's/^# \{0,1\}//; 3,12p' "${BASH_SOURCE[0]}" >&2
  exit 2
}

# ---- beforehand, where there are packages

prepare() {
  local into=$1 package file
  mkdir -p "$into" || return
  for package in libbenchmark-dev libbenchmark1debian libeigen3-dev libcli11-dev libfast-float-dev libpng-dev libpng16-16 \
    libjpeg62-turbo-dev libjpeg62-turbo libtiff-dev libtiff6; do
    if ! dpkg -L "$package" >/dev/null 2>&1; then
      echo "gpu.sh: package $package is not installed here: what needs it will be left out" >&2
      continue
    fi
    dpkg -L "$package" | while IFS= read -r file; do
      case $file in
        */doc/* | */pkgconfig/* | */unsupported/*) ;;
        *) # Links are followed: the folder may be copied by what keeps none.
          [[ ! -f $file ]] || { mkdir -p "$into$(dirname "$file")" && cp -L "$file" "$into$file"; }
          ;;
      esac
    done
  done
  if [[ -d /usr/src/googletest ]]; then
    mkdir -p "$into/googletest" && (cd /usr/src/googletest && tar -ch --exclude=test --exclude=samples --exclude=docs .) |
      tar -x -C "$into/googletest"
  else
    echo "gpu.sh: no /usr/src/googletest (package googletest): tests that need it will be left out" >&2
  fi
  du -sh "$into"
}

build_only=
devices=0
case ${1:-} in
  --prepare)
    prepare "${2:-$root/.gpu}"
    exit
    ;;
  --build-only)
    build_only=1
    shift
    ;;
  --devices)
    [[ ${2:-} =~ ^[0-9]+(,[0-9]+)*$ ]] || usage
    devices=$2
    shift 2
    ;;
esac
[[ $# == 1 && ${1:0:1} != - ]] || usage
mkdir -p "$1" || exit 2
logs=$(cd "$1" && pwd)

build=${PENSTOCK_BUILD_DIR:-$root/build/gpu}
dependencies=${PENSTOCK_GPU_DEPENDENCIES:-$root/.gpu}
budget=${PENSTOCK_GPU_SECONDS:-235}
[[ -z $build_only ]] || budget=1800
cores=$(nproc)
[[ -d /usr/local/cuda/bin ]] && PATH=$PATH:/usr/local/cuda/bin
failed=0
summary=$logs/summary.txt
: >"$summary"

# ---- a line of the table for each thing: what, result, figure

declare -a lines=()
say() {
  lines+=("$(printf '%-34s %-9s %s' "$1" "$2" "${3:-}")")
  printf '[%3d s] %s\n' "$SECONDS" "${lines[-1]}"
  [[ $2 != failed ]] || failed=1
}
finish() {
  {
    printf '\n%s\n' "$(uname -srm), $cores cores; $gpu"
    printf '%-34s %-9s %s\n' what result figure
    printf '%s\n' "${lines[@]}"
    printf 'in %d s\n' "$SECONDS"
  } | tee -a "$summary"
  exit "$failed"
}
# Seconds that a step may take: its own limit, or what is left of all.
within() {
  local left=$((budget - SECONDS))
  ((left > 1)) || left=1
  echo $(($1 < left ? $1 : left))
}
# limited SECONDS LOG COMMAND...: the command's exit status; 124 or 137 if it took too long.
limited() {
  local seconds log=$2
  seconds=$(within "$1")
  shift 2
  timeout --kill-after=5 "$seconds" "$@" >>"$log" 2>&1 </dev/null
}
# What a step's exit status means.
verdict() {
  case $1 in
    0) echo passed ;;
    77) echo skipped ;;
    *) echo failed ;;
  esac
}
why() {
  case $1 in
    124 | 137) echo "took too long" ;;
    *) tail -n 1 "$2" | cut -c 1-90 ;;
  esac
}

# ---- which GPU

gpu="no GPU"
capability=
if command -v nvidia-smi >/dev/null; then
  if query=$(timeout 20 nvidia-smi --query-gpu=name,compute_cap,driver_version --format=csv,noheader -i 0 2>/dev/null); then
    gpu="${query//, / / }"
    capability=$(cut -d , -f 2 <<<"$query" | tr -cd '0-9')
  fi
fi
if [[ -z $capability ]] && command -v nvcc >/dev/null; then
  # Without the tool, or in its place: the runtime knows.
  small=$(mktemp -d)
  cat >"$small/which.cu" <<'EOF'
#include <cstdio>
int main() {
  cudaDeviceProp properties{};
  if (cudaGetDeviceProperties(&properties, 0) != cudaSuccess) return 1;
  std::printf("%d%d %s\n", properties.major, properties.minor, properties.name);
}
EOF
  if timeout 60 nvcc -o "$small/which" "$small/which.cu" >/dev/null 2>&1 && found=$(timeout 20 "$small/which" 2>/dev/null); then
    capability=${found%% *}
    gpu=${found#* }
  fi
  rm -rf "$small"
fi
if [[ -z $capability && -z $build_only ]]; then
  echo "gpu.sh: skipped: no GPU that the CUDA driver can use" | tee -a "$summary"
  exit 77
fi
[[ -z $build_only ]] || capability=${PENSTOCK_GPU_ARCH:-${capability:-90}}

# ---- build: what is run, for this GPU alone

log=$logs/build.log
: >"$log"
targets="gpu_tests benchmark_gpu_overlap regression_trainer patch_trainer"
examples=
for source in "$root"/examples/[0-9]*.cu; do
  [[ ! -f $source ]] || examples+=" $(basename "$source" .cu)"
done

options=()
prefixes=$(python3 -c 'import torch; print(torch.utils.cmake_prefix_path)' 2>/dev/null || true)  # for the patch trainer
if [[ -d $dependencies ]]; then
  dependencies=$(cd "$dependencies" && pwd)
  prefixes=$dependencies/usr${prefixes:+;$prefixes}
  [[ ! -d $dependencies/googletest ]] || options+=("-DPENSTOCK_GOOGLETEST=$dependencies/googletest")
  for config in "$dependencies"/usr/lib/*/cmake/benchmark; do
    [[ ! -d $config ]] || options+=("-Dbenchmark_DIR=$config")
  done
fi
[[ -z $prefixes ]] || options+=("-DCMAKE_PREFIX_PATH=$prefixes")
if limited 60 "$log" cmake -S "$root" -B "$build" -G "Unix Makefiles" -DCMAKE_BUILD_TYPE=Release \
  "-DCMAKE_CUDA_ARCHITECTURES=$capability-real" -DPENSTOCK_GPU_TESTS=ON -DPENSTOCK_BUILD_TESTS=OFF -DPENSTOCK_BUILD_EXAMPLES=ON \
  -DPENSTOCK_BUILD_BENCHMARKS=ON "${options[@]}"; then
  say configure passed "for sm_$capability"
else
  say configure failed "$(why $? "$log")"
  finish
fi

known=$(cmake --build "$build" --target help)
wanted=()
for target in $targets $examples; do
  if grep -qw -- "$target" <<<"$known"; then
    wanted+=("$target")
  else
    reason=$(grep -ihE -m 1 "(Benchmark|Example) ${target#benchmark_} is left out" "$log" | sed 's/.*: //')
    say "$target" skipped "${reason:-CMake has no such target}"
  fi
done
before=$SECONDS
limited "$([[ -n $build_only ]] && echo "$budget" || echo 110)" "$log" cmake --build "$build" --target "${wanted[@]}" -- --keep-going "-j$cores"
status=$?
say build "$(verdict $status)" "$((SECONDS - before)) s with $cores cores$( ((status == 0)) || echo ": $(grep -m 1 -E 'error' "$log" | cut -c 1-70)")"
[[ -z $build_only ]] || finish

# ---- tests

log=$logs/tests.log
: >"$log"
limited 80 "$log" ctest --test-dir "$build" -L '^gpu$' --parallel 4 --output-on-failure --no-tests=ignore
status=$?
while read -r name result seconds; do
  case $result in
    Passed) say "$name" passed "$seconds s" ;;
    *Skipped*) say "$name" skipped ;;
    *) say "$name" failed "$result" ;;
  esac
done < <(sed -nE 's/^ *[0-9]+\/[0-9]+ Test +#[0-9]+: ([^ ]+) \.*[ *]*(Passed|Skipped|Failed|Timeout|Not Run|Exception[^0-9]*) +([0-9.]+) sec.*/\1 \2 \3/; t print; b; :print; s/Not Run/NotRun/; p' "$log")
((status == 0)) || say "gpu tests" failed "$(why $status "$log")"
for example in $examples; do
  program=$build/examples/$example
  [[ -x $program ]] || continue
  printf '\n%s\n' "$example" >>"$log"
  (cd "$root" && limited 20 "$log" "$program")
  status=$?
  say "example $example" "$(verdict $status)" "$( ((status == 0)) || why $status "$log")"
done

# check_with_figures NAME SECONDS PROGRAM...: a program of checks; its lines `figure NAME=VALUE` go into the table.
check_with_figures() {
  local name=$1 seconds=$2 before status told figure value
  shift 2
  before=$(wc -l <"$log")
  limited "$seconds" "$log" "$@"
  status=$?
  told=$(tail -n "+$((before + 1))" "$log")
  say "$name" "$(verdict $status)" "$( ((status == 0)) || grep -m 1 FAILED <<<"$told" | cut -c 1-90)"
  while IFS='=' read -r figure value; do
    [[ -z $value ]] || say "  $figure" "" "$value"
  done < <(sed -n 's/^figure //p' <<<"$told")
}

# ---- replicas: what the tests do not measure, and the devices that were named

log=$logs/tests.log
program=$build/tests/gpu/gpu.replicas
if [[ -x $program ]]; then
  printf '\nreplicas on %s\n' "$devices" >>"$log"
  check_with_figures "replicas on $devices" 30 "$program" --figures --devices "$devices"
fi

# ---- the ledger beside what is known: errors in percent

program=$build/tests/gpu/gpu.ledger
[[ ! -x $program ]] || check_with_figures ledger 20 "$program"

program=$build/tests/gpu/gpu.replicas_nccl
if [[ -x $program && $devices == *,* ]]; then
  limited 30 "$log" "$program" --devices "$devices"
  status=$?
  say "replicas by NCCL on $devices" "$(verdict $status)" "$( ((status == 0)) || why $status "$log")"
fi

# ---- the patch trainer, with LibTorch: half a minute, stopped as Ctrl-C does

program=$build/examples/patch_trainer
if [[ -x $program ]]; then
  (cd "$root" && timeout -s INT -k 20 30 "$program" --photos examples/data/photos --held-out 2 --per-image 4096 --epochs 10000 \
    --device cuda --readers 4 --out "$build/denoiser") >>"$log" 2>&1
  status=$?
  ((status != 130 && status != 124)) || status=0
  say "patch trainer" "$(verdict $status)" "$( ((status == 0)) && grep '^test: ' "$log" | tail -n 1 || why $status "$log")"
  say "  patches per second" "" "$(grep -oE '[0-9.]+[kM]? samples/s' "$log" | tail -n 1)"
fi

# ---- the benchmark

log=$logs/gpu_overlap.txt
: >"$log"
program=$build/benchmarks/benchmark_gpu_overlap
is_wanted() { [[ " ${wanted[*]} " == *" $1 "* ]]; }
if [[ ! -x $program ]]; then
  ! is_wanted benchmark_gpu_overlap || say gpu_overlap failed "it was not built"
else
  limited 80 "$log" "$program" --benchmark_repetitions=5 --out "$build/gpu_overlap"
  status=$?
  [[ ! -f $build/gpu_overlap/gpu_overlap.csv ]] || cp "$build/gpu_overlap/gpu_overlap.csv" "$logs/"
  closing=$(grep '^gpu_overlap: ' "$log" | tail -n 1)
  say gpu_overlap "$(verdict $status)" "$( ((status == 0)) || why $status "$log")"
  while IFS='=' read -r figure value; do
    [[ -z $value ]] || say "  $figure" "" "$value"
  done < <(tr ' ' '\n' <<<"$closing")
fi

# ---- the trainer

log=$logs/trainer.log
: >"$log"
program=$build/examples/regression_trainer
# train NAME EPOCHS ARGUMENT...: its exit status; `seconds` is what it says that it took, `rmse` what it reached.
train() {
  local name=$1 epochs=$2 from status
  shift 2
  from=$(wc -l <"$log")
  printf '\n%s: %s epochs\n' "$name" "$epochs" >>"$log"
  (cd "$root" && limited 25 "$log" "$program" --epochs "$epochs" --patience 0 --out "$build/trained" "$@")
  status=$?
  seconds=$(tail -n "+$((from + 1))" "$log" | grep -oE 'seconds=[0-9.]+' | tail -n 1 | cut -d = -f 2)
  rmse=$(tail -n "+$((from + 1))" "$log" | grep -oE ' rmse=[0-9.]+' | tail -n 1 | cut -d = -f 2)
  return $status
}
# An epoch's time is the difference of two runs: what comes before the first epoch is in both.
epoch_time() {
  local name=$1 few=$2 many=$3 short status
  shift 3
  train "$name" "$few" "$@" || {
    status=$?
    say "$name" "$(verdict $status)" "$(why $status "$log")"
    return 1
  }
  short=$seconds
  local samples=$build/utilization.txt watcher=
  : >"$samples"
  if command -v nvidia-smi >/dev/null; then
    nvidia-smi --query-gpu=utilization.gpu --format=csv,noheader,nounits -i 0 --loop-ms=100 >"$samples" 2>/dev/null &
    watcher=$!
  fi
  train "$name" "$many" "$@"
  status=$?
  [[ -z $watcher ]] || { kill "$watcher" && wait "$watcher"; } 2>/dev/null
  local busy
  busy=$(sort -n "$samples" | awk '/^[0-9]+$/ { all[++n] = $1 } END { if (n) print all[int((n + 1) / 2)] " %"; else print "unknown" }')
  say "$name" "$(verdict $status)" "$(awk -v a="$short" -v b="$seconds" -v n=$((many - few)) \
    'BEGIN { printf "%.1f ms an epoch", 1e3 * (b - a) / n }'), rmse $rmse, GPU busy: $busy"
}
if [[ ! -x $program ]]; then
  ! is_wanted regression_trainer || say regression_trainer failed "it was not built"
else
  epoch_time "trainer on the GPU" 2 42 --device cuda
  epoch_time "trainer on the GPU, width 2048" 1 11 --device cuda --width 2048 --batch 4096
  epoch_time "trainer on the CPU" 1 5 --device cpu
fi

# ---- compute-sanitizer, on a small run: last, as it may take what time is left

sanitizer=
for candidate in compute-sanitizer /usr/local/cuda/bin/compute-sanitizer /usr/local/cuda/compute-sanitizer/compute-sanitizer; do
  if command -v "$candidate" >/dev/null; then
    sanitizer=$candidate
    break
  fi
done
declare -a small_runs=()
[[ ! -s $build/sanitized.txt ]] || mapfile -t small_runs < <(grep . "$build/sanitized.txt")
for i in "${!small_runs[@]}"; do small_runs[i]=$build/tests/gpu/${small_runs[i]}; done
if ((${#small_runs[@]} == 0)); then
  for example in $examples; do
    [[ ! -x $build/examples/$example ]] || small_runs=("$build/examples/$example")
  done
fi
for tool in memcheck racecheck; do
  log=$logs/$tool.log
  : >"$log"
  if [[ -z $sanitizer ]]; then
    say "$tool" skipped "no compute-sanitizer"
    continue
  fi
  ((${#small_runs[@]} > 0)) || say "$tool" skipped "nothing to run it on"
  for run in "${small_runs[@]}"; do
    read -ra command <<<"$run"
    name="$tool $(basename "${command[0]}")"
    before=$(wc -l <"$log")
    # Tests of errors make calls that fail on purpose.
    (cd "$root" && PENSTOCK_SANITIZER=$tool limited 25 "$log" "$sanitizer" --tool "$tool" --report-api-errors no "${command[@]}")
    status=$?
    told=$(tail -n "+$((before + 1))" "$log")
    errors=$(sed -nE 's/^=+ (ERROR|RACECHECK) SUMMARY: ([0-9]+) .*/\2/p' <<<"$told" | tail -n 1)
    if [[ $status == 124 || $status == 137 ]]; then
      say "$name" skipped "took too long"
    elif [[ -z $errors ]]; then
      say "$name" skipped "refused here: $(grep -v COMPUTE-SANITIZER <<<"$told" | grep -m 1 '^=====* [A-Z]' | cut -c 11-80)"
    elif ((errors > 0)); then
      say "$name" failed "$errors reports"
    else
      say "$name" "$(verdict $status)" "0 reports$( ((status == 0 || status == 77)) || echo ", but the program's exit status is $status")"
    fi
  done
done
finish
