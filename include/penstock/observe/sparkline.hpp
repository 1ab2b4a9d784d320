// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <langinfo.h>
#include <locale.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <string>
#include <string_view>

#include <penstock/observe/metric_history.hpp>

namespace penstock {

/// What a curve within a line of text is drawn with.
enum class curve_style {
  none,
  ascii,  ///< _.-^
  blocks  ///< eighths of a block, in UTF-8
};

namespace detail {

/// Whether text for the terminal is UTF-8, as the environment's locale says; the program need not have set it.
inline bool speaks_utf8() {
  const ::locale_t locale = ::newlocale(LC_CTYPE_MASK, "", nullptr);
  if (locale == nullptr) return false;  // none that is installed
  const std::string_view charset = ::nl_langinfo_l(CODESET, locale);
  const bool result = charset == "UTF-8" || charset == "utf8";
  ::freelocale(locale);
  return result;
}

inline curve_style terminals_curve() { return speaks_utf8() ? curve_style::blocks : curve_style::ascii; }

/// The means of a history's buckets, as one character each, at most `most`, between the least and the greatest of them.
/// Without a finite value a bucket is '!'. Fewer than two buckets are no curve.
inline void append_sparkline(std::string& out, std::span<const metric_bucket> buckets, std::size_t most,
                             curve_style style) {
  if (style == curve_style::none || buckets.size() < 2 || most < 2) return;
  const std::size_t cells = std::min(buckets.size(), most);
  std::array<double, 64> heights{};
  double least = std::numeric_limits<double>::infinity(), greatest = -least;
  const std::size_t drawn = std::min(cells, heights.size());
  for (std::size_t cell = 0; cell < drawn; ++cell) {
    double sum = 0, count = 0;
    for (std::size_t i = cell * buckets.size() / drawn; i < (cell + 1) * buckets.size() / drawn; ++i) {
      sum += buckets[i].sum;
      count += static_cast<double>(buckets[i].finite);
    }
    heights[cell] = count > 0 ? sum / count : std::numeric_limits<double>::quiet_NaN();
    if (!std::isfinite(heights[cell])) continue;
    least = std::min(least, heights[cell]);
    greatest = std::max(greatest, heights[cell]);
  }
  constexpr std::array<std::string_view, 8> blocks{"\u2581", "\u2582", "\u2583", "\u2584",
                                                   "\u2585", "\u2586", "\u2587", "\u2588"};
  constexpr std::array<std::string_view, 4> letters{"_", ".", "-", "^"};
  const std::span<const std::string_view> levels =
      style == curve_style::blocks ? std::span<const std::string_view>(blocks) : letters;
  for (std::size_t cell = 0; cell < drawn; ++cell) {
    if (!std::isfinite(heights[cell])) {
      out += '!';
      continue;
    }
    // Halved before they are subtracted: the difference of two doubles may be more than one holds.
    const double range = greatest / 2 - least / 2;
    const double share = range > 0 ? (heights[cell] / 2 - least / 2) / range : 0.5;
    const auto level = static_cast<std::size_t>(share * static_cast<double>(levels.size() - 1) + 0.5);
    out += levels[std::min(level, levels.size() - 1)];
  }
}

}  // namespace detail
}  // namespace penstock
