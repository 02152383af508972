// ParseChatRequest: the JSON of `longspan generate --chat` and of requests.

#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "text/chat_template.h"

namespace longspan::text {
namespace {

using Json = nlohmann::ordered_json;

// As deep as a request may nest: far beyond any real schema of a tool.
constexpr size_t kMaxRequestDepth = 100;

// Builds a document and refuses what it could not hold exactly, or what is nested too deep. (The
// parser's own builder turns integers beyond 64 bits into floating-point numbers, which would print
// otherwise.)
class RequestBuilder {
 public:
  bool null() { return Add(nullptr); }
  bool boolean(bool value) { return Add(value); }
  bool number_integer(Json::number_integer_t value) { return Add(value); }
  bool number_unsigned(Json::number_unsigned_t value) { return Add(value); }
  bool number_float(Json::number_float_t value, const std::string& text) {
    if (text.find_first_of(".eE") != std::string::npos) return Add(value);
    return Fail(base::InvalidArgument(
        "the integer {} does not fit into 64 bits: write it as a string", text));
  }
  bool string(std::string& value) { return Add(std::move(value)); }
  bool binary(Json::binary_t&) {
    return Fail(base::InvalidArgument("binary data is no JSON text"));
  }
  bool start_object(size_t) { return Open(Json::object()); }
  bool start_array(size_t) { return Open(Json::array()); }
  bool end_object() { return Close(); }
  bool end_array() { return Close(); }
  bool key(std::string& name) {
    key_ = std::move(name);
    return true;
  }
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception& error) {
    // "[json.exception.parse_error.101] parse error at line 1, column 2: ..." without its number.
    const std::string_view what = error.what();
    const size_t end = what.find("] ");
    const bool is_value = what.find("out_of_range") != std::string_view::npos;
    return Fail(base::InvalidArgument(
        "the chat request is no JSON that can be read (near byte {}): {}", position,
        is_value ? "a number is out of range" : what.substr(end == what.npos ? 0 : end + 2)));
  }

  base::Result<Json> Take() {
    if (!status_.ok()) return status_;
    return std::move(root_);
  }

 private:
  bool Fail(base::Status status) {
    if (status_.ok()) status_ = std::move(status);
    return false;
  }

  Json* Place(Json value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    Json& parent = *open_.back();
    if (parent.is_array()) {
      parent.push_back(std::move(value));
      return &parent.back();
    }
    Json& slot = parent[key_];
    slot = std::move(value);
    return &slot;
  }

  bool Add(Json value) {
    Place(std::move(value));
    return true;
  }

  bool Open(Json value) {
    if (open_.size() >= kMaxRequestDepth)
      return Fail(base::InvalidArgument("the chat request is nested deeper than {} levels",
                                        kMaxRequestDepth));
    // A container does not move while it is open: its parent gets no other member meanwhile.
    open_.push_back(Place(std::move(value)));
    return true;
  }

  bool Close() {
    open_.pop_back();
    return true;
  }

  Json root_;
  std::vector<Json*> open_;
  std::string key_;
  base::Status status_;
};

base::Status WrongType(std::string_view key, std::string_view wanted, const Json& value) {
  return base::InvalidArgument("\"{}\" of the chat request is a JSON {}: it must be {}", key,
                               value.type_name(), wanted);
}

base::Status CheckMessages(const Json& messages) {
  if (!messages.is_array())
    return WrongType("messages", "an array of {\"role\", \"content\"} objects", messages);
  if (messages.empty())
    return base::InvalidArgument(
        "\"messages\" of the chat request is empty: give at least one message");
  for (size_t i = 0; i < messages.size(); ++i) {
    const Json& message = messages[i];
    if (!message.is_object() || !message.contains("role") || !message["role"].is_string())
      return base::InvalidArgument(
          "message {} of the chat request is not an object with a \"role\" that is a string", i);
  }
  return base::OkStatus();
}

base::Status SetMember(const std::string& key, Json value, ChatRequest* request) {
  if (key == "messages") {
    LONGSPAN_RETURN_IF_ERROR(CheckMessages(value));
    request->messages = std::move(value);
  } else if (key == "tools") {
    if (!value.is_null() && !value.is_array()) return WrongType(key, "an array or null", value);
    request->tools = std::move(value);
  } else if (key == "add_generation_prompt") {
    if (!value.is_boolean()) return WrongType(key, "true or false", value);
    request->add_generation_prompt = value.get<bool>();
  } else if (key == "kwargs") {
    if (!value.is_null() && !value.is_object()) return WrongType(key, "an object", value);
    if (value.is_object()) request->kwargs = std::move(value);
  } else {
    return base::InvalidArgument(
        "the chat request has an unknown member \"{}\": it knows messages, tools, "
        "add_generation_prompt and kwargs",
        key);
  }
  return base::OkStatus();
}

}  // namespace

base::Result<ChatRequest> ParseChatRequest(std::string_view json) {
  RequestBuilder builder;
  Json::sax_parse(json, &builder);
  LONGSPAN_ASSIGN_OR_RETURN(Json document, builder.Take());
  if (!document.is_object())
    return base::InvalidArgument(
        "the chat request is a JSON {}: it must be an object with messages", document.type_name());
  if (!document.contains("messages"))
    return base::InvalidArgument("the chat request has no \"messages\"");
  ChatRequest request;
  for (auto& [key, value] : document.items())
    LONGSPAN_RETURN_IF_ERROR(SetMember(key, std::move(value), &request));
  return request;
}

}  // namespace longspan::text
