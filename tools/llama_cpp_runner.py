"""llama.cpp on the CPU, through the C interface that the package llama-cpp-python wraps. Needs llama_cpp and numpy.

One sequence at a time, in batches as llama.cpp's own benchmark has them.
"""
import ctypes
import os
import time

import llama_cpp
import numpy as np

BATCH = 2048


@llama_cpp.llama_log_callback
def keep_quiet(level, text, data):
    """llama.cpp tells much about every model; a failure shows in the return values."""


class LlamaCpp:
    """A model and a context of so many tokens.

    kv: the cache's type, "f16" (llama.cpp's default) or "f32". With flash_attention the attention's products are in
    f32 on a cache that is converted tile by tile; without it they are products of whole matrices.
    """

    def __init__(self, path, context, threads, kv="f16", flash_attention=True, rows_at_once=512):
        llama_cpp.llama_log_set(keep_quiet, None)
        llama_cpp.llama_backend_init()
        options = llama_cpp.llama_model_default_params()
        options.n_gpu_layers = 0
        self.model = llama_cpp.llama_model_load_from_file(os.fsencode(path), options)
        if not self.model:
            raise RuntimeError(f"llama.cpp does not load {path}")
        options = llama_cpp.llama_context_default_params()
        options.n_ctx = -(-context // 256) * 256
        options.n_batch = BATCH
        options.n_ubatch = rows_at_once
        options.n_threads = options.n_threads_batch = threads
        options.type_k = options.type_v = {"f16": llama_cpp.GGML_TYPE_F16, "f32": llama_cpp.GGML_TYPE_F32}[kv]
        options.flash_attn_type = (llama_cpp.LLAMA_FLASH_ATTN_TYPE_ENABLED if flash_attention
                                   else llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED)
        self.context = llama_cpp.llama_init_from_model(self.model, options)
        if not self.context:
            raise RuntimeError(f"llama.cpp makes no context of {context} tokens")
        self.memory = llama_cpp.llama_get_memory(self.context)
        self.vocabulary = llama_cpp.llama_model_get_vocab(self.model)
        self.vocabulary_size = llama_cpp.llama_vocab_n_tokens(self.vocabulary)
        self.batch = llama_cpp.llama_batch_init(BATCH, 0, 1)

    def tokenize(self, text):
        """Without special tokens before or after it."""
        data = text.encode()
        ids = (llama_cpp.llama_token * (len(data) + 1))()
        count = llama_cpp.llama_tokenize(self.vocabulary, data, len(data), ids, len(ids), False, False)
        if count < 0:
            raise RuntimeError("llama.cpp does not tokenize the text")
        return ids[:count]

    def clear(self):
        llama_cpp.llama_memory_clear(self.memory, True)

    def _compute(self, tokens, position, logits):
        """Up to BATCH tokens from `position` on; `logits`: "all" or "last"."""
        self.batch.n_tokens = len(tokens)
        for i, token in enumerate(tokens):
            self.batch.token[i] = token
            self.batch.pos[i] = position + i
            self.batch.n_seq_id[i] = 1
            self.batch.seq_id[i][0] = 0
            self.batch.logits[i] = logits == "all" or i + 1 == len(tokens)
        result = llama_cpp.llama_decode(self.context, self.batch)
        if result != 0:
            raise RuntimeError(f"llama_decode returns {result}")

    def prefill(self, tokens):
        """Computes a prompt from an empty cache: wall and CPU seconds."""
        self.clear()
        wall, cpu = time.perf_counter(), time.process_time()
        for begin in range(0, len(tokens), BATCH):
            self._compute(tokens[begin:begin + BATCH], begin, "last")
        llama_cpp.llama_synchronize(self.context)
        return time.perf_counter() - wall, time.process_time() - cpu

    def decode(self, tokens, position):
        """Computes tokens one by one behind what is cached: wall and CPU seconds."""
        wall, cpu = time.perf_counter(), time.process_time()
        for i, token in enumerate(tokens):
            self._compute([token], position + i, "last")
        llama_cpp.llama_synchronize(self.context)
        return time.perf_counter() - wall, time.process_time() - cpu

    def logprobs(self, tokens):
        """log p(token[i + 1] | tokens up to i), f64 [tokens - 1], from an empty cache."""
        self.clear()
        result, at_once = [], 256
        for begin in range(0, len(tokens) - 1, at_once):
            piece = tokens[begin:begin + at_once]
            self._compute(piece, begin, "all")
            pointer = llama_cpp.llama_get_logits(self.context)
            address = ctypes.cast(pointer, ctypes.POINTER(ctypes.c_float))
            logits = np.ctypeslib.as_array(address, (len(piece), self.vocabulary_size)).astype(np.float64)
            following = np.array(tokens[begin + 1:begin + len(piece) + 1])
            logits = logits[:len(following)]
            largest = logits.max(axis=1)
            sums = largest + np.log(np.exp(logits - largest[:, None]).sum(axis=1))
            result.append(logits[np.arange(len(following)), following] - sums)
        return np.concatenate(result)
