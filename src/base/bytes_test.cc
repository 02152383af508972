#include "base/bytes.h"

#include <gtest/gtest.h>

namespace longspan::base {
namespace {

TEST(BytesTest, ReadsBackWhatWasWritten) {
  ByteWriter writer;
  writer.Write<uint8_t>(7);
  writer.Write<int64_t>(-5);
  writer.WriteString("page");
  writer.WriteVector<int32_t>(std::vector<int32_t>{1, 2, 3});
  ByteReader reader(writer.bytes());
  EXPECT_EQ(reader.Read<uint8_t>(), 7);
  EXPECT_EQ(reader.Read<int64_t>(), -5);
  EXPECT_EQ(reader.ReadString(), "page");
  EXPECT_EQ(reader.ReadVector<int32_t>(), (std::vector<int32_t>{1, 2, 3}));
  EXPECT_TRUE(reader.Finish().ok());
}

TEST(BytesTest, EveryTruncationIsAnErrorAndNeverReadsOutside) {
  ByteWriter writer;
  writer.WriteString("chunk");
  writer.WriteVector<int64_t>(std::vector<int64_t>{4, 5});
  for (size_t size = 0; size < writer.bytes().size(); ++size) {
    ByteReader reader(std::span(writer.bytes()).first(size));
    reader.ReadString();
    reader.ReadVector<int64_t>();
    EXPECT_EQ(reader.Finish().code(), StatusCode::kDataLoss) << size;
  }
}

TEST(BytesTest, AHugeCountFailsWithoutAllocating) {
  ByteWriter writer;
  writer.Write<uint32_t>(0xffffffffu);
  ByteReader reader(writer.bytes());
  EXPECT_TRUE(reader.ReadVector<int64_t>().empty());
  EXPECT_FALSE(reader.status().ok());
}

TEST(BytesTest, BytesLeftOverAreAnError) {
  ByteWriter writer;
  writer.Write<uint32_t>(1);
  ByteReader reader(writer.bytes());
  reader.Read<uint16_t>();
  EXPECT_TRUE(reader.status().ok());
  EXPECT_FALSE(reader.Finish().ok());
}

}  // namespace
}  // namespace longspan::base
