// The values of a template: what Python's None, bool, int, float, str, list, tuple and dict are to
// Jinja2.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

namespace longspan::text {

class JinjaContext;

// Python's integers have no bounds; 128 bits hold all of JSON's 64-bit ones, signed or not, and
// what lies beyond is an error, never a wrapped number.
using Integer = __int128;

// Values nest at most this deep, so that recursion over them is safe.
constexpr int kMaxValueDepth = 200;

enum class ValueKind : uint8_t {
  kUndefined,  // a name, attribute or item that does not exist
  kNone,
  kBool,
  kInteger,
  kFloat,
  kString,
  kList,
  kTuple,
  kView,      // dict.keys() and range(): iterable, with a length
  kIterator,  // a Python generator: can be walked through once
  kDict,
  kNamespace,
  kLoop,
  kFunction,
};

struct Object;
struct SequenceObject;
struct DictObject;
struct IteratorObject;
struct NamespaceObject;
struct LoopObject;
struct FunctionObject;
struct Arguments;

// Immutable but for iterators, loops and namespaces; copies share what they refer to.
class Value {
 public:
  Value() = default;  // undefined, without a reason

  static Value Undefined(std::string why);
  static Value None() { return Value(ValueKind::kNone); }
  static Value Bool(bool flag);
  static Value Int(Integer number);
  static Value Float(double number);
  // Strings and containers that templates make come from JinjaContext, which counts them.
  static Value String(std::string text);
  static Value Markup(std::string text);
  static Value Sequence(ValueKind kind, std::vector<Value> items);
  static Value Dict(std::vector<std::pair<Value, Value>> entries);
  static Value Iterator(std::vector<Value> items);
  static Value Namespace(NamespaceObject* space);
  static Value Loop(std::shared_ptr<LoopObject> loop);
  // `depth`: how deep the values nest that `call` holds.
  static Value Function(std::string name,
                        std::function<Value(JinjaContext&, const Arguments&)> call, int depth);
  // Throws JinjaError when nested deeper than kMaxValueDepth.
  static Value FromJson(const nlohmann::ordered_json& json);

  ValueKind kind() const { return kind_; }
  bool Is(ValueKind kind) const { return kind_ == kind; }
  bool is_undefined() const { return kind_ == ValueKind::kUndefined; }
  bool is_none() const { return kind_ == ValueKind::kNone; }
  bool is_string() const { return kind_ == ValueKind::kString; }
  // int or bool, which is an int to Python.
  bool is_integral() const { return kind_ == ValueKind::kInteger || kind_ == ValueKind::kBool; }
  bool is_number() const { return is_integral() || kind_ == ValueKind::kFloat; }
  // A list or a tuple.
  bool is_sequence() const { return kind_ == ValueKind::kList || kind_ == ValueKind::kTuple; }
  // A string that |safe or |escape marked: it can be printed and compared, all else is refused,
  // because it would escape what it is combined with.
  bool is_markup() const { return markup_; }

  // Each is for values of its kind only.
  const std::string& text() const;
  const SequenceObject& sequence() const;
  const DictObject& dict() const;
  const IteratorObject& iterator() const;
  const LoopObject& loop() const;
  const FunctionObject& function() const;
  NamespaceObject* space() const;
  bool bool_value() const { return integer_ != 0; }
  Integer integer() const { return integer_; }  // of bool, too
  double AsDouble() const { return kind_ == ValueKind::kFloat ? float_ : double(integer_); }
  // Why it is undefined: "'x' is undefined".
  std::string_view undefined_reason() const;

  // bool(value) of Python.
  bool Truthy() const;
  // Its Python type, for messages: "str", "dict", "Undefined"; and with an article: "a str", "an
  // int".
  std::string_view TypeName() const;
  std::string Described() const;
  int Depth() const;
  uint64_t Weight() const;
  // Object identity, for values without a content of their own.
  const Object* identity() const { return object_.get(); }

 private:
  explicit Value(ValueKind kind) : kind_(kind) {}

  ValueKind kind_ = ValueKind::kUndefined;
  bool markup_ = false;
  Integer integer_ = 0;
  double float_ = 0;
  std::shared_ptr<const Object> object_;
};

struct Object {
  virtual ~Object() = default;
};

// Text, and the reason why an undefined value is undefined.
struct StringObject : Object {
  explicit StringObject(std::string value) : text(std::move(value)) {}
  const std::string text;
};

// Items of lists, tuples and views. `weight` is about the bytes of its printed form (shared parts
// count as often as they occur): the work of walking over it.
struct SequenceObject : Object {
  explicit SequenceObject(std::vector<Value> values);
  const std::vector<Value> items;
  int depth = 1;
  uint64_t weight = 0;
};

// Entries in the order of insertion; keys are unique.
struct DictObject : Object {
  explicit DictObject(std::vector<std::pair<Value, Value>> values);
  const Value* Find(std::string_view key) const;
  const Value* Find(const Value& key) const;

  const std::vector<std::pair<Value, Value>> entries;
  int depth = 1;
  uint64_t weight = 0;

 private:
  std::unordered_map<std::string_view, size_t>
      index_;  // of string keys, where a scan would be slow
};

struct IteratorObject : Object {
  std::vector<Value> items;
  int depth = 1;
  mutable bool used = false;
};

// namespace(): the only value that a template can change. Belongs to the JinjaContext, since it may
// contain itself.
struct NamespaceObject : Object {
  Value* Find(std::string_view name);
  std::vector<std::pair<std::string, Value>> attributes;
};

// The `loop` variable of a for statement. `index` counts from 0 and is moved on by the loop.
struct LoopObject : Object {
  std::vector<Value> items;
  size_t index = 0;
  int depth = 1;
};

// What a filter, test, method, macro or function is called with.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

struct FunctionObject : Object {
  std::string name;
  int depth = 1;
  std::function<Value(JinjaContext&, const Arguments&)> call;
};

inline const std::string& Value::text() const {
  return static_cast<const StringObject&>(*object_).text;
}
inline const SequenceObject& Value::sequence() const {
  return static_cast<const SequenceObject&>(*object_);
}
inline const DictObject& Value::dict() const { return static_cast<const DictObject&>(*object_); }
inline const IteratorObject& Value::iterator() const {
  return static_cast<const IteratorObject&>(*object_);
}
inline const LoopObject& Value::loop() const { return static_cast<const LoopObject&>(*object_); }
inline const FunctionObject& Value::function() const {
  return static_cast<const FunctionObject&>(*object_);
}
inline NamespaceObject* Value::space() const {
  return static_cast<NamespaceObject*>(const_cast<Object*>(object_.get()));
}

// `a == b` of Python, also across types.
bool ValuesEqual(const Value& a, const Value& b);
// Whether a < b. Throws JinjaError for types that Python does not order.
bool ValueLess(const Value& a, const Value& b);

}  // namespace longspan::text
