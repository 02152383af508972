// The description of the endpoints (OpenAPI 3.1).
#pragma once

#include <string>

#include "server/json.h"

namespace longspan::server {

Json OpenApiDocument(const std::string& version);

}  // namespace longspan::server
