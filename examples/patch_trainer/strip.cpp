// SPDX-License-Identifier: Apache-2.0
#include "strip.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <span>

#include <penstock/dataset/atomic_file.hpp>
#include <penstock/dataset/image_write.hpp>

namespace patch_trainer {
namespace {

/// Planes from 0 to 1 as the bytes of a PNG file.
std::string png_of(const picture& from, const std::string& scratch) {
  penstock::image pixels(penstock::pixel_type::uint8, from.height, from.width, from.channels);
  std::uint8_t* to = pixels.pixels<std::uint8_t>().data();
  const std::size_t plane = from.height * from.width;
  for (std::size_t i = 0; i < plane; ++i)
    for (std::size_t c = 0; c < from.channels; ++c)
      *to++ = static_cast<std::uint8_t>(std::lround(255 * std::clamp(from.values[c * plane + i], 0.0f, 1.0f)));
  penstock::write_png(scratch, pixels);
  std::ifstream file(scratch, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(file), {}};
  file.close();
  std::remove(scratch.c_str());
  return bytes;
}

std::string base64(const std::string& bytes) {
  constexpr char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    unsigned word = 0;
    for (std::size_t k = 0; k < 3; ++k)
      word = word << 8 | (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0);
    for (int k = 3; k >= 0; --k)
      out += i + (3 - static_cast<std::size_t>(k)) <= bytes.size() ? digits[word >> (6 * k) & 63] : '=';
  }
  return out;
}

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) out += c == '&' ? "&amp;" : c == '<' ? "&lt;" : std::string(1, c);
  return out;
}

}  // namespace

void draw_strip(const std::string& folder, const std::vector<strip_row>& rows) {
  constexpr int side = 300, gap = 12, text = 24;  // pictures are shown in their proportions, as wide as this
  std::string body;
  int y = gap;
  std::size_t columns = 0;
  for (const strip_row& row : rows) {
    const picture& first = row.cells[0].pixels;
    const int height = static_cast<int>(side * first.height / first.width);
    int x = gap;
    for (const strip_cell& cell : row.cells) {
      char figure[32] = "";
      if (cell.psnr) std::snprintf(figure, sizeof figure, "  %.2f dB", *cell.psnr);
      const std::string place = " x=\"" + std::to_string(x) + "\" y=\"";
      body += "<image" + place + std::to_string(y) + "\" width=\"" + std::to_string(side) + "\" height=\"" +
              std::to_string(height) + "\" href=\"data:image/png;base64," +
              base64(png_of(cell.pixels, folder + "/strip.png")) + "\"/>\n<text" + place +
              std::to_string(y + height + 17) + "\">" + cell.name + figure +
              (&cell == &row.cells.back() ? "  (" + escaped(row.name) + ")" : "") + "</text>\n";
      x += side + gap;
    }
    y += height + text + gap;
    columns = std::max(columns, row.cells.size());
  }
  const std::string width = std::to_string(gap + columns * (side + gap)), height = std::to_string(y);
  const std::string svg =
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" + width + "\" height=\"" + height + "\" viewBox=\"0 0 " +
      width + ' ' + height +
      "\" font-family=\"sans-serif\" font-size=\"13\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n" +
      body + "</svg>\n";
  penstock::write_atomically(folder + "/strip.svg", std::as_bytes(std::span(svg)));
}

}  // namespace patch_trainer
