#include "text/chat_template.h"

#include <array>
#include <fstream>
#include <iterator>
#include <optional>
#include <system_error>
#include <utility>

#include "text/jinja/template.h"

namespace longspan::text {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr std::array<std::string_view, 3> kReserved = {"messages", "tools",
                                                       "add_generation_prompt"};
constexpr std::array<const char*, 7> kSpecialTokens = {
    "bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"};

// None when there is no such file.
base::Result<std::optional<std::string>> ReadIfThere(const fs::path& path) {
  std::error_code error;
  if (!fs::exists(path, error)) return std::optional<std::string>();
  std::ifstream file(path, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (file.bad() || !file.is_open())
    return base::InvalidArgument("{} cannot be read", path.string());
  return std::optional<std::string>(std::move(text));
}

// None when there is no such file.
base::Result<std::optional<Json>> ReadObject(const fs::path& path) {
  LONGSPAN_ASSIGN_OR_RETURN(const auto text, ReadIfThere(path));
  if (!text.has_value()) return std::optional<Json>();
  Json json = Json::parse(*text, nullptr, false);
  if (!json.is_object()) return base::DataLoss("{} is not a JSON object", path.string());
  return std::optional<Json>(std::move(json));
}

// The sources of a model's templates by name.
using Sources = std::map<std::string, std::string>;

// A template, or a list of {"name", "template"}.
base::Status AddSources(const Json& value, const fs::path& path, Sources* sources) {
  if (value.is_null()) return base::OkStatus();
  if (value.is_string()) {
    (*sources)["default"] = value.get<std::string>();
    return base::OkStatus();
  }
  const auto broken = [&] {
    return base::DataLoss(
        "\"chat_template\" in {} is neither a string nor a list of {{\"name\", \"template\"}}",
        path.string());
  };
  if (!value.is_array()) return broken();
  for (const Json& entry : value) {
    if (!entry.is_object() || !entry.contains("name") || !entry.contains("template") ||
        !entry["name"].is_string() || !entry["template"].is_string())
      return broken();
    (*sources)[entry["name"].get<std::string>()] = entry["template"].get<std::string>();
  }
  return base::OkStatus();
}

// The template of a folder, from the first place that has one.
base::Result<Sources> ReadSources(const fs::path& model_dir, const std::optional<Json>& config) {
  Sources sources;
  const fs::path plain = model_dir / "chat_template.jinja";
  LONGSPAN_ASSIGN_OR_RETURN(auto source, ReadIfThere(plain));
  if (source.has_value()) {
    sources["default"] = *std::move(source);
    return sources;
  }
  if (config.has_value() && config->contains("chat_template"))
    LONGSPAN_RETURN_IF_ERROR(
        AddSources((*config)["chat_template"], model_dir / "tokenizer_config.json", &sources));
  if (!sources.empty()) return sources;
  const fs::path separate = model_dir / "chat_template.json";
  LONGSPAN_ASSIGN_OR_RETURN(const auto json, ReadObject(separate));
  if (json.has_value() && json->contains("chat_template"))
    LONGSPAN_RETURN_IF_ERROR(AddSources((*json)["chat_template"], separate, &sources));
  return sources;
}

// The text of a special token: a string, or an object with "content". None when there is none.
std::optional<std::string> TokenText(const Json& config, const char* name) {
  const auto found = config.find(name);
  if (found == config.end()) return std::nullopt;
  if (found->is_string()) return found->get<std::string>();
  if (found->is_object() && found->contains("content") && (*found)["content"].is_string())
    return (*found)["content"].get<std::string>();
  return std::nullopt;
}

base::Result<std::shared_ptr<const JinjaTemplate>> ParseNamed(const Sources& sources,
                                                              const std::string& name) {
  const auto found = sources.find(name);
  if (found == sources.end()) return std::shared_ptr<const JinjaTemplate>();
  return JinjaTemplate::Parse(found->second);
}

}  // namespace

base::Result<ChatTemplate> ChatTemplate::Load(const fs::path& model_dir) {
  LONGSPAN_ASSIGN_OR_RETURN(const auto config, ReadObject(model_dir / "tokenizer_config.json"));
  LONGSPAN_ASSIGN_OR_RETURN(const Sources sources, ReadSources(model_dir, config));
  ChatTemplate result;
  LONGSPAN_ASSIGN_OR_RETURN(result.default_, ParseNamed(sources, "default"));
  LONGSPAN_ASSIGN_OR_RETURN(result.tool_use_, ParseNamed(sources, "tool_use"));
  if (result.default_ == nullptr)
    return base::NotFound(
        "{} has no chat template (neither chat_template.jinja nor \"chat_template\" in "
        "tokenizer_config.json): give the prompt as plain text",
        model_dir.string());
  for (const char* name : kSpecialTokens)
    if (config.has_value())
      if (auto text = TokenText(*config, name)) result.special_tokens_[name] = *std::move(text);
  return result;
}

base::Result<ChatTemplate> ChatTemplate::Parse(std::string_view source, std::string bos_token,
                                               std::string eos_token) {
  ChatTemplate result;
  LONGSPAN_ASSIGN_OR_RETURN(result.default_, JinjaTemplate::Parse(source));
  if (!bos_token.empty()) result.special_tokens_["bos_token"] = std::move(bos_token);
  if (!eos_token.empty()) result.special_tokens_["eos_token"] = std::move(eos_token);
  return result;
}

base::Result<std::string> ChatTemplate::Render(const ChatRequest& request) const {
  const Json no_documents;
  const Json add_generation_prompt = request.add_generation_prompt;
  JinjaTemplate::Variables variables = {{"messages", &request.messages},
                                        {"tools", &request.tools},
                                        {"documents", &no_documents},
                                        {"add_generation_prompt", &add_generation_prompt}};
  for (const auto& [name, text] : special_tokens_) variables.emplace_back(name, &text);
  for (auto entry = request.kwargs.begin(); entry != request.kwargs.end(); ++entry) {
    for (const std::string_view reserved : kReserved)
      if (entry.key() == reserved)
        return base::InvalidArgument("\"{}\" must not be in \"kwargs\": give it beside them",
                                     reserved);
    variables.emplace_back(entry.key(), &entry.value());
  }
  const bool has_tools = !request.tools.is_null();
  return (has_tools && tool_use_ != nullptr ? tool_use_ : default_)->Render(variables);
}

}  // namespace longspan::text
