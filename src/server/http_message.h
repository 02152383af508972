// One HTTP request and one response, as values.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace longspan::server {

struct HttpRequest {
  std::string method;                                        // in capitals
  std::string path;                                          // without the query
  std::string query;                                         // behind the question mark
  std::vector<std::pair<std::string, std::string>> headers;  // names in lower case
  std::string body;
  int64_t body_bytes = 0;       // also after the body was taken
  std::shared_ptr<void> lease;  // of the memory for the body

  bool HasHeader(std::string_view name) const {
    return std::any_of(headers.begin(), headers.end(),
                       [&](const auto& header) { return header.first == name; });
  }
  // The first header of that name (in lower case); empty where there is none.
  std::string_view Header(std::string_view name) const {
    const auto found = std::find_if(headers.begin(), headers.end(),
                                    [&](const auto& header) { return header.first == name; });
    return found == headers.end() ? std::string_view{} : std::string_view(found->second);
  }

  // Whether the body may be read as JSON: by its Content-Type, or where nothing speaks against it -
  // without that header, and for a form without an Origin, which is curl's -d. A page of another
  // site can have a browser send forms and texts without asking this server first.
  bool MayBeJson() const;
  // False for what a browser sends for a page of another site: the Origin is not the Host.
  bool IsOfThisSite() const;
};

struct HttpResponse {
  int status = 200;
  std::string body;
  std::string content_type = "application/json";
  std::vector<std::pair<std::string, std::string>> headers;
};

// "Not Found" for 404.
std::string_view ReasonPhrase(int status);

// The value of `name` in a query string, with %XX and + decoded; empty where it is not given.
std::string QueryValue(std::string_view query, std::string_view name);

}  // namespace longspan::server
