#!/usr/bin/env python3
"""Checks what the compiler cannot: who includes whom, where `#if` stands, how long files are.

    tools/check_includes.py [ROOT]

Prints one line per finding, "path:line: what is wrong", and exits 1 when there is an error. The
rules are the tables below; ARCHITECTURE.md has their reasons. tests/tools/check_includes_test.py
shows that each can fail.
"""
import dataclasses
import pathlib
import re
import sys

# A room may include itself and rooms of a lower level. A folder that is not listed is an error.
LEVELS = {
    "base": 0,
    "spec": 1,
    "tensor": 1,
    "checkpoint": 2,
    "text": 2,
    "kv": 2,
    "plan": 2,
    "ops": 3,
    "comm": 3,
    "backend/reference": 4,
    "backend/cpu": 4,
    "backend/cuda": 4,
    "backend/emulated": 4,
    "kvstore": 4,
    "model": 4,
    "runtime": 5,
    "engine": 6,
    "server": 7,
    "sim": 7,
    "apps": 8,
}

# Includes on one level that are allowed all the same: (from, to).
SAME_LEVEL = {("plan", "kv")}

# What unit tests beside the source may include besides: (room of the test, room).
TESTS_MAY_ALSO = set()

# Rooms of pure values and functions: no thread, clock, file or device. Their unit tests are free.
PURE_ROOMS = ("kv", "plan")
IMPURE_HEADERS = {
    "atomic", "chrono", "condition_variable", "ctime", "filesystem", "fstream", "future", "mutex",
    "shared_mutex", "thread", "time.h", "unistd.h", "fcntl.h", "base/clock.h",
}  # fmt: skip

# Preprocessor conditions on a device, a vector extension or an optional library, and where they
# may stand.
CONDITION = re.compile(
    r"^\s*#\s*(?:el)?if.*(?:CUDA|HAVE_|LONGSPAN_WITH|__has_include|__AVX|__SSE)"
)
CONDITIONS_ALLOWED = ("src/backend/", "src/comm/", "apps/wiring.cc")

# Concrete backends and transports: a folder each, named only by itself, tests and the wiring.
CONCRETE = re.compile(r"^((?:backend|comm)/[^/]+/)")
WIRING = "apps/wiring.cc"
# What it leaves to files of their own: connections between hosts.
NODE_WIRING = re.compile(r"^apps/node_(ranks|leader|follower|line)\.(h|cc)$")

# Folders below src/ that hold only test code, besides the files *_test.cc.
TEST_FOLDERS = ("src/comm/conformance/",)

# What unit tests share: they may include this folder and link its libraries.
TEST_SUPPORT = ("tests/support/", ("longspan_test_support", "longspan_http_client", "longspan_test_effort"))

WARN_LINES = 400
MAX_LINES = 600

SOURCE_FOLDERS = ("src", "apps", "tests", "bench", "tools")
CODE_SUFFIXES = {".h", ".cc", ".cu", ".cuh"}
SIZED_SUFFIXES = CODE_SUFFIXES | {".py", ".sh"}

INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>)')


@dataclasses.dataclass(frozen=True)
class Finding:
    path: str
    line: int
    text: str
    is_error: bool = True

    def __str__(self):
        kind = "" if self.is_error else "warning: "
        return f"{self.path}:{self.line}: {kind}{self.text}"


def room_of(path):
    """The room of a path relative to src/ ("kv/page.h", "backend/cpu/gemm.h"), or None."""
    parts = path.split("/")
    if len(parts) > 2 and parts[0] == "backend":
        return "/".join(parts[:2])
    return parts[0] if len(parts) > 1 else None


def room_of_file(path):
    """The room of a path relative to the root: "apps" for apps/, None outside src/ and apps/."""
    if path.startswith("src/"):
        return room_of(path[len("src/") :])
    return "apps" if path.startswith("apps/") else None


def is_test_file(path):
    return path.endswith("_test.cc") or path.startswith(TEST_FOLDERS)


def may_include(room, other, is_test):
    if room == other or LEVELS[other] < LEVELS[room] or (room, other) in SAME_LEVEL:
        return True
    return is_test and (room, other) in TESTS_MAY_ALSO


def check_room_include(room, is_test, header, root):
    """What is wrong with a quoted include in a file of a room; None when nothing is."""
    if header.startswith(TEST_SUPPORT[0]):
        return None if is_test else f"only tests include {TEST_SUPPORT[0]}"
    other = "apps" if header.startswith("apps/") else room_of(header)
    folder = "" if other == "apps" else "src"
    if not (root / folder / header).is_file():
        return f'"{header}" is not a file under src/: write includes from there'
    if other not in LEVELS:
        return f'"{header}" is in no room of the layer table'
    if not may_include(room, other, is_test):
        return f"{room}/ (level {LEVELS[room]}) may not include {other}/ (level {LEVELS[other]})"
    return None


def check_include(path, header, is_quoted, root):
    room = room_of_file(path)
    is_test = is_test_file(path)
    if room is None:
        if is_quoted and not any((root / folder / header).is_file() for folder in ("", "src")):
            return f'"{header}" is neither under src/ nor under the root'
        return None
    if is_quoted and (wrong := check_room_include(room, is_test, header, root)):
        return wrong
    concrete = CONCRETE.match(header)
    is_wiring = path == WIRING or NODE_WIRING.match(path)
    if concrete and not (is_test or is_wiring or path.startswith(f"src/{concrete.group(1)}")):
        return f"only {WIRING} names a concrete backend or transport ({concrete.group(1)})"
    is_impure = header in IMPURE_HEADERS or header.startswith("sys/")
    if room in PURE_ROOMS and not is_test and is_impure:
        return f"{room}/ is pure: {header} brings in a thread, a clock or a file"
    return None


def check_code(path, lines, root):
    room = room_of_file(path)
    if path.startswith("src/") and room not in LEVELS:
        yield Finding(path, 1, "this folder is in no room of the layer table")
        return
    if path.endswith((".h", ".cuh")) and "#pragma once" not in (line.strip() for line in lines):
        yield Finding(path, 1, "a header needs #pragma once")
    for number, line in enumerate(lines, start=1):
        if match := INCLUDE.match(line):
            quoted, system = match.groups()
            if wrong := check_include(path, quoted or system, quoted is not None, root):
                yield Finding(path, number, wrong)
        elif CONDITION.match(line) and not path.startswith(CONDITIONS_ALLOWED + ("tests/",)):
            wrong = f"a device or library #if: only in backend/, comm/ and {WIRING}"
            yield Finding(path, number, wrong)


LIBRARY_CALL = re.compile(r"longspan_library\(([^)]*)\)", re.DOTALL)


def folder_of_target(target):
    """longspan_kv -> "kv/", longspan_backend_cpu -> "backend/cpu/", longspan_text_jinja -> "text/jinja/"."""
    name = target[len("longspan_") :]
    return re.sub(r"^(backend|comm|text)_", r"\1/", name) + "/"


def check_link(path, target, is_test):
    """What is wrong when the library of this CMakeLists.txt (or its tests) links a target."""
    if is_test and target in TEST_SUPPORT[1]:
        return None
    folder = folder_of_target(target)
    room, other = room_of_file(path), room_of(folder + "x")
    if other not in LEVELS:
        return f"{target} is in no room of the layer table"
    if not may_include(room, other, is_test) or (CONCRETE.match(folder) and not is_test):
        return f"{room}/ may not link {target}"
    return None


def check_links(path, text):
    """A room's library links only what its files may include (TEST_DEPS: what its tests may)."""
    for call in LIBRARY_CALL.finditer(text):
        line = text.count("\n", 0, call.start()) + 1
        keyword = ""
        for word in call.group(1).split()[1:]:
            if word.isupper():
                keyword = word
            elif word.startswith("longspan_"):
                if wrong := check_link(path, word, keyword == "TEST_DEPS"):
                    yield Finding(path, line, wrong)


def check_size(path, count):
    if count > MAX_LINES:
        wrong = f"{count} lines, more than {MAX_LINES}: move the second thing out"
        yield Finding(path, count, wrong)
    elif count > WARN_LINES:
        yield Finding(path, count, f"{count} lines: does a second thing live here?", is_error=False)


def check_tree(root):
    root = pathlib.Path(root)
    for folder in SOURCE_FOLDERS:
        for file in sorted((root / folder).rglob("*")):
            path = file.relative_to(root).as_posix()
            if path.startswith("src/") and file.name == "CMakeLists.txt":
                yield from check_links(path, file.read_text())
            if file.suffix not in SIZED_SUFFIXES or not file.is_file():
                continue
            lines = file.read_text().splitlines()
            yield from check_size(path, len(lines))
            if file.suffix in CODE_SUFFIXES:
                yield from check_code(path, lines, root)


def main(arguments):
    if len(arguments) > 1 or any(argument.startswith("-") for argument in arguments):
        print(__doc__, file=sys.stderr)
        return 2
    root = arguments[0] if arguments else pathlib.Path(__file__).resolve().parent.parent
    findings = list(check_tree(root))
    for finding in findings:
        print(finding)
    errors = sum(finding.is_error for finding in findings)
    print(f"check_includes: {errors} errors, {len(findings) - errors} warnings")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
