// HubConfig::CommonSpec: the keys that decoder models with grouped-query attention share.
#include <limits>

#include "checkpoint/hub_config.h"
#include "checkpoint/quoted.h"
#include "checkpoint/rope_spec.h"

namespace longspan::checkpoint {
namespace {

// Beyond these a config is broken rather than large; below them products of two sizes fit 64 bits.
constexpr int kMaxLayers = 10'000;
constexpr int kMaxWidth = 1 << 27;

base::Result<int> Width(const JsonFields& fields, std::string_view key) {
  LONGSPAN_ASSIGN_OR_RETURN(const int value, fields.Size(key));
  if (value > kMaxWidth)
    return base::InvalidArgument("{}is {}; at most {} makes sense", fields.Describe(key), value,
                                 kMaxWidth);
  return value;
}

base::Status ReadSizes(const JsonFields& fields, spec::ModelSpec& spec) {
  LONGSPAN_ASSIGN_OR_RETURN(spec.vocab_size, Width(fields, "vocab_size"));
  LONGSPAN_ASSIGN_OR_RETURN(spec.hidden_size, Width(fields, "hidden_size"));
  LONGSPAN_ASSIGN_OR_RETURN(spec.intermediate_size, Width(fields, "intermediate_size"));
  LONGSPAN_ASSIGN_OR_RETURN(spec.context_length, fields.Size("max_position_embeddings"));
  LONGSPAN_ASSIGN_OR_RETURN(const int layers, fields.Size("num_hidden_layers"));
  if (layers > kMaxLayers)
    return base::InvalidArgument("{}is {}; at most {} makes sense",
                                 fields.Describe("num_hidden_layers"), layers, kMaxLayers);
  spec.feed_forward.assign(static_cast<size_t>(layers), spec::FeedForwardKind::kDense);
  return base::OkStatus();
}

base::Status ReadHeads(const JsonFields& fields, int hidden_size, spec::AttentionSpec& attention) {
  LONGSPAN_ASSIGN_OR_RETURN(attention.heads, fields.Size("num_attention_heads"));
  LONGSPAN_ASSIGN_OR_RETURN(attention.kv_heads,
                            fields.Size("num_key_value_heads", attention.heads));
  if (attention.heads % attention.kv_heads != 0)
    return base::InvalidArgument("{}is {}, which must divide the {} attention heads",
                                 fields.Describe("num_key_value_heads"), attention.kv_heads,
                                 attention.heads);
  if (!fields.Has("head_dim") && hidden_size % attention.heads != 0)
    return base::InvalidArgument("{}is missing, and {} hidden columns are no multiple of {} heads",
                                 fields.Describe("head_dim"), hidden_size, attention.heads);
  LONGSPAN_ASSIGN_OR_RETURN(attention.head_dim,
                            fields.Size("head_dim", hidden_size / attention.heads));
  if (attention.head_dim % 2 != 0)
    return base::InvalidArgument(
        "{}is {}; it must be even, because rotary embedding turns pairs of columns",
        fields.Describe("head_dim"), attention.head_dim);
  if (int64_t{attention.heads} * attention.head_dim > kMaxWidth)
    return base::InvalidArgument("{}is {}; {} heads of {} columns make no sense",
                                 fields.Describe("num_attention_heads"), attention.heads,
                                 attention.heads, attention.head_dim);
  return base::OkStatus();
}

base::Status CheckActivation(const JsonFields& fields) {
  LONGSPAN_ASSIGN_OR_RETURN(const std::string activation, fields.String("hidden_act", "silu"));
  if (activation != "silu")
    return base::Unimplemented("{}is {}; only 'silu' is supported", fields.Describe("hidden_act"),
                               Quoted(activation));
  return base::OkStatus();
}

base::Status ReadEndTokens(const JsonFields& fields, std::vector<int64_t> ids,
                           spec::ModelSpec& spec) {
  if (ids.empty()) {
    LONGSPAN_ASSIGN_OR_RETURN(ids, fields.IntOrInts("eos_token_id"));
  }
  for (const int64_t id : ids) {
    if (id < 0 || id >= spec.vocab_size)
      return base::InvalidArgument("{}: the end token {} is not in the vocabulary of {}",
                                   fields.where(), id, spec.vocab_size);
    spec.end_tokens.push_back(static_cast<int32_t>(id));
  }
  return base::OkStatus();
}

}  // namespace

base::Result<spec::ModelSpec> HubConfig::CommonSpec() const {
  LONGSPAN_ASSIGN_OR_RETURN(spec::ModelSpec spec, SpecWithoutHeads());
  LONGSPAN_RETURN_IF_ERROR(ReadHeads(*this, spec.hidden_size, spec.attention));
  return spec;
}

base::Result<spec::ModelSpec> HubConfig::SpecWithoutHeads() const {
  spec::ModelSpec spec;
  spec.architecture = architecture_;
  LONGSPAN_RETURN_IF_ERROR(ReadFp8Blocks().status());
  LONGSPAN_RETURN_IF_ERROR(CheckActivation(*this));
  LONGSPAN_RETURN_IF_ERROR(ReadSizes(*this, spec));
  LONGSPAN_ASSIGN_OR_RETURN(spec.attention.rope,
                            ReadRope(*this, architecture_, spec.context_length));
  LONGSPAN_ASSIGN_OR_RETURN(spec.norm_epsilon, Double("rms_norm_eps", spec.norm_epsilon));
  if (!(spec.norm_epsilon > 0 && spec.norm_epsilon < 1))
    return base::InvalidArgument("{}is {}; it must be above 0 and below 1",
                                 Describe("rms_norm_eps"), spec.norm_epsilon);
  LONGSPAN_ASSIGN_OR_RETURN(spec.tied_embeddings, Bool("tie_word_embeddings", false));
  LONGSPAN_RETURN_IF_ERROR(ReadEndTokens(*this, generation_end_tokens_, spec));
  return spec;
}

}  // namespace longspan::checkpoint
