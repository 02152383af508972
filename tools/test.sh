#!/usr/bin/env bash
# Builds Longspan and passes its tests. Ends with ctest's own summary.
#
#   tools/test.sh           checks of the sources, tests under the sanitizers, tests of the release build
#   tools/test.sh --fast    the release build's quick tests alone
#   tools/test.sh --slow    the slow tests too; so too when CI=true
#   tools/test.sh --full    everything, the exhaustive tests too
#
# Some tests read trained models from the folder LONGSPAN_FIXTURES (relative to the project's root, by default
# ../shared/fixtures). They are skipped where it does not exist, and fail if the variable named it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

mode=default
[[ "${CI:-}" == true ]] && mode=slow
case "${1:-}" in
  "") ;;
  --fast) mode=fast ;;
  --slow) mode=slow ;;
  --full) mode=full ;;
  -h | --help) sed -n '2,10s/^# \{0,1\}//p' "$0"; exit 0 ;;
  *) echo "test.sh: unknown argument '$1': use --fast, --slow, --full or nothing" >&2; exit 2 ;;
esac

jobs=$(nproc)
# Objects of another checkout of the same sources are found too.
export CCACHE_BASEDIR="$PWD" CCACHE_NOHASHDIR=1
# Not detect_stack_use_after_return: g++ 12 aligns its fake stack to 32 bytes only, and 64-byte vectors on it fault.
export ASAN_OPTIONS="detect_stack_use_after_return=0:strict_string_checks=1"
export UBSAN_OPTIONS="print_stacktrace=1"
export TSAN_OPTIONS="halt_on_error=1:second_deadlock_stack=1"

step() { printf '\n== [%4ds] %s\n' "$SECONDS" "$*"; }

sources() {
  local folders=()
  for folder in src apps tests bench; do
    [[ -d $folder ]] && folders+=("$folder")
  done
  find "${folders[@]}" -name '*.h' -o -name '*.cc' -o -name '*.cu' -o -name '*.cuh'
}

check_format() { sources | xargs -P "$jobs" -n 20 clang-format-14 --dry-run -Werror; }

# Runs a command and shows only its last N lines, or all of them when it fails: quietly N COMMAND...
log=$(mktemp)
trap 'rm -f "$log"' EXIT
quietly() {
  local lines=$1
  shift
  if "$@" >"$log" 2>&1; then
    tail -n "$lines" "$log"
  else
    cat "$log"
    return 1
  fi
}

# Thread sanitizer's shadow memory does not fit every layout of the address space, so it runs without
# randomisation where that may be turned off.
plain_layout=()
if setarch "$(uname -m)" -R true 2>/dev/null; then
  plain_layout=(setarch "$(uname -m)" -R)
fi

# The program that users run has the CUDA backend where it can be compiled; the sanitizers' builds do not.
cuda=OFF
tools/find_nvcc.sh >/dev/null && cuda=ON

build() {
  local options=(-DLONGSPAN_TESTS=ON)
  [[ $1 == release ]] && options+=(-DLONGSPAN_CUDA="$cuda")
  quietly 0 cmake --preset "$1" "${options[@]}"
  quietly 1 "${plain_layout[@]}" cmake --build --preset "$1" --parallel "$jobs" --target "$2"
}

# sanitize PRESET TARGET LABELS
sanitize() {
  step "$1: build"
  build "$1" "$2"
  step "$1: the fast tests"
  quietly 8 "${plain_layout[@]}" ctest --preset "$1" --label-regex "$3" --parallel "$jobs"
}

if [[ $mode != fast ]]; then
  step "format, layers, sizes"
  check_format
  tools/check_includes.py
fi

step "release: build (CUDA backend: $cuda)"
build release all

if [[ $mode != fast ]]; then
  step "every header compiles on its own"
  build release check_headers
  step "clang-tidy"
  tools/run_tidy.py --jobs "$jobs"
  sanitize asan fast_tests '^fast'
  sanitize tsan threaded_tests '^fast$'
fi

case "$mode" in
  full) labels=() ;;
  slow) labels=(--label-exclude exhaustive) ;;
  *) labels=(--label-exclude 'slow|exhaustive') ;;
esac
step "release: the tests"
ctest --preset release "${labels[@]}" --parallel "$jobs"
