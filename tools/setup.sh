#!/usr/bin/env bash
# Installs what Longspan needs from Debian 12's own packages. Quick and silent towards the network when all of it is
# there already.
#
#   tools/setup.sh           to build and run
#   tools/setup.sh --test    also to run the tests, the linters and the sanitizers
set -euo pipefail

build_packages=(
  g++ cmake ninja-build ccache pkg-config
  libfmt-dev libspdlog-dev nlohmann-json3-dev libsimdjson-dev libcli11-dev
  libpcre2-dev libicu-dev libboost1.81-dev
)
test_packages=(
  libgtest-dev libgmock-dev liblzma-dev
  clang-format-14 python3 python3-venv
  iproute2 util-linux
)

usage() { sed -n '2,6s/^# \{0,1\}//p' "$0"; }

packages=("${build_packages[@]}")
for_tests=no
for argument in "$@"; do
  case "$argument" in
    --test) packages+=("${test_packages[@]}"); for_tests=yes ;;
    -h | --help) usage; exit 0 ;;
    *) echo "setup.sh: unknown argument '$argument': use --test or nothing" >&2; exit 2 ;;
  esac
done

if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
  echo "setup.sh: this is not Debian; install the counterparts of: ${packages[*]}" >&2
  exit 1
fi

is_installed() {
  [[ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null || true)" == installed ]]
}
missing=()
for package in "${packages[@]}"; do
  is_installed "$package" || missing+=("$package")
done

# Python clients of the server, in an environment of their own. Their test is skipped where they cannot be had.
install_clients() {
  local root wanted
  root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
  wanted="$root/tests/clients/requirements.txt"
  if [[ "$for_tests" == no ]] || cmp -s "$wanted" "$root/.venv/requirements.txt"; then return; fi
  echo "setup: installing the clients of tests/clients"
  if python3 -m venv "$root/.venv" && timeout 300 "$root/.venv/bin/pip" install -q --retries 1 -r "$wanted" </dev/null
  then
    cp "$wanted" "$root/.venv/requirements.txt"
  else
    rm -rf "$root/.venv"
    echo "setup: they cannot be had here; their test will be skipped"
  fi
}

# tools/test.sh fails where it cannot be had.
install_linter() {
  [[ "$for_tests" == yes ]] || return 0
  timeout 300 "$(dirname "${BASH_SOURCE[0]}")/run_tidy.py" --install </dev/null ||
    echo "setup: clang-tidy cannot be had here; only the quick tests (tools/test.sh --fast) can be run"
}

# A real model for the tests that ask it. They are skipped where it cannot be had.
install_model() {
  [[ "$for_tests" == yes ]] || return 0
  timeout 300 "$(dirname "${BASH_SOURCE[0]}")/install_smollm2.py" </dev/null ||
    echo "setup: the model cannot be had here; its tests will be skipped"
}

# NVIDIA's toolkit is no package of Debian's: where it is missing, the program is built without GPUs.
nvcc=$("$(dirname "${BASH_SOURCE[0]}")/find_nvcc.sh" 2>&1) || true
echo "setup: CUDA: $nvcc"
if ((${#missing[@]} == 0)); then
  echo "setup: all ${#packages[@]} packages are installed"
  install_clients
  install_linter
  install_model
  exit 0
fi

as_root=()
if ((EUID != 0)); then
  if ! command -v sudo >/dev/null; then
    echo "setup.sh: not root and no sudo: as root, run apt-get install ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi

echo "setup: installing ${missing[*]}"
apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -y)
"${apt[@]}" update </dev/null
"${apt[@]}" install --no-install-recommends "${missing[@]}" </dev/null
install_clients
install_linter
install_model
echo "setup: done"
