// Errors as clients of OpenAI's interface expect them.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "server/http_message.h"
#include "server/json.h"

namespace longspan::server {

// {"message", "type", "param", "code"}; an empty param is null, and an empty code
// the status' own.
Json ErrorJson(int http_status, std::string_view message, std::string_view param = {},
               std::string_view code = {});

// {"error": ErrorJson}, with Retry-After for 429 and 503.
HttpResponse ErrorResponse(int http_status, std::string_view message, std::string_view param = {},
                           std::string_view code = {});

// 400 for what the client can change, 429 for a full queue, 503 for a server that is not there, 500
// for the rest.
int HttpStatusOf(const base::Status& status);

}  // namespace longspan::server
