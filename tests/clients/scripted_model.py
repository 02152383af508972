"""Writes models that say what a test wants: after a cue, a script, cut into tokens at any byte.

Every token of a script occurs in it once, so that the next token depends on the last one alone. The
embedding of a token is an axis of its own, attention and MLP add nothing, and the output layer maps
the axis to the token that follows. All else is followed by the end of the text.
"""
import json
import pathlib
import random
import struct

END = "<|end|>"


def byte_letters():
    """GPT-2's letters for bytes, as tokenizer.json spells tokens."""
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = {byte: chr(byte) for byte in kept}
    for byte in range(256):
        if byte not in letters:
            letters[byte] = chr(256 + len(letters) - len(kept))
    return letters


LETTERS = byte_letters()


def spell(piece):
    return "".join(LETTERS[byte] for byte in piece)


class Vocabulary:
    def __init__(self, cues, special):
        self.ids = {}
        self.added = []
        self.add_token(END, True)
        for byte in range(256):
            self.ids[spell(bytes([byte]))] = len(self.ids)
        for name in [*cues, *special]:
            if name not in self.ids:
                self.add_token(name, name in special)
        self.added_ids = dict(self.ids)

    def add_token(self, name, special):
        self.ids[name] = len(self.ids)
        self.added.append({
            "id": self.ids[name], "content": name, "single_word": False, "lstrip": False,
            "rstrip": False, "normalized": False, "special": special,
        })

    def id_of_piece(self, piece):
        return self.ids.setdefault(spell(piece), len(self.ids))


def cut(text, used, chance):
    """The text's bytes in short pieces, none of which was used before."""
    rest = text.encode()
    pieces = []
    while rest:
        length = min(len(rest), chance.choice([1, 1, 2, 3, 4]))
        while rest[:length] in used and length < len(rest):
            length += 1
        while rest[:length] in used:  # the end repeats: it becomes part of the piece before
            used.discard(pieces[-1])
            rest = pieces.pop() + rest
            length = len(rest)
        used.add(rest[:length])
        pieces.append(rest[:length])
        rest = rest[length:]
    return pieces


def matrix(rows, columns, ones, value):
    """bfloat16, with `value` at the places `ones` and 0 elsewhere."""
    data = bytearray(rows * columns * 2)
    for row, column in ones:
        struct.pack_into("<H", data, 2 * (row * columns + column), value)
    return [rows, columns], bytes(data)


def write_safetensors(path, tensors):
    header, offset = {}, 0
    for name, (shape, data) in tensors.items():
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, data in tensors.values():
            file.write(data)


def successors(vocabulary, scripts, special, seed):
    """Token to next token. A script may begin with a special token."""
    chance = random.Random(seed)
    used = {cue.encode() for cue in scripts}
    follows = {}
    for cue, text in scripts.items():
        before = vocabulary.ids[spell(cue.encode()) if len(cue) == 1 else cue]
        for name in special:
            if text.startswith(name):
                follows[before] = before = vocabulary.ids[name]
                text = text[len(name):]
        for piece in cut(text, used, chance):
            token = vocabulary.id_of_piece(piece)
            follows[before] = token
            before = token
        follows[before] = vocabulary.ids[END]
    return follows


def write(folder, scripts, chat_template, special=(), seed=1):
    """A model folder. `scripts`: cue (a byte, or a name that becomes a token) to what follows it."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = Vocabulary([cue for cue in scripts if len(cue) > 1], list(special))
    follows = successors(vocabulary, scripts, special, seed)
    size = len(vocabulary.ids)
    axes = {token: axis for axis, token in enumerate(follows)}
    hidden = -(-len(axes) // 32) * 32
    heads, width, inner = 2, 16, 32
    one, eight = 0x3F80, 0x4100
    layer = "model.layers.0."
    ones = [hidden], struct.pack("<H", one) * hidden
    tensors = {
        "model.embed_tokens.weight": matrix(size, hidden, axes.items(), one),
        "lm_head.weight": matrix(
            size, hidden, [(follows[token], axis) for token, axis in axes.items()], eight),
        "model.norm.weight": ones,
        layer + "input_layernorm.weight": ones,
        layer + "post_attention_layernorm.weight": ones,
        layer + "self_attn.q_proj.weight": matrix(heads * width, hidden, [], 0),
        layer + "self_attn.k_proj.weight": matrix(width, hidden, [], 0),
        layer + "self_attn.v_proj.weight": matrix(width, hidden, [], 0),
        layer + "self_attn.o_proj.weight": matrix(hidden, heads * width, [], 0),
        layer + "mlp.gate_proj.weight": matrix(inner, hidden, [], 0),
        layer + "mlp.up_proj.weight": matrix(inner, hidden, [], 0),
        layer + "mlp.down_proj.weight": matrix(hidden, inner, [], 0),
    }
    write_safetensors(folder / "model.safetensors", tensors)
    (folder / "config.json").write_text(json.dumps({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": hidden,
        "intermediate_size": inner, "num_hidden_layers": 1, "num_attention_heads": heads,
        "num_key_value_heads": 1, "head_dim": width, "vocab_size": size, "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0, "max_position_embeddings": 8192, "hidden_act": "silu",
        "tie_word_embeddings": False, "torch_dtype": "bfloat16", "eos_token_id": 0,
        "attention_bias": False, "mlp_bias": False,
    }))
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False,
                  "use_regex": False}
    (folder / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "added_tokens": vocabulary.added, "normalizer": None,
        "pre_tokenizer": byte_level, "post_processor": byte_level, "decoder": byte_level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "byte_fallback": False,
                  "fuse_unk": False, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "ignore_merges": False,
                  "vocab": vocabulary.ids, "merges": []},
    }))
    (folder / "tokenizer_config.json").write_text(json.dumps({
        "chat_template": chat_template, "eos_token": END, "bos_token": None,
        "tokenizer_class": "PreTrainedTokenizerFast",
    }))
    return folder
