// The response of a generating call: drains its generation into its formatter.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "server/exchange.h"
#include "server/formatter.h"
#include "server/generation.h"
#include "server/metrics.h"

namespace longspan::server {

class GenerationSource : public ResponseSource {
 public:
  struct Options {
    std::shared_ptr<Generation> generation;
    std::unique_ptr<Formatter> formatter;
    bool stream = false;
    base::Clock::Duration arrived{};  // of the request
    Metrics* metrics = nullptr;
    std::function<void()> on_end;  // called once, when the generation has ended or been given up
  };

  explicit GenerationSource(Options options);
  ~GenerationSource() override;

  void Pull(ResponseWriter& writer) override;
  void OnSilence(ResponseWriter& writer) override;
  void OnGone() override;

 private:
  // Of one sequence.
  struct Times {
    base::Clock::Duration last_token{};
    bool has_token = false;
  };

  void Take(GenerationEvent event, ResponseWriter& writer);
  void TakeToken(TokenEvent event);
  void Fail(const base::Status& status, ResponseWriter& writer);
  void End();

  Options options_;
  std::string out_;
  std::vector<Times> times_;
  size_t left_;
  bool begun_ = false;
  bool ended_ = false;
};

}  // namespace longspan::server
