// Filters on numbers and on values of any type.

#include <cmath>
#include <cstdlib>

#include "text/jinja/arguments.h"
#include "text/jinja/error.h"
#include "text/jinja/filter_sets.h"
#include "text/jinja/items.h"
#include "text/jinja/operators.h"
#include "text/jinja/text.h"

namespace longspan::text {
namespace {

Value Default(JinjaContext&, const Value& value, const Arguments& arguments) {
  const BoundArguments bound("default", arguments, {"default_value", "boolean"});
  if (!value.is_undefined() && !(bound.Flag(1) && !value.Truthy())) return value;
  return bound.Has(0) ? bound.At(0) : Value::String("");
}

Value LengthFilter(JinjaContext& context, const Value& value, const Arguments& arguments) {
  const BoundArguments bound("length", arguments, {});
  return Value::Int(Length(context, value));
}

Integer Truncate(double value) {
  if (std::abs(value) >= 1e38) FailUnimplemented("integers beyond 128 bits");
  return static_cast<Integer>(value);
}

Value Int(JinjaContext&, const Value& value, const Arguments& arguments) {
  const BoundArguments bound("int", arguments, {"default", "base"});
  RequireDefined(value);
  if (value.is_integral()) return Value::Int(value.integer());
  std::optional<double> number;
  if (value.Is(ValueKind::kFloat)) number = value.AsDouble();
  if (value.is_string()) {
    const std::string& text = RequireString(value, "what 'int' reads");
    const Integer base = bound.Number(1).value_or(10);
    if (base < 2 || base > 36) FailUnimplemented("'int' with this base");
    if (const auto integer = ParseInteger(text, static_cast<int>(base)))
      return Value::Int(*integer);
    number = ParseFloat(text);
  }
  if (number.has_value() && std::isfinite(*number)) return Value::Int(Truncate(*number));
  return bound.Has(0) ? bound.At(0) : Value::Int(0);
}

Value Float(JinjaContext&, const Value& value, const Arguments& arguments) {
  const BoundArguments bound("float", arguments, {"default"});
  RequireDefined(value);
  if (value.is_number()) return Value::Float(value.AsDouble());
  if (value.is_string())
    if (const auto number = ParseFloat(value.text())) return Value::Float(*number);
  return bound.Has(0) ? bound.At(0) : Value::Float(0);
}

Value Abs(JinjaContext&, const Value& value, const Arguments& arguments) {
  const BoundArguments bound("abs", arguments, {});
  RequireDefined(value);
  if (value.Is(ValueKind::kFloat)) return Value::Float(std::abs(value.AsDouble()));
  const Integer number = RequireInteger(value, "what 'abs' is applied to");
  return number < 0 ? Negate(value) : Value::Int(number);
}

// Python's round(value, precision): the decimal nearest to the exact value, ties to even.
double RoundToDecimals(double value, Integer precision) {
  if (!std::isfinite(value)) return value;
  return std::strtod(fmt::format("{:.{}f}", value, static_cast<int>(precision)).c_str(), nullptr);
}

Value Round(JinjaContext& context, const Value& value, const Arguments& arguments) {
  const BoundArguments bound("round", arguments, {"precision", "method"});
  RequireDefined(value);
  if (!value.is_number()) FailInvalid("'round' does not work on {}", value.TypeName());
  const Integer precision = bound.Number(0).value_or(0);
  const std::string_view method = bound.Text(1).value_or("common");
  context.CountBytes(20000);  // the digits of a number, exactly
  if (precision < 0 || precision > 300) FailUnimplemented("'round' with this precision");
  if (method == "common")
    return value.is_integral() ? Value::Int(value.integer())
                               : Value::Float(RoundToDecimals(value.AsDouble(), precision));
  if (method != "ceil" && method != "floor")
    FailInvalid("'round' knows the methods common, ceil and floor");
  const double scale = std::pow(10.0, static_cast<double>(precision));
  const double scaled = value.AsDouble() * scale;
  if (!std::isfinite(scaled)) FailInvalid("'round' of a number that is not finite");
  const double whole = method == "ceil" ? std::ceil(scaled) : std::floor(scaled);
  return Value::Float(whole / scale + 0.0);
}

constexpr JinjaFilter kFilters[] = {
    {"abs", Abs},
    {"count", LengthFilter},
    {"d", Default},
    {"default", Default},
    {"float", Float},
    {"int", Int},
    {"length", LengthFilter},
    {"round", Round},
};

}  // namespace

std::span<const JinjaFilter> NumberFilters() { return kFilters; }

}  // namespace longspan::text
