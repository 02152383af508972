#include "server/openapi.h"

#include <utility>
#include <vector>

namespace longspan::server {
namespace {

struct Operation {
  const char* path;
  std::vector<const char*> methods;
  const char* summary;
  // Names of the body's members and their JSON types; none: no body. The first is required if it
  // ends with '!'.
  std::vector<std::pair<const char*, const char*>> members;
};

const std::vector<std::pair<const char*, const char*>>& SamplingMembers() {
  static const std::vector<std::pair<const char*, const char*>> members = {
      {"model", "string"},
      {"max_tokens", "integer"},
      {"max_completion_tokens", "integer"},
      {"temperature", "number"},
      {"top_p", "number"},
      {"top_k", "integer"},
      {"min_p", "number"},
      {"n", "integer"},
      {"seed", "integer"},
      {"stop", "any"},
      {"stop_token_ids", "array"},
      {"ignore_eos", "boolean"},
      {"frequency_penalty", "number"},
      {"presence_penalty", "number"},
      {"repetition_penalty", "number"},
      {"logit_bias", "object"},
      {"stream", "boolean"},
      {"stream_options", "object"}};
  return members;
}

std::vector<std::pair<const char*, const char*>> WithSampling(
    std::vector<std::pair<const char*, const char*>> members) {
  members.insert(members.end(), SamplingMembers().begin(), SamplingMembers().end());
  return members;
}

std::vector<Operation> Operations() {
  const std::vector<std::pair<const char*, const char*>> tokenize = {
      {"prompt", "any"}, {"messages", "array"}, {"add_special_tokens", "boolean"}};
  const std::vector<std::pair<const char*, const char*>> detokenize = {
      {"tokens!", "array"}, {"skip_special_tokens", "boolean"}};
  return {
      {"/", {"get"}, "What this is.", {}},
      {"/v1/completions",
       {"post"},
       "Continues prompts: texts or token ids.",
       WithSampling({{"prompt!", "any"}, {"logprobs", "integer"}, {"echo", "boolean"}})},
      {"/v1/chat/completions",
       {"post"},
       "Answers a conversation.",
       WithSampling({{"messages!", "array"},
                     {"logprobs", "boolean"},
                     {"top_logprobs", "integer"},
                     {"tools", "array"},
                     {"tool_choice", "any"},
                     {"parallel_tool_calls", "boolean"},
                     {"chat_template_kwargs", "object"},
                     {"reasoning_effort", "string"},
                     {"separate_reasoning", "boolean"}})},
      {"/generate",
       {"post", "put"},
       "Continues prompts, with cumulative text.",
       {{"text", "any"},
        {"input_ids", "array"},
        {"sampling_params", "object"},
        {"stream", "boolean"},
        {"return_logprob", "boolean"},
        {"top_logprobs_num", "integer"},
        {"rid", "string"}}},
      {"/v1/models", {"get"}, "The model.", {}},
      {"/v1/models/{model}", {"get"}, "The model, by its name.", {}},
      {"/tokenize", {"post"}, "Text to token ids.", tokenize},
      {"/v1/tokenize", {"post"}, "Text to token ids.", tokenize},
      {"/detokenize", {"post"}, "Token ids to text.", detokenize},
      {"/v1/detokenize", {"post"}, "Token ids to text.", detokenize},
      {"/health", {"get"}, "200 when requests are served.", {}},
      {"/ping", {"get"}, "The same.", {}},
      {"/health_generate", {"get"}, "200 when a token could be generated.", {}},
      {"/server_info", {"get"}, "Arguments and state of the server.", {}},
      {"/get_server_info", {"get"}, "The same.", {}},
      {"/model_info", {"get"}, "Where the model is and what it can take.", {}},
      {"/get_model_info", {"get"}, "The same.", {}},
      {"/flush_cache", {"get", "post"}, "Forgets cached prefixes, when nothing runs.", {}},
      {"/reset_prefix_cache", {"get", "post"}, "The same.", {}},
      {"/abort_request",
       {"post"},
       "Ends a request by its id, or all.",
       {{"rid", "string"}, {"abort_all", "boolean"}}},
      {"/metrics", {"get"}, "Numbers for Prometheus.", {}},
      {"/openapi.json", {"get"}, "This description.", {}},
  };
}

Json BodySchema(const Operation& operation) {
  Json properties = Json::object();
  Json required = Json::array();
  for (const auto& [member, type] : operation.members) {
    std::string name = member;
    if (name.ends_with('!')) {
      name.pop_back();
      required.push_back(name);
    }
    // Null counts as not given.
    properties[name] = std::string_view(type) == "any"
                           ? Json::object()
                           : Json{{"type", Json::array({type, "null"})}};
  }
  Json schema = {{"type", "object"}, {"properties", std::move(properties)}};
  if (!required.empty()) schema["required"] = std::move(required);
  return schema;
}

}  // namespace

Json OpenApiDocument(const std::string& version) {
  Json paths = Json::object();
  for (const Operation& operation : Operations()) {
    Json entry = {{"summary", operation.summary},
                  {"responses",
                   {{"200", {{"description", "Done."}}},
                    {"4XX", {{"description", "The request is wrong."}}},
                    {"5XX", {{"description", "The server cannot."}}}}}};
    if (!operation.members.empty())
      entry["requestBody"] = {
          {"required", true},
          {"content", {{"application/json", {{"schema", BodySchema(operation)}}}}}};
    if (std::string_view(operation.path).find('{') != std::string_view::npos)
      entry["parameters"] = Json::array({{{"name", "model"},
                                          {"in", "path"},
                                          {"required", true},
                                          {"schema", {{"type", "string"}}}}});
    for (const char* method : operation.methods) paths[operation.path][method] = entry;
  }
  return {
      {"openapi", "3.1.0"},
      {"info", {{"title", "Longspan"}, {"version", version}}},
      {"paths", std::move(paths)},
      {"components", {{"securitySchemes", {{"key", {{"type", "http"}, {"scheme", "bearer"}}}}}}},
      {"security", Json::array({{{"key", Json::array()}}, Json::object()})}};
}

}  // namespace longspan::server
