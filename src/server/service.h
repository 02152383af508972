// The endpoints.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/log.h"
#include "server/call.h"
#include "server/engine_loop.h"
#include "server/formatter.h"
#include "server/http_server.h"
#include "server/metrics.h"
#include "server/served_model.h"
#include "server/worker_pool.h"

namespace longspan::server {

struct ServiceOptions {
  std::vector<std::string> api_keys;  // none: no key is asked for
  bool metrics_need_key = false;
  bool log_prompts = false;
  Json arguments = Json::object();  // of the server, for /server_info; without keys
  std::string version;
  int stage_ranks = 1;  // of each pipeline stage
};

// Answers requests by means of an engine. Until SetModel it is starting: only the endpoints that
// tell so answer. Must outlive its HttpServer's thread; the loop must outlive it.
class Service : public HttpHandler {
 public:
  Service(ServiceOptions options, EngineLoop& loop, WorkerPool& pool);

  // Before Start of the server: what it answers from.
  void SetServer(HttpServer& server) { server_ = &server; }
  // From now on requests are served. Once; the model must outlive this.
  void SetModel(const ServedModel& model) { model_.store(&model); }
  // From now on requests that would generate are refused.
  void BeginDrain() { draining_.store(true); }
  // Ends all generations, which are told so; how many.
  size_t AbortAll();

  std::optional<HttpResponse> CheckHead(const HttpRequest& head) override;
  void Handle(std::shared_ptr<Exchange> exchange) override;
  HttpResponse Refusal(int status, const std::string& message) override;
  void OnDone(const HttpRequest& request, const ExchangeSummary& summary) override;

  // The paths, with their methods; for the description.
  std::vector<std::pair<std::string, std::string>> Routes() const;

 private:
  using Exchanged = std::shared_ptr<Exchange>;
  using Endpoint = void (Service::*)(const Exchanged& exchange);
  struct Route {
    std::vector<std::string> methods;
    Endpoint endpoint = nullptr;
    bool needs_model = false;  // and so no answer while starting or ending
    bool needs_key = true;
  };
  using ReadCall = std::optional<CallError> (*)(const Json& request, const ServedModel& model,
                                                Call& call);
  using MakeFormatter = std::unique_ptr<Formatter> (*)(const Call& call, const ServedModel& model);
  struct CallKind {
    const char* id_prefix;
    ReadCall read;
    MakeFormatter make_formatter;
  };

  void AddRoutes();
  const Route* FindRoute(const std::string& path) const;
  bool HasKey(const HttpRequest& head) const;
  // What a route does not take: a method, a kind of body.
  static std::optional<HttpResponse> RefusalOfRequest(const Route& route, const HttpRequest& head);
  // Why a route does not answer while the server starts or ends.
  std::optional<HttpResponse> RefusalOfState(const Route& route) const;
  // Parses the body on the pool, and calls back there.
  void OnPool(const Exchanged& exchange,
              std::function<void(const Exchanged&, const Json& request)> work);
  void Generate(const Exchanged& exchange, const CallKind& kind);
  void StartCall(const Exchanged& exchange, Call call, const CallKind& kind,
                 base::Clock::Duration arrived);

  void Completions(const Exchanged& exchange);
  void ChatCompletions(const Exchanged& exchange);
  void NativeGenerate(const Exchanged& exchange);
  void Models(const Exchanged& exchange);
  void Tokenize(const Exchanged& exchange);
  void Detokenize(const Exchanged& exchange);
  void Health(const Exchanged& exchange);
  void HealthGenerate(const Exchanged& exchange);
  void ServerInfo(const Exchanged& exchange);
  void ModelInfo(const Exchanged& exchange);
  void FlushCache(const Exchanged& exchange);
  void AbortRequest(const Exchanged& exchange);
  void ServeMetrics(const Exchanged& exchange);
  void OpenApi(const Exchanged& exchange);
  void Root(const Exchanged& exchange);

  struct HealthWatch {
    int64_t turns = 0;  // of the engine, when it was asked for
    base::Clock::Duration deadline{};
  };
  void WatchHealth(const std::weak_ptr<Exchange>& exchange, HealthWatch watch);
  void TryFlush(const Exchanged& exchange, base::Clock::Duration deadline);
  const ServedModel& model() const { return *model_.load(); }

  const ServiceOptions options_;
  EngineLoop& loop_;
  WorkerPool& pool_;
  HttpServer* server_ = nullptr;
  spdlog::logger& log_;
  std::atomic<const ServedModel*> model_{nullptr};
  std::atomic<bool> draining_{false};
  std::map<std::string, Route> routes_;
  Metrics metrics_;

  std::mutex mutex_;
  std::multimap<std::string, std::weak_ptr<Generation>> running_;  // by the call's id
};

}  // namespace longspan::server
