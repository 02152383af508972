#include "apps/line_chart.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <set>
#include <string_view>

#include <fmt/format.h>

namespace longspan::apps {
namespace {

// Pixels.
constexpr double kLeft = 70;
constexpr double kRight = 150;  // the legend stands there
constexpr double kTop = 40;
constexpr double kPlotHeight = 240;
constexpr double kBottom = 50;
constexpr double kLegendStep = 18;

constexpr size_t kMostTicks = 12;
constexpr std::array<std::string_view, 6> kColours = {"#2b6cb0", "#c05621", "#2f855a",
                                                      "#6b46c1", "#b7791f", "#2c7a7b"};

// 131072 -> "128K": lengths are powers of two more often than of ten.
std::string TickLabel(double value) {
  constexpr double kKibi = 1024;
  if (value >= kKibi * kKibi && std::fmod(value, kKibi * kKibi) == 0)
    return fmt::format("{:.0f}M", value / kKibi / kKibi);
  if (value >= kKibi && std::fmod(value, kKibi) == 0) return fmt::format("{:.0f}K", value / kKibi);
  return fmt::format("{:.4g}", value);
}

// A dimension: values to pixels.
class Axis {
 public:
  Axis(const std::set<double>& values, bool logarithmic, bool from_zero)
      : logarithmic_(logarithmic) {
    least_ = from_zero && !logarithmic ? 0 : *values.begin();
    most_ = *values.rbegin();
    if (most_ <= least_) most_ = least_ + std::max(1.0, std::abs(least_));
  }

  // From 0 to 1.
  double Place(double value) const {
    if (logarithmic_) return std::log(value / least_) / std::log(most_ / least_);
    return (value - least_) / (most_ - least_);
  }

  std::vector<double> RoundTicks() const {
    std::vector<double> ticks;
    if (logarithmic_) {
      for (double tick = std::exp2(std::ceil(std::log2(least_) - 1e-9)); tick <= most_ * (1 + 1e-9);
           tick *= 2)
        ticks.push_back(tick);
      return ticks;
    }
    const double least_step = (most_ - least_) / 6;
    const double power = std::pow(10, std::floor(std::log10(least_step)));
    double step = 10 * power;
    for (const double factor : {1.0, 2.0, 5.0}) {
      if (factor * power < least_step) continue;
      step = factor * power;
      break;
    }
    for (double tick = std::ceil(least_ / step) * step; tick <= most_ * (1 + 1e-9); tick += step)
      ticks.push_back(tick);
    return ticks;
  }

 private:
  bool logarithmic_;
  double least_ = 0;
  double most_ = 1;
};

class Drawing {
 public:
  Drawing(const LineChart& chart, int width, double top, std::string& out)
      : chart_(chart),
        plot_width_(width - kLeft - kRight),
        top_(top + kTop),
        x_values_(Values(true)),
        x_(x_values_, chart.logarithmic_x, false),
        y_(Values(false), chart.logarithmic_y, true),
        out_(out) {}

  void Draw() {
    Add(R"(<text x="{}" y="{:.0f}" font-size="14" fill="#1a202c">{}</text>)", kLeft, top_ - 18,
        chart_.title);
    Axes();
    for (size_t line = 0; line < chart_.lines.size(); ++line) Line(line);
  }

 private:
  template <typename... Args>
  void Add(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(out_), format, std::forward<Args>(args)...);
    out_ += '\n';
  }

  std::set<double> Values(bool of_x) const {
    std::set<double> values;
    for (const ChartLine& line : chart_.lines)
      for (const auto& [x, y] : line.points) values.insert(of_x ? x : y);
    if (values.empty()) values.insert(1);
    return values;
  }

  double X(double value) const { return kLeft + x_.Place(value) * plot_width_; }
  double Y(double value) const { return top_ + (1 - y_.Place(value)) * kPlotHeight; }

  void Axes() {
    const double bottom = top_ + kPlotHeight;
    std::vector<double> ticks(x_values_.begin(), x_values_.end());
    if (ticks.size() > kMostTicks) ticks = x_.RoundTicks();
    for (const double tick : ticks) {
      Add(R"(<line x1="{0:.1f}" y1="{1:.0f}" x2="{0:.1f}" y2="{2:.0f}" stroke="#e2e8f0"/>)",
          X(tick), top_, bottom);
      Add(R"(<text x="{:.1f}" y="{:.0f}" text-anchor="middle" fill="#4a5568">{}</text>)", X(tick),
          bottom + 15, TickLabel(tick));
    }
    for (const double tick : y_.RoundTicks()) {
      Add(R"(<line x1="{0}" y1="{1:.1f}" x2="{2:.0f}" y2="{1:.1f}" stroke="#e2e8f0"/>)", kLeft,
          Y(tick), kLeft + plot_width_);
      Add(R"(<text x="{}" y="{:.1f}" text-anchor="end" fill="#4a5568">{:.4g}</text>)", kLeft - 6,
          Y(tick) + 4, tick);
    }
    Add(R"(<text x="{:.0f}" y="{:.0f}" text-anchor="middle" fill="#1a202c">{}</text>)",
        kLeft + plot_width_ / 2, bottom + 34, chart_.x_name);
    Add(R"(<text x="14" y="{0:.0f}" text-anchor="middle" fill="#1a202c" )"
        R"_(transform="rotate(-90 14 {0:.0f})">{1}</text>)_",
        top_ + kPlotHeight / 2, chart_.y_name);
  }

  void Line(size_t index) {
    const ChartLine& line = chart_.lines[index];
    const std::string_view colour = kColours[index % kColours.size()];
    std::string points;
    for (const auto& [x, y] : line.points)
      fmt::format_to(std::back_inserter(points), "{:.1f},{:.1f} ", X(x), Y(y));
    Add(R"(<polyline points="{}" fill="none" stroke="{}" stroke-width="2"/>)", points, colour);
    for (const auto& [x, y] : line.points)
      Add(R"(<circle cx="{:.1f}" cy="{:.1f}" r="3.5" fill="{}"><title>{}: {}, {:.4g}</title>)"
          R"(</circle>)",
          X(x), Y(y), colour, line.name, TickLabel(x), y);
    const double y = top_ + 10 + kLegendStep * static_cast<double>(index);
    Add(R"(<rect x="{:.0f}" y="{:.0f}" width="12" height="4" fill="{}"/>)",
        kLeft + plot_width_ + 14, y - 6, colour);
    Add(R"(<text x="{:.0f}" y="{:.0f}" fill="#1a202c">{}</text>)", kLeft + plot_width_ + 32, y,
        line.name);
  }

  const LineChart& chart_;
  double plot_width_;
  double top_;
  std::set<double> x_values_;
  Axis x_;
  Axis y_;
  std::string& out_;
};

}  // namespace

std::string DrawCharts(const std::vector<LineChart>& charts, int width) {
  constexpr double kChartHeight = kTop + kPlotHeight + kBottom;
  const double height = kChartHeight * static_cast<double>(charts.size());
  std::string out =
      fmt::format(R"(<svg xmlns="http://www.w3.org/2000/svg" width="{0}" height="{1:.0f}" )"
                  R"(viewBox="0 0 {0} {1:.0f}" font-family="sans-serif" font-size="12">)"
                  "\n"
                  R"(<rect width="{0}" height="{1:.0f}" fill="#fff"/>)"
                  "\n",
                  width, height);
  for (size_t chart = 0; chart < charts.size(); ++chart)
    Drawing(charts[chart], width, kChartHeight * static_cast<double>(chart), out).Draw();
  out += "</svg>\n";
  return out;
}

}  // namespace longspan::apps
