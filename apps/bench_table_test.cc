#include "apps/bench_table.h"

#include <gtest/gtest.h>

namespace longspan::apps {
namespace {

TEST(BenchTableTest, AlignsCellsUnderHeadingsAndUnits) {
  BenchTable table({{"prompt", "tokens"}, {"rate", "tokens/s"}});
  table.AddRow({"512", "1,234"});
  table.AddRow({"1,048,576", "9"}, "busy");
  EXPECT_EQ(table.ToText(),
            "   prompt      rate\n"
            "   tokens  tokens/s\n"
            "      512     1,234\n"
            "1,048,576         9  busy\n");
}

TEST(BenchTableTest, SeparatesThousands) {
  EXPECT_EQ(WithThousands(0.4), "0");
  EXPECT_EQ(WithThousands(999.6), "1,000");
  EXPECT_EQ(WithThousands(1234567), "1,234,567");
  EXPECT_EQ(WithThousands(-65536), "-65,536");
}

}  // namespace
}  // namespace longspan::apps
