#include "apps/trace_svg.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <string_view>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "apps/bench_table.h"
#include "apps/trace_events.h"

namespace longspan::apps {
namespace {

using plan::SpanKind;

// Pixels.
constexpr double kLeft = 78;
constexpr double kRight = 34;
constexpr double kTop = 44;
constexpr double kLeaderHeight = 10;
constexpr double kBarHeight = 30;
constexpr double kReceiveHeight = 5;
constexpr double kRowHeight = 48;
constexpr double kLegendStep = 76;
constexpr double kCharacterWidth = 6.1;  // of the labels, at most
constexpr double kNarrowest = 0.4;       // narrower bars are drawn with their neighbours

constexpr size_t kSequencesInLegend = 8;
constexpr double kMostTicks = 10;

// Dark and light of a sequence; further ones begin anew.
constexpr std::array<std::pair<std::string_view, std::string_view>, 8> kColours = {{
    {"#2b6cb0", "#7fb2e0"},
    {"#c05621", "#f0a56b"},
    {"#2f855a", "#81c99f"},
    {"#6b46c1", "#b49ae6"},
    {"#b7791f", "#e8c36a"},
    {"#b83280", "#ea93c5"},
    {"#2c7a7b", "#7ccccb"},
    {"#742a2a", "#c98b8b"},
}};
constexpr std::string_view kTransferColour = "#e53e3e";
constexpr std::string_view kHostColour = "#4a5568";
constexpr std::string_view kReceiveColour = "#d69e2e";
constexpr std::string_view kWaitPattern = "url(#wait)";

// How a plan is drawn: by the sequence that most of its rows belong to.
struct PlanLook {
  int64_t sequence = 0;
  std::string_view fill = "#a0aec0";
  bool dark = true;
  std::string label;
  std::string short_label;
  std::string shortest_label;
};

struct Bar {
  double left = 0;
  double right = 0;
  std::string_view fill;
  std::string_view what;
  size_t plan = 0;
  double microseconds = 0;
  bool labelled = false;
};

class Drawing {
 public:
  Drawing(const Trace& trace, const TraceSummary& summary, int width)
      : trace_(trace), summary_(summary), width_(width) {
    scale_ = (width_ - kLeft - kRight) / std::max(summary.window.length(), 1e-3);
    height_ = kTop + kLeaderHeight + 14 + kRowHeight * static_cast<double>(trace.ranks.size()) + 52;
    LookAtPlans();
  }

  std::string Draw() {
    Begin();
    Axis();
    LeaderRow();
    for (size_t rank = 0; rank < trace_.ranks.size(); ++rank) RankRow(rank);
    Legend();
    out_ += "</svg>\n";
    return std::move(out_);
  }

 private:
  template <typename... Args>
  void Add(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(out_), format, std::forward<Args>(args)...);
    out_ += '\n';
  }

  double X(double microseconds) const {
    const TraceWindow& window = summary_.window;
    return kLeft + (std::clamp(microseconds, window.begin, window.end) - window.begin) * scale_;
  }
  double RowTop(size_t rank) const {
    return kTop + kLeaderHeight + 14 + kRowHeight * static_cast<double>(rank);
  }

  void LookAtPlans() {
    std::unordered_map<int64_t, size_t> chunks;
    for (const TracePlan& plan : trace_.plans) {
      PlanLook look;
      if (!plan.slices.empty()) {
        const auto rows = [](const engine::ComputedSlice& s) { return s.end - s.begin; };
        const auto& largest =
            *std::max_element(plan.slices.begin(), plan.slices.end(),
                              [&](const auto& a, const auto& b) { return rows(a) < rows(b); });
        look.sequence = largest.sequence.value;
        const size_t colour = ColourOf(look.sequence);
        look.dark = chunks[look.sequence]++ % 2 == 0;
        look.fill = look.dark ? kColours[colour].first : kColours[colour].second;
        const size_t others = plan.slices.size() - 1;
        look.short_label = fmt::format("[{}, {})", largest.begin, largest.end);
        if (others > 0) look.short_label += fmt::format(" +{}", others);
        look.shortest_label = fmt::format("{}", largest.begin);
        look.label = fmt::format("seq {} {}", look.sequence, look.short_label);
      }
      looks_.push_back(std::move(look));
    }
  }

  size_t ColourOf(int64_t sequence) {
    const auto found = std::find(sequences_.begin(), sequences_.end(), sequence);
    const auto index = static_cast<size_t>(found - sequences_.begin());
    if (found == sequences_.end()) sequences_.push_back(sequence);
    return index % kColours.size();
  }

  void Begin() {
    Add(R"(<svg xmlns="http://www.w3.org/2000/svg" width="{0}" height="{1:.0f}" )"
        R"(viewBox="0 0 {0} {1:.0f}" font-family="sans-serif" font-size="12">)",
        width_, height_);
    Add(R"(<defs><pattern id="wait" width="5" height="5" patternUnits="userSpaceOnUse" )"
        R"_(patternTransform="rotate(45)"><rect width="5" height="5" fill="#fff"/>)_"
        R"(<rect width="2" height="5" fill="#cbd5e0"/></pattern></defs>)");
    Add(R"(<rect width="{}" height="{:.0f}" fill="#fff"/>)", width_, height_);
    Add(R"(<text x="{}" y="20" font-size="14" fill="#1a202c">{} plans, {} sequence{}, {} rank{} in )"
        R"({} ms: busy {:.1f}%, bubble {:.1f}%</text>)",
        kLeft, WithThousands(static_cast<double>(summary_.plans)), sequences_.size(),
        sequences_.size() == 1 ? "" : "s", trace_.ranks.size(), trace_.ranks.size() == 1 ? "" : "s",
        WithThousands(summary_.window.length() / 1000), 100 * summary_.all.busy,
        100 * summary_.all.bubble);
  }

  void Axis() {
    const double bottom = RowTop(trace_.ranks.size());
    const double length = summary_.window.length() / 1000;
    const double step = TickStep(length);
    const double begin = summary_.window.begin / 1000;
    const int digits = std::max(0, static_cast<int>(std::ceil(-std::log10(step) - 1e-9)));
    for (double tick = std::ceil(begin / step - 1e-9) * step; tick <= begin + length * (1 + 1e-9);
         tick += step) {
      const double x = X(tick * 1000);
      Add(R"(<line x1="{0:.1f}" y1="{1}" x2="{0:.1f}" y2="{2:.0f}" stroke="#e2e8f0"/>)", x,
          kTop - 6, bottom);
      Add(R"(<text x="{:.1f}" y="{:.0f}" text-anchor="middle" fill="#4a5568">{:.{}f} ms</text>)", x,
          bottom + 12, tick, digits);
    }
  }

  // 1, 2 or 5 times a power of ten, so that there are few ticks.
  static double TickStep(double length) {
    const double least = std::max(length, 1e-6) / kMostTicks;
    const double power = std::pow(10, std::floor(std::log10(least)));
    for (const double factor : {1.0, 2.0, 5.0})
      if (factor * power >= least) return factor * power;
    return 10 * power;
  }

  void LeaderRow() {
    RowName("leader", kTop + kLeaderHeight - 1);
    std::vector<Bar> bars;
    for (size_t i = 0; i < trace_.plans.size(); ++i) {
      const TracePlan& plan = trace_.plans[i];
      AddBar(bars, {.fill = kHostColour, .what = "planned", .plan = i}, plan.begin, plan.submitted);
      AddBar(bars, {.fill = kReceiveColour, .what = "committed", .plan = i}, plan.commit_begin,
             plan.committed);
    }
    std::sort(bars.begin(), bars.end(), [](const Bar& a, const Bar& b) { return a.left < b.left; });
    DrawBars(bars, kTop, kLeaderHeight);
  }

  void RankRow(size_t rank) {
    const double top = RowTop(rank);
    RowName(fmt::format("rank {}", rank), top + 13);
    Add(R"(<text x="8" y="{:.0f}" font-size="10" fill="#718096">busy {:.1f}%</text>)", top + 26,
        100 * summary_.ranks[rank].busy);
    Add(R"(<rect x="{}" y="{:.0f}" width="{:.1f}" height="{}" fill="none" stroke="#e2e8f0"/>)",
        kLeft, top, width_ - kLeft - kRight, kBarHeight);
    std::vector<Bar> bars;
    for (const TraceSpan& span : trace_.ranks[rank].compute) {
      Bar bar = {.what = SpanCategory(span.kind), .plan = span.plan};
      switch (span.kind) {
        case SpanKind::kKernels:
          bar.fill = looks_[span.plan].fill;
          bar.labelled = true;
          break;
        case SpanKind::kWait:
          bar.fill = kWaitPattern;
          break;
        case SpanKind::kTransfer:
          bar.fill = kTransferColour;
          break;
        case SpanKind::kHost:
          bar.fill = kHostColour;
          break;
        case SpanKind::kIdle:
          continue;
      }
      AddBar(bars, bar, span.start, span.end);
    }
    DrawBars(bars, top, kBarHeight);
    bars.clear();
    for (const TraceTransfer& transfer : trace_.ranks[rank].receives)
      AddBar(bars, {.fill = kReceiveColour, .what = "receive", .plan = transfer.plan},
             transfer.start, transfer.end);
    DrawBars(bars, top + kBarHeight + 2, kReceiveHeight);
  }

  void RowName(std::string_view name, double y) {
    Add(R"(<text x="8" y="{:.0f}" fill="#1a202c">{}</text>)", y, name);
  }

  // Unless it lies outside the window, or goes on with the bar before it.
  void AddBar(std::vector<Bar>& bars, Bar bar, double start, double end) {
    const TraceWindow& window = summary_.window;
    if (end < window.begin || start > window.end || end <= start) return;
    bar.left = X(start);
    bar.right = X(end);
    bar.microseconds = end - start;
    if (!bars.empty() && bar.left - bars.back().right < kNarrowest) {
      Bar& last = bars.back();
      const bool same = last.plan == bar.plan && last.fill == bar.fill;
      const bool narrow =
          bar.right - bar.left < kNarrowest && last.right - last.left < 2 * kNarrowest;
      if (same || narrow) {
        last.right = std::max(last.right, bar.right);
        if (same) last.microseconds += bar.microseconds;
        return;
      }
    }
    bars.push_back(bar);
  }

  void DrawBars(const std::vector<Bar>& bars, double top, double height) {
    for (const Bar& bar : bars) {
      const double width = std::max(bar.right - bar.left, kNarrowest);
      const PlanLook& look = looks_[bar.plan];
      Add(R"(<rect x="{:.2f}" y="{:.0f}" width="{:.2f}" height="{}" fill="{}"><title>plan {}, {}: )"
          R"({}, {:.3f} ms</title></rect>)",
          bar.left, top, width, height, bar.fill, trace_.plans[bar.plan].number, look.label,
          bar.what, bar.microseconds / 1000);
      if (bar.labelled) DrawLabel(look, bar.left + width / 2, top + height / 2 + 4, width);
    }
  }

  // The longest label that fits.
  void DrawLabel(const PlanLook& look, double middle, double y, double width) {
    for (const std::string* label : {&look.label, &look.short_label, &look.shortest_label}) {
      if (label->empty() || kCharacterWidth * static_cast<double>(label->size()) + 4 > width)
        continue;
      Add(R"(<text x="{:.1f}" y="{:.0f}" text-anchor="middle" font-size="11" fill="{}" )"
          R"(pointer-events="none">{}</text>)",
          middle, y, look.dark ? "#fff" : "#1a202c", *label);
      return;
    }
  }

  void Legend() {
    const double y = height_ - 14;
    double x = kLeft;
    const auto entry = [&](std::string_view fill, std::string_view text) {
      Add(R"(<rect x="{:.0f}" y="{:.0f}" width="12" height="12" fill="{}" stroke="#cbd5e0"/>)", x,
          y - 10, fill);
      Add(R"(<text x="{:.0f}" y="{:.0f}" fill="#4a5568">{}</text>)", x + 16, y, text);
      x += kLegendStep;
    };
    entry(kWaitPattern, "waits");
    entry(kHostColour, "host");
    entry(kTransferColour, "transfer");
    entry(kReceiveColour, "input");
    for (size_t i = 0; i < std::min(sequences_.size(), kSequencesInLegend); ++i)
      entry(kColours[i % kColours.size()].first, fmt::format("seq {}", sequences_[i]));
    if (sequences_.size() > kSequencesInLegend)
      Add(R"(<text x="{:.0f}" y="{:.0f}" fill="#4a5568">and {} more</text>)", x, y,
          sequences_.size() - kSequencesInLegend);
  }

  const Trace& trace_;
  const TraceSummary& summary_;
  int width_;
  double scale_ = 1;
  double height_ = 0;
  std::vector<PlanLook> looks_;     // by plan
  std::vector<int64_t> sequences_;  // in the order in which they come
  std::string out_;
};

}  // namespace

std::string DrawTrace(const Trace& trace, const TraceSummary& summary, int width) {
  return Drawing(trace, summary, width).Draw();
}

}  // namespace longspan::apps
