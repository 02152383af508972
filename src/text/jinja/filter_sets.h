// The filters by what they work on; FindFilter looks through all of them.
#pragma once

#include <span>

#include "text/jinja/filters.h"

namespace longspan::text {

std::span<const JinjaFilter> TextFilters();      // upper, trim, replace, tojson...
std::span<const JinjaFilter> NumberFilters();    // int, round, default, length...
std::span<const JinjaFilter> SequenceFilters();  // join, list, map, selectattr, sort...
std::span<const JinjaTest> Tests();

}  // namespace longspan::text
