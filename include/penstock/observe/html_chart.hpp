// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <penstock/observe/metric_history.hpp>
#include <penstock/observe/text.hpp>

namespace penstock::detail {

/// How a chart's values are written.
enum class chart_values {
  numbers,
  rates,  ///< "12.3k"
  shares  ///< from 0 to 1, as percentages
};

inline void append_value(std::string& out, double value, chart_values how, int digits = 4) {
  if (how == chart_values::rates) return append_rate(out, value);
  if (how == chart_values::numbers) return append_number(out, value, digits);
  append_fixed(out, value * 100, 0);
  out += '%';
}

/// What a chart shows: curves over steps, on one scale.
struct chart {
  std::string_view name{};
  std::vector<const metric_history*> curves{};
  std::vector<std::uint64_t> epochs{};  ///< first steps of epochs
  chart_values values = chart_values::numbers;
  std::uint64_t first_step = 0, last_step = 0;  ///< all charts of a page begin and end alike
};

/// Round numbers, about `count` of them, that lie within a range.
inline std::vector<double> round_ticks(double low, double high, double count) {
  std::vector<double> ticks;
  const double raw = high / count - low / count;
  if (!(raw > 0) || !std::isfinite(raw)) return {low};
  const double magnitude = std::pow(10, std::floor(std::log10(raw)));
  const double rest = raw / magnitude;
  const double step = magnitude * (rest < 1.5 ? 1 : rest < 3.5 ? 2 : rest < 7.5 ? 5 : 10);
  for (double i = std::ceil(low / step - 1e-9); i * step <= high + step * 1e-9 && ticks.size() < 20; ++i)
    ticks.push_back(i * step + 0.0);  // no minus before a zero
  return ticks;
}

/// Draws a chart as an SVG element: a curve's line is its buckets' mean, the band around it reaches from their least to
/// their greatest value, crosses stand for values that are not finite. Values over two orders of magnitude, all
/// positive, get a logarithmic scale. Colours are the page's, by the classes s0 to s5.
class chart_painter {
 public:
  explicit chart_painter(const chart& what) : what_(what) {
    double least = std::numeric_limits<double>::infinity(), most = -least;
    for (const auto* curve : what.curves) {
      if (curve->finite() == 0) continue;
      least = std::min(least, curve->least());
      most = std::max(most, curve->most());
    }
    if (!(least <= most)) least = 0, most = 1;
    const bool shares = what.values == chart_values::shares;
    constexpr double much = 20;
    logarithmic_ = what.values == chart_values::numbers && least > 0 && most / least >= much;
    if (logarithmic_) least = std::log10(least), most = std::log10(most);
    const double room = most > least ? most / 20 - least / 20 : std::max(std::abs(most) / 10, 1e-12);
    constexpr double limit = std::numeric_limits<double>::max();
    low_ = what.values != chart_values::numbers ? 0 : std::max(least - room, -limit);
    high_ = shares ? 1 : std::min(most + room, limit);
    first_ = static_cast<double>(what.first_step);
    last_ = what.last_step > what.first_step ? static_cast<double>(what.last_step) : first_ + 1;
  }

  bool is_logarithmic() const noexcept { return logarithmic_; }

  void paint(std::string& out) const {
    out += "<svg viewBox=\"0 0 640 274\" role=\"img\" aria-label=\"";
    append_escaped(out, what_.name);
    out += " over steps";
    for (const auto* curve : what_.curves) {
      if (curve->values() == 0) continue;
      out += "; ";
      append_escaped(out, curve->name());
      value(out += ", last ", curve->last());
      append_count(out += " at step ", curve->last_step());
    }
    out += "\">\n";
    axes(out);
    for (std::size_t i = 0; i < what_.curves.size(); ++i) draw(out, *what_.curves[i], i);
    for (const auto* curve : what_.curves) name_buckets(out, *curve);
    out += "</svg>\n";
  }

 private:
  static constexpr double left = 58, right = 630, top = 10, bottom = 248;

  double x(double step) const { return left + (right - left) * (step - first_) / (last_ - first_); }
  double y(double value) const {
    if (logarithmic_) value = std::log10(value);
    // Halved: the difference of two doubles may be more than one holds.
    const double share = std::clamp((value / 2 - low_ / 2) / (high_ / 2 - low_ / 2), 0.0, 1.0);
    return bottom - (bottom - top) * share;
  }
  static void point(std::string& out, double at_x, double at_y) {
    append_fixed(out, at_x, 1);
    append_fixed(out += ',', at_y, 1);
    out += ' ';
  }
  static void attribute(std::string& out, std::string_view name, double value) {
    append_fixed(out.append(" ").append(name) += "=\"", value, 1);
    out += '"';
  }
  void value(std::string& out, double number) const { append_value(out, number, what_.values); }

  static void line(std::string& out, std::string_view kind, double x1, double y1, double x2, double y2) {
    out.append("<line class=\"").append(kind) += '"';
    attribute(out, "x1", x1);
    attribute(out, "y1", y1);
    attribute(out, "x2", x2);
    attribute(out, "y2", y2);
    out += "/>";
  }

  void axes(std::string& out) const {
    for (const double number : value_ticks()) {
      line(out, "grid", left, y(number), right, y(number));
      out += "<text class=\"tick\" text-anchor=\"end\"";
      attribute(out, "x", left - 8);
      attribute(out, "y", y(number) + 4);
      value(out += ">", number);
      out += "</text>\n";
    }
    constexpr std::size_t most_marks = 30;  // more would be a grey area
    if (what_.epochs.size() <= most_marks)
      for (const std::uint64_t step : what_.epochs)
        if (const double at = static_cast<double>(step); at > first_ && at < last_)
          line(out, "epoch", x(at), top, x(at), bottom);
    line(out, "axis", left, bottom, right, bottom);
    for (const double tick : round_ticks(first_, last_, 6)) {
      if (tick != std::floor(tick)) continue;
      out += "<text class=\"tick\" text-anchor=\"middle\"";
      attribute(out, "x", x(tick));
      attribute(out, "y", bottom + 18);
      out += '>';
      tick < 1e6 ? append_fixed(out, tick, 0) : append_rate(out, tick);
      out += "</text>";
    }
    out += "\n";
  }

  std::vector<double> value_ticks() const {
    if (what_.values == chart_values::shares) return {0, 0.25, 0.5, 0.75, 1};
    if (!logarithmic_) return round_ticks(low_, high_, 4);
    std::vector<double> ticks;
    const double stride = std::max(1.0, std::ceil((high_ - low_) / 6));
    for (double power = std::floor(low_); power <= high_; power += stride) {
      for (const double digit : {1, 2, 5}) {
        const double exponent = power + std::log10(digit);
        const bool is_drawn = digit == 1 || high_ - low_ < 2.8;
        if (is_drawn && exponent >= low_ && exponent <= high_) ticks.push_back(std::pow(10, exponent));
      }
    }
    return ticks;
  }

  void draw(std::string& out, const metric_history& curve, std::size_t number) const {
    const std::span<const metric_bucket> all = curve.buckets();
    out += "<g class=\"s";
    append_count(out, number % 6);
    out += "\">";
    // A gap where no value was finite.
    for (std::size_t begin = 0; begin < all.size();) {
      if (all[begin].finite == 0) {
        cross(out, x(all[begin].middle()), bottom - 6);
        ++begin;
        continue;
      }
      std::size_t end = begin;
      bool wide = false;
      for (; end < all.size() && all[end].finite > 0; ++end) wide = wide || all[end].least < all[end].most;
      stretch(out, all.subspan(begin, end - begin), wide, end == all.size());
      begin = end;
    }
    for (const auto& bucket : all)
      if (bucket.finite > 0 && bucket.finite < bucket.values) cross(out, x(bucket.middle()), bottom - 6);
    out += "</g>\n";
  }

  void stretch(std::string& out, std::span<const metric_bucket> buckets, bool wide, bool is_last) const {
    if (wide && buckets.size() > 1) {
      out += "<polygon class=\"band\" points=\"";
      for (const auto& each : buckets) point(out, x(each.middle()), y(each.most));
      for (std::size_t i = buckets.size(); i-- > 0;) point(out, x(buckets[i].middle()), y(buckets[i].least));
      out += "\"/>";
    }
    if (buckets.size() > 1) {
      out += "<polyline class=\"line\" points=\"";
      for (const auto& each : buckets) point(out, x(each.middle()), y(*each.mean()));
      out += "\"/>";
    }
    if (buckets.size() > 1 && !is_last) return;
    out += "<circle class=\"dot\" r=\"3.5\"";
    attribute(out, "cx", x(buckets.back().middle()));
    attribute(out, "cy", y(*buckets.back().mean()));
    out += "/>";
  }

  static void cross(std::string& out, double at_x, double at_y) {
    out += "<path class=\"cross\" d=\"M";
    point(out, at_x - 4, at_y - 4);
    out += "l8,8 m0,-8 l-8,8\"/>";
  }

  /// What a bucket holds, for the mouse: the browser's own tooltip.
  void name_buckets(std::string& out, const metric_history& curve) const {
    const std::span<const metric_bucket> all = curve.buckets();
    out += "<g class=\"hover\">";
    for (std::size_t i = 0; i < all.size(); ++i) {
      const double here = all[i].middle();
      const double from = i == 0 ? first_ : (all[i - 1].middle() + here) / 2;
      const double to = i + 1 == all.size() ? last_ : (here + all[i + 1].middle()) / 2;
      out += "<rect";
      attribute(out, "x", x(from));
      attribute(out, "width", std::max(0.1, x(to) - x(from)));
      // Of several curves each answers around its own line.
      const bool alone = what_.curves.size() == 1;
      const double middle = all[i].finite > 0 ? y(*all[i].mean()) : bottom - 6;
      attribute(out, "y", alone ? top : middle - 12);
      attribute(out, "height", alone ? bottom - top : 24);
      out += "><title>";
      append_escaped(out, curve.name());
      append_count(out += all[i].first_step == all[i].last_step ? ", step " : ", steps ", all[i].first_step);
      if (all[i].first_step != all[i].last_step) append_count(out += " to ", all[i].last_step);
      out += ": ";
      if (const auto mean = all[i].mean()) {
        value(out, *mean);
        if (all[i].least < all[i].most) {
          value(out += " (", all[i].least);
          value(out += " to ", all[i].most);
          out += ')';
        }
      } else {
        out += "not finite";
      }
      out += "</title></rect>";
    }
    out += "</g>\n";
  }

  const chart& what_;
  bool logarithmic_ = false;
  double low_ = 0, high_ = 1, first_ = 0, last_ = 1;
};

}  // namespace penstock::detail
