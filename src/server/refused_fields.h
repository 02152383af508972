// Members of requests that other servers know and this one does not: each is refused by its name
// where it would change the result, and listed so in the description.
#pragma once

#include <span>

#include "server/fields.h"

namespace longspan::server {

struct RefusedField {
  const char* name;
  const char* neutral = "null";  // JSON that passes besides null and what is empty
};

std::span<const RefusedField> RefusedOfOpenAi();  // of both of its endpoints
std::span<const RefusedField> RefusedOfCompletions();
std::span<const RefusedField> RefusedOfChat();
std::span<const RefusedField> RefusedOfGenerate();
std::span<const RefusedField> RefusedOfSamplingParams();  // of /generate

void RefuseAll(std::span<const RefusedField> refused, Fields& fields);

}  // namespace longspan::server
