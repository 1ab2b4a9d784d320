// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

namespace trainer {

struct curve {
  const char *name, *colour;
  std::vector<double> values;  ///< after epochs 1, 2, 3, ...
};

/// Lines over the epochs, on a logarithmic axis, as an SVG file's text.
inline std::string chart(std::string title, const std::vector<curve>& curves) {
  constexpr double left = 70, right = 690, top = 60, bottom = 380;
  std::string svg;
  const auto put = [&](const char* format, auto... values) {
    char text[512];
    std::snprintf(text, sizeof(text), format, values...);
    svg += text;
  };
  std::replace_if(title.begin(), title.end(), [](char c) { return c == '<' || c == '&'; }, ' ');  // would be markup
  put("<svg xmlns='http://www.w3.org/2000/svg' width='740' height='440' font-family='sans-serif' font-size='13' "
      "fill='#333'><rect width='740' height='440' fill='#fff'/><text x='%g' y='28' font-size='16'>%.80s</text>\n",
      left, title.c_str());

  std::size_t epochs = 2;
  double low = 1e300, high = 0;
  const auto shown = [](double value) { return std::isfinite(value) && value > 0; };
  for (const curve& each : curves) {
    epochs = std::max(epochs, each.values.size());
    for (const double value : each.values)
      if (shown(value)) low = std::min(low, value / 1.03), high = std::max(high, value * 1.03);
  }
  if (high == 0) low = 0.5, high = 2;
  const auto x_at = [&](double epoch) { return left + (right - left) * (epoch - 1) / (epochs - 1.0); };
  const auto y_at = [&](double value) {
    return bottom - (bottom - top) * std::log(value / low) / std::log(high / low);
  };

  for (double power = std::pow(10, std::floor(std::log10(low))); power <= high; power *= 10)
    for (const double digit : {1.0, 1.2, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0})
      if (const double y = y_at(digit * power); y <= bottom && y >= top && (digit == 1 || high < 100 * low))
        put("<path d='M%g %.1fH%g' stroke='#ddd'/><text x='%g' y='%.1f' text-anchor='end'>%g</text>\n", left, y, right,
            left - 8, y + 4.5, digit * power);
  const std::size_t step = epochs <= 12 ? 1 : (epochs / 60 + 1) * 5;
  for (std::size_t epoch = step; epoch <= epochs; epoch += step)
    put("<path d='M%.1f %gv5' stroke='#333'/><text x='%.1f' y='%g' text-anchor='middle'>%zu</text>\n", x_at(epoch),
        bottom, x_at(epoch), bottom + 20, epoch);
  put("<path d='M%g %gV%gH%g' stroke='#333' fill='none'/><text x='%g' y='%g' text-anchor='middle'>epoch</text>\n", left,
      top, bottom, right, (left + right) / 2, bottom + 44);

  double legend = top + 16;
  for (const curve& each : curves) {
    put("<path d='M%g %gh28' stroke='%s' stroke-width='2'/><text x='%g' y='%g'>%s</text>\n", right - 150, legend,
        each.colour, right - 114, legend + 4.5, each.name);
    put("<path fill='none' stroke='%s' stroke-width='2' stroke-linejoin='round' d='", each.colour);
    for (std::size_t i = 0; i < each.values.size(); ++i)  // a gap where the value is no number
      if (shown(each.values[i]))
        put("%c%.1f %.1f", i > 0 && shown(each.values[i - 1]) ? 'L' : 'M', x_at(i + 1.0), y_at(each.values[i]));
    svg += "'/>\n";
    legend += 20;
  }
  return svg + "</svg>\n";
}

}  // namespace trainer
