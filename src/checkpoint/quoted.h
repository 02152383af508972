// Names from a file in messages for the user.
#pragma once

#include <string>
#include <string_view>

namespace longspan::checkpoint {

// 'name', fit for one line: control characters become '?', and what is long ends in "...".
std::string Quoted(std::string_view name);

}  // namespace longspan::checkpoint
