// The endpoints that tell: models, tokens, health, numbers.
#include "server/api_error.h"
#include "server/call_parts.h"
#include "server/fields.h"
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

// A conversation as the model sees it.
std::optional<CallError> TokenizeChat(const Json& request, const ServedModel& model,
                                      std::vector<int32_t>& ids) {
  Json chat = request;
  chat["max_tokens"] = 0;
  Call call;
  if (auto error = ReadChatCall(chat, model, call)) return error;
  ids = std::move(call.generation.prompts[0]);
  return std::nullopt;
}

}  // namespace

void Service::Models(const Exchanged& exchange) {
  const std::string& path = exchange->request().path;
  if (path == "/v1/models")
    return exchange->Respond(
        JsonResponse({{"object", "list"}, {"data", Json::array({ModelJson(model())})}}));
  const std::string name = path.substr(std::string_view("/v1/models/").size());
  if (name != model().name)
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
    Fields fields(request);
    fields.Read("add_special_tokens", add_special);
    if (const auto error = ErrorOf(fields)) return refuse(*error);
    const Json* prompt = fields.Find("prompt");
    if (prompt == nullptr) prompt = fields.Find("text");
    Json tokens;
    Json count;
    if (prompt == nullptr && fields.Find("messages") != nullptr) {
      std::vector<int32_t> ids;
      if (const auto error = TokenizeChat(request, served, ids)) return refuse(*error);
      count = ids.size();
      tokens = std::move(ids);
    } else if (prompt != nullptr && prompt->is_string()) {
      auto ids = served.tokenizer->Encode(prompt->get_ref<const std::string&>(),
                                          {.add_special = add_special});
      if (!ids.ok()) return refuse({ids.status(), "prompt", {}});
      count = ids->size();
      tokens = std::move(*ids);
    } else if (prompt != nullptr && prompt->is_array()) {
      tokens = Json::array();
      count = Json::array();
      for (const Json& entry : *prompt) {
        if (!entry.is_string())
          return refuse({base::InvalidArgument("'prompt' must hold strings only"), "prompt", {}});
        auto ids = served.tokenizer->Encode(entry.get_ref<const std::string&>(),
                                            {.add_special = add_special});
        if (!ids.ok()) return refuse({ids.status(), "prompt", {}});
        count.push_back(ids->size());
        tokens.push_back(std::move(*ids));
      }
    } else {
      return refuse({base::InvalidArgument("give 'prompt', a string or an array of strings, or "
                                           "'messages'"),
                     "prompt",
                     {}});
    }
    parsed->Respond(JsonResponse({{"tokens", std::move(tokens)},
                                  {"count", std::move(count)},
                                  {"max_model_len", served.limits.context_length}}));
  });
}

void Service::Detokenize(const Exchanged& exchange) {
  OnPool(exchange, [this](const Exchanged& parsed, const Json& request) {
    const text::Tokenizer* tokenizer = model().tokenizer;
    const auto refuse = [&](const std::string& message) {
      parsed->Respond(ErrorResponse(400, message, "tokens"));
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
      Json::array({{{"running_requests", engine.running},
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
