// Aligned columns for people.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace longspan::apps {

// Columns are right-aligned under their heading and the line with its unit, two blanks apart.
class BenchTable {
 public:
  struct Column {
    std::string heading;
    std::string unit;  // empty: a plain number
  };

  explicit BenchTable(std::vector<Column> columns) : columns_(std::move(columns)) {}

  // One cell per column; `mark` follows the last one (a reason to distrust the row).
  void AddRow(std::vector<std::string> cells, const std::string& mark = {});

  std::string ToText() const;

 private:
  struct Row {
    std::vector<std::string> cells;
    std::string mark;
  };

  size_t Width(size_t column) const;

  std::vector<Column> columns_;
  std::vector<Row> rows_;
};

// 1234567 -> "1,234,567"; the fraction rounded away.
std::string WithThousands(double value);

}  // namespace longspan::apps
