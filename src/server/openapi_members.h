// The members of requests, as the description lists them.
#pragma once

#include "server/json.h"

namespace longspan::server {

// By name: CompletionRequest, ChatCompletionRequest, GenerateRequest, TokenizeRequest,
// DetokenizeRequest, AbortRequest. A member that is only refused has "x-unsupported": true.
Json RequestSchemas();

}  // namespace longspan::server
