// What strangers can send, each as a function of bytes: run by libFuzzer (libfuzzer_main.cc, preset
// fuzz), and in every build on the inputs of tests/fuzz/corpus (corpus_replay_test.cc). A broken
// promise ends the program by LONGSPAN_CHECK; bad input never does.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

namespace longspan::testing {

using FuzzInput = std::span<const uint8_t>;

// One connection: what a client sends on it before it ends its half. The first byte says in how
// large pieces.
void FuzzHttp(FuzzInput input);
// The body of a request, for all readers of calls: whatever they accept the engine must accept.
void FuzzRequest(FuzzInput input);
// What a model writes, as a stream of events and as one body: clients must get the same from both.
// The first bytes choose the endpoint and the format of calls, NUL bytes cut the text into tokens.
void FuzzSse(FuzzInput input);
// A chat template, a NUL byte, and the JSON of what it is rendered with.
void FuzzChatTemplate(FuzzInput input);
// A text, or behind a first byte of '{' a tokenizer.json.
void FuzzTokenizer(FuzzInput input);
// A safetensors file.
void FuzzSafetensors(FuzzInput input);

// Of the folder in tests/fuzz/corpus, and of the program fuzz_NAME.
struct FuzzTarget {
  std::string_view name;
  void (*run)(FuzzInput input);
};
inline constexpr FuzzTarget kFuzzTargets[] = {{"http", FuzzHttp},
                                              {"request", FuzzRequest},
                                              {"sse", FuzzSse},
                                              {"chat_template", FuzzChatTemplate},
                                              {"tokenizer", FuzzTokenizer},
                                              {"safetensors", FuzzSafetensors}};

inline std::string_view AsText(FuzzInput input) {
  return {reinterpret_cast<const char*>(input.data()), input.size()};
}

}  // namespace longspan::testing
