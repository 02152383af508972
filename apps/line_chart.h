// Lines over a number, as an SVG picture.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace longspan::apps {

struct ChartLine {
  std::string name;
  std::vector<std::pair<double, double>> points;  // in the order in which they are joined
};

struct LineChart {
  std::string title;
  std::string x_name;
  std::string y_name;
  // Doubling steps are equally far: for lengths and numbers of ranks. All x and y above 0.
  bool logarithmic_x = false;
  bool logarithmic_y = false;
  std::vector<ChartLine> lines;
};

// One picture with the charts one below the other. Every point has its values as a tooltip; the
// axes have a tick at every x that some line has, or few round ones where these are many.
std::string DrawCharts(const std::vector<LineChart>& charts, int width);

}  // namespace longspan::apps
