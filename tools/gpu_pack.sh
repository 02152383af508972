#!/usr/bin/env bash
# Gathers what tools/gpu_check.sh needs into one folder, to be carried to a GPU machine that has no build tools.
#
#   tools/gpu_pack.sh FOLDER    after cmake --build --preset cuda; trained fixtures come along from LONGSPAN_FIXTURES
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
case "${1:-}" in
  "" | -h | --help) sed -n '2,4s/^# \{0,1\}//p' "$0"; exit 0 ;;
esac
pack=$1
build=build/cuda
[[ -d $build ]] || build=build
programs=(longspan tests/ops_suite tests/engine_fast_test tests/engine_golden_test tests/backend_cuda_test
  tests/peer_link_test tests/peer_group_test)

rm -rf "$pack"
mkdir -p "$pack/$build/tests" "$pack/lib" "$pack/tools" "$pack/tests/data" "$pack/bench/models" "$pack/models"
for program in "${programs[@]}"; do
  [[ -x $build/$program ]] || { echo "gpu_pack: no $program" >&2; continue; }
  strip -o "$pack/$build/$program" "$build/$program"
  # All but the C and C++ libraries, which every machine has.
  ldd "$build/$program" | awk '$3 ~ /^\// {print $3}' |
    grep -vE '/lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+)\.so' | xargs -I{} cp -Lu {} "$pack/lib/"
done
strip --strip-unneeded "$pack"/lib/*.so* || true
cp tools/gpu_check.sh "$pack/tools/"
cp -r models/tiny-qwen3-moe "$pack/models/"
ln -sr "$pack/models" "$pack/$build/models"
cp -r tests/data/models tests/data/golden "$pack/tests/data/"
cp -r bench/models/qwen3-30b-a3b bench/models/deepseek-v3.2-cut "$pack/bench/models/"
if [[ -n "${LONGSPAN_FIXTURES:-}" ]]; then
  mkdir -p "$pack/fixtures/models" "$pack/fixtures/golden"
  for model in ${GPU_PACK_MODELS:-tiny-deepseek-v3 tiny-deepseek-v32 tiny-deepseek-v32-fp8}; do
    cp -rL "$LONGSPAN_FIXTURES/models/$model" "$pack/fixtures/models/"
    cp -L "$LONGSPAN_FIXTURES"/golden/$model.* "$pack/fixtures/golden/"
  done
fi
chmod -R u+w "$pack"
du -sh "$pack"
