// The description against the handlers, both ways.
#include "server/openapi.h"

#include <map>
#include <memory>
#include <set>

#include <gtest/gtest.h>

#include "server/call.h"
#include "server/fields.h"
#include "server/service.h"

namespace longspan::server {
namespace {

// By path, as FieldsWatch tells them.
void AddMembers(const Json& schema, const std::string& path, std::map<std::string, bool>& members) {
  for (const auto& [name, property] : schema["properties"].items()) {
    members[path + name] = property.contains("x-unsupported");
    EXPECT_TRUE(property.contains("description")) << path << name;
    if (property.contains("properties")) AddMembers(property, path + name + ".", members);
  }
}

std::map<std::string, bool> Described(const char* schema) {
  std::map<std::string, bool> members;
  AddMembers(OpenApiDocument("1")["components"]["schemas"][schema], "", members);
  return members;
}

class OpenApiTest : public ::testing::Test {
 protected:
  OpenApiTest() {
    const char* folder = LONGSPAN_SOURCE_DIR "/models/tiny-qwen3-moe";
    tokenizer_ = text::Tokenizer::Load(folder).value();
    model_.tokenizer = tokenizer_.get();
    model_.chat_template = text::ChatTemplate::Load(folder).value();
    model_.limits = {
        .vocab_size = 1024, .context_length = 4096, .capacity_tokens = 8192, .page_size = 64};
  }

  using ReadCall = std::optional<CallError> (*)(const Json&, const ServedModel&, Call&);
  std::map<std::string, bool> Read(ReadCall read, const Json& request) {
    const FieldsWatch watch;
    Call call;
    const auto error = read(request, model_, call);
    EXPECT_FALSE(error) << error->status.message();
    std::map<std::string, bool> members = watch.members();
    members.erase("model");  // which nothing depends on
    return members;
  }
  static std::map<std::string, bool> WithoutModel(std::map<std::string, bool> members) {
    members.erase("model");
    return members;
  }

  std::unique_ptr<const text::Tokenizer> tokenizer_;
  ServedModel model_;
};

const Json kOptions = {{"include_usage", true}};

TEST_F(OpenApiTest, CompletionsAreDescribed) {
  EXPECT_EQ(Read(ReadCompletionCall, {{"prompt", "x"}, {"stream_options", kOptions}}),
            WithoutModel(Described("CompletionRequest")));
}

TEST_F(OpenApiTest, ChatsAreDescribed) {
  EXPECT_EQ(Read(ReadChatCall, {{"messages", Json::array({{{"role", "user"}, {"content", "x"}}})},
                                {"stream_options", kOptions}}),
            WithoutModel(Described("ChatCompletionRequest")));
}

TEST_F(OpenApiTest, TheNativeEndpointIsDescribed) {
  EXPECT_EQ(Read(ReadNativeCall, {{"text", "x"}, {"stream_options", kOptions}}),
            Described("GenerateRequest"));
}

// The endpoints with small bodies, asked through the service itself.
class AskedExchange : public Exchange {
 public:
  AskedExchange(std::string path, const Json& body)
      : Exchange({.method = "POST", .path = std::move(path), .body = Dump(body)}) {}
  void Respond(HttpResponse /*response*/) override {}
  void Attach(std::shared_ptr<ResponseSource> /*source*/) override {}
  void Wake() override {}
  bool gone() const override { return false; }
};

TEST_F(OpenApiTest, TheOtherBodiesAreDescribed) {
  // What is read depends on what is there: all of it together.
  const auto read = [&](const char* path, const std::vector<Json>& bodies) {
    std::unique_ptr<FieldsWatch> watch;
    std::map<std::string, bool> members;
    EngineLoop loop;
    auto pool = std::move(WorkerPool::Create(1, 16)).value();
    Service service({}, loop, *pool);
    service.SetModel(model_);
    // Handlers read on the pool's only thread.
    EXPECT_TRUE(pool->Post([&] { watch = std::make_unique<FieldsWatch>(); }));
    for (const Json& body : bodies) service.Handle(std::make_shared<AskedExchange>(path, body));
    EXPECT_TRUE(pool->Post([&] {
      members = watch->members();
      watch.reset();
    }));
    pool.reset();
    return members;
  };
  EXPECT_EQ(read("/tokenize", {{{"prompt", "x"}}, Json::object()}), Described("TokenizeRequest"));
  EXPECT_EQ(read("/detokenize", {{{"tokens", {5}}}}), Described("DetokenizeRequest"));
  EXPECT_EQ(read("/abort_request", {{{"rid", "x"}}}), Described("AbortRequest"));
}

TEST_F(OpenApiTest, EveryReferenceHasItsSchema) {
  const Json document = OpenApiDocument("1");
  std::set<std::string> ids;
  for (const auto& [path, methods] : document["paths"].items()) {
    for (const auto& [method, operation] : methods.items()) {
      EXPECT_TRUE(ids.insert(operation["operationId"]).second) << path;
      if (!operation.contains("requestBody")) continue;
      const std::string reference =
          operation["requestBody"]["content"]["application/json"]["schema"]["$ref"];
      EXPECT_TRUE(document.contains(Json::json_pointer(reference.substr(1)))) << reference;
    }
  }
}

}  // namespace
}  // namespace longspan::server
