// Typed access to the members of a JSON object in a configuration file.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace longspan::checkpoint {

struct JsonObject;

// A read-only object. A member that is null counts as absent. Getters without a default fail with
// InvalidArgument where the key is absent; all fail where the value has another type, with a
// sentence that names the file, the key, what was found and what is needed. Cheap to copy; safe for
// concurrent reading.
class JsonFields {
 public:
  // `where` is the file's name, for messages. DataLoss where `text` is not a JSON object, names a
  // key twice, is not UTF-8 or is nested too deeply.
  static base::Result<JsonFields> Parse(std::string_view text, std::string where);

  const std::string& where() const { return where_; }
  bool Has(std::string_view key) const;

  base::Result<int64_t> Int(std::string_view key) const;
  base::Result<int64_t> Int(std::string_view key, int64_t default_value) const;
  // A count or a size: an integer in [1, 2^31).
  base::Result<int> Size(std::string_view key) const;
  base::Result<int> Size(std::string_view key, int default_value) const;
  base::Result<double> Double(std::string_view key) const;
  base::Result<double> Double(std::string_view key, double default_value) const;
  base::Result<bool> Bool(std::string_view key) const;
  base::Result<bool> Bool(std::string_view key, bool default_value) const;
  base::Result<std::string> String(std::string_view key) const;
  base::Result<std::string> String(std::string_view key, std::string_view default_value) const;
  // Lists; empty where the key is absent.
  base::Result<std::vector<int64_t>> Ints(std::string_view key) const;
  base::Result<std::vector<std::string>> Strings(std::string_view key) const;
  // One integer or a list of them; empty where the key is absent.
  base::Result<std::vector<int64_t>> IntOrInts(std::string_view key) const;
  // A nested object; its messages name this key too. nullopt where the key is absent.
  base::Result<std::optional<JsonFields>> Section(std::string_view key) const;

  // "WHERE: 'KEY' ", the beginning of a sentence about a value.
  std::string Describe(std::string_view key) const;

 private:
  JsonFields(std::shared_ptr<const JsonObject> object, std::string where, std::string prefix);

  std::shared_ptr<const JsonObject> object_;
  std::string where_;
  std::string prefix_;  // "rope_scaling." in a section
};

}  // namespace longspan::checkpoint
