// Normalization form C (Unicode standard annex 15).
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace longspan::text {

// The normalization form C of a text (valid UTF-8, less than 2 GiB); nothing where that is the text
// itself. Time grows as n log n at worst.
base::Result<std::optional<std::string>> ToNfc(std::string_view text);

}  // namespace longspan::text
