#include "checkpoint/rope_spec.h"

#include <string>
#include <utility>

#include "checkpoint/quoted.h"

namespace longspan::checkpoint {
namespace {

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

// A number above 0; `value` where the key is absent.
base::Result<double> Positive(const JsonFields& fields, std::string_view key, double value) {
  LONGSPAN_ASSIGN_OR_RETURN(value, fields.Double(key, value));
  if (!(value > 0))
    return base::InvalidArgument("{}is {}; it must be above 0", fields.Describe(key), value);
  return value;
}

base::Result<spec::YarnRopeScaling> ReadYarnScaling(const JsonFields& rope,
                                                    int64_t context_length) {
  spec::YarnRopeScaling scaling;
  LONGSPAN_ASSIGN_OR_RETURN(scaling.factor, rope.Double("factor"));
  if (!(scaling.factor >= 1))
    return base::InvalidArgument("{}is {}; it must be at least 1", rope.Describe("factor"),
                                 scaling.factor);
  LONGSPAN_ASSIGN_OR_RETURN(
      scaling.original_context_length,
      rope.Size("original_max_position_embeddings", static_cast<int>(context_length)));
  LONGSPAN_ASSIGN_OR_RETURN(scaling.beta_fast, Positive(rope, "beta_fast", scaling.beta_fast));
  LONGSPAN_ASSIGN_OR_RETURN(scaling.beta_slow, Positive(rope, "beta_slow", scaling.beta_slow));
  if (scaling.beta_fast < scaling.beta_slow)
    return base::InvalidArgument("{}is {}; it must be at least beta_slow, which is {}",
                                 rope.Describe("beta_fast"), scaling.beta_fast, scaling.beta_slow);
  for (const auto& [key, member] :
       {std::pair("mscale", &scaling.mscale), {"mscale_all_dim", &scaling.mscale_all_dim}}) {
    LONGSPAN_ASSIGN_OR_RETURN(*member, rope.Double(key, 0));
    if (!(*member >= 0))
      return base::InvalidArgument("{}is {}; it must be at least 0", rope.Describe(key), *member);
  }
  if (rope.Has("attention_factor")) {
    LONGSPAN_ASSIGN_OR_RETURN(scaling.attention_factor, Positive(rope, "attention_factor", 1));
  }
  LONGSPAN_ASSIGN_OR_RETURN(const bool truncate, rope.Bool("truncate", true));
  if (!truncate)
    return base::Unimplemented("{}is false: yarn with fractional borders is not supported",
                               rope.Describe("truncate"));
  return scaling;
}

}  // namespace

base::Result<spec::RopeSpec> ReadRope(const JsonFields& fields, std::string_view architecture,
                                      int64_t context_length) {
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
  } else if (type == "yarn") {
    LONGSPAN_ASSIGN_OR_RETURN(rope.yarn, ReadYarnScaling(*section, context_length));
  } else if (type != "default") {
    return base::Unimplemented(
        "{}: rope type {} is not supported for {}, which knows 'default', 'llama3' and 'yarn'",
        fields.where(), Quoted(type), architecture);
  }
  return rope;
}

}  // namespace longspan::checkpoint
