// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>

namespace penstock::detail {

// Numbers for displays and files. std::to_chars knows no locale, so a comma locale of the application's cannot get in.

inline void append_count(std::string& out, std::uint64_t value) {
  char text[20];
  out.append(text, std::to_chars(text, text + sizeof text, value).ptr);
}

/// With `digits` significant digits, "1e+20" where that is shorter; "nan", "inf".
inline void append_number(std::string& out, double value, int digits = 4) {
  char text[64];
  const auto end = std::to_chars(text, text + sizeof text, value, std::chars_format::general, digits);
  out.append(text, end.ptr);
}

/// With as many digits as it takes to read the same number back.
inline void append_exact(std::string& out, double value) {
  char text[64];
  out.append(text, std::to_chars(text, text + sizeof text, value).ptr);
}

inline void append_fixed(std::string& out, double value, int decimals) {
  char text[64];
  const auto end = std::to_chars(text, text + sizeof text, value, std::chars_format::fixed, decimals);
  out.append(text, end.ptr);
}

/// Three digits and a unit: "0.0123", "4.56", "78.9", "123", "4.56k", "7.89M".
inline void append_rate(std::string& out, double value) {
  if (!(value >= 0.9995) || value >= 999.5e12) return append_number(out, value, 3);
  std::string_view unit = " kMGT";
  while (value >= 999.5) {
    value /= 1000;
    unit.remove_prefix(1);
  }
  append_fixed(out, value, value < 9.995 ? 2 : value < 99.95 ? 1 : 0);
  if (unit.front() != ' ') out += unit.front();
}

/// "0:07", "59:59", "23:59:59", "3d 04h", "11574074d".
inline void append_duration(std::string& out, std::chrono::duration<double> duration) {
  const double rounded = std::round(duration.count());
  if (std::isnan(rounded)) return append_number(out, rounded);
  constexpr double most = 1e18;  // an integer holds it, and longer makes no difference
  const auto seconds = static_cast<std::uint64_t>(rounded < 0 ? 0 : rounded > most ? most : rounded);
  const auto two_digits = [&](std::uint64_t value) {
    if (value < 10) out += '0';
    append_count(out, value);
  };
  const std::uint64_t minutes = seconds / 60, hours = minutes / 60, days = hours / 24;
  if (days >= 100) {
    append_count(out, days);
    out += 'd';
    return;
  }
  if (days > 0) {
    append_count(out, days);
    out += "d ";
    two_digits(hours % 24);
    out += 'h';
    return;
  }
  if (hours > 0) {
    append_count(out, hours);
    out += ':';
    two_digits(minutes % 60);
  } else {
    append_count(out, minutes);
  }
  out += ':';
  two_digits(seconds % 60);
}

/// Text of others without control characters, which could move the cursor or break the line.
inline void append_printable(std::string& out, std::string_view text) {
  for (const char c : text) out += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
}

/// Text of others for HTML, within an element or a quoted attribute.
inline void append_escaped(std::string& out, std::string_view text) {
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      case '\'': out += "&#39;"; break;
      default: out += (static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t') || c == 0x7f ? '?' : c;
    }
  }
}

/// Text of others as one field of CSV (RFC 4180), on one line.
inline void append_csv_field(std::string& out, std::string_view text) {
  if (text.find_first_of(",\"") == text.npos) return append_printable(out, text);
  out += '"';
  for (const char c : text) {
    if (c == '"') out += '"';
    append_printable(out, std::string_view(&c, 1));
  }
  out += '"';
}

/// Characters of UTF-8 text: bytes that do not continue another.
inline std::size_t count_characters(std::string_view text) {
  std::size_t count = 0;
  for (const char c : text) count += (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
  return count;
}

/// Cuts UTF-8 text after `most` characters, never within one.
inline void cut_to(std::string& text, std::size_t most) {
  std::size_t count = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if ((static_cast<unsigned char>(text[at]) & 0xC0U) == 0x80U) continue;
    if (count++ == most) return text.resize(at);
  }
}

}  // namespace penstock::detail
