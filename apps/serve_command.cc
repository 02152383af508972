// `longspan serve`: the HTTP server.
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <sys/resource.h>
#include <thread>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "apps/commands.h"
#include "apps/console.h"
#include "apps/engine_flags.h"
#include "apps/engine_setup.h"
#include "apps/input_files.h"
#include "apps/node_setup.h"
#include "apps/progress_bar.h"
#include "base/log.h"
#include "server/engine_loop.h"
#include "server/http_server.h"
#include "server/served_model.h"
#include "server/service.h"
#include "server/worker_pool.h"
#include "tensor/thread_pool.h"

namespace longspan::apps {
namespace {

constexpr std::chrono::milliseconds kDrainCheck(20);
// After the second signal: for responses to be told that they end.
constexpr std::chrono::milliseconds kForcedEnd(2000);

struct ServeFlags {
  EngineFlags engine;
  std::string host = "127.0.0.1";
  int port = 30000;
  std::vector<std::string> api_keys;
  std::string served_name;
  int64_t max_body_mib = 64;
  int64_t max_connections = 4096;
  int request_timeout = 60;
  double comment_interval = 10;
  int tokenizer_threads = 0;  // 0: half the cores
  int64_t max_waiting = 1024;
  bool metrics_need_key = false;
  bool log_prompts = false;
  std::vector<std::string> notes;  // on flags of other servers that were given
};

// Flags of other servers that change nothing here.
struct FlagWithoutMeaning {
  const char* name;
  bool has_value;
  const char* why;
};
constexpr FlagWithoutMeaning kWithoutMeaning[] = {
    {"--trust-remote-code", false, "no code of a model is run"},
    {"--attention-backend", true, "the backend chooses its kernels"},
    {"--disable-cuda-graph", false, "the backend chooses how it starts its kernels"},
    {"--enable-metrics", false, "/metrics is always there"},
    {"--random-seed", true, "a request that is to be repeated gives its own 'seed'"},
    {"--skip-server-warmup", false, "there is no warm-up"},
};

// What the process owns besides the engine; the order is that of construction.
struct Server {
  Server(server::ServiceOptions options, std::unique_ptr<server::WorkerPool> workers)
      : pool(std::move(workers)), service(std::move(options), loop, *pool) {}

  server::EngineLoop loop;
  std::unique_ptr<server::WorkerPool> pool;
  server::Service service;
  std::unique_ptr<server::HttpServer> http;
  std::atomic<int> signals{0};
  std::atomic<bool> serves{false};
};

// Thousands of connections need more descriptors than the usual soft limit.
void RaiseDescriptorLimit(int64_t wanted) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const auto needed = static_cast<rlim_t>(wanted) + 256;
  if (limit.rlim_cur >= needed) return;
  limit.rlim_cur = std::min(limit.rlim_max, needed);
  setrlimit(RLIMIT_NOFILE, &limit);
}

server::Json Arguments(const ServeFlags& flags, const EngineSetup& setup) {
  const EngineFlags& engine = flags.engine;
  return {{"model_path", setup.model_dir.string()},
          {"host", flags.host},
          {"port", flags.port},
          {"backend", setup.backend},
          {"pp_size", engine.mesh.pp},
          {"tp_size", engine.mesh.tp},
          {"cp_size", engine.mesh.cp},
          {"ep_size", engine.mesh.ep},
          {"virtual_stages", engine.virtual_stages},
          {"threads", setup.threads},
          {"page_size", engine.page_size},
          {"chunked_prefill_size", setup.chunk_tokens},
          {"chunk_policy", ChunkPolicyName(engine)},
          {"max_running_requests", engine.max_running_requests},
          {"max_queued_requests", engine.max_queued_requests},
          {"disable_radix_cache", engine.disable_radix_cache},
          {"nnodes", engine.nodes}};
}

// The tokenizer must outlive what is returned.
base::Result<server::ServedModel> ModelOf(const ServeFlags& flags, const EngineSetup& setup,
                                          const text::Tokenizer* tokenizer) {
  server::ServedModel model;
  model.path = std::filesystem::absolute(setup.model_dir).lexically_normal().string();
  model.name = flags.served_name.empty() ? std::filesystem::path(model.path).filename().string()
                                         : flags.served_name;
  model.created = std::chrono::duration_cast<std::chrono::seconds>(
                      std::chrono::system_clock::now().time_since_epoch())
                      .count();
  model.tokenizer = tokenizer;
  model.end_tokens = setup.model.end_tokens;
  auto chat_template = text::ChatTemplate::Load(setup.model_dir);
  if (chat_template.ok()) {
    model.chat_template = std::move(*chat_template);
    if (tokenizer != nullptr)
      model.tool_style = server::FindToolStyle(*model.chat_template, *tokenizer);
  } else {
    base::Log("server").warn("chat completions are off: {}", chat_template.status().message());
  }
  if (const auto config = ReadInputFile(setup.model_dir / "generation_config.json"); config.ok())
    server::ReadSamplingDefaults(*config, model.sampling);
  return model;
}

// Ends the loop of the engine when nothing is left to answer.
void EndWhenDrained(Server& server) {
  if (server.http->active() == 0) return server.loop.End();
  server.http->RunAfter(kDrainCheck, [&server] { EndWhenDrained(server); });
}

// The first signal lets what runs come to its end, a second one ends it.
void OnSignal(Server& server, int signal) {
  spdlog::logger& log = base::Log("server");
  const int count = ++server.signals;
  if (!server.serves) {
    log.warn("signal {} while the model is loaded: ending", signal);
    std::_Exit(kExitFailed);
  }
  if (count == 1) {
    log.info("signal {}: {} requests come to their end; a second signal ends them", signal,
             server.http->active());
    server.service.BeginDrain();
    server.http->StopAccepting();
    // Behind what StopAccepting does.
    return server.http->RunAfter(kDrainCheck, [&server] { EndWhenDrained(server); });
  }
  log.warn("signal {}: ending", signal);
  server.service.AbortAll();
  // A chunk may take longer than anybody wants to wait.
  server.http->RunAfter(kForcedEnd, [] { std::_Exit(kExitFailed); });
}

CommandResult Run(const ServeFlags& flags, const EngineSetup& setup, Server& server) {
  std::unique_ptr<const text::Tokenizer> tokenizer;
  auto loaded = text::Tokenizer::Load(setup.model_dir);
  if (loaded.ok()) {
    tokenizer = std::move(*loaded);
  } else if (loaded.status().code() == base::StatusCode::kNotFound) {
    base::Log("server").warn("requests must give token ids: {}", loaded.status().message());
  } else {
    return loaded.status();
  }
  auto model = ModelOf(flags, setup, tokenizer.get());
  if (!model.ok()) return model.status();

  ProgressBar loading;
  const auto engine = StartEngine(flags.engine, setup, StagePlacement::kAuto,
                                  [&](double share) { loading.Share("Loading", share); });
  loading.Clear();
  if (!engine.ok()) return engine.status();
  model->limits = (*engine)->limits();
  model->most_queued = flags.engine.max_queued_requests;
  server.service.SetModel(*model);
  WriteMessage(
      fmt::format("Serving {} at http://{}:{}\n", model->name, flags.host, server.http->port()));
  server.serves = true;
  const base::Status status = server.loop.Run(**engine);
  // What has been answered is still to be sent.
  const auto deadline = std::chrono::steady_clock::now() + kForcedEnd;
  while (server.http->active() > 0 && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(kDrainCheck);
  server.http->Stop();
  server.pool.reset();
  if (!status.ok()) return status;
  if (server.signals > 1) return base::Aborted("ended by a second signal");
  return {};
}

base::Status CheckServeFlags(const ServeFlags& flags) {
  for (const std::string& key : flags.api_keys)
    if (key.empty()) return base::InvalidArgument("--api-key must not be empty");
  return base::OkStatus();
}

CommandResult Serve(const ServeFlags& flags) {
  for (const std::string& note : flags.notes) WriteMessage(note);
  LONGSPAN_RETURN_USAGE_IF_ERROR(CheckEngineFlags(flags.engine));
  LONGSPAN_RETURN_USAGE_IF_ERROR(CheckServeFlags(flags));
  const auto setup = ResolveSetup(flags.engine);
  if (!setup.ok()) return setup.status();
  if (flags.engine.node_rank > 0) return RunNode(flags.engine, *setup);

  const int cores = static_cast<int>(tensor::AllowedCores().size());
  const int workers =
      flags.tokenizer_threads > 0 ? flags.tokenizer_threads : std::max(1, cores / 2);
  auto pool = server::WorkerPool::Create(workers, static_cast<size_t>(flags.max_waiting));
  if (!pool.ok()) return pool.status();
  Server server({.api_keys = flags.api_keys,
                 .metrics_need_key = flags.metrics_need_key,
                 .log_prompts = flags.log_prompts,
                 .arguments = Arguments(flags, *setup),
                 .version = LONGSPAN_VERSION,
                 .stage_ranks = flags.engine.mesh.stage_ranks()},
                std::move(*pool));
  const server::HttpLimits limits = {
      .body_bytes = flags.max_body_mib << 20,
      .all_bodies_bytes = std::max(int64_t{1} << 30, (flags.max_body_mib << 20) * 16),
      .connections = flags.max_connections,
      .request_time = std::chrono::seconds(flags.request_timeout),
      .silence = std::chrono::milliseconds(static_cast<int64_t>(1000 * flags.comment_interval))};
  RaiseDescriptorLimit(limits.connections);
  // Before the model: who waits for large weights is to hear of a wrong address now, and whoever
  // asks for /health that the server is starting.
  auto http = server::HttpServer::Listen(flags.host, static_cast<uint16_t>(flags.port), limits,
                                         server.service);
  if (!http.ok()) return http.status();
  server.http = std::move(*http);
  server.service.SetServer(*server.http);
  server.http->OnSignal({SIGTERM, SIGINT}, [&server](int signal) { OnSignal(server, signal); });
  if (base::Status started = server.http->Start(); !started.ok()) return started;
  return Run(flags, *setup, server);
}

void AddServerFlags(CLI::App& command, ServeFlags& flags) {
  const auto option = [&](const char* name, auto& value, const char* about) {
    return command.add_option(name, value, about)->capture_default_str()->group("Server");
  };
  option("--host", flags.host, "address to listen on; 0.0.0.0: all")->envname("LONGSPAN_HOST");
  option("--port", flags.port, "port to listen on; 0: a free one, which is printed")
      ->check(CLI::Range(0, 65535))
      ->envname("LONGSPAN_PORT");
  command
      .add_option("--api-key", flags.api_keys,
                  "requests must send it as Authorization: Bearer KEY (may be repeated)")
      ->type_name("KEY")
      ->envname("LONGSPAN_API_KEY")
      ->group("Server");
  command
      .add_option("--served-model-name", flags.served_name,
                  "the model's name in responses [the folder's]")
      ->type_name("NAME")
      ->group("Server");
  option("--max-body-mib", flags.max_body_mib, "largest body of a request, MiB")
      ->check(CLI::Range(int64_t{1}, int64_t{4096}));
  option("--max-connections", flags.max_connections, "open connections")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20));
  option("--request-timeout", flags.request_timeout,
         "seconds to send a request, and one more for every 64 KiB of it that have come")
      ->check(CLI::Range(1, 86400));
  option("--sse-comment-interval", flags.comment_interval,
         "seconds of silence after which a stream gets a comment; 0: never")
      ->check(CLI::Range(0.0, 86400.0));
  command
      .add_option("--tokenizer-threads", flags.tokenizer_threads,
                  "threads that read and tokenise requests [half the cores]")
      ->check(CLI::Range(1, 1024))
      ->group("Server");
  option("--max-waiting-requests", flags.max_waiting, "requests that may wait for these threads")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20));
  command
      .add_flag("--metrics-require-key", flags.metrics_need_key, "/metrics asks for the key, too")
      ->group("Server");
  command
      .add_flag("--log-prompts", flags.log_prompts, "write the bodies of requests to the log, too")
      ->group("Server");
}

void AddFlagsWithoutMeaning(CLI::App& command, ServeFlags& flags) {
  for (const FlagWithoutMeaning& flag : kWithoutMeaning) {
    const auto note = [&flags, &flag] {
      flags.notes.push_back(fmt::format("{} has no meaning here: {}\n", flag.name, flag.why));
    };
    CLI::Option* option =
        flag.has_value ? command.add_option_function<std::string>(
                             flag.name, [note](const std::string& /*value*/) { note(); },
                             "accepted, without effect")
                       : command.add_flag_callback(flag.name, note, "accepted, without effect");
    option->group("Of other servers");
  }
}

}  // namespace

void AddServeCommand(CLI::App& app, Command& selected) {
  CLI::App* command =
      app.add_subcommand("serve", "an HTTP server: OpenAI's interface and a native one");
  auto flags = std::make_shared<ServeFlags>();
  AddServerFlags(*command, *flags);
  AddFlagsWithoutMeaning(*command, *flags);
  AddEngineFlags(*command, flags->engine);
  command->callback([&selected, flags] { selected = [flags] { return Serve(*flags); }; });
}

}  // namespace longspan::apps
