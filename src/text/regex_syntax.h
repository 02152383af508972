// From Oniguruma's syntax to PCRE2's.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace longspan::text {

// The PCRE2 expression (flags UTF, UCP and MULTILINE) with the meaning that Oniguruma gives to
// `pattern` in its Ruby syntax: \s, \w and \h are other sets of characters there, \v is one
// character, and script names mean the script, not its extensions. Unimplemented, naming the
// construct, for what has no simple equal.
base::Result<std::string> OnigurumaToPcre2(std::string_view pattern);

}  // namespace longspan::text
