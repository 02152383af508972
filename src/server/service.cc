// Routing, and what all endpoints have in common; the endpoints are in service_*.cc.
#include "server/service.h"

#include <algorithm>
#include <chrono>
#include <random>
#include <utility>

#include "server/api_error.h"
#include "server/generation_source.h"

namespace longspan::server {
namespace {

// Takes as long for a wrong key as for the right one.
bool SameKey(std::string_view given, std::string_view key) {
  unsigned difference = given.size() == key.size() ? 0 : 1;
  for (size_t i = 0; i < key.size(); ++i)
    difference |= static_cast<unsigned char>(key[i]) ^
                  static_cast<unsigned char>(i < given.size() ? given[i] : 0);
  return difference == 0;
}

std::string NewId(const char* prefix) {
  thread_local std::mt19937_64 generator{std::random_device{}()};
  return fmt::format("{}{:016x}", prefix, generator());
}

int64_t UnixSeconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace

Service::Service(ServiceOptions options, EngineLoop& loop, WorkerPool& pool)
    : options_(std::move(options)),
      loop_(loop),
      pool_(pool),
      log_(base::Log("server")),
      metrics_(options_.stage_ranks) {
  AddRoutes();
}

void Service::AddRoutes() {
  const std::vector<std::string> get = {"GET"};
  const std::vector<std::string> post = {"POST"};
  const auto add = [&](std::initializer_list<const char*> paths, const Route& route) {
    for (const char* path : paths) routes_[path] = route;
  };
  add({"/v1/completions"}, {post, &Service::Completions, true});
  add({"/v1/chat/completions"}, {post, &Service::ChatCompletions, true});
  add({"/generate"}, {{"POST", "PUT"}, &Service::NativeGenerate, true});
  add({"/v1/models", "/v1/models/{model}"}, {get, &Service::Models, true});
  add({"/tokenize", "/v1/tokenize"}, {post, &Service::Tokenize, true});
  add({"/detokenize", "/v1/detokenize"}, {post, &Service::Detokenize, true});
  add({"/health", "/ping"}, {get, &Service::Health, false, false});
  add({"/health_generate"}, {get, &Service::HealthGenerate, true});
  add({"/server_info", "/get_server_info"}, {get, &Service::ServerInfo, true});
  add({"/model_info", "/get_model_info"}, {get, &Service::ModelInfo, true});
  add({"/flush_cache", "/reset_prefix_cache"}, {{"GET", "POST"}, &Service::FlushCache, true});
  add({"/abort_request"}, {post, &Service::AbortRequest, true});
  add({"/metrics"}, {get, &Service::ServeMetrics, false, options_.metrics_need_key});
  add({"/openapi.json"}, {get, &Service::OpenApi, false, false});
  add({"/"}, {get, &Service::Root, false, false});
}

std::vector<std::pair<std::string, std::string>> Service::Routes() const {
  std::vector<std::pair<std::string, std::string>> routes;
  for (const auto& [path, route] : routes_)
    for (const std::string& method : route.methods) routes.emplace_back(path, method);
  return routes;
}

const Service::Route* Service::FindRoute(const std::string& path) const {
  static const std::string kModel = "/v1/models/";
  const bool is_model = path.starts_with(kModel) && path.size() > kModel.size();
  const auto found = routes_.find(is_model ? "/v1/models/{model}" : path);
  return found == routes_.end() ? nullptr : &found->second;
}

bool Service::HasKey(const HttpRequest& head) const {
  if (options_.api_keys.empty()) return true;
  std::string_view given = head.Header("authorization");
  constexpr std::string_view kBearer = "bearer ";
  const bool is_bearer =
      given.size() > kBearer.size() &&
      std::equal(kBearer.begin(), kBearer.end(), given.begin(),
                 [](char a, char b) { return a == (b >= 'A' && b <= 'Z' ? b - 'A' + 'a' : b); });
  given = is_bearer ? given.substr(kBearer.size()) : head.Header("x-api-key");
  bool found = false;
  // All of them, so that the time does not tell which one it was.
  for (const std::string& key : options_.api_keys) found |= SameKey(given, key);
  return found;
}

std::optional<HttpResponse> Service::CheckHead(const HttpRequest& head) {
  const Route* route = FindRoute(head.path);
  const bool needs_key = route == nullptr || route->needs_key;
  if (needs_key && !HasKey(head))
    return ErrorResponse(401,
                         "a valid API key is needed: send the header Authorization: Bearer KEY", {},
                         "invalid_api_key");
  if (route == nullptr)
    return ErrorResponse(404, fmt::format("there is nothing at {}", head.path), {}, "not_found");
  if (auto refusal = RefusalOfRequest(*route, head)) return refusal;
  return RefusalOfState(*route);
}

std::optional<HttpResponse> Service::RefusalOfRequest(const Route& route, const HttpRequest& head) {
  const auto allows = [&](std::string_view method) {
    return std::find(route.methods.begin(), route.methods.end(), method) != route.methods.end();
  };
  if (!allows(head.method) && !(head.method == "HEAD" && allows("GET"))) {
    HttpResponse response = ErrorResponse(
        405, fmt::format("{} does not take {}", head.path, head.method), {}, "method_not_allowed");
    response.headers.emplace_back("Allow", fmt::format("{}", fmt::join(route.methods, ", ")));
    return response;
  }
  if (!head.IsOfThisSite())
    return ErrorResponse(403,
                         fmt::format("pages of {} may not use this server: put both behind one "
                                     "address",
                                     head.Header("origin")));
  if (head.method != "POST" && head.method != "PUT") return std::nullopt;
  if (!head.MayBeJson())
    return ErrorResponse(415, fmt::format("the body must be JSON: send Content-Type: "
                                          "application/json in place of {}",
                                          head.Header("content-type")));
  return std::nullopt;
}

std::optional<HttpResponse> Service::RefusalOfState(const Route& route) const {
  if (!route.needs_model) return std::nullopt;
  if (model_.load() == nullptr)
    return ErrorResponse(503, "the server is starting: try again later");
  if (draining_) return ErrorResponse(503, "the server is shutting down: try another one");
  return std::nullopt;
}

void Service::Handle(std::shared_ptr<Exchange> exchange) {
  // CheckHead has found it; but its body may have taken long.
  const Route& route = *FindRoute(exchange->request().path);
  if (auto refusal = RefusalOfState(route)) return exchange->Respond(std::move(*refusal));
  (this->*route.endpoint)(exchange);
}

HttpResponse Service::Refusal(int status, const std::string& message) {
  return ErrorResponse(status, message);
}

void Service::OnDone(const HttpRequest& request, const ExchangeSummary& summary) {
  // What is unknown is one path, lest strangers fill the memory.
  const bool known = FindRoute(request.path) != nullptr;
  const std::string path = request.path.starts_with("/v1/models/") ? "/v1/models/{model}"
                           : known                                 ? request.path
                                                                   : "other";
  metrics_.OnRequest(path, summary.status);
  const bool is_probe = path == "/health" || path == "/metrics" || path == "/ping";
  const auto level = is_probe ? spdlog::level::debug : spdlog::level::info;
  log_.log(level, "{} {} {} {} bytes in, {} out, {:.3f} s{}", request.method, path, summary.status,
           request.body_bytes, summary.response_bytes, summary.seconds,
           summary.gone ? ", the client went away" : "");
}

void Service::OnPool(const Exchanged& exchange,
                     std::function<void(const Exchanged&, const Json& request)> work) {
  const bool posted = pool_.Post([this, exchange, work = std::move(work)] {
    if (exchange->gone()) return;
    const auto lease = exchange->TakeLease();
    const std::string body = exchange->TakeBody();
    if (options_.log_prompts) log_.info("{} {}", exchange->request().path, body);
    const auto request = ParseJson(body);
    if (!request.ok()) return exchange->Respond(ErrorResponse(400, request.status().message()));
    if (!request->is_object())
      return exchange->Respond(ErrorResponse(400, "the body must be a JSON object"));
    work(exchange, *request);
  });
  if (!posted)
    exchange->Respond(ErrorResponse(429, "too many requests wait to be read: try again later"));
}

void Service::Generate(const Exchanged& exchange, const CallKind& kind) {
  const auto arrived = base::SteadyClock().Now();
  OnPool(exchange, [this, kind, arrived](const Exchanged& parsed, const Json& request) {
    Call call;
    call.created = UnixSeconds();
    const auto error = kind.read(request, model(), call);
    if (error)
      return parsed->Respond(ErrorResponse(HttpStatusOf(error->status), error->status.message(),
                                           error->param, error->code));
    if (parsed->gone()) return;
    if (call.id.empty()) call.id = NewId(kind.id_prefix);
    StartCall(parsed, std::move(call), kind, arrived);
  });
}

void Service::StartCall(const Exchanged& exchange, Call call, const CallKind& kind,
                        base::Clock::Duration arrived) {
  GenerationRequest request = std::move(call.generation);
  // What the formatter asks of it.
  call.generation = {.choices = request.choices, .common = request.common};
  const auto generation = Generation::Create(
      {.loop = loop_, .tokenizer = model().tokenizer, .end_tokens = model().end_tokens},
      std::move(request), [weak = std::weak_ptr(exchange)] {
        if (const auto living = weak.lock()) living->Wake();
      });
  {
    const std::lock_guard lock(mutex_);
    running_.emplace(call.id, generation);
  }
  const auto forget = [this, id = call.id, raw = generation.get()] {
    const std::lock_guard lock(mutex_);
    const auto [begin, end] = running_.equal_range(id);
    const auto found = std::find_if(begin, end, [&](const auto& entry) {
      const auto living = entry.second.lock();
      return living == nullptr || living.get() == raw;
    });
    if (found != end) running_.erase(found);
  };
  exchange->Attach(std::make_shared<GenerationSource>(
      GenerationSource::Options{.generation = generation,
                                .formatter = kind.make_formatter(call, model()),
                                .stream = call.stream,
                                .arrived = arrived,
                                .metrics = &metrics_,
                                .on_end = forget}));
  generation->Start();
}

size_t Service::AbortAll() {
  std::vector<std::shared_ptr<Generation>> all;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [id, generation] : running_)
      if (auto living = generation.lock()) all.push_back(std::move(living));
  }
  for (const auto& generation : all) generation->Abort();
  return all.size();
}

}  // namespace longspan::server
