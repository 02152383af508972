#include "server/openapi.h"

#include <span>
#include <utility>
#include <vector>

#include "server/openapi_members.h"

namespace longspan::server {
namespace {

struct Operation {
  const char* path;
  std::vector<const char*> methods;
  const char* summary;
  const char* body = nullptr;    // the name of its schema
  const char* answer = nullptr;  // what a 200 holds: a media type
  const char* stream = nullptr;  // what it holds with "stream": true
  bool needs_key = true;
};

constexpr const char* kJson = "application/json";
constexpr const char* kText = "text/plain";
constexpr const char* kEvents = "text/event-stream";

std::vector<Operation> Operations() {
  return {
      {"/", {"get"}, "What this is.", nullptr, kText, nullptr, false},
      {"/v1/completions",
       {"post"},
       "Continues prompts: texts or token ids.",
       "CompletionRequest",
       kJson,
       kEvents},
      {"/v1/chat/completions",
       {"post"},
       "Answers a conversation.",
       "ChatCompletionRequest",
       kJson,
       kEvents},
      {"/generate",
       {"post", "put"},
       "Continues prompts; the events of its streams hold all of the text so far.",
       "GenerateRequest",
       kJson,
       kEvents},
      {"/v1/models", {"get"}, "The model.", nullptr, kJson},
      {"/v1/models/{model}", {"get"}, "The model, by its name.", nullptr, kJson},
      {"/tokenize", {"post"}, "Text or messages to token ids.", "TokenizeRequest", kJson},
      {"/v1/tokenize", {"post"}, "Text or messages to token ids.", "TokenizeRequest", kJson},
      {"/detokenize", {"post"}, "Token ids to text.", "DetokenizeRequest", kJson},
      {"/v1/detokenize", {"post"}, "Token ids to text.", "DetokenizeRequest", kJson},
      {"/health", {"get"}, "200 when requests are served.", nullptr, kText, nullptr, false},
      {"/ping", {"get"}, "The same.", nullptr, kText, nullptr, false},
      {"/health_generate", {"get"}, "200 when a token could be generated.", nullptr, kText},
      {"/server_info", {"get"}, "Arguments and state of the server.", nullptr, kJson},
      {"/get_server_info", {"get"}, "The same.", nullptr, kJson},
      {"/model_info", {"get"}, "Where the model is and what it can take.", nullptr, kJson},
      {"/get_model_info", {"get"}, "The same.", nullptr, kJson},
      {"/flush_cache",
       {"get", "post"},
       "Forgets cached prefixes, when nothing runs; 400 if something does.",
       nullptr,
       kText},
      {"/reset_prefix_cache", {"get", "post"}, "The same.", nullptr, kText},
      {"/abort_request", {"post"}, "Ends a request by its id, or all.", "AbortRequest", kJson},
      {"/metrics", {"get"}, "Numbers for Prometheus.", nullptr, kText, nullptr, false},
      {"/openapi.json", {"get"}, "This description.", nullptr, kJson, nullptr, false},
  };
}

Json SchemaReference(const char* name) {
  return {{"schema", {{"$ref", fmt::format("#/components/schemas/{}", name)}}}};
}

Json Responses(const Operation& operation) {
  Json good = {{"description", "Done."}};
  if (operation.answer != nullptr) good["content"][operation.answer] = Json::object();
  if (operation.stream != nullptr)
    good["content"][operation.stream] = {
        {"schema",
         {{"type", "string"},
          {"description",
           "With \"stream\": true: lines \"data: JSON\", each with an empty line behind it, and "
           "\"data: [DONE]\" at the end. Lines that begin with a colon say that the stream "
           "lives."}}}};
  const auto error = [](const char* about) -> Json {
    return {{"description", about}, {"content", {{kJson, SchemaReference("Error")}}}};
  };
  return {{"200", std::move(good)},
          {"4XX", error("The request is wrong; 429: try again after Retry-After seconds.")},
          {"5XX", error("The server cannot.")}};
}

Json Parameters(std::string_view path) {
  const auto parameter = [](const char* name, const char* in, const char* type) -> Json {
    return {{"name", name},
            {"in", in},
            {"required", std::string_view(in) == "path"},
            {"schema", {{"type", type}}}};
  };
  if (path.find("{model}") != std::string_view::npos)
    return Json::array({parameter("model", "path", "string")});
  if (path == "/flush_cache" || path == "/reset_prefix_cache") {
    Json timeout = parameter("timeout", "query", "number");
    timeout["description"] = "Waits so many seconds for requests to end.";
    return Json::array({std::move(timeout)});
  }
  return nullptr;
}

// Unique among all: of the method and the path.
std::string OperationId(std::string_view method, std::string_view path) {
  std::string id(method);
  for (const char c : path) id += (c == '/' || c == '.' || c == '{' || c == '}') ? '_' : c;
  return id;
}

Json Describe(const Operation& operation) {
  Json entry = {{"summary", operation.summary}};
  if (Json parameters = Parameters(operation.path); !parameters.is_null())
    entry["parameters"] = std::move(parameters);
  if (operation.body != nullptr)
    entry["requestBody"] = {{"required", true},
                            {"content", {{kJson, SchemaReference(operation.body)}}}};
  entry["responses"] = Responses(operation);
  if (!operation.needs_key) entry["security"] = Json::array();
  return entry;
}

Json ErrorSchema() {
  const auto text = [](const char* about, bool null) -> Json {
    Json schema = {{"type", "string"}, {"description", about}};
    if (null) schema["type"] = {"string", "null"};
    return schema;
  };
  return {{"type", "object"},
          {"properties",
           {{"error",
             {{"type", "object"},
              {"properties",
               {{"message", text("What is wrong, and what to change.", false)},
                {"type", text("For example invalid_request_error.", false)},
                {"param", text("The member at fault.", true)},
                {"code", text("For example context_length_exceeded.", false)}}}}}}}};
}

}  // namespace

Json OpenApiDocument(const std::string& version) {
  Json paths = Json::object();
  for (const Operation& operation : Operations()) {
    for (const char* method : operation.methods) {
      Json entry = Describe(operation);
      entry["operationId"] = OperationId(method, operation.path);
      paths[operation.path][method] = std::move(entry);
    }
  }
  Json schemas = RequestSchemas();
  schemas["Error"] = ErrorSchema();
  return {{"openapi", "3.1.0"},
          {"info",
           {{"title", "Longspan"},
            {"version", version},
            {"description",
             "Null counts as not given; unknown members are ignored. Keys are needed where the "
             "server was given any."}}},
          {"paths", std::move(paths)},
          {"components",
           {{"schemas", std::move(schemas)},
            {"securitySchemes", {{"key", {{"type", "http"}, {"scheme", "bearer"}}}}}}},
          {"security", Json::array({{{"key", Json::array()}}, Json::object()})}};
}

}  // namespace longspan::server
