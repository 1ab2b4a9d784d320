// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <charconv>
#include <cmath>
#include <limits>
#include <string>
#include <string_view>
#include <system_error>

// Both parsers ignore the locale and round correctly; fast_float is faster and knows decimal commas.
#ifndef PENSTOCK_FAST_FLOAT
#if __has_include(<fast_float/fast_float.h>)
#define PENSTOCK_FAST_FLOAT 1
#else
#define PENSTOCK_FAST_FLOAT 0
#endif
#endif
#if PENSTOCK_FAST_FLOAT
#include <fast_float/fast_float.h>
#endif

namespace penstock::detail {

/// Without spaces and tabs at both ends.
constexpr std::string_view trimmed(std::string_view text) {
  const auto blank = [](char c) { return c == ' ' || c == '\t'; };
  while (!text.empty() && blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && blank(text.back())) text.remove_suffix(1);
  return text;
}

enum class number_status { good, not_a_number, out_of_range };

#if PENSTOCK_FAST_FLOAT
template <class Element>
std::from_chars_result number_from_chars(std::string_view text, char decimal, Element& value) {
  const fast_float::parse_options options(fast_float::chars_format::general, decimal);
  const auto result = fast_float::from_chars_advanced(text.data(), text.data() + text.size(), value, options);
  return {result.ptr, result.ec};
}
#else
/// The standard's parser knows points only; and it leaves the value alone where the number is too small or too large.
template <class Element>
std::from_chars_result number_from_chars(std::string_view text, char decimal, Element& value) {
  std::string copy(text);
  if (decimal != '.') {
    for (char& c : copy) c = c == decimal ? '.' : c == '.' ? decimal : c;
  }
  std::from_chars_result result = std::from_chars(copy.data(), copy.data() + copy.size(), value);
  result.ptr = text.data() + (result.ptr - copy.data());
  if (result.ec != std::errc::result_out_of_range) return result;
  const std::size_t exponent = copy.find_first_of("eE");
  const bool small = exponent == std::string::npos ? copy.find_first_of("123456789") > copy.find('.')
                                                   : copy.substr(exponent + 1, 1) == "-";
  value = small ? Element{0} : std::numeric_limits<Element>::infinity();
  if (copy.front() == '-') value = -value;
  return {result.ptr, std::errc{}};
}
#endif

/// Reads a number that takes up all of `text` (trimmed), correctly rounded, whatever the locale. Numbers too small
/// become 0. "inf" and "nan" are numbers, in any case; "1e999" is not.
template <class Element>
number_status parse_number(std::string_view text, char decimal, Element& value) {
  if (!text.empty() && text.front() == '+') {
    text.remove_prefix(1);
    if (!text.empty() && (text.front() == '-' || text.front() == '+')) return number_status::not_a_number;
  }
  if (text.empty()) return number_status::not_a_number;
  const auto [end, problem] = number_from_chars(text, decimal, value);
  if (problem == std::errc::result_out_of_range) return number_status::out_of_range;
  if (problem != std::errc{} || end != text.data() + text.size()) return number_status::not_a_number;
  if (std::isinf(value) && text.find_first_of("fF") == std::string_view::npos) return number_status::out_of_range;
  return number_status::good;
}

}  // namespace penstock::detail
