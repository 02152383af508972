#!/usr/bin/env python3
"""Runs clang-tidy over the sources of src/ and apps/ (not the unit tests), several at a time.

    tools/run_tidy.py [--build BUILD] [--jobs N] [--install] [FILE...]

BUILD is a build folder that was configured and built: its compile_commands.json says how a file is
compiled, and ninja's record of dependencies what it includes. A file whose command, checks, sources
and headers are those of an earlier clean run is not read again; the keys of clean runs are kept in
$LONGSPAN_TIDY_CACHE (~/.cache/longspan-tidy). Exits 1 when there is a finding.
"""
import argparse
import concurrent.futures
import functools
import hashlib
import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

import python_environment

ROOT = pathlib.Path(__file__).resolve().parent.parent
# g++ writes the compile commands; clang does not know all of its warnings.
EXTRA_ARGUMENTS = ["--quiet", "--extra-arg=-Wno-unknown-warning-option"]
# Nor its precompiled headers: sources are read without, which shows that they include what they use.
PRECOMPILED = re.compile(r" -Winvalid-pch -include \S+/cmake_pch\.hxx")


def clang_tidy():
    """The program, of PyPI's package: Debian's checks the libraries' headers too, and takes three times as long."""
    python_environment.need("clang_tidy")
    spec = importlib.util.find_spec("clang_tidy")
    return str(pathlib.Path(spec.submodule_search_locations[0]) / "data" / "bin" / "clang-tidy")


def cache_folder():
    default = pathlib.Path.home() / ".cache" / "longspan-tidy"
    return pathlib.Path(os.environ.get("LONGSPAN_TIDY_CACHE", default))


@functools.lru_cache(maxsize=None)
def fingerprint(path):
    """What stands for a file in a key: the content of ours, size and time of the system's."""
    try:
        if path.is_relative_to(ROOT):
            return hashlib.sha256(path.read_bytes()).hexdigest()
        status = path.stat()
        return f"{path} {status.st_size} {status.st_mtime_ns}"
    except OSError:
        return "missing"


def dependencies(build):
    """Output file -> the files it was made of, as ninja recorded them at the last build."""
    report = subprocess.run(["ninja", "-C", build, "-t", "deps"], capture_output=True, text=True)
    result, current = {}, None
    for line in report.stdout.splitlines():
        if line.startswith("    "):
            current.append(pathlib.Path(os.path.normpath(build / line.strip())))
        elif ": #deps" in line and "(VALID)" in line:
            current = result.setdefault(line.split(": #deps")[0], [])
        else:
            current = []
    return result


def key_of(entry, needed, version):
    """The name under which a clean run is kept; None where it is unknown what the file includes."""
    if not needed:
        return None
    folded = hashlib.sha256()
    command = entry["command"].replace(str(ROOT), ".")
    for part in (version, command, *EXTRA_ARGUMENTS, fingerprint(ROOT / ".clang-tidy")):
        folded.update(part.encode() + b"\0")
    for path in sorted(needed):
        folded.update(fingerprint(path).encode() + b"\0")
    return folded.hexdigest()


def entries(build, files):
    wanted = {pathlib.Path(file).resolve() for file in files}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        path = pathlib.Path(entry["file"])
        if path.suffix == ".cu":  # nvcc's command says nothing to clang
            continue
        entry["command"] = PRECOMPILED.sub("", entry["command"])
        if wanted:
            if path in wanted:
                yield entry
        elif path.is_relative_to(ROOT / "src") or path.is_relative_to(ROOT / "apps"):
            if not path.name.endswith("_test.cc"):
                yield entry


def run(program, entry, commands, key):
    """Whether the file is clean; prints what was found."""
    if key is not None and (cache_folder() / key).exists():
        return True
    command = [program, "-p", commands, *EXTRA_ARGUMENTS, entry["file"]]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0:
        print(result.stdout + result.stderr, flush=True)
        return False
    if key is not None:
        (cache_folder() / key).touch()
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--install", action="store_true", help="only see that clang-tidy is there")
    parser.add_argument("files", nargs="*", metavar="FILE")
    arguments = parser.parse_args()
    try:
        program = clang_tidy()
    except python_environment.Unavailable as error:
        print(f"run_tidy: {error}", file=sys.stderr)
        return 1
    if arguments.install:
        return 0
    build = arguments.build.resolve()

    started = time.monotonic()
    version = subprocess.run([program, "--version"], capture_output=True, text=True).stdout
    cache_folder().mkdir(parents=True, exist_ok=True)
    known = dependencies(build)
    work = list(entries(build, arguments.files))
    if not work:
        print("run_tidy: no file to check: is the build folder configured?", file=sys.stderr)
        return 1
    commands = tempfile.TemporaryDirectory()
    (pathlib.Path(commands.name) / "compile_commands.json").write_text(json.dumps(work))
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool, commands:
        futures = []
        for entry in work:
            output = re.search(r" -o (\S+) ", entry["command"]).group(1)
            key = key_of(entry, known.get(output), version)
            futures.append(pool.submit(run, program, entry, commands.name, key))
        failed = sum(not future.result() for future in futures)
    seconds = time.monotonic() - started
    print(f"run_tidy: {len(work)} files, {failed} with findings, {seconds:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
