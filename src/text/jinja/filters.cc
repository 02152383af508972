#include "text/jinja/filters.h"

#include <algorithm>

#include "text/jinja/error.h"
#include "text/jinja/filter_sets.h"

namespace longspan::text {
namespace {

constexpr std::string_view kOtherFilters[] = {
    "attr",   "batch",     "center",   "filesizeformat", "forceescape", "groupby",
    "pprint", "random",    "slice",    "striptags",      "truncate",    "urlencode",
    "urlize", "wordcount", "wordwrap", "xmlattr",
};
constexpr std::string_view kOtherTests[] = {"escaped"};

template <typename Entry>
const Entry* FindIn(std::span<const Entry> entries, std::string_view name) {
  const auto found = std::find_if(entries.begin(), entries.end(),
                                  [&](const Entry& entry) { return entry.name == name; });
  return found == entries.end() ? nullptr : &*found;
}

template <size_t n>
bool IsListed(const std::string_view (&names)[n], std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

}  // namespace

const JinjaFilter* FindFilter(std::string_view name) {
  for (const auto set : {TextFilters(), NumberFilters(), SequenceFilters()})
    if (const JinjaFilter* filter = FindIn(set, name)) return filter;
  return nullptr;
}

const JinjaTest* FindTest(std::string_view name) { return FindIn(Tests(), name); }

const JinjaFilter& RequireFilter(std::string_view name) {
  if (const JinjaFilter* filter = FindFilter(name)) return *filter;
  if (IsListed(kOtherFilters, name))
    FailUnimplemented("the filter '{}' is not supported in chat templates", name);
  FailInvalid("there is no filter '{}'", name);
}

const JinjaTest& RequireTest(std::string_view name) {
  if (const JinjaTest* test = FindTest(name)) return *test;
  if (IsListed(kOtherTests, name))
    FailUnimplemented("the test '{}' is not supported in chat templates", name);
  FailInvalid("there is no test '{}'", name);
}

}  // namespace longspan::text
