#!/usr/bin/env python3
"""The speed of llama.cpp and of Longspan on the same shape, machine and threads, in turns.

    bench/compare_llamacpp.py [--model-path bench/models/smollm2-135m] [--prompt-len 512,2048] [--threads 1]

Both compute random tokens with random weights of the folder's config.json in bf16. llama.cpp is the one in the package
llama-cpp-python, compiled on this machine (minutes, once), with flash attention, an f16 cache and 512 rows at once,
as it is fastest. A round is one prompt and one decoding run of each engine; the medians of the rounds count.

cpu: the share of the wall time in which the threads had a core. others: cores that other processes used meanwhile.
Measure again what is marked busy.
"""
import argparse
import contextlib
import json
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import python_environment  # noqa: E402

LEAST_CPU_SHARE = 0.95
MOST_PEAK_CHANGE = 0.03
WARM_UP = 512


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=pathlib.Path, default=ROOT / "build" / "longspan",
                        help="default: build/longspan")
    parser.add_argument("--model-path", type=pathlib.Path, default=ROOT / "bench" / "models" / "smollm2-135m",
                        metavar="DIR", help="a folder with config.json: Llama, Qwen3-MoE or DeepSeek V3")
    parser.add_argument("--prompt-len", default="512,2048", metavar="TOKENS,...", help="default: 512,2048")
    parser.add_argument("--threads", type=int, default=1, help="of both; default: 1")
    parser.add_argument("--rounds", type=int, default=3, help="per length; default: 3")
    parser.add_argument("--decode", type=int, default=32, metavar="TOKENS",
                        help="generated behind each prompt; 0: none; default: 32")
    parser.add_argument("--chunk", type=int, metavar="TOKENS",
                        help="Longspan's --chunked-prefill-size; default: its own choice")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of the tables")
    parser.add_argument("--worker", metavar="GGUF", help=argparse.SUPPRESS)
    parser.add_argument("--context", type=int, help=argparse.SUPPRESS)
    return parser.parse_args()


def work(arguments):
    """The process that runs llama.cpp: a line of JSON in, a line of JSON out."""
    from llama_cpp_runner import LlamaCpp

    import numpy as np

    engine = LlamaCpp(arguments.worker, arguments.context, arguments.threads)
    random = np.random.default_rng(2)

    def tokens(count):
        return random.integers(0, engine.vocabulary_size, count).tolist()

    engine.prefill(tokens(min(WARM_UP, arguments.context)))
    print("{}", flush=True)
    for line in sys.stdin:
        task = json.loads(line)
        if "prefill" in task:
            wall, cpu = engine.prefill(tokens(task["prefill"]))
        else:
            wall, cpu = engine.decode(tokens(task["decode"]), task["depth"])
        rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps({"wall": wall, "cpu": cpu, "peak_rss_mib": rss}), flush=True)


class LlamaProcess:
    """llama.cpp in a process of its own, so that its memory is its own too."""

    def __init__(self, path, arguments, context):
        command = [sys.executable, __file__, "--worker", path, "--context", str(context),
                   "--threads", str(arguments.threads)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.reply()

    def reply(self):
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError("llama.cpp ended early")
        return json.loads(line)

    def run(self, **task):
        self.process.stdin.write(json.dumps(task) + "\n")
        self.process.stdin.flush()
        return self.reply()

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def cores_busy_seconds():
    """Of all processes, since the machine started."""
    fields = pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    user, nice, system, _, _, interrupt, soft_interrupt = (int(field) for field in fields[:7])
    return (user + nice + system + interrupt + soft_interrupt) / 100


def longspan(arguments, *flags):
    """The row of a bench, and what the run cost."""
    command = [arguments.program, "bench", *flags, "--model-path", arguments.model_path, "--load-format", "dummy",
               "--threads", str(arguments.threads), "--backend", "cpu", "--repeat", "1", "--json"]
    if arguments.chunk:
        command += ["--chunked-prefill-size", str(arguments.chunk)]
    before, busy, wall = resource.getrusage(resource.RUSAGE_CHILDREN), cores_busy_seconds(), time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True)
    wall, busy = time.monotonic() - wall, cores_busy_seconds() - busy
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip() or f"{arguments.program} exits with {done.returncode}")
    own = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {**json.loads(done.stdout)["rows"][0], "others": max(0.0, (busy - own) / wall)}


def llama_sample(process, threads, tokens, **task):
    busy = cores_busy_seconds()
    result = process.run(**task)
    busy = cores_busy_seconds() - busy
    return {"tokens_per_s": tokens / result["wall"],
            "cpu_share": result["cpu"] / result["wall"] / threads,
            "others": max(0.0, (busy - result["cpu"]) / result["wall"]),
            "peak_rss_mib": result["peak_rss_mib"]}


def median(samples, key):
    return statistics.median(sample[key] for sample in samples)


def summary(ours, theirs):
    """Of both engines' samples of one row."""
    shares = [sample["cpu_share"] for sample in ours + theirs if "cpu_share" in sample]
    peaks = [sample[key] for sample in ours for key in ("peak_before_gflops_per_s", "peak_after_gflops_per_s")
             if key in sample]
    moved = bool(peaks) and max(peaks) - min(peaks) > MOST_PEAK_CHANGE * min(peaks)
    row = {"longspan_tokens_per_s": median(ours, "tokens_per_s"),
           "llama_cpp_tokens_per_s": median(theirs, "tokens_per_s"),
           "llama_cpp_cpu_share": min(sample["cpu_share"] for sample in theirs),
           "others": max(sample["others"] for sample in ours + theirs),
           "busy": min(shares) < LEAST_CPU_SHARE or moved,
           "samples": {"longspan": ours, "llama_cpp": theirs}}
    row["ratio"] = row["longspan_tokens_per_s"] / row["llama_cpp_tokens_per_s"]
    return row


def prefill_row(length, ours, theirs):
    row = {"prompt_len": length, **summary(ours, theirs)}
    peak = median(ours, "peak_gflops_per_s")
    gflop_per_token = ours[0]["gflops_per_s"] / ours[0]["tokens_per_s"]
    return {**row, "peak_gflops_per_s": peak,
            "longspan_share_of_peak": row["longspan_tokens_per_s"] * gflop_per_token / peak,
            "llama_cpp_share_of_peak": row["llama_cpp_tokens_per_s"] * gflop_per_token / peak,
            "longspan_cpu_share": min(sample["cpu_share"] for sample in ours),
            "longspan_peak_rss_mib": max(sample["peak_rss_mib"] for sample in ours),
            "llama_cpp_peak_rss_mib": max(sample["peak_rss_mib"] for sample in theirs)}


def measure(arguments, gguf, length):
    """A row of prefill, and one of decode or None."""
    count = arguments.decode
    process = LlamaProcess(gguf, arguments, max(length + count, WARM_UP))
    prefill, decode = ([], []), ([], [])
    with contextlib.closing(process):
        for _ in range(arguments.rounds):
            prefill[0].append(longspan(arguments, "prefill", "--prompt-len", str(length)))
            prefill[1].append(llama_sample(process, arguments.threads, length, prefill=length))
            if count:
                decode[0].append(longspan(arguments, "decode", "--prompt-len", str(length), "--max-tokens", str(count)))
                decode[1].append(llama_sample(process, arguments.threads, count, decode=count, depth=length))
    if not count:
        return prefill_row(length, *prefill), None
    return prefill_row(length, *prefill), {"depth": length, **summary(*decode)}


def print_tables(arguments, prefill, decode):
    plural = "" if arguments.threads == 1 else "s"
    print(f"{arguments.model_path.name}, bf16, {arguments.threads} thread{plural}\n")
    print("  prompt   Longspan            llama.cpp            ratio  peak      cpu (L/l)  others  RSS MiB (L/l)")
    print("  tokens   tokens/s  of peak   tokens/s  of peak           GFLOP/s              cores")
    for row in prefill:
        print(f"{row['prompt_len']:8,} {row['longspan_tokens_per_s']:10,.1f} {row['longspan_share_of_peak']:8.1%}"
              f" {row['llama_cpp_tokens_per_s']:10,.1f} {row['llama_cpp_share_of_peak']:8.1%}"
              f" {row['ratio']:8.2f} {row['peak_gflops_per_s']:8.1f}"
              f"  {row['longspan_cpu_share']:6.2f}/{row['llama_cpp_cpu_share']:.2f} {row['others']:6.2f}"
              f" {row['longspan_peak_rss_mib']:7.0f}/{row['llama_cpp_peak_rss_mib']:.0f}{'  busy' * row['busy']}")
    if decode:
        print("\n   depth   Longspan  llama.cpp  ratio  cpu (l)  others\n"
              "  tokens   tokens/s   tokens/s                  cores")
    for row in decode:
        print(f"{row['depth']:8,} {row['longspan_tokens_per_s']:10,.1f} {row['llama_cpp_tokens_per_s']:10,.1f}"
              f" {row['ratio']:6.2f} {row['llama_cpp_cpu_share']:8.2f} {row['others']:7.2f}{'  busy' * row['busy']}")


def compare(arguments):
    import random_gguf

    prefill, decode = [], []
    with tempfile.TemporaryDirectory() as folder:
        gguf = str(pathlib.Path(folder) / "model.gguf")
        random_gguf.write_random_gguf(arguments.model_path, gguf)
        for length in (int(part) for part in arguments.prompt_len.split(",")):
            rows = measure(arguments, gguf, length)
            prefill.append(rows[0])
            decode += [rows[1]] if rows[1] else []
    if arguments.json:
        print(json.dumps({"prefill": prefill, "decode": decode}))
    else:
        print_tables(arguments, prefill, decode)


def main():
    arguments = parse_arguments()
    try:
        python_environment.need("numpy", "gguf", "llama_cpp")
        work(arguments) if arguments.worker else compare(arguments)
    except (python_environment.Unavailable, OSError, RuntimeError, ValueError) as error:
        print(f"compare_llamacpp.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
