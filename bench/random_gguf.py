"""GGUF files with random weights in bf16, of the shape that a Hugging Face config.json tells. Needs gguf and numpy.

Llama, Qwen3-MoE and DeepSeek V3. Speed does not depend on the values, but that random routers choose all experts alike.
"""
import json
import pathlib

import gguf
import numpy as np

BF16 = gguf.GGMLQuantizationType.BF16


class RandomGguf:
    """Collects the metadata and tensors of one model. The file has no vocabulary but its size."""

    def __init__(self, path, config, architecture):
        self.config = config
        self.random = np.random.default_rng(1)
        self.writer = writer = gguf.GGUFWriter(path, architecture)
        self.hidden = config["hidden_size"]
        self.heads = config["num_attention_heads"]
        self.kv_heads = config.get("num_key_value_heads", self.heads)
        self.head_dim = config.get("head_dim", self.hidden // self.heads)
        writer.add_vocab_size(config["vocab_size"])
        writer.add_tokenizer_model("no_vocab")
        writer.add_context_length(config["max_position_embeddings"])
        writer.add_embedding_length(self.hidden)
        writer.add_block_count(config["num_hidden_layers"])
        writer.add_feed_forward_length(config["intermediate_size"])
        writer.add_head_count(self.heads)
        writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
        writer.add_rope_freq_base(config["rope_theta"])

    def matrix(self, name, *shape):
        """Values of the size that trained weights have, as bf16: sign and exponent near 2^-6, random mantissas."""
        bits = self.random.integers(0, 1 << 16, shape, np.uint16)
        bits = (bits & 0x80FF) | 0x3C00
        self.writer.add_tensor(f"{name}.weight", bits.view(np.uint8), raw_dtype=BF16)

    def norm(self, name, size):
        self.writer.add_tensor(f"{name}.weight", np.ones(size, np.float32))

    def embedding_and_head(self):
        self.matrix("token_embd", self.config["vocab_size"], self.hidden)
        self.norm("output_norm", self.hidden)
        if not self.config["tie_word_embeddings"]:
            self.matrix("output", self.config["vocab_size"], self.hidden)

    def attention(self, layer, head_norms):
        at = f"blk.{layer}."
        self.norm(at + "attn_norm", self.hidden)
        self.matrix(at + "attn_q", self.heads * self.head_dim, self.hidden)
        self.matrix(at + "attn_k", self.kv_heads * self.head_dim, self.hidden)
        self.matrix(at + "attn_v", self.kv_heads * self.head_dim, self.hidden)
        self.matrix(at + "attn_output", self.hidden, self.heads * self.head_dim)
        if head_norms:
            self.norm(at + "attn_q_norm", self.head_dim)
            self.norm(at + "attn_k_norm", self.head_dim)

    def latent_attention(self, layer):
        at, config = f"blk.{layer}.", self.config
        rank, rope = config["kv_lora_rank"], config["qk_rope_head_dim"]
        nope, value = config["qk_nope_head_dim"], config["v_head_dim"]
        self.norm(at + "attn_norm", self.hidden)
        self.matrix(at + "attn_q_a", config["q_lora_rank"], self.hidden)
        self.norm(at + "attn_q_a_norm", config["q_lora_rank"])
        self.matrix(at + "attn_q_b", self.heads * (nope + rope), config["q_lora_rank"])
        self.matrix(at + "attn_kv_a_mqa", rank + rope, self.hidden)
        self.norm(at + "attn_kv_a_norm", rank)
        self.matrix(at + "attn_k_b", self.heads, rank, nope)
        self.matrix(at + "attn_v_b", self.heads, value, rank)
        self.matrix(at + "attn_output", self.hidden, self.heads * value)

    def mlp(self, layer, size, suffix="", *experts):
        at = f"blk.{layer}."
        self.matrix(f"{at}ffn_gate{suffix}", *experts, size, self.hidden)
        self.matrix(f"{at}ffn_up{suffix}", *experts, size, self.hidden)
        self.matrix(f"{at}ffn_down{suffix}", *experts, self.hidden, size)

    def router(self, layer, experts):
        values = self.random.standard_normal((experts, self.hidden), np.float32) / np.sqrt(self.hidden)
        self.writer.add_tensor(f"blk.{layer}.ffn_gate_inp.weight", values.astype(np.float32))

    def write(self):
        self.writer.write_header_to_file()
        self.writer.write_kv_data_to_file()
        self.writer.write_tensors_to_file()
        self.writer.close()


def write_llama(path, config):
    model = RandomGguf(path, config, "llama")
    model.writer.add_head_count_kv(model.kv_heads)
    model.writer.add_rope_dimension_count(model.head_dim)
    model.embedding_and_head()
    for layer in range(config["num_hidden_layers"]):
        model.attention(layer, head_norms=False)
        model.norm(f"blk.{layer}.ffn_norm", model.hidden)
        model.mlp(layer, config["intermediate_size"])
    model.write()


def write_qwen3_moe(path, config):
    model = RandomGguf(path, config, "qwen3moe")
    writer, experts = model.writer, config["num_experts"]
    writer.add_head_count_kv(model.kv_heads)
    writer.add_key_length(model.head_dim)
    writer.add_value_length(model.head_dim)
    writer.add_expert_count(experts)
    writer.add_expert_used_count(config["num_experts_per_tok"])
    writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
    model.embedding_and_head()
    for layer in range(config["num_hidden_layers"]):
        model.attention(layer, head_norms=True)
        model.norm(f"blk.{layer}.ffn_norm", model.hidden)
        model.router(layer, experts)
        model.mlp(layer, config["moe_intermediate_size"], "_exps", experts)
    model.write()


def write_deepseek_v3(path, config):
    """llama.cpp keeps keys and values of latent attention as one head, and attends in the space of the latents."""
    model = RandomGguf(path, config, "deepseek2")
    writer, experts = model.writer, config["n_routed_experts"]
    rank, rope = config["kv_lora_rank"], config["qk_rope_head_dim"]
    writer.add_head_count_kv(1)
    writer.add_q_lora_rank(config["q_lora_rank"])
    writer.add_kv_lora_rank(rank)
    writer.add_key_length(rank + rope)
    writer.add_value_length(rank)
    writer.add_key_length_mla(config["qk_nope_head_dim"] + rope)
    writer.add_value_length_mla(config["v_head_dim"])
    writer.add_rope_dimension_count(rope)
    writer.add_leading_dense_block_count(config["first_k_dense_replace"])
    writer.add_expert_count(experts)
    writer.add_expert_used_count(config["num_experts_per_tok"])
    writer.add_expert_shared_count(config["n_shared_experts"])
    writer.add_expert_group_count(config["n_group"])
    writer.add_expert_group_used_count(config["topk_group"])
    writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
    writer.add_expert_weights_scale(config["routed_scaling_factor"])
    writer.add_expert_weights_norm(config["norm_topk_prob"])
    writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
    model.embedding_and_head()
    for layer in range(config["num_hidden_layers"]):
        model.latent_attention(layer)
        model.norm(f"blk.{layer}.ffn_norm", model.hidden)
        if layer < config["first_k_dense_replace"]:
            model.mlp(layer, config["intermediate_size"])
            continue
        model.router(layer, experts)
        writer.add_tensor(f"blk.{layer}.exp_probs_b.bias", np.zeros(experts, np.float32))
        model.mlp(layer, config["moe_intermediate_size"], "_exps", experts)
        model.mlp(layer, config["moe_intermediate_size"] * config["n_shared_experts"], "_shexp")
    model.write()


WRITERS = {"llama": write_llama, "qwen3_moe": write_qwen3_moe, "deepseek_v3": write_deepseek_v3}


def write_random_gguf(folder, path):
    """The shape of the folder's config.json. ValueError for an architecture that is not written."""
    config = json.loads((pathlib.Path(folder) / "config.json").read_text())
    writer = WRITERS.get(config["model_type"])
    if writer is None:
        raise ValueError(f"{folder}: no GGUF of {config['model_type']} is written, only of {', '.join(WRITERS)}")
    writer(path, config)
