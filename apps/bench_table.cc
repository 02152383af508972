#include "apps/bench_table.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"

namespace longspan::apps {

void BenchTable::AddRow(std::vector<std::string> cells, const std::string& mark) {
  LONGSPAN_CHECK(cells.size() == columns_.size(), "{} cells for {} columns", cells.size(),
                 columns_.size());
  rows_.push_back({std::move(cells), mark});
}

std::string BenchTable::ToText() const {
  std::string text;
  const auto line = [&](const auto& cell, const std::string& mark) {
    for (size_t column = 0; column < columns_.size(); ++column)
      text += fmt::format("{}{:>{}}", column == 0 ? "" : "  ", cell(column), Width(column));
    if (!mark.empty()) text += fmt::format("  {}", mark);
    text += '\n';
  };
  line([&](size_t column) { return columns_[column].heading; }, {});
  line([&](size_t column) { return columns_[column].unit; }, {});
  for (const Row& row : rows_) line([&](size_t column) { return row.cells[column]; }, row.mark);
  return text;
}

size_t BenchTable::Width(size_t column) const {
  size_t width = std::max(columns_[column].heading.size(), columns_[column].unit.size());
  for (const Row& row : rows_) width = std::max(width, row.cells[column].size());
  return width;
}

std::string WithThousands(double value) {
  const std::string digits = fmt::format("{}", std::llround(std::abs(value)));
  std::string text(value < 0 ? 1 : 0, '-');
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) text.push_back(',');
    text.push_back(digits[i]);
  }
  return text;
}

}  // namespace longspan::apps
