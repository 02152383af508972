#include "text/jinja/functions.h"

#include <array>
#include <ctime>

#include "text/jinja/arguments.h"
#include "text/jinja/error.h"
#include "text/jinja/items.h"
#include "text/jinja/print.h"

namespace longspan::text {
namespace {

Value Range(JinjaContext& context, const Arguments& arguments) {
  const BoundArguments bound("range", arguments, {"start", "stop", "step"}, 1);
  const bool only_stop = !bound.Has(1);
  const Integer start = only_stop ? 0 : RequireInteger(bound.At(0), "the start of 'range'");
  const Integer stop = RequireInteger(bound.At(only_stop ? 0 : 1), "the stop of 'range'");
  const Integer step = bound.Has(2) ? RequireInteger(bound.At(2), "the step of 'range'") : 1;
  if (step == 0) FailInvalid("the step of 'range' is 0");
  std::vector<Value> items;
  for (Integer at = start; step > 0 ? at < stop : at > stop;) {
    items.push_back(Value::Int(at));
    if (static_cast<Integer>(items.size()) > kMaxRange)
      FailExhausted("'range' of more than {} numbers", kMaxRange);
    if (__builtin_add_overflow(at, step, &at)) break;
  }
  return context.Sequence(ValueKind::kView, std::move(items));
}

Value MakeDict(JinjaContext& context, const Arguments& arguments) {
  std::vector<std::pair<Value, Value>> entries;
  if (arguments.positional.size() > 1) FailInvalid("'dict' takes at most one positional argument");
  if (!arguments.positional.empty()) {
    if (!arguments.positional[0].Is(ValueKind::kDict)) FailUnimplemented("'dict' of no dict");
    entries = arguments.positional[0].dict().entries;
  }
  for (const auto& [name, value] : arguments.named)
    entries.emplace_back(context.String(name), value);
  return context.Dict(std::move(entries));
}

Value MakeNamespace(JinjaContext& context, const Arguments& arguments) {
  const Value initial = MakeDict(context, arguments);
  NamespaceObject* space = context.NewNamespace();
  for (const auto& [key, value] : initial.dict().entries)
    space->attributes.emplace_back(RequireString(key, "a name in 'namespace'"), value);
  return Value::Namespace(space);
}

Value RaiseException(JinjaContext& context, const Arguments& arguments) {
  const BoundArguments bound("raise_exception", arguments, {"message"}, 1);
  throw JinjaError{base::StatusCode::kInvalidArgument, ToText(context, bound.At(0)), 0, true};
}

Value StrftimeNow(JinjaContext& context, const Arguments& arguments) {
  const BoundArguments bound("strftime_now", arguments, {"format"}, 1);
  const std::string& format = RequireString(bound.At(0), "the format of 'strftime_now'");
  if (format.empty()) return context.String("");
  const std::time_t now = std::time(nullptr);
  std::tm local = {};
  localtime_r(&now, &local);
  std::array<char, 1024> buffer;
  const size_t size = std::strftime(buffer.data(), buffer.size(), format.c_str(), &local);
  if (size == 0) FailInvalid("'strftime_now' of an empty or too long result");
  return context.String(std::string(buffer.data(), size));
}

}  // namespace

std::optional<Value> FindFunction(std::string_view name) {
  const auto make = [&](Value (*call)(JinjaContext&, const Arguments&)) {
    return Value::Function(std::string(name), call, 1);
  };
  if (name == "range") return make(Range);
  if (name == "dict") return make(MakeDict);
  if (name == "namespace") return make(MakeNamespace);
  if (name == "raise_exception") return make(RaiseException);
  if (name == "strftime_now") return make(StrftimeNow);
  if (name == "cycler" || name == "joiner" || name == "lipsum" || name == "self" || name == "super")
    FailUnimplemented("'{}' is not supported in chat templates", name);
  return std::nullopt;
}

}  // namespace longspan::text
