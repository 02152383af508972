#!/usr/bin/env bash
# Checks and times the CUDA backend on a machine with a Hopper GPU, in one go, and prints a short table last.
#
#   tools/gpu_check.sh            everything, in less than eight minutes
#   tools/gpu_check.sh PART...    of: device ops golden text ranks pipeline groups refusals replay bench prefill
#                                 decode memcheck racecheck two groups2
#
# Runs what tools/build.sh --cuda all, or the preset cuda, has built, here or in a folder of tools/gpu_pack.sh.
# Logs go to $OUT, or build/gpu_check. Exits 1 when a check fails.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

case "${1:-}" in
  -h | --help) sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 0 ;;
esac
parts=("$@")
if ((${#parts[@]} == 0)); then
  parts=(device ops golden text ranks pipeline groups refusals replay bench prefill decode memcheck racecheck)
fi

build=build/cuda
[[ -d $build ]] || build=build
out=${OUT:-build/gpu_check}
mkdir -p "$out"
export LONGSPAN_SOURCE=$PWD
[[ -d fixtures && -z "${LONGSPAN_FIXTURES:-}" ]] && export LONGSPAN_FIXTURES=fixtures
[[ -d lib ]] && export LD_LIBRARY_PATH="$PWD/lib:${LD_LIBRARY_PATH:-}"
# cuBLASLt where the toolkit's own folder lacks it.
for folder in /usr/local/cuda/lib64 /opt/torch/.venv/lib/python3.12/site-packages/nvidia/*/lib; do
  [[ -e $folder/libcublasLt.so.13 ]] && export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:-}:$folder" && break
done
large=bench/models/qwen3-30b-a3b
failed=0
rows=()

row() { rows+=("$(printf '%-34s %s' "$1" "$2")"); }

# Runs a command with a limit in seconds, its output in two logs: part NAME LIMIT COMMAND...
part() {
  local name=$1 limit=$2 begin=$SECONDS code
  shift 2
  timeout "$limit" "$@" >"$out/$name.log" 2>"$out/$name.err"
  code=$?
  echo "== $name: exit $code, $((SECONDS - begin)) s"
  return $code
}

# A test program: its last word in the table.
tests() {
  local name=$1
  if part "$@"; then
    row "$name" "$(grep -a 'PASSED' "$out/$name.log" | tail -1) $(grep -ac 'SKIPPED' "$out/$name.log") skipped"
  else
    failed=1
    row "$name" "FAILED $(grep -a 'FAILED' "$out/$name.log" | tail -1)"
    grep -ah -m 12 -E 'Failure|FAILED|ERROR SUMMARY' "$out/$name.log" "$out/$name.err"
  fi
}

# The op suite under a tool of compute-sanitizer: sanitized TOOL LIMIT FILTER. Every test is a process of its own, some
# at a time, with so many seconds: racecheck follows each access to shared memory a thousand times slower, so the
# largest do not come to their end, and have found nothing so far. What it says of cuBLASLt's own kernels (nvjet...),
# which order their copies by barriers that it does not follow, is not ours.
sanitized() {
  local tool=$1 limit=$2 filter=$3 found ended all begin=$SECONDS
  if ! command -v compute-sanitizer >/dev/null; then
    row "$tool" "no compute-sanitizer here"
    return
  fi
  rm -rf "${out:?}/$tool"
  mkdir "$out/$tool"
  "$build/tests/ops_suite" --gtest_list_tests --gtest_filter="$filter" |
    awk '/^[^ ]/ {suite = $1} /^ / {print suite $1}' | sort -R --random-source=<(yes) |
    tool=$tool limit=$limit out=$out xargs -P 6 -I{} bash -c 'timeout "$limit" compute-sanitizer --tool "$tool" \
      "$build/tests/ops_suite" --gtest_filter="$1" >"$out/$tool/${1//\//.}.log" 2>&1' _ {}
  echo "== $tool: $((SECONDS - begin)) s"
  found=$(cat "$out/$tool"/*.log | grep -aE '^=+ (Error|Warning|Invalid)|\[  FAILED' | grep -avc nvjet)
  ended=$(grep -alE '\[  PASSED' "$out/$tool"/*.log | wc -l)
  all=$(find "$out/$tool" -name '*.log' | wc -l)
  if ((found > 0 || ended == 0)); then
    failed=1
    row "$tool" "FAILED: $found findings"
    grep -a -m 12 -E '^=+ (Error|Warning|Invalid)|\[  FAILED' "$out/$tool"/*.log | grep -av nvjet | head -20
  else
    row "$tool" "no findings; $ended of $all tests came to their end"
  fi
}

# A run that must end with exit code 1 and a sentence: refused NAME PATTERN COMMAND...
refused() {
  local name=$1 pattern=$2
  shift 2
  part "refused-$name" 60 "$@"
  local code=$?
  if ((code == 1)) && grep -aqE "^longspan: .*$pattern" "$out/refused-$name.err"; then
    row "refused: $name" "$(grep -a '^longspan: ' "$out/refused-$name.err")"
  else
    failed=1
    row "refused: $name" "FAILED: exit $code"
    tail -n 2 "$out/refused-$name.err"
  fi
}

# A measurement: its table goes to the end.
measure() {
  local name=$1
  if part "$@"; then
    rows+=("-- $name" "$(cat "$out/$name.log")")
  else
    failed=1
    row "$name" "FAILED"
    tail -n 5 "$out/$name.err"
  fi
}

# Layouts whose ranks are processes give the text of one: same_text NAME LIMIT FLAGS... (in f32, where another order of
# sums turns no near-tie).
same_text() {
  local name=$1 limit=$2 begin=$SECONDS
  shift 2
  if part "$name" "$limit" "${ask[@]}" "$@" && [[ -s $out/alone.log ]] && cmp -s "$out/alone.log" "$out/$name.log"; then
    row "groups: $name" "one rank's text, $((SECONDS - begin)) s"
  else
    failed=1
    row "groups: $name" "FAILED: not one rank's text"
    tail -n 3 "$out/$name.err"
  fi
}

# Kills a rank of a running command that has written so much: killed NAME WHOLE BYTES COMMAND... The text is that of the
# file WHOLE all the same.
killed() {
  local name=$1 whole=$2 bytes=$3 leader rank found=no begin
  shift 3
  timeout 100 "$@" >"$out/$name.log" 2>"$out/$name.err" &
  leader=$!
  for _ in $(seq 2000); do
    if (($(wc -c <"$out/$name.log") > bytes)); then
      rank=$(pgrep -f 'longspan rank' | tail -1)
      begin=$SECONDS
      [[ -n $rank ]] && kill -9 "$rank" && found=yes
      break
    fi
    sleep 0.02
  done
  wait "$leader"
  if [[ $found == yes ]] && cmp -s "$whole" "$out/$name.log"; then
    row "$name" "a killed rank: the same text, $((SECONDS - begin)) s after it"
  else
    failed=1
    row "$name" "FAILED (killed: $found)"
    tail -n 5 "$out/$name.err"
  fi
}

# The op suite, without what asks for more memory than a GPU has.
ops() { "$build/tests/ops_suite" --gtest_filter="${1:-*cuda*}:-*Virtual*" --gtest_brief=1; }
export -f ops
export build

for each in "${parts[@]}"; do
  case $each in
    device)
      nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.sm --format=csv,noheader
      tests device 60 "$build/tests/backend_cuda_test" --gtest_brief=1
      ;;
    ops) tests ops 150 bash -c 'ops' ;;
    memcheck)
      sanitized memcheck 60 '*cuda_bf16:-*Virtual*:*Long*' ;;
    racecheck)
      sanitized racecheck 40 '*cuda_bf16:-*Virtual*:*Long*' ;;
    golden)
      # Of the DeepSeek models those that are here, by their place in tests/engine/deepseek_cases.h.
      filter='*Golden*cuda*:*CudaInF32*/0'
      place=0
      for model in tiny-deepseek-v3 tiny-deepseek-v32 tiny-deepseek-v32-fp8; do
        [[ -d ${LONGSPAN_FIXTURES:-../shared/fixtures}/models/$model ]] &&
          filter+=":*CudaInF32*/$((place + 1)):*CudaInBf16*/$place"
        place=$((place + 1))
      done
      tests golden 150 "$build/tests/engine_golden_test" --gtest_filter="$filter"
      ;;
    text)
      tests text 100 "$build/tests/engine_fast_test" --gtest_filter='Gpu*' ;;
    ranks)
      # Ranks of a stage as threads that share the GPU.
      tests ranks 200 "$build/tests/engine_fast_test" --gtest_filter='*GpuRanks*' ;;
    groups)
      # The ranks of a stage as processes that share the GPU, which takes turns between them: slow, and right.
      tests peer_groups 120 "$build/tests/peer_group_test" --gtest_brief=1
      ask=("$build/longspan" generate --backend cuda --dtype f32 --prompt "ROMEO:" --max-tokens 48
        --max-total-tokens 4096 --gpu-id-step 0)
      part alone 60 "${ask[@]}"
      same_text tp2 100 --tp-size 2
      same_text cp2 100 --cp-size 2
      same_text cp2-zigzag 100 --cp-size 2 --cp-strategy zigzag
      same_text cp2-sharded 100 --cp-size 2 --kv-placement sharded
      same_text tp2-ep2 100 --tp-size 2 --ep-size 2
      same_text pp2-tp2 100 --pp-size 2 --tp-size 2
      killed groups-killed "$out/alone.log" 30 "${ask[@]}" --tp-size 2
      ;;
    pipeline)
      # Two processes that share the GPU give one's text; their messages pass through no host.
      tests links 60 "$build/tests/peer_link_test" --gtest_brief=1
      ask=("$build/longspan" generate --backend cuda --prompt "ROMEO:" --max-tokens 64 --max-total-tokens 4096)
      part one 60 "${ask[@]}"
      part two 60 "${ask[@]}" --pp-size 2 --gpu-id-step 0 --trace-out "$out/two.trace.json"
      if [[ -s $out/one.log ]] && cmp -s "$out/one.log" "$out/two.log"; then
        row pipeline "two stages on one GPU: the same text"
      else
        failed=1
        row pipeline "FAILED: two stages give another text"
        tail -n 3 "$out/one.err" "$out/two.err"
      fi
      ;;
    refusals)
      # Each one sentence and exit 1.
      deep=$(mktemp -d)
      sed 's/"num_hidden_layers": *[0-9]*/"num_hidden_layers": 480/' "$large/config.json" >"$deep/config.json"
      ask=("$build/longspan" generate --backend cuda --prompt x)
      refused weights 'the weights of stage 0 need [0-9.]* GiB as bf16 and GPU 0 has' \
        "$build/longspan" bench prefill --backend cuda --prompt-len 64 --model-path "$deep" --load-format dummy
      refused kv 'needs [0-9]* MiB of KV cache and [0-9]* MiB are free' "${ask[@]}" --max-total-tokens 1000000000
      refused device 'a stage is to use GPU 99' "${ask[@]}" --base-gpu-id 99
      refused none 'no NVIDIA GPU was found' env CUDA_VISIBLE_DEVICES= "${ask[@]}"
      rm -rf "$deep"
      ;;
    replay)
      # A rank that is killed while it decodes.
      ask=("$build/longspan" generate --backend cuda --prompt "ROMEO:" --max-tokens 3000 --ignore-eos
        --max-total-tokens 8192)
      part whole 60 "${ask[@]}"
      killed replay "$out/whole.log" 1000 "${ask[@]}"
      ;;
    groups2)
      # With a second GPU: a stage's two ranks on one each, and what they gain on shapes of large models.
      if (($(nvidia-smi -L | wc -l) < 2)); then
        row groups2 "only one GPU here"
        continue
      fi
      ask=("$build/longspan" generate --backend cuda --dtype f32 --prompt "ROMEO:" --max-tokens 48
        --max-total-tokens 4096)
      part alone 60 "${ask[@]}"
      same_text tp2 60 --tp-size 2
      same_text cp2 60 --cp-size 2
      same_text cp2-zigzag 60 --cp-size 2 --cp-strategy zigzag
      tests peer_groups2 60 "$build/tests/peer_group_test" --gtest_brief=1
      for shape in qwen3-30b-a3b deepseek-v3.2-cut; do
        for layout in "" "--cp-size 2" "--tp-size 2" "--cp-size 2 --kv-placement sharded"; do
          [[ $shape == deepseek* && $layout == *sharded* ]] && continue
          # Ranks of --tp-size read their pieces of random weights through the host, which takes a minute.
          # shellcheck disable=SC2086 # flags
          measure "$shape${layout// /}" 240 "$build/longspan" bench prefill --backend cuda --load-format dummy \
            --model-path "bench/models/$shape" --prompt-len 131072 --repeat 2 $layout
        done
      done
      ;;
    two)
      # With a second GPU: a stage on each, which gives one GPU's text, and a large model's shape.
      if (($(nvidia-smi -L | wc -l) < 2)); then
        row two "only one GPU here"
        continue
      fi
      tests links2 60 "$build/tests/peer_link_test"
      rows+=("$(grep -a 'GB/s' "$out/links2.log")")
      ask=("$build/longspan" generate --backend cuda --prompt "ROMEO:" --max-tokens 64 --max-total-tokens 4096)
      part one 60 "${ask[@]}"
      part two 60 "${ask[@]}" --pp-size 2
      if [[ -s $out/one.log ]] && cmp -s "$out/one.log" "$out/two.log"; then
        row two "a stage on each of two GPUs: the same text"
      else
        failed=1
        row two "FAILED: two GPUs give another text"
        tail -n 3 "$out/one.err" "$out/two.err"
      fi
      measure prefill2 200 "$build/longspan" bench prefill --backend cuda --model-path "$large" --pp-size 2 \
        --load-format dummy --prompt-len 32768,131072 --repeat 2 --trace-out "$out/prefill2.trace.json"
      measure trace2 30 "$build/longspan" trace "$out/prefill2.trace.json"
      ;;
    bench) measure bench 120 "$build/longspan" bench ops --backend cuda ;;
    prefill)
      measure prefill 200 "$build/longspan" bench prefill --backend cuda --model-path "$large" \
        --load-format dummy --prompt-len 32768,131072 --repeat 2 --trace-out "$out/prefill.trace.json"
      measure trace 30 "$build/longspan" trace "$out/prefill.trace.json"
      ;;
    decode)
      measure decode 120 "$build/longspan" bench decode --backend cuda --model-path "$large" \
        --load-format dummy --prompt-len 8192 --batch 1,32 --max-tokens 64
      ;;
    *) echo "gpu_check.sh: unknown part '$each'" >&2; exit 2 ;;
  esac
done

echo
printf '%s\n' "${rows[@]}"
echo "gpu_check: $( ((failed)) && echo FAILED || echo passed), $SECONDS s"
exit $failed
