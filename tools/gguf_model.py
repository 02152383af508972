"""GGUF files of Llama's architecture, and Hugging Face folders of the same model. Needs gguf and numpy.

GGUF (ggml-org) holds a model in one file: metadata, and tensors in some hundred kinds of numbers, which the package
gguf turns into f32. What else differs from a Hugging Face folder is undone here:

- llama.cpp rotates neighbouring coordinates, Hugging Face the first half of a head with the second one. Rows of the
  query and key projections are therefore in another order in the file.
- Sizes are those of the file's metadata; a head of the output is missing where it is tied to the embedding.
- The tokenizer is a list of spellings and merges, and the name of its pre-tokenizer.
"""
import json
import pathlib

import gguf
import numpy as np

LAYER_TENSORS = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
OTHER_TENSORS = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
# llama.cpp's names of pre-tokenizers -> the steps before the bytes, as in tokenizer.json.
PRE_TOKENIZERS = {
    "gpt-2": [],
    "smollm": [{"type": "Digits", "individual_digits": True}],
}
CONTROL_TOKEN = 3  # gguf.TokenType


class UnsupportedFile(Exception):
    """The file is not of a kind that this module reads; the message says which."""


def float32(value):
    """The shortest decimal that is the same f32: 1e-05 instead of 9.999999747378752e-06."""
    return float(str(np.float32(value)))


def to_bf16(values):
    """f32 -> the bits of the nearest bf16, ties to even, as u16."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def from_bf16(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32)


def to_half_split(rows, heads):
    """Rows of a projection: pairs (2i, 2i + 1) of every head become (i, i + d/2)."""
    return rows.reshape(heads, -1, 2, rows.shape[-1]).swapaxes(1, 2).reshape(rows.shape)


def to_interleaved(rows, heads):
    """The inverse of to_half_split."""
    return rows.reshape(heads, 2, -1, rows.shape[-1]).swapaxes(1, 2).reshape(rows.shape)


class GgufModel:
    """A GGUF file of Llama's architecture. Tensors are dequantised when they are asked for."""

    def __init__(self, path):
        self.reader = gguf.GGUFReader(path)
        architecture = self.get("general.architecture")
        if architecture != "llama":
            raise UnsupportedFile(f"{path} holds a model of the architecture {architecture}, not llama")
        if self.get("llama.rope.scaling.type", "none") != "none" or self.tensor("rope_freqs.weight"):
            raise UnsupportedFile(f"{path} scales its rotary embedding, which is not converted")
        self.heads = self.get("llama.attention.head_count")
        self.kv_heads = self.get("llama.attention.head_count_kv", self.heads)

    def get(self, key, default=None):
        field = self.reader.get_field(key)
        if field is None and default is None:
            raise UnsupportedFile(f"the file lacks {key}")
        return default if field is None else field.contents()

    def tensor(self, name):
        return next((tensor for tensor in self.reader.tensors if tensor.name == name), None)

    def config(self):
        """config.json."""
        hidden = self.get("llama.embedding_length")
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "vocab_size": len(self.get("tokenizer.ggml.tokens")),
            "hidden_size": hidden,
            "intermediate_size": self.get("llama.feed_forward_length"),
            "num_hidden_layers": self.get("llama.block_count"),
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.get("llama.attention.key_length", hidden // self.heads),
            "hidden_act": "silu",
            "max_position_embeddings": self.get("llama.context_length"),
            "rms_norm_eps": float32(self.get("llama.attention.layer_norm_rms_epsilon")),
            "rope_theta": float32(self.get("llama.rope.freq_base", 10000.0)),
            "tie_word_embeddings": self.tensor("output.weight") is None,
            "attention_bias": False,
            "mlp_bias": False,
            "torch_dtype": "bfloat16",
            "bos_token_id": self.get("tokenizer.ggml.bos_token_id"),
            "eos_token_id": self.get("tokenizer.ggml.eos_token_id"),
        }

    def weights(self):
        """(Hugging Face's name, f32 array) of every tensor, in the file's order."""
        for tensor in self.reader.tensors:
            values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
            part, kind = tensor.name.rsplit(".", 1)
            if part.startswith("blk."):
                _, layer, part = part.split(".", 2)
                name = f"model.layers.{layer}.{LAYER_TENSORS.get(part)}"
                if part in ("attn_q", "attn_k"):
                    values = to_half_split(values, self.heads if part == "attn_q" else self.kv_heads)
                known = part in LAYER_TENSORS
            else:
                name = OTHER_TENSORS.get(part)
                known = part in OTHER_TENSORS
            if not known or kind != "weight":
                raise UnsupportedFile(f"the tensor {tensor.name} is not of a plain Llama")
            yield f"{name}.weight", values

    def tokenizer(self):
        """tokenizer.json, in the form of the package tokenizers."""
        if self.get("tokenizer.ggml.model") != "gpt2":
            raise UnsupportedFile("the tokenizer is no byte-level BPE")
        kind = self.get("tokenizer.ggml.pre")
        if kind not in PRE_TOKENIZERS:
            raise UnsupportedFile(f"the pre-tokenizer {kind} is not converted; known: {', '.join(PRE_TOKENIZERS)}")
        tokens = self.get("tokenizer.ggml.tokens")
        types = self.get("tokenizer.ggml.token_type")
        bytes_step = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
        return {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": [
                {"id": id, "content": token, "single_word": False, "lstrip": False, "rstrip": False,
                 "normalized": False, "special": True}
                for id, (token, type) in enumerate(zip(tokens, types)) if type == CONTROL_TOKEN
            ],
            "normalizer": None,
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [*PRE_TOKENIZERS[kind], bytes_step]},
            "post_processor": None,
            "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
            "model": {
                "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                "vocab": {token: id for id, token in enumerate(tokens)},
                "merges": self.get("tokenizer.ggml.merges"),
            },
        }

    def tokenizer_config(self):
        """tokenizer_config.json, with the chat template."""
        tokens = self.get("tokenizer.ggml.tokens")

        def token(name):
            return tokens[self.get(f"tokenizer.ggml.{name}_token_id")]

        return {
            "add_bos_token": self.get("tokenizer.ggml.add_bos_token", False),
            "add_prefix_space": False,
            "bos_token": token("bos"),
            "eos_token": token("eos"),
            "unk_token": token("unknown"),
            "pad_token": token("padding"),
            "clean_up_tokenization_spaces": False,
            "model_max_length": self.get("llama.context_length"),
            "tokenizer_class": "GPT2Tokenizer",
            "chat_template": self.get("tokenizer.chat_template"),
        }


def write_safetensors(path, tensors):
    """tensors: (name, f32 array), written as bf16 in the format of safetensors."""
    header, pieces, offset = {"__metadata__": {"format": "pt"}}, [], 0
    for name, values in tensors:
        data = to_bf16(values).tobytes()
        header[name] = {"dtype": "BF16", "shape": list(values.shape), "data_offsets": [offset, offset + len(data)]}
        pieces.append(data)
        offset += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little"))
        file.write(text)
        file.writelines(pieces)


def read_safetensors(path):
    """name -> f32 array, of a file of bf16 tensors."""
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        data = np.frombuffer(file.read(), np.uint16)
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        if entry["dtype"] != "BF16":
            raise UnsupportedFile(f"{name} is {entry['dtype']}, not BF16")
        begin, end = (offset // 2 for offset in entry["data_offsets"])
        tensors[name] = from_bf16(data[begin:end]).reshape(entry["shape"])
    return tensors


def write_hub_folder(model, folder):
    """Makes the folder hold the model as Hugging Face's libraries store it, weights in bf16."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    write_safetensors(folder / "model.safetensors", model.weights())
    config = model.config()
    files = {
        "tokenizer.json": model.tokenizer(),
        "tokenizer_config.json": model.tokenizer_config(),
        "generation_config.json": {"bos_token_id": config["bos_token_id"], "eos_token_id": config["eos_token_id"],
                                   "pad_token_id": model.get("tokenizer.ggml.padding_token_id")},
        # Last: a folder without it is no model, so that one that was not finished is not taken for one.
        "config.json": config,
    }
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n")
