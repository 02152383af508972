// Reads the calls of tools that a model writes, as they come.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "server/chat_format.h"

namespace longspan::server {

// Consumes one JSON object; the text may come in pieces. A plain value.
class JsonSpan {
 public:
  // How many of the bytes belong to it.
  size_t Take(std::string_view text);
  bool done() const { return done_; }

 private:
  int depth_ = 0;
  bool in_string_ = false;
  bool escaped_ = false;
  bool done_ = false;
};

// Reads what stands behind the mark that begins a region of calls (Llama 3: the answer itself). The
// name of a call is told as soon as it is there, its arguments byte by byte. A plain value.
class ToolCallReader {
 public:
  enum class Result {
    kMore,      // needs more text
    kCallDone,  // a call is complete; Read goes on behind it
    kEnd,       // the region is over; what is left of the text stands behind it
    kBroken,    // there is no call here: the first broken_bytes() are text like any other
  };

  explicit ToolCallReader(ToolSyntax syntax) : syntax_(syntax) {}

  // Takes what it understands from the front of `held`; `last`: nothing follows.
  Result Read(std::string& held, bool last, std::vector<ChatPiece>& pieces);
  size_t broken_bytes() const { return broken_bytes_; }

 private:
  enum class State { kHeader, kArguments, kTail };

  Result ReadHeader(std::string& held, bool last, std::vector<ChatPiece>& pieces);
  Result ReadJsonHeader(std::string& held, bool last, std::vector<ChatPiece>& pieces);
  Result ReadWholeJson(std::string& held, bool last, std::vector<ChatPiece>& pieces);
  Result ReadDeepSeekHeader(std::string& held, bool last, std::vector<ChatPiece>& pieces);
  Result ReadInvoke(std::string& held, bool last, std::vector<ChatPiece>& pieces);
  Result ReadArguments(std::string& held, bool last, std::vector<ChatPiece>& pieces);
  Result ReadParameters(std::string& held, bool last, std::vector<ChatPiece>& pieces);
  Result ReadTail(std::string& held, bool last);
  // Takes `bytes` of the text; arguments follow.
  Result Begin(std::string name, size_t bytes, std::string& held, std::vector<ChatPiece>& pieces);
  Result Broken(size_t bytes);

  ToolSyntax syntax_;
  State state_ = State::kHeader;
  JsonSpan span_;
  // While a whole call is waited for: it is, and how much of the text was searched for its end, so
  // that no byte is looked at for every token that follows it.
  bool waits_for_all_ = false;
  size_t searched_ = 0;
  bool has_parameters_ = false;
  size_t broken_bytes_ = 0;
};

}  // namespace longspan::server
