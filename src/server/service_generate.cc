// The endpoints that generate.
#include "server/api_error.h"
#include "server/call_parts.h"
#include "server/fields.h"
#include "server/service.h"

namespace longspan::server {
namespace {

constexpr std::chrono::seconds kHealthTime{20};
constexpr std::chrono::milliseconds kHealthCheck{100};

HttpResponse Healthy(std::string why) {
  return {.status = 200, .body = std::move(why), .content_type = "text/plain; charset=utf-8"};
}

// Answers 200 with the first token.
class HealthSource : public ResponseSource {
 public:
  explicit HealthSource(std::shared_ptr<Generation> generation)
      : generation_(std::move(generation)) {}
  // Answered without the token, it is not to wait in the queue for ever.
  ~HealthSource() override { generation_->Cancel(); }
  HealthSource(const HealthSource&) = delete;
  HealthSource& operator=(const HealthSource&) = delete;

  void Pull(ResponseWriter& writer) override {
    for (const GenerationEvent& event : generation_->Drain()) {
      const auto* failed = std::get_if<FailedEvent>(&event);
      // A full queue is no illness: it is seen whether the engine gets on.
      if (failed != nullptr && failed->status.code() == base::StatusCode::kResourceExhausted)
        return;
      if (failed != nullptr) return writer.Respond(ErrorResponse(503, failed->status.message()));
      const auto* token = std::get_if<TokenEvent>(&event);
      if (token != nullptr && token->finish) return writer.Respond(Healthy({}));
    }
  }
  void OnGone() override { generation_->Cancel(); }

 private:
  std::shared_ptr<Generation> generation_;
};

}  // namespace

void Service::Completions(const Exchanged& exchange) {
  Generate(exchange, {"cmpl-", ReadCompletionCall, MakeCompletionFormatter});
}

void Service::ChatCompletions(const Exchanged& exchange) {
  Generate(exchange, {"chatcmpl-", ReadChatCall, MakeChatFormatter});
}

void Service::NativeGenerate(const Exchanged& exchange) {
  Generate(exchange, {"", ReadNativeCall, MakeNativeFormatter});
}

void Service::HealthGenerate(const Exchanged& exchange) {
  GenerationRequest request;
  request.prompts = {{model().end_tokens.empty() ? 0 : model().end_tokens[0]}};
  request.common.max_tokens = 1;
  const auto generation =
      Generation::Create({.loop = loop_}, std::move(request), [weak = std::weak_ptr(exchange)] {
        if (const auto living = weak.lock()) living->Wake();
      });
  exchange->Attach(std::make_shared<HealthSource>(generation));
  generation->Start();
  WatchHealth(exchange,
              {.turns = loop_.turns(), .deadline = base::SteadyClock().Now() + kHealthTime});
}

// A long chunk holds the token up, a queue too, and a full queue refuses it: an engine that has got
// on since is healthy all the same.
void Service::WatchHealth(const std::weak_ptr<Exchange>& exchange, HealthWatch watch) {
  server_->RunAfter(kHealthCheck, [this, exchange, watch] {
    const auto living = exchange.lock();
    if (living == nullptr) return;
    if (loop_.turns() > watch.turns)
      return living->Respond(Healthy("the engine gets on with other requests\n"));
    if (base::SteadyClock().Now() < watch.deadline) return WatchHealth(exchange, watch);
    living->Respond(ErrorResponse(
        503, fmt::format("the engine has done nothing for {} s", kHealthTime.count())));
  });
}

void Service::AbortRequest(const Exchanged& exchange) {
  OnPool(exchange, [this](const Exchanged& parsed, const Json& request) {
    bool all = false;
    std::string id;
    Fields fields(request);
    fields.Read("abort_all", all);
    fields.Read("rid", id);
    if (const auto error = ErrorOf(fields))
      return parsed->Respond(
          ErrorResponse(400, error->status.message(), error->param, error->code));
    const auto respond = [&](size_t aborted) {
      parsed->Respond({.status = 200, .body = Dump({{"aborted", aborted}})});
    };
    if (all) return respond(AbortAll());
    if (id.empty())
      return parsed->Respond(ErrorResponse(400,
                                           "give the 'rid' of a request, or \"abort_all\": true",
                                           "rid", "missing_required_parameter"));
    std::vector<std::shared_ptr<Generation>> wanted;
    {
      const std::lock_guard lock(mutex_);
      const auto [begin, end] = running_.equal_range(id);
      for (auto entry = begin; entry != end; ++entry)
        if (auto living = entry->second.lock()) wanted.push_back(std::move(living));
    }
    for (const auto& generation : wanted) generation->Abort();
    respond(wanted.size());
  });
}

void Service::FlushCache(const Exchanged& exchange) {
  const std::string timeout = QueryValue(exchange->request().query, "timeout");
  double seconds = 0;
  try {
    if (!timeout.empty()) seconds = std::stod(timeout);
  } catch (const std::exception&) {
    return exchange->Respond(
        ErrorResponse(400, "'timeout' must be a number of seconds", "timeout"));
  }
  if (!(seconds >= 0 && seconds <= 3600))
    return exchange->Respond(ErrorResponse(400, "'timeout' must be 0 to 3600 seconds", "timeout"));
  TryFlush(exchange, base::SteadyClock().Now() + std::chrono::duration_cast<base::Clock::Duration>(
                                                     std::chrono::duration<double>(seconds)));
}

void Service::TryFlush(const Exchanged& exchange, base::Clock::Duration deadline) {
  const bool posted = loop_.Post([this, exchange, deadline](engine::Engine& engine) {
    if (engine.idle()) {
      const int64_t pages = engine.FlushCache();
      return exchange->Respond({.status = 200,
                                .body = fmt::format("Cache flushed: {} pages.\n", pages),
                                .content_type = "text/plain; charset=utf-8"});
    }
    if (base::SteadyClock().Now() >= deadline || exchange->gone())
      return exchange->Respond(ErrorResponse(
          400, "requests are running: wait for their end, or give ?timeout=SECONDS to wait"));
    server_->RunAfter(std::chrono::milliseconds(20),
                      [this, exchange, deadline] { TryFlush(exchange, deadline); });
  });
  if (!posted) exchange->Respond(ErrorResponse(503, "the server is shutting down"));
}

}  // namespace longspan::server
