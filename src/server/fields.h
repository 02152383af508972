// Reads the members of a request's JSON object. Null counts as not given.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "server/json.h"

namespace longspan::server {

// Every Read leaves `value` where the member is not given; where it has another type, or does not
// fit, the first such error is kept, and status() and param() tell it at the end.
class Fields {
 public:
  // `path` stands before the names in messages, for objects within the request ("stream_options.").
  explicit Fields(const Json& object, std::string path = {})
      : object_(object), path_(std::move(path)) {}

  // Null where the member is not given.
  const Json* Find(const char* name) const;

  void Read(const char* name, bool& value);
  void Read(const char* name, int& value);
  void Read(const char* name, int64_t& value);
  void Read(const char* name, double& value);
  void Read(const char* name, std::string& value);
  void Read(const char* name, std::optional<int64_t>& value);
  // Any 64 bits, with a sign or without: a seed.
  void Read(const char* name, std::optional<uint64_t>& value);
  void Read(const char* name, std::optional<double>& value);
  // A string, or an array of them.
  void Read(const char* name, std::vector<std::string>& value);
  // Token ids.
  void Read(const char* name, std::vector<int32_t>& value);

  // Refuses a member that would change the result and is not supported, by its name: anything but
  // null, what is empty, and `neutral` (JSON).
  void Refuse(const char* name, const char* neutral = "null");
  // An error of a member's value: "'NAME' ...".
  void Fail(const char* name, const std::string& what, const char* code = "invalid_value");
  // The error of a part of this object, if there is one.
  void Adopt(const Fields& part);

  const base::Status& status() const { return status_; }
  // The member that the error is about.
  const std::string& param() const { return param_; }
  // Its kind: invalid_type, invalid_value, unsupported_parameter.
  const char* code() const { return code_; }

 private:
  void WrongType(const char* name, const char* wanted);
  bool ReadInteger(const char* name, int64_t& value);
  // A member that is neither an integer of 64 bits nor to be taken for one.
  void NoInteger(const char* name);

  const Json& object_;
  std::string path_;
  base::Status status_;
  std::string param_;
  const char* code_ = "";
};

// While one lives, it is told what the Fields of its thread are asked for: tests compare that with
// the description of the endpoints. One at a time in a thread.
class FieldsWatch {
 public:
  FieldsWatch();
  ~FieldsWatch();
  FieldsWatch(const FieldsWatch&) = delete;

  // By the member's path: true where it is only refused.
  const std::map<std::string, bool>& members() const { return members_; }

 private:
  friend class Fields;

  std::map<std::string, bool> members_;
};

// The ids of an array; nothing where it holds anything else.
std::optional<std::vector<int32_t>> TokenIds(const Json& array);

}  // namespace longspan::server
