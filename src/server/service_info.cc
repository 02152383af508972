// The endpoints that tell: models, tokens, health, numbers.
#include "server/api_error.h"
#include "server/call_parts.h"
#include "server/fields.h"
#include "server/formatter_parts.h"
#include "server/openapi.h"
#include "server/service.h"

namespace longspan::server {
namespace {

HttpResponse JsonResponse(const Json& json) { return {.status = 200, .body = Dump(json)}; }

Json ModelJson(const ServedModel& model) {
  return {{"id", model.name},
          {"object", "model"},
          {"created", model.created},
          {"owned_by", "longspan"},
          {"root", model.path},
          {"parent", nullptr},
          {"max_model_len", model.limits.context_length}};
}

// A conversation as the model sees it; however long.
std::optional<CallError> TokenizeChat(const Json& request, const ServedModel& model,
                                      std::vector<int32_t>& ids) {
  Call call;
  std::optional<int64_t> max_tokens;
  if (auto error = ReadChatPrompt(request, model, call, max_tokens)) return error;
  ids = std::move(call.generation.prompts[0]);
  return std::nullopt;
}

// The tokens' texts.
Json TokenTexts(const text::Tokenizer& tokenizer, const Json& ids) {
  Json texts = Json::array();
  for (const Json& id : ids)
    texts.push_back(id.is_array() ? TokenTexts(tokenizer, id)
                                  : Json(TokenName(&tokenizer, id.get<int32_t>())));
  return texts;
}

// A text, or several.
std::optional<CallError> TokenizeTexts(const Json& prompt, bool add_special,
                                       const text::Tokenizer& tokenizer, Json& tokens,
                                       Json& count) {
  if (prompt.is_array()) {
    tokens = count = Json::array();
    for (const Json& entry : prompt) {
      if (entry.is_array()) break;
      Json entry_tokens;
      Json entry_count;
      if (auto error = TokenizeTexts(entry, add_special, tokenizer, entry_tokens, entry_count))
        return error;
      tokens.push_back(std::move(entry_tokens));
      count.push_back(std::move(entry_count));
    }
    if (tokens.size() == prompt.size()) return std::nullopt;
  }
  if (!prompt.is_string())
    return CallError{base::InvalidArgument("'prompt' must be a string or an array of strings"),
                     "prompt", "invalid_type"};
  auto ids = tokenizer.Encode(prompt.get_ref<const std::string&>(), {.add_special = add_special});
  if (!ids.ok()) return CallError{ids.status(), "prompt", "invalid_value"};
  count = ids->size();
  tokens = std::move(*ids);
  return std::nullopt;
}

}  // namespace

void Service::Models(const Exchanged& exchange) {
  const std::string& path = exchange->request().path;
  if (path == "/v1/models")
    return exchange->Respond(
        JsonResponse({{"object", "list"}, {"data", Json::array({ModelJson(model())})}}));
  const std::string name = path.substr(std::string_view("/v1/models/").size());
  // Some clients write the slashes of names as %2F.
  if (name != model().name && QueryValue("name=" + name, "name") != model().name)
    return exchange->Respond(ErrorResponse(
        404, fmt::format("there is no model '{}': this server has '{}'", name, model().name),
        "model", "model_not_found"));
  exchange->Respond(JsonResponse(ModelJson(model())));
}

void Service::Tokenize(const Exchanged& exchange) {
  OnPool(exchange, [this](const Exchanged& parsed, const Json& request) {
    const ServedModel& served = model();
    const auto refuse = [&](const CallError& error) {
      parsed->Respond(ErrorResponse(HttpStatusOf(error.status), error.status.message(), error.param,
                                    error.code));
    };
    if (served.tokenizer == nullptr)
      return parsed->Respond(ErrorResponse(400, "the model has no tokenizer"));
    bool add_special = true;
    bool with_texts = false;
    Fields fields(request);
    fields.Read("add_special_tokens", add_special);
    fields.Read("return_token_strs", with_texts);
    if (const auto error = ErrorOf(fields)) return refuse(*error);
    const Json* prompt = fields.Find("prompt");
    if (prompt == nullptr) prompt = fields.Find("text");
    Json tokens;
    Json count;
    std::optional<CallError> error;
    if (prompt != nullptr) {
      error = TokenizeTexts(*prompt, add_special, *served.tokenizer, tokens, count);
    } else if (fields.Find("messages") != nullptr) {
      std::vector<int32_t> ids;
      error = TokenizeChat(request, served, ids);
      count = ids.size();
      tokens = std::move(ids);
    } else {
      error = CallError{base::InvalidArgument("give 'prompt', a string or an array of strings, or "
                                              "'messages'"),
                        "prompt", "missing_required_parameter"};
    }
    if (error) return refuse(*error);
    Json json = {{"count", std::move(count)}, {"max_model_len", served.limits.context_length}};
    if (with_texts) json["token_strs"] = TokenTexts(*served.tokenizer, tokens);
    json["tokens"] = std::move(tokens);
    parsed->Respond(JsonResponse(json));
  });
}

void Service::Detokenize(const Exchanged& exchange) {
  OnPool(exchange, [this](const Exchanged& parsed, const Json& request) {
    const text::Tokenizer* tokenizer = model().tokenizer;
    const auto refuse = [&](const std::string& message) {
      parsed->Respond(ErrorResponse(400, message, "tokens", "invalid_value"));
    };
    if (tokenizer == nullptr) return refuse("the model has no tokenizer");
    bool skip_special = true;
    Fields fields(request);
    fields.Read("skip_special_tokens", skip_special);
    if (const auto error = ErrorOf(fields)) return refuse(error->status.message());
    const Json* tokens = fields.Find("tokens");
    if (tokens == nullptr || !tokens->is_array())
      return refuse("give 'tokens', an array of token ids or an array of such arrays");
    const bool is_batch = !tokens->empty() && (*tokens)[0].is_array();
    Json texts = Json::array();
    for (size_t i = 0; i < (is_batch ? tokens->size() : 1); ++i) {
      const Json& list = is_batch ? (*tokens)[i] : *tokens;
      const auto ids = list.is_array() ? TokenIds(list) : std::nullopt;
      if (!ids) return refuse("'tokens' must hold token ids");
      const auto text = tokenizer->Decode(*ids, skip_special);
      if (!text.ok()) return refuse(text.status().message());
      texts.push_back(*text);
    }
    const Json text = is_batch ? texts : texts[0];
    // Both names are in use.
    parsed->Respond(JsonResponse({{"text", text}, {"prompt", text}}));
  });
}

void Service::Health(const Exchanged& exchange) {
  if (model_.load() == nullptr)
    return exchange->Respond(ErrorResponse(503, "the server is starting: try again later"));
  if (draining_)
    return exchange->Respond(ErrorResponse(503, "the server is shutting down: try another one"));
  exchange->Respond({.status = 200, .body = {}, .content_type = "text/plain; charset=utf-8"});
}

void Service::ServerInfo(const Exchanged& exchange) {
  const EngineSnapshot engine = loop_.snapshot();
  Json json = options_.arguments;
  json["version"] = options_.version;
  json["status"] = "ready";
  json["served_model_name"] = model().name;
  json["max_total_num_tokens"] = model().limits.capacity_tokens;
  json["max_req_input_len"] = model().limits.context_length - 1;
  json["context_length"] = model().limits.context_length;
  const double active = static_cast<double>(engine.counters.active) * 1e-9;
  json["internal_states"] =
      Json::array({{{"effective_max_running_requests_per_dp",
                     options_.arguments.value("max_running_requests", int64_t{0})},
                    {"running_requests", engine.running},
                    {"queued_requests", engine.queued},
                    {"kv_pages", engine.pages},
                    {"kv_pages_in_use", engine.pages_in_use},
                    {"kv_pages_cached", engine.pages_cached},
                    {"plans", engine.counters.plans},
                    {"rows", engine.counters.rows},
                    {"last_gen_throughput",
                     active > 0 ? static_cast<double>(engine.counters.rows) / active : 0.0}}});
  exchange->Respond(JsonResponse(json));
}

void Service::ModelInfo(const Exchanged& exchange) {
  const ServedModel& served = model();
  exchange->Respond(JsonResponse({{"model_path", served.path},
                                  {"tokenizer_path", served.path},
                                  {"served_model_name", served.name},
                                  {"is_generation", true},
                                  {"preferred_sampling_params", nullptr},
                                  {"weight_version", "default"},
                                  {"has_chat_template", served.chat_template.has_value()},
                                  {"vocab_size", served.limits.vocab_size},
                                  {"context_length", served.limits.context_length}}));
}

void Service::ServeMetrics(const Exchanged& exchange) {
  exchange->Respond({.status = 200,
                     .body = metrics_.Text(loop_.snapshot(), server_->connections()),
                     .content_type = "text/plain; version=0.0.4; charset=utf-8"});
}

void Service::OpenApi(const Exchanged& exchange) {
  exchange->Respond(JsonResponse(OpenApiDocument(options_.version)));
}

void Service::Root(const Exchanged& exchange) {
  exchange->Respond({.status = 200,
                     .body = "Longspan: see /openapi.json for what is here.\n",
                     .content_type = "text/plain; charset=utf-8"});
}

}  // namespace longspan::server
