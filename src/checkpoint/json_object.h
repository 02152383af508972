// JSON objects from files that may be broken: the parsing behind JsonFields and file headers.
#pragma once

#include <memory>
#include <string_view>

#include <simdjson.h>

#include "base/result.h"

namespace longspan::checkpoint {

// An object and the parser that owns its text.
struct JsonObject {
  std::shared_ptr<simdjson::dom::parser> parser;
  simdjson::dom::object members;
};

// DataLoss, with `what` as the sentence's subject, where `text` is not UTF-8, not JSON, nested
// deeper than 32 levels, not an object, or where some object in it has a key twice (readers differ
// in which one they take).
base::Result<JsonObject> ParseJsonObject(std::string_view text, std::string_view what);

// "a string", "the number 1.5", ...
std::string DescribeJson(simdjson::dom::element value);

}  // namespace longspan::checkpoint
