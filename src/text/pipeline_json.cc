#include <string>
#include <utility>

#include "text/tokenizer_json_parts.h"

namespace longspan::text {
namespace {

using base::DataLoss;
using base::OkStatus;
using base::Result;
using base::Status;
using base::Unimplemented;

// What ByteLevel cuts at with `use_regex`: the expression of GPT-2.
constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

struct Component {
  JsonObject object;
  std::string_view type;
};

// A member of the pipeline: an object with a type. `part` names it in errors.
Result<Component> AsComponent(JsonElement value, std::string_view part) {
  LONGSPAN_ASSIGN_OR_RETURN(const JsonObject object, AsObject(value, fmt::format("a {}", part)));
  const auto type = GetString(object, "type");
  if (!type.ok()) return type.status().WithContext(fmt::format("a {}", part));
  return Component{object, *type};
}

Status Unsupported(std::string_view part, std::string_view type) {
  return Unimplemented(
      "the {} \"{}\" is not supported: use a byte-level BPE tokenizer as GPT-2's, "
      "Llama 3's, Qwen's or DeepSeek-V3's",
      part, type);
}

Result<SplitBehavior> ParseBehavior(std::string_view name) {
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  return Unsupported("behavior of Split", name);
}

Result<Regex> ParsePattern(JsonObject split) {
  LONGSPAN_ASSIGN_OR_RETURN(const JsonElement value, GetMember(split, "pattern"));
  LONGSPAN_ASSIGN_OR_RETURN(const JsonObject pattern, AsObject(value, "\"pattern\""));
  if (FindMember(pattern, "String")) {
    LONGSPAN_ASSIGN_OR_RETURN(const auto text, GetString(pattern, "String"));
    return Regex::Literal(text);
  }
  LONGSPAN_ASSIGN_OR_RETURN(const auto expression, GetString(pattern, "Regex"));
  return Regex::Compile(expression);
}

Result<SplitStep> ParseSplit(JsonObject split) {
  LONGSPAN_ASSIGN_OR_RETURN(Regex pattern, ParsePattern(split));
  LONGSPAN_ASSIGN_OR_RETURN(const auto name, GetString(split, "behavior"));
  LONGSPAN_ASSIGN_OR_RETURN(const SplitBehavior behavior, ParseBehavior(name));
  LONGSPAN_ASSIGN_OR_RETURN(const bool invert, GetBool(split, "invert", false));
  return SplitStep{std::move(pattern), behavior, invert};
}

Result<SplitStep> ParseDigits(JsonObject digits) {
  LONGSPAN_ASSIGN_OR_RETURN(const bool individual, GetBool(digits, "individual_digits", false));
  LONGSPAN_ASSIGN_OR_RETURN(Regex pattern, Regex::Compile(R"(\p{N})"));
  return SplitStep{std::move(pattern),
                   individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous};
}

// The steps of a pre-tokenizer that ends with ByteLevel.
class StepList {
 public:
  Status Append(JsonElement value) {
    LONGSPAN_ASSIGN_OR_RETURN(const Component component, AsComponent(value, "pre-tokenizer"));
    if (component.type == "Sequence") {
      LONGSPAN_ASSIGN_OR_RETURN(const JsonArray members,
                                GetArray(component.object, "pretokenizers"));
      for (const JsonElement member : members) LONGSPAN_RETURN_IF_ERROR(Append(member));
      return OkStatus();
    }
    // After ByteLevel an expression would see the spelling of the bytes instead of the text.
    if (byte_level_)
      return Unimplemented("the pre-tokenizer \"{}\" after ByteLevel is not supported",
                           component.type);
    if (component.type == "ByteLevel") return AppendByteLevel(component.object);
    if (component.type == "Split") return AppendSplit(ParseSplit(component.object));
    if (component.type == "Digits") return AppendSplit(ParseDigits(component.object));
    return Unsupported("pre-tokenizer", component.type);
  }

  bool ends_with_byte_level() const { return byte_level_; }
  std::vector<PreTokenizerStep> Take() { return std::move(steps_); }

 private:
  Status AppendSplit(Result<SplitStep> step) {
    LONGSPAN_RETURN_IF_ERROR(step.status());
    steps_.emplace_back(std::move(step).value());
    return {};
  }

  Status AppendByteLevel(JsonObject byte_level) {
    byte_level_ = true;
    LONGSPAN_ASSIGN_OR_RETURN(const bool prefix_space, GetBool(byte_level, "add_prefix_space"));
    LONGSPAN_ASSIGN_OR_RETURN(const bool use_regex, GetBool(byte_level, "use_regex", true));
    if (prefix_space) steps_.emplace_back(PrefixSpaceStep{});
    if (!use_regex) return OkStatus();
    LONGSPAN_ASSIGN_OR_RETURN(Regex pattern, Regex::Compile(kGpt2Pattern));
    steps_.emplace_back(SplitStep{std::move(pattern), SplitBehavior::kIsolated});
    return OkStatus();
  }

  std::vector<PreTokenizerStep> steps_;
  bool byte_level_ = false;
};

// How many ByteLevel decoders there are, in sequences too.
Result<int> CountByteLevelDecoders(JsonElement value) {
  LONGSPAN_ASSIGN_OR_RETURN(const Component component, AsComponent(value, "decoder"));
  if (component.type == "ByteLevel") return 1;
  if (component.type != "Sequence") return Unsupported("decoder", component.type);
  LONGSPAN_ASSIGN_OR_RETURN(const JsonArray members, GetArray(component.object, "decoders"));
  int count = 0;
  for (const JsonElement member : members) {
    LONGSPAN_ASSIGN_OR_RETURN(const int inner, CountByteLevelDecoders(member));
    count += inner;
  }
  return count;
}

// The ids of a special token of a template, in the member "special_tokens".
Result<std::vector<int32_t>> TemplateTokenIds(JsonObject processor, std::string_view name,
                                              int32_t vocab_size) {
  LONGSPAN_ASSIGN_OR_RETURN(const JsonElement value, GetMember(processor, "special_tokens"));
  LONGSPAN_ASSIGN_OR_RETURN(const JsonObject tokens, AsObject(value, "\"special_tokens\""));
  LONGSPAN_ASSIGN_OR_RETURN(const JsonElement entry, GetMember(tokens, name));
  LONGSPAN_ASSIGN_OR_RETURN(const JsonObject token, AsObject(entry, fmt::format("\"{}\"", name)));
  LONGSPAN_ASSIGN_OR_RETURN(const JsonArray array, GetArray(token, "ids"));
  std::vector<int32_t> ids;
  for (const JsonElement element : array) {
    LONGSPAN_ASSIGN_OR_RETURN(const int32_t id, AsTokenId(element, name));
    if (id >= vocab_size)
      return DataLoss("\"{}\" has the id {}, but there are {} tokens", name, id, vocab_size);
    ids.push_back(id);
  }
  return ids;
}

// [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}, ...]
Result<Surroundings> ParseTemplate(JsonObject processor, int32_t vocab_size) {
  LONGSPAN_ASSIGN_OR_RETURN(const JsonArray items, GetArray(processor, "single"));
  Surroundings around;
  bool text_seen = false;
  for (const JsonElement element : items) {
    LONGSPAN_ASSIGN_OR_RETURN(const JsonObject item, AsObject(element, "an item of \"single\""));
    if (FindMember(item, "Sequence")) {
      if (std::exchange(text_seen, true)) return DataLoss("\"single\" has the text twice");
      continue;
    }
    LONGSPAN_ASSIGN_OR_RETURN(const JsonElement value, GetMember(item, "SpecialToken"));
    LONGSPAN_ASSIGN_OR_RETURN(const JsonObject special, AsObject(value, "\"SpecialToken\""));
    LONGSPAN_ASSIGN_OR_RETURN(const auto name, GetString(special, "id"));
    LONGSPAN_ASSIGN_OR_RETURN(const auto ids, TemplateTokenIds(processor, name, vocab_size));
    auto& side = text_seen ? around.suffix : around.prefix;
    side.insert(side.end(), ids.begin(), ids.end());
  }
  if (!text_seen) return DataLoss("\"single\" has no place for the text");
  return around;
}

}  // namespace

Result<bool> ParseNormalizer(std::optional<JsonElement> normalizer) {
  if (!normalizer) return false;
  LONGSPAN_ASSIGN_OR_RETURN(const Component component, AsComponent(*normalizer, "normalizer"));
  if (component.type == "NFC") return true;
  if (component.type != "Sequence") return Unsupported("normalizer", component.type);
  LONGSPAN_ASSIGN_OR_RETURN(const JsonArray members, GetArray(component.object, "normalizers"));
  bool nfc = false;
  for (const JsonElement member : members) {
    LONGSPAN_ASSIGN_OR_RETURN(const bool inner, ParseNormalizer(member));
    nfc = nfc || inner;
  }
  return nfc;
}

Result<PreTokenizer> ParsePreTokenizer(std::optional<JsonElement> pre_tokenizer) {
  StepList list;
  if (pre_tokenizer) LONGSPAN_RETURN_IF_ERROR(list.Append(*pre_tokenizer));
  if (!list.ends_with_byte_level())
    return Unimplemented(
        "a pre-tokenizer without ByteLevel is not supported: use a byte-level BPE");
  return PreTokenizer(list.Take());
}

Status CheckDecoder(std::optional<JsonElement> decoder) {
  int count = 0;
  if (decoder) {
    LONGSPAN_ASSIGN_OR_RETURN(count, CountByteLevelDecoders(*decoder));
  }
  if (count != 1) return Unimplemented("the decoder must have one ByteLevel, and has {}", count);
  return OkStatus();
}

Result<Surroundings> ParsePostProcessor(std::optional<JsonElement> post_processor,
                                        int32_t vocab_size) {
  if (!post_processor) return Surroundings{};
  LONGSPAN_ASSIGN_OR_RETURN(const Component component,
                            AsComponent(*post_processor, "post-processor"));
  if (component.type == "ByteLevel") return Surroundings{};
  if (component.type == "TemplateProcessing") return ParseTemplate(component.object, vocab_size);
  if (component.type != "Sequence") return Unsupported("post-processor", component.type);
  LONGSPAN_ASSIGN_OR_RETURN(const JsonArray members, GetArray(component.object, "processors"));
  Surroundings around;
  for (const JsonElement member : members) {
    LONGSPAN_ASSIGN_OR_RETURN(const auto outer, ParsePostProcessor(member, vocab_size));
    around.prefix.insert(around.prefix.begin(), outer.prefix.begin(), outer.prefix.end());
    around.suffix.insert(around.suffix.end(), outer.suffix.begin(), outer.suffix.end());
  }
  return around;
}

}  // namespace longspan::text
