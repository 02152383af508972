// Filters that walk over values.

#include <algorithm>
#include <cmath>

#include "text/jinja/arguments.h"
#include "text/jinja/error.h"
#include "text/jinja/filter_sets.h"
#include "text/jinja/items.h"
#include "text/jinja/operators.h"
#include "text/jinja/print.h"
#include "text/jinja/text.h"

namespace longspan::text {
namespace {

bool IsDigits(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

// item.a.b for the attribute "a.b", item[1] for 1 and for "1".
Value Lookup(JinjaContext& context, const Value& item, const Value& attribute) {
  if (attribute.is_none()) return item;
  if (attribute.is_integral()) return GetItem(context, item, attribute);
  std::string_view path = RequireString(attribute, "the name of an attribute");
  Value found = item;
  while (true) {
    const size_t dot = path.find('.');
    const std::string_view part = path.substr(0, dot);
    const auto index = IsDigits(part) ? ParseInteger(part, 10) : std::nullopt;
    found = GetItem(context, found,
                    index.has_value() ? Value::Int(*index) : context.String(std::string(part)));
    if (dot == std::string_view::npos) return found;
    path.remove_prefix(dot + 1);
  }
}

Value Join(JinjaContext& context, const Value& value, const Arguments& arguments) {
  const BoundArguments bound("join", arguments, {"d", "attribute"});
  const std::string separator = bound.Has(0) ? ToText(context, bound.At(0)) : "";
  std::string joined;
  bool first = true;
  for (const Value& item : Iterate(context, value)) {
    if (!first) joined += separator;
    joined += ToText(context, bound.Has(1) ? Lookup(context, item, bound.At(1)) : item);
    context.CheckSize(1, joined.size());
    first = false;
  }
  return context.String(std::move(joined));
}

Value First(JinjaContext& context, const Value& value, const Arguments& arguments) {
  const BoundArguments bound("first", arguments, {});
  std::vector<Value> items = Iterate(context, value);
  return items.empty() ? Value::Undefined("the first item of an empty sequence") : items.front();
}

Value Last(JinjaContext& context, const Value& value, const Arguments& arguments) {
  const BoundArguments bound("last", arguments, {});
  if (value.Is(ValueKind::kIterator)) FailInvalid("a generator has no last item: add |list");
  std::vector<Value> items = Iterate(context, value);
  return items.empty() ? Value::Undefined("the last item of an empty sequence") : items.back();
}

Value List(JinjaContext& context, const Value& value, const Arguments& arguments) {
  const BoundArguments bound("list", arguments, {});
  return context.List(Iterate(context, value));
}

Value Reverse(JinjaContext& context, const Value& value, const Arguments& arguments) {
  const BoundArguments bound("reverse", arguments, {});
  RequireDefined(value);
  if (value.is_string()) {
    const Value step = Value::Int(-1);
    return GetSlice(context, value, nullptr, nullptr, &step);
  }
  std::vector<Value> items = Iterate(context, value);
  std::reverse(items.begin(), items.end());
  return value.Is(ValueKind::kIterator) ? context.List(std::move(items))
                                        : context.Iterator(std::move(items));
}

Value Items(JinjaContext& context, const Value& value, const Arguments& arguments) {
  const BoundArguments bound("items", arguments, {});
  std::vector<Value> pairs;
  if (!value.is_undefined()) {
    if (!value.Is(ValueKind::kDict)) FailInvalid("'items' of {}, not a dict", value.Described());
    for (const auto& [key, entry] : value.dict().entries)
      pairs.push_back(context.Sequence(ValueKind::kTuple, {key, entry}));
  }
  return context.Iterator(std::move(pairs));
}

// map("upper") and map(attribute="name", default=...).
Value Map(JinjaContext& context, const Value& value, const Arguments& arguments) {
  std::vector<Value> mapped;
  if (arguments.positional.empty()) {
    const BoundArguments bound("map", arguments, {"attribute", "default"}, 1);
    for (const Value& item : Iterate(context, value)) {
      context.CountStep();
      const Value found = Lookup(context, item, bound.At(0));
      const bool falls_back = found.is_undefined() && bound.Has(1) && !bound.At(1).is_none();
      mapped.push_back(falls_back ? bound.At(1) : found);
    }
    return context.Iterator(std::move(mapped));
  }
  const JinjaFilter& filter =
      RequireFilter(RequireString(arguments.positional[0], "the filter of 'map'"));
  Arguments rest = arguments;
  rest.positional.erase(rest.positional.begin());
  for (const Value& item : Iterate(context, value)) {
    context.CountStep();
    const JinjaDepthGuard guard(context);
    mapped.push_back(filter.apply(context, item, rest));
  }
  return context.Iterator(std::move(mapped));
}

// select and reject, of the items or of an attribute of them, by a test or by truth.
Value SelectWith(JinjaContext& context, const Value& value, const Arguments& arguments,
                 bool by_attribute, bool keep) {
  const size_t skipped = by_attribute ? 1 : 0;
  if (arguments.positional.size() < skipped) FailInvalid("'selectattr' needs an attribute");
  const JinjaTest* test = nullptr;
  Arguments rest;
  if (arguments.positional.size() > skipped) {
    test = &RequireTest(RequireString(arguments.positional[skipped], "the test of 'select'"));
    rest.positional.assign(arguments.positional.begin() + static_cast<std::ptrdiff_t>(skipped) + 1,
                           arguments.positional.end());
    rest.named = arguments.named;
  }
  std::vector<Value> selected;
  for (const Value& item : Iterate(context, value)) {
    context.CountStep();
    const Value subject = by_attribute ? Lookup(context, item, arguments.positional[0]) : item;
    const bool holds = test != nullptr ? test->holds(context, subject, rest) : subject.Truthy();
    if (holds == keep) selected.push_back(item);
  }
  return context.Iterator(std::move(selected));
}

Value Select(JinjaContext& context, const Value& value, const Arguments& arguments) {
  return SelectWith(context, value, arguments, false, true);
}
Value Reject(JinjaContext& context, const Value& value, const Arguments& arguments) {
  return SelectWith(context, value, arguments, false, false);
}
Value SelectAttribute(JinjaContext& context, const Value& value, const Arguments& arguments) {
  return SelectWith(context, value, arguments, true, true);
}
Value RejectAttribute(JinjaContext& context, const Value& value, const Arguments& arguments) {
  return SelectWith(context, value, arguments, true, false);
}

// A value with what it is compared by.
struct Keyed {
  Value key;
  Value value;
};

Value FoldCase(JinjaContext& context, const Value& value, bool case_sensitive) {
  if (case_sensitive || !value.is_string()) return value;
  return context.String(ToLower(RequireString(value, "what is compared")));
}

std::vector<Keyed> WithKeys(JinjaContext& context, const Value& value, const Value* attribute,
                            bool case_sensitive) {
  if (attribute != nullptr && attribute->is_string() &&
      attribute->text().find(',') != std::string::npos)
    FailUnimplemented("a filter by several attributes");
  std::vector<Keyed> keyed;
  for (Value& item : Iterate(context, value)) {
    const Value key = attribute != nullptr ? Lookup(context, item, *attribute) : item;
    keyed.push_back({FoldCase(context, key, case_sensitive), std::move(item)});
  }
  return keyed;
}

// Keys that a sort may compare with each other in any order: all numbers, or all strings.
void RequireOrdered(const std::vector<Keyed>& keyed) {
  if (keyed.size() < 2) return;
  for (const Keyed& entry : keyed) {
    RequireDefined(entry.key);
    const bool is_nan = entry.key.Is(ValueKind::kFloat) && std::isnan(entry.key.AsDouble());
    const bool fits = keyed.front().key.is_number()
                          ? entry.key.is_number() && !is_nan
                          : entry.key.is_string() && keyed.front().key.is_string();
    if (!fits)
      FailInvalid("{} and {} have no order", keyed.front().key.TypeName(), entry.key.TypeName());
  }
}

std::vector<Keyed> Sorted(JinjaContext& context, std::vector<Keyed> keyed, bool reverse) {
  RequireOrdered(keyed);
  std::stable_sort(keyed.begin(), keyed.end(), [&](const Keyed& a, const Keyed& b) {
    context.CountBytes(std::min(a.key.Weight(), b.key.Weight()));
    return reverse ? ValueLess(b.key, a.key) : ValueLess(a.key, b.key);
  });
  return keyed;
}

Value ValuesOf(JinjaContext& context, std::vector<Keyed> keyed) {
  std::vector<Value> values;
  values.reserve(keyed.size());
  for (Keyed& entry : keyed) values.push_back(std::move(entry.value));
  return context.List(std::move(values));
}

Value Sort(JinjaContext& context, const Value& value, const Arguments& arguments) {
  const BoundArguments bound("sort", arguments, {"reverse", "case_sensitive", "attribute"});
  return ValuesOf(context, Sorted(context, WithKeys(context, value, bound.Get(2), bound.Flag(1)),
                                  bound.Flag(0)));
}

Value DictSort(JinjaContext& context, const Value& value, const Arguments& arguments) {
  const BoundArguments bound("dictsort", arguments, {"case_sensitive", "by", "reverse"});
  const std::string_view by = bound.Text(1).value_or("key");
  if (by != "key" && by != "value") FailInvalid("'dictsort' sorts by key or by value");
  RequireDefined(value);
  if (!value.Is(ValueKind::kDict)) FailInvalid("'dictsort' of {}, not a dict", value.Described());
  std::vector<Keyed> keyed;
  for (const auto& [key, entry] : value.dict().entries)
    keyed.push_back({FoldCase(context, by == "key" ? key : entry, bound.Flag(0)),
                     context.Sequence(ValueKind::kTuple, {key, entry})});
  return ValuesOf(context, Sorted(context, std::move(keyed), bound.Flag(2)));
}

Value Unique(JinjaContext& context, const Value& value, const Arguments& arguments) {
  const BoundArguments bound("unique", arguments, {"case_sensitive", "attribute"});
  std::vector<Value> seen;
  std::vector<Value> unique;
  for (Keyed& entry : WithKeys(context, value, bound.Get(1), bound.Flag(0))) {
    if (entry.key.is_sequence() || entry.key.Is(ValueKind::kDict))
      FailUnimplemented("'unique' of lists and dicts");
    context.CountBytes(seen.size() * sizeof(Value) + entry.key.Weight());
    const auto equal = [&](const Value& other) { return ValuesEqual(entry.key, other); };
    if (std::any_of(seen.begin(), seen.end(), equal)) continue;
    seen.push_back(std::move(entry.key));
    unique.push_back(std::move(entry.value));
  }
  return context.Iterator(std::move(unique));
}

Value Extreme(JinjaContext& context, const Value& value, const Arguments& arguments,
              std::string_view name) {
  const BoundArguments bound(name, arguments, {"case_sensitive", "attribute"});
  // The first of equal ones, which a stable sort keeps in front in both directions.
  std::vector<Keyed> sorted =
      Sorted(context, WithKeys(context, value, bound.Get(1), bound.Flag(0)), name == "max");
  return sorted.empty() ? Value::Undefined("the extreme of an empty sequence")
                        : std::move(sorted.front().value);
}

Value Min(JinjaContext& context, const Value& value, const Arguments& arguments) {
  return Extreme(context, value, arguments, "min");
}
Value Max(JinjaContext& context, const Value& value, const Arguments& arguments) {
  return Extreme(context, value, arguments, "max");
}

Value Sum(JinjaContext& context, const Value& value, const Arguments& arguments) {
  const BoundArguments bound("sum", arguments, {"attribute", "start"});
  Value total = bound.Has(1) ? bound.At(1) : Value::Int(0);
  for (const Value& item : Iterate(context, value)) {
    const Value term = bound.Has(0) ? Lookup(context, item, bound.At(0)) : item;
    if (term.is_string() || total.is_string()) FailInvalid("'sum' does not work on str: use join");
    total = Arithmetic(context, "+", total, term);
  }
  return total;
}

constexpr JinjaFilter kFilters[] = {
    {"dictsort", DictSort},
    {"first", First},
    {"items", Items},
    {"join", Join},
    {"last", Last},
    {"list", List},
    {"map", Map},
    {"max", Max},
    {"min", Min},
    {"reject", Reject},
    {"rejectattr", RejectAttribute},
    {"reverse", Reverse},
    {"select", Select},
    {"selectattr", SelectAttribute},
    {"sort", Sort},
    {"sum", Sum},
    {"unique", Unique},
};

}  // namespace

std::span<const JinjaFilter> SequenceFilters() { return kFilters; }

}  // namespace longspan::text
