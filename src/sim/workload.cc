#include "sim/workload.h"

#include <algorithm>

#include <simdjson.h>

#include "checkpoint/json_object.h"

namespace longspan::sim {
namespace {

namespace dom = simdjson::dom;

constexpr int64_t kMostTokens = int64_t{1} << 30;

base::Status ReadCount(const dom::object& object, const char* key, int64_t least, int64_t& value) {
  dom::element element;
  if (object.at_key(key).get(element) != simdjson::SUCCESS) return base::OkStatus();
  if (element.get<int64_t>().get(value) != simdjson::SUCCESS || value < least ||
      value > kMostTokens)
    return base::InvalidArgument("'{}' must be an integer from {} to {}, not {}", key, least,
                                 kMostTokens, checkpoint::DescribeJson(element));
  return base::OkStatus();
}

base::Result<SimRequest> ReadRequest(dom::element element) {
  dom::object object;
  if (element.get<dom::object>().get(object) != simdjson::SUCCESS)
    return base::InvalidArgument("must be an object, not {}", checkpoint::DescribeJson(element));
  SimRequest request;
  dom::element at;
  if (object.at_key("at_s").get(at) == simdjson::SUCCESS &&
      (at.get<double>().get(request.at_s) != simdjson::SUCCESS || !(request.at_s >= 0)))
    return base::InvalidArgument("'at_s' must be 0 or more seconds, not {}",
                                 checkpoint::DescribeJson(at));
  LONGSPAN_RETURN_IF_ERROR(ReadCount(object, "prompt_tokens", 1, request.prompt_tokens));
  if (request.prompt_tokens == 0) return base::InvalidArgument("'prompt_tokens' is missing");
  LONGSPAN_RETURN_IF_ERROR(ReadCount(object, "output_tokens", 0, request.output_tokens));
  LONGSPAN_RETURN_IF_ERROR(ReadCount(object, "prefix_id", 0, request.prefix_id));
  LONGSPAN_RETURN_IF_ERROR(ReadCount(object, "prefix_tokens", 0, request.prefix_tokens));
  if (request.prefix_tokens > request.prompt_tokens)
    return base::InvalidArgument("'prefix_tokens' {} is more than 'prompt_tokens' {}",
                                 request.prefix_tokens, request.prompt_tokens);
  return request;
}

}  // namespace

base::Result<Workload> ParseWorkload(std::string_view json, const std::string& where) {
  LONGSPAN_ASSIGN_OR_RETURN(const auto file, checkpoint::ParseJsonObject(json, where));
  dom::array requests;
  if (file.members.at_key("requests").get(requests) != simdjson::SUCCESS)
    return base::InvalidArgument("{}: 'requests' must be a list of requests", where);
  Workload workload;
  for (const dom::element element : requests) {
    auto request = ReadRequest(element);
    if (!request.ok())
      return request.status().WithContext(
          fmt::format("{}: request {}", where, workload.size() + 1));
    workload.push_back(*request);
  }
  if (workload.empty()) return base::InvalidArgument("{}: 'requests' is empty", where);
  std::stable_sort(workload.begin(), workload.end(),
                   [](const SimRequest& a, const SimRequest& b) { return a.at_s < b.at_s; });
  return workload;
}

}  // namespace longspan::sim
