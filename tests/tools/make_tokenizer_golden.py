"""Writes the golden files of the tokenizer's tests with Hugging Face tokenizers.

    pip install tokenizers
    python tests/tools/make_tokenizer_golden.py TEXT_FILE QWEN3_DIR DEEPSEEK_V3_DIR

TEXT_FILE is an English text to train the small vocabularies on; the two folders hold the
tokenizer.json of the models. Writes to tests/data/tokenizers:
  synthetic.json.xz      [{"name", "tokenizer", "cases"}], a small tokenizer.json for each feature
  random-MODEL.json.xz   {"cases"}
A case is [text, ids, ids with special tokens, decoded, decoded without special tokens].
"""
import json
import lzma
import pathlib
import random
import sys
import unicodedata

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

DATA = pathlib.Path(__file__).resolve().parent.parent / "data" / "tokenizers"
LLAMA3_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
WORDS = [
    "don't", "I'LL", "we'VE", "it'\u017f", "'S", "hello", " world", "the", " the", "\u00c0\u00c9",
    "na\u00efve", "123", "4567890", "3.14", "x1y2", "\u4e2d\u6587", "\u65e5\u672c\u8a9e",
    "\u30ab\u30bf\u30ab\u30ca", "\ud55c\uad6d\uc5b4", "\r\n", "\n\n", "\n", "\t", " ", "  ", "    ",
    "\u00a0", "\u3000", "\u2028", "\x85", "\u180e", "\x0b", "\x0c", "\x1c", "\x1f", "e\u0301",
    "\u1100\u1161\u11a8", "\u1100\u1161x", "\U0001f600", "\U0001f469\u200d\U0001f467", "\U0001f1e8\U0001f1f3",
    "\u200b", "\ufeff", "\x00", "\x7f", "_", "-", "...", "!!", "<|", "|>", "<", "'", "\"", ",", ";",
    "\u0663", "\u2167", "\u00bd", "\u0130", "\u00df", "\ufb01", "\u212a", "\u0344", "a", "b", "A"]
RANGES = [
    (0x20, 0x7F), (0x20, 0x7F), (0x00, 0x20), (0x80, 0x250), (0x300, 0x370), (0x370, 0x600),
    (0x600, 0x700), (0x900, 0xA00), (0xE00, 0xE80), (0x1100, 0x1200), (0x1E00, 0x2000),
    (0x2000, 0x2200), (0x2460, 0x2500), (0x3000, 0x3100), (0x4E00, 0x9FA0), (0xAC00, 0xD7A4),
    (0xF900, 0xFB00), (0xFB1D, 0x10000), (0x1D100, 0x1D800), (0x2F800, 0x2FA1E)]


def is_old(character):
    """Assigned since Unicode 3.2, so that no engine's tables are too old for it."""
    return unicodedata.ucd_3_2_0.category(character) not in ("Cn", "Cs", "Co")


def random_text(rng, specials):
    text = ""
    for _ in range(rng.choice([1, 2, 3, 5, 8, 13])):
        kind = rng.random()
        if kind < 0.4:
            text += rng.choice(WORDS)
        elif kind < 0.55 and specials:
            text += rng.choice(specials)
        elif kind < 0.6:
            text += rng.choice(WORDS) * rng.randint(2, 30)
        else:
            low, high = rng.choice(RANGES)
            drawn = (chr(rng.randrange(low, high)) for _ in range(rng.randint(1, 6)))
            text += "".join(c for c in drawn if is_old(c))
    return text


def cases(tokenizer_json, count, seed):
    tokenizer = Tokenizer.from_str(json.dumps(tokenizer_json))
    rng = random.Random(seed)
    specials = [token["content"] for token in tokenizer_json["added_tokens"]][:40]
    result = []
    for text in ["", " "] + [random_text(rng, specials) for _ in range(count)]:
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        result.append([text, ids, tokenizer.encode(text, add_special_tokens=True).ids,
                       tokenizer.decode(ids, skip_special_tokens=False),
                       tokenizer.decode(ids, skip_special_tokens=True)])
    return result


def train(text, size, whole_alphabet=True):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet() if whole_alphabet else []
    tokenizer.train_from_iterator(text.splitlines(keepends=True), trainers.BpeTrainer(
        vocab_size=size, initial_alphabet=alphabet, show_progress=False))
    return json.loads(tokenizer.to_str())


def byte_level(prefix=False, regex=False):
    return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True,
            "use_regex": regex}


def split(pattern, behavior, invert=False):
    return {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert}


def sequence(*steps):
    return {"type": "Sequence", "pretokenizers": list(steps)}


def add_tokens(tokenizer, *tokens):
    """(content, flags...): appended with the next ids."""
    flags = ("special", "lstrip", "rstrip", "single_word", "normalized")
    next_id = max(tokenizer["model"]["vocab"].values()) + 1
    for content, *given in tokens:
        entry = {"id": next_id, "content": content} | {flag: flag in given for flag in flags}
        tokenizer["added_tokens"].append(entry)
        next_id += 1


def copy(tokenizer, **changes):
    return json.loads(json.dumps(tokenizer)) | changes


def gpt2(base, prefix):
    result = copy(base, pre_tokenizer=byte_level(prefix, True), post_processor=byte_level())
    add_tokens(result, ("<|endoftext|>", "special"))
    # The spelling of the first years.
    del result["model"]["type"]
    result["model"]["merges"] = [" ".join(pair) for pair in result["model"]["merges"]]
    return result


def llama3(base):
    result = copy(base, pre_tokenizer=sequence(split({"Regex": LLAMA3_PATTERN}, "Isolated"),
                                               byte_level()))
    model = result["model"]
    model["ignore_merges"] = True
    for whole in ["\u0120world", "hello", "123", "\u00e4\u00b8\u0143\u00e6\u0138\u0129"]:
        model["vocab"].setdefault(whole, len(model["vocab"]))
    add_tokens(result, ("<|begin_of_text|>", "special"), ("<|eot_id|>", "special"))
    begin = result["added_tokens"][-2]
    template = {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": begin["content"], "type_id": 0}},
                   {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {begin["content"]: {"id": begin["content"], "ids": [begin["id"]],
                                              "tokens": [begin["content"]]}}}
    result["post_processor"] = {"type": "Sequence", "processors": [byte_level(), template]}
    return result


def added(base):
    result = copy(base, normalizer={"type": "Sequence", "normalizers": [{"type": "NFC"}]},
                  pre_tokenizer=byte_level(False, True))
    add_tokens(result, ("<L>", "lstrip", "special"), ("<R>", "rstrip"),
               ("<B>", "lstrip", "rstrip", "normalized"), ("<W>", "single_word"),
               ("word", "single_word", "normalized"), ("\uac00x", "normalized", "special"),
               ("<a>",), ("<a><b>",), ("<b><a>", "special"), ("the", "normalized"),
               ("\u00a0x", "special"), ("two words",))
    return result


def without_alphabet(text, fuse):
    result = train(text, 120, whole_alphabet=False)
    vocab = result["model"]["vocab"]
    vocab["<unk>"] = len(vocab)
    result["model"] |= {"unk_token": "<unk>", "fuse_unk": fuse}
    return result


def synthetic(text):
    base = train(text, 700)
    small = train(text, 330)
    yield "gpt2", gpt2(base, False), 400
    yield "gpt2_prefix_space", gpt2(base, True), 200
    yield "llama3", llama3(base), 400
    yield "added_tokens", added(base), 600
    yield "unknown", without_alphabet(text, False), 100
    yield "unknown_fused", without_alphabet(text, True), 100
    for individual in (False, True):
        digits = {"type": "Digits", "individual_digits": individual}
        yield (f"digits_{individual}",
               copy(small, pre_tokenizer=sequence(digits, byte_level(True, True))), 100)
    for behavior in ("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"):
        for invert in (False, True):
            steps = sequence(split({"Regex": r"[,;]|\s|\p{L}"}, behavior, invert), byte_level())
            yield f"split_{behavior}_{invert}", copy(small, pre_tokenizer=steps), 60
        steps = sequence(split({"String": "."}, behavior), split({"String": " "}, behavior),
                         sequence(split({"Regex": "b*"}, behavior)), byte_level())
        yield f"split_string_{behavior}", copy(small, pre_tokenizer=steps), 60


def write(name, value):
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    (DATA / name).write_bytes(lzma.compress(text.encode(), preset=9))


def main():
    text = pathlib.Path(sys.argv[1]).read_text()[:300000] + "".join(WORDS) * 20
    write("synthetic.json.xz",
          [{"name": name, "tokenizer": tokenizer, "cases": cases(tokenizer, count, 1)}
           for name, tokenizer, count in synthetic(text)])
    for name, folder in (("qwen3", sys.argv[2]), ("deepseek_v3", sys.argv[3])):
        tokenizer = json.loads((pathlib.Path(folder) / "tokenizer.json").read_text())
        write(f"random-{name}.json.xz", {"cases": cases(tokenizer, 1500, 2)})


main()
