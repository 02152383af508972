#!/usr/bin/env bash
# Prints which nvcc compiles the CUDA backend; exits 1 with a sentence where there is none of CUDA 13 or later.
set -euo pipefail
nvcc=$(PATH="$PATH:/usr/local/cuda/bin" command -v nvcc || true)
if [[ -z $nvcc ]]; then
  echo "no nvcc was found: install NVIDIA's CUDA toolkit 13 to build the CUDA backend" >&2
  exit 1
fi
version=$("$nvcc" --version | sed -n 's/.*release \([0-9]*\)\..*/\1/p')
if ((version < 13)); then
  echo "$nvcc is of CUDA $version: the CUDA backend needs 13 or later" >&2
  exit 1
fi
echo "$nvcc"
