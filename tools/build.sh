#!/usr/bin/env bash
# Configures and builds the optimised program, build/longspan.
#
#   tools/build.sh              the program alone
#   tools/build.sh TARGET...    these targets (all: everything, the tests too)
#   tools/build.sh --cuda ...   with the backend for Hopper GPUs, which takes minutes more
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

case "${1:-}" in
  -h | --help) sed -n '2,6s/^# \{0,1\}//p' "$0"; exit 0 ;;
esac

# A machine that only runs the program has no GoogleTest.
tests=OFF
[[ -e /usr/include/gtest/gtest.h ]] && tests=ON

options=(-DLONGSPAN_TESTS="$tests")
if [[ "${1:-}" == --cuda ]]; then
  shift
  tools/find_nvcc.sh
  options+=(-DLONGSPAN_CUDA=ON)
fi

if (($# == 0)); then set -- longspan; fi
cmake --preset release "${options[@]}"
cmake --build --preset release --parallel "$(nproc)" --target "$@"
