#include "checkpoint/json_object.h"

#include <string>
#include <unordered_set>

#include "checkpoint/quoted.h"

namespace longspan::checkpoint {
namespace {

namespace dom = simdjson::dom;

constexpr size_t kMaxDepth = 32;

base::Status ParseError(simdjson::error_code error, std::string_view what) {
  switch (error) {
    case simdjson::UTF8_ERROR:
      return base::DataLoss("{} is not valid UTF-8", what);
    case simdjson::DEPTH_ERROR:
      return base::DataLoss("{} is nested deeper than {} levels", what, kMaxDepth);
    case simdjson::MEMALLOC:
    case simdjson::CAPACITY:
      return base::ResourceExhausted("no memory to parse {}", what);
    default:
      return base::DataLoss("{} is not valid JSON", what);
  }
}

// Recursion is bounded by the depth that the parser allows.
base::Status CheckDistinctKeys(dom::element element, std::string_view what) {
  if (element.is_array()) {
    for (const dom::element child : dom::array(element.get_array().value_unsafe()))
      LONGSPAN_RETURN_IF_ERROR(CheckDistinctKeys(child, what));
  } else if (element.is_object()) {
    std::unordered_set<std::string_view> keys;
    for (const dom::key_value_pair member : dom::object(element.get_object().value_unsafe())) {
      if (!keys.insert(member.key).second)
        return base::DataLoss("{} has the key {} twice", what, Quoted(member.key));
      LONGSPAN_RETURN_IF_ERROR(CheckDistinctKeys(member.value, what));
    }
  }
  return base::OkStatus();
}

}  // namespace

base::Result<JsonObject> ParseJsonObject(std::string_view text, std::string_view what) {
  if (text.empty()) return base::DataLoss("{} is empty", what);
  auto parser = std::make_shared<dom::parser>();
  simdjson::error_code error = parser->allocate(text.size(), kMaxDepth);
  dom::element root;
  if (error == simdjson::SUCCESS) error = parser->parse(text.data(), text.size()).get(root);
  if (error != simdjson::SUCCESS) return ParseError(error, what);
  dom::object members;
  if (root.get_object().get(members) != simdjson::SUCCESS)
    return base::DataLoss("{} is not a JSON object but {}", what, DescribeJson(root));
  LONGSPAN_RETURN_IF_ERROR(CheckDistinctKeys(root, what));
  return JsonObject{std::move(parser), members};
}

std::string DescribeJson(dom::element value) {
  switch (value.type()) {
    case dom::element_type::ARRAY:
      return "a list";
    case dom::element_type::OBJECT:
      return "an object";
    case dom::element_type::STRING:
      return Quoted(value.get_string().value_unsafe());
    case dom::element_type::INT64:
      return fmt::format("{}", value.get_int64().value_unsafe());
    case dom::element_type::UINT64:
      return fmt::format("{}", value.get_uint64().value_unsafe());
    case dom::element_type::DOUBLE:
      return fmt::format("{}", value.get_double().value_unsafe());
    case dom::element_type::BOOL:
      return value.get_bool().value_unsafe() ? "true" : "false";
    case dom::element_type::NULL_VALUE:
      return "null";
  }
  return "nothing";
}

}  // namespace longspan::checkpoint
