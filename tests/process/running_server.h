// `longspan serve` in a process of its own, with the embedded model.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tests/process/run_program.h"
#include "tests/support/http_client.h"

namespace longspan::testing {

// A prompt of the embedded model, with what the reference generates.
nlohmann::json GoldenCase(const std::string& name);

// Fails the test where the text is no JSON.
nlohmann::json ParseJsonText(const std::string& text);

// Runs until it is destroyed. Ready when the constructor returns.
class RunningServer {
 public:
  explicit RunningServer(std::vector<std::string> flags = {});
  RunningServer(const RunningServer&) = delete;
  ~RunningServer();

  uint16_t port() const { return port_; }
  pid_t pid() const { return program_->pid(); }
  const RunningProgram& program() const { return *program_; }
  // Waits for the end. Once, and the last call.
  Outcome Wait();

  HttpReply Get(const std::string& path) const { return HttpClient(port_).Get(path); }
  HttpReply Post(const std::string& path, const nlohmann::json& body) const {
    return HttpClient(port_).Post(path, body.dump());
  }
  // The body of an answer that must be 200.
  nlohmann::json PostJson(const std::string& path, const nlohmann::json& body) const;
  // The events of a stream but [DONE], which must be the last.
  std::vector<nlohmann::json> Stream(const std::string& path, nlohmann::json body) const;
  // A sample of /metrics without labels.
  double Metric(const std::string& name) const;
  // Waits a while for it, then fails the test.
  void ExpectMetric(const std::string& name, double value) const;
  void ExpectNothingRuns() const;

 private:
  uint16_t port_;
  std::unique_ptr<RunningProgram> program_;
};

}  // namespace longspan::testing
