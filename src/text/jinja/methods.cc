#include "text/jinja/methods.h"

#include <algorithm>
#include <initializer_list>

#include "text/jinja/arguments.h"
#include "text/jinja/error.h"
#include "text/jinja/items.h"
#include "text/jinja/string_methods.h"

namespace longspan::text {
namespace {

using Names = std::initializer_list<std::string_view>;
using BoundCall = std::function<Value(JinjaContext&, const Arguments&)>;

bool IsOneOf(std::string_view name, Names names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Attributes that Python has and templates could ask for. A name that is not here does not exist
// for Python either, and is undefined as there.
[[noreturn]] void FailMissing(const Value& value, std::string_view name) {
  FailUnimplemented("the attribute '{}' of {} is not supported in chat templates", name,
                    value.Described());
}

Value Method(std::string_view name, const Value& self, BoundCall call) {
  return Value::Function(std::string(name), std::move(call), 1 + self.Depth());
}

std::optional<Value> StringAttribute(const Value& self, std::string_view name) {
  if (const StringMethod method = FindStringMethod(name)) {
    const bool takes_names = name == "split" || name == "rsplit";
    return Method(
        name, self, [self, method, takes_names](JinjaContext& context, const Arguments& arguments) {
          if (!arguments.named.empty() && !takes_names)
            FailInvalid("this method of str takes no named arguments");
          return method(context, RequireString(self, "what a method is called on"), arguments);
        });
  }
  if (IsOneOf(name, {"casefold",   "center",    "encode",      "expandtabs", "format",
                     "format_map", "isalnum",   "isascii",     "isdecimal",  "isidentifier",
                     "islower",    "isnumeric", "isprintable", "istitle",    "isupper",
                     "ljust",      "maketrans", "partition",   "rindex",     "rjust",
                     "rpartition", "swapcase",  "title",       "translate",  "zfill"}))
    FailMissing(self, name);
  return std::nullopt;
}

Value Pairs(JinjaContext& context, const Value& dict) {
  std::vector<Value> pairs;
  pairs.reserve(dict.dict().entries.size());
  for (const auto& [key, value] : dict.dict().entries)
    pairs.push_back(context.Sequence(ValueKind::kTuple, {key, value}));
  return context.Sequence(ValueKind::kView, std::move(pairs));
}

Value Column(JinjaContext& context, const Value& dict, bool keys) {
  std::vector<Value> column;
  column.reserve(dict.dict().entries.size());
  for (const auto& [key, value] : dict.dict().entries) column.push_back(keys ? key : value);
  return context.Sequence(ValueKind::kView, std::move(column));
}

std::optional<Value> DictAttribute(const Value& self, std::string_view name) {
  if (name == "items" || name == "keys" || name == "values") {
    return Method(
        name, self,
        [self, name = std::string(name)](JinjaContext& context, const Arguments& arguments) {
          const BoundArguments bound(name, arguments, {});
          return name == "items" ? Pairs(context, self) : Column(context, self, name == "keys");
        });
  }
  if (name == "get") {
    return Method(name, self, [self](JinjaContext&, const Arguments& arguments) {
      if (!arguments.named.empty()) FailInvalid("'get' takes no named arguments");
      const BoundArguments bound("get", arguments, {"key", "default"}, 1);
      const Value* found = self.dict().Find(bound.At(0));
      return found != nullptr ? *found : bound.Has(1) ? bound.At(1) : Value::None();
    });
  }
  if (name == "copy") {
    return Method(name, self, [self](JinjaContext&, const Arguments&) { return self; });
  }
  if (name == "fromkeys") FailMissing(self, name);
  return std::nullopt;
}

std::optional<Value> SequenceAttribute(const Value& self, std::string_view name) {
  if (name == "index" || name == "count") {
    return Method(
        name, self,
        [self, counts = name == "count"](JinjaContext& context, const Arguments& arguments) {
          const BoundArguments bound(counts ? "count" : "index", arguments, {"value"}, 1);
          context.CountBytes(self.Weight());
          const auto& items = self.sequence().items;
          const auto equal = [&](const Value& item) { return ValuesEqual(item, bound.At(0)); };
          if (counts) return Value::Int(std::count_if(items.begin(), items.end(), equal));
          const auto found = std::find_if(items.begin(), items.end(), equal);
          if (found == items.end()) FailInvalid("'index' does not find its value");
          return Value::Int(found - items.begin());
        });
  }
  if (name == "copy" && self.Is(ValueKind::kList))
    return Method(name, self, [self](JinjaContext&, const Arguments&) { return self; });
  return std::nullopt;
}

std::optional<Value> LoopAttribute(const Value& self, std::string_view name) {
  const LoopObject& loop = self.loop();
  const auto index = static_cast<Integer>(loop.index);
  const auto count = static_cast<Integer>(loop.items.size());
  if (name == "index") return Value::Int(index + 1);
  if (name == "index0") return Value::Int(index);
  if (name == "revindex") return Value::Int(count - index);
  if (name == "revindex0") return Value::Int(count - index - 1);
  if (name == "first") return Value::Bool(index == 0);
  if (name == "last") return Value::Bool(index + 1 == count);
  if (name == "length") return Value::Int(count);
  if (name == "depth") return Value::Int(1);
  if (name == "depth0") return Value::Int(0);
  if (name == "previtem")
    return index > 0 ? loop.items[loop.index - 1] : Value::Undefined("there is no previous item");
  if (name == "nextitem")
    return index + 1 < count ? loop.items[loop.index + 1]
                             : Value::Undefined("there is no next item");
  if (name == "cycle") {
    return Method(name, self, [self](JinjaContext&, const Arguments& arguments) {
      if (arguments.positional.empty() || !arguments.named.empty())
        FailInvalid("'loop.cycle' needs values to cycle through");
      return arguments.positional[self.loop().index % arguments.positional.size()];
    });
  }
  if (name == "changed") FailMissing(self, name);
  return std::nullopt;
}

}  // namespace

std::optional<Value> FindAttribute(const Value& value, std::string_view name) {
  // Python's own attributes are closed to templates by the sandbox.
  if (name.size() > 4 && name.substr(0, 2) == "__" && name.substr(name.size() - 2) == "__")
    FailUnimplemented("the attribute '{}'", name);
  switch (value.kind()) {
    case ValueKind::kString:
      return StringAttribute(value, name);
    case ValueKind::kDict:
      return DictAttribute(value, name);
    case ValueKind::kList:
    case ValueKind::kTuple:
      return SequenceAttribute(value, name);
    case ValueKind::kLoop:
      return LoopAttribute(value, name);
    case ValueKind::kNamespace:
      if (const Value* found = value.space()->Find(name)) return *found;
      return std::nullopt;
    case ValueKind::kBool:
    case ValueKind::kInteger:
    case ValueKind::kFloat:
      if (IsOneOf(name, {"real", "imag", "numerator", "denominator", "bit_length", "bit_count",
                         "conjugate", "as_integer_ratio", "to_bytes", "from_bytes", "is_integer",
                         "hex", "fromhex"}))
        FailMissing(value, name);
      return std::nullopt;
    case ValueKind::kFunction:
    case ValueKind::kView:
    case ValueKind::kIterator:
      FailMissing(value, name);
    default:
      return std::nullopt;
  }
}

}  // namespace longspan::text
