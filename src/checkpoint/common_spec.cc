// HubConfig::CommonSpec: the keys that decoder models with grouped-query attention share.
#include <limits>

#include "checkpoint/hub_config.h"
#include "checkpoint/quoted.h"

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

base::Result<spec::Llama3RopeScaling> ReadLlama3Scaling(const JsonFields& rope) {
  spec::Llama3RopeScaling scaling;
  LONGSPAN_ASSIGN_OR_RETURN(scaling.factor, rope.Double("factor"));
  LONGSPAN_ASSIGN_OR_RETURN(scaling.low_frequency_factor, rope.Double("low_freq_factor"));
  LONGSPAN_ASSIGN_OR_RETURN(scaling.high_frequency_factor, rope.Double("high_freq_factor"));
  LONGSPAN_ASSIGN_OR_RETURN(scaling.original_context_length,
                            rope.Size("original_max_position_embeddings"));
  if (!(scaling.factor >= 1))
    return base::InvalidArgument("{}is {}; it must be at least 1", rope.Describe("factor"),
                                 scaling.factor);
  if (!(scaling.low_frequency_factor > 0))
    return base::InvalidArgument("{}is {}; it must be above 0", rope.Describe("low_freq_factor"),
                                 scaling.low_frequency_factor);
  if (!(scaling.high_frequency_factor > scaling.low_frequency_factor))
    return base::InvalidArgument("{}is {}; it must be above low_freq_factor, which is {}",
                                 rope.Describe("high_freq_factor"), scaling.high_frequency_factor,
                                 scaling.low_frequency_factor);
  return scaling;
}

base::Status CheckWholeHeadIsRotated(const JsonFields& fields) {
  LONGSPAN_ASSIGN_OR_RETURN(const double share, fields.Double("partial_rotary_factor", 1.0));
  if (share != 1)
    return base::Unimplemented("{}is {}: heads that are rotated in part are not supported",
                               fields.Describe("partial_rotary_factor"), share);
  return base::OkStatus();
}

// transformers 4 writes `rope_theta` and `rope_scaling` (with `type` in its older releases),
// transformers 5 `rope_parameters` with everything inside; where both are there, the newer counts.
base::Result<spec::RopeSpec> ReadRope(const JsonFields& fields, const std::string& architecture) {
  spec::RopeSpec rope;
  LONGSPAN_RETURN_IF_ERROR(CheckWholeHeadIsRotated(fields));
  LONGSPAN_ASSIGN_OR_RETURN(auto section, fields.Section("rope_parameters"));
  if (!section) {
    LONGSPAN_ASSIGN_OR_RETURN(section, fields.Section("rope_scaling"));
  }
  const JsonFields& theta_place = section && section->Has("rope_theta") ? *section : fields;
  LONGSPAN_ASSIGN_OR_RETURN(rope.theta, theta_place.Double("rope_theta", rope.theta));
  if (!(rope.theta > 1))
    return base::InvalidArgument("{}is {}; it must be above 1", theta_place.Describe("rope_theta"),
                                 rope.theta);
  if (!section) return rope;

  LONGSPAN_RETURN_IF_ERROR(CheckWholeHeadIsRotated(*section));
  const std::string_view type_key =
      section->Has("type") && !section->Has("rope_type") ? "type" : "rope_type";
  LONGSPAN_ASSIGN_OR_RETURN(const std::string type, section->String(type_key));
  if (type == "llama3") {
    LONGSPAN_ASSIGN_OR_RETURN(rope.llama3, ReadLlama3Scaling(*section));
  } else if (type != "default") {
    return base::Unimplemented(
        "{}: rope type {} is not supported for {}, which knows 'default' and 'llama3'",
        fields.where(), Quoted(type), architecture);
  }
  return rope;
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
  spec::ModelSpec spec;
  spec.architecture = architecture_;
  LONGSPAN_RETURN_IF_ERROR(CheckNotQuantized());
  LONGSPAN_RETURN_IF_ERROR(CheckActivation(*this));
  LONGSPAN_RETURN_IF_ERROR(ReadSizes(*this, spec));
  LONGSPAN_RETURN_IF_ERROR(ReadHeads(*this, spec.hidden_size, spec.attention));
  LONGSPAN_ASSIGN_OR_RETURN(spec.attention.rope, ReadRope(*this, architecture_));
  LONGSPAN_ASSIGN_OR_RETURN(spec.norm_epsilon, Double("rms_norm_eps", spec.norm_epsilon));
  if (!(spec.norm_epsilon > 0 && spec.norm_epsilon < 1))
    return base::InvalidArgument("{}is {}; it must be above 0 and below 1",
                                 Describe("rms_norm_eps"), spec.norm_epsilon);
  LONGSPAN_ASSIGN_OR_RETURN(spec.tied_embeddings, Bool("tie_word_embeddings", false));
  LONGSPAN_RETURN_IF_ERROR(ReadEndTokens(*this, generation_end_tokens_, spec));
  return spec;
}

}  // namespace longspan::checkpoint
