#include "base/check.h"
#include "engine/request.h"
#include "server/call.h"
#include "tests/fuzz/targets/fuzz_targets.h"
#include "tests/fuzz/targets/served_tiny.h"

namespace longspan::testing {
namespace {

using server::Call;
using server::CallError;
using server::Json;

void CheckError(const CallError& error) {
  LONGSPAN_CHECK(!error.status.ok() && !error.status.message().empty(),
                 "an error without a sentence");
  LONGSPAN_CHECK(error.status.code() != base::StatusCode::kInternal, "{}", error.status.message());
}

// What is refused is refused here, not by the engine.
void CheckAccepted(const Call& call) {
  LONGSPAN_CHECK(!call.generation.prompts.empty() && call.generation.choices >= 1 &&
                     call.prompt_tokens.size() == call.generation.prompts.size(),
                 "a call without a prompt was accepted");
  for (const auto& prompt : call.generation.prompts) {
    engine::Request request = call.generation.common;
    request.prompt = prompt;
    const base::Status status = engine::CheckRequest(request, ServedTiny().limits);
    LONGSPAN_CHECK(status.ok(), "the engine would refuse it: {}", status.message());
  }
}

}  // namespace

void FuzzRequest(FuzzInput input) {
  const auto json = server::ParseJson(AsText(input));
  if (!json.ok()) {
    LONGSPAN_CHECK(!json.status().message().empty(), "an error without a sentence");
    return;
  }
  const auto again = server::ParseJson(server::Dump(*json));
  LONGSPAN_CHECK(again.ok() && *again == *json, "written and read again it is another document");
  if (!json->is_object()) return;
  for (const auto read :
       {server::ReadCompletionCall, server::ReadChatCall, server::ReadNativeCall}) {
    Call call;
    if (const auto error = read(*json, ServedTiny(), call)) {
      CheckError(*error);
    } else {
      CheckAccepted(call);
    }
  }
}

}  // namespace longspan::testing
