// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace penstock::detail {

/// Takes a number in decimal digits off the front of `text`. False if there is none, or one of more than 64 bits.
inline bool take_number(std::string_view& text, std::uint64_t& to) {
  constexpr std::uint64_t most = ~std::uint64_t{0};
  std::size_t digits = 0;
  to = 0;
  for (; digits < text.size() && text[digits] >= '0' && text[digits] <= '9'; ++digits) {
    const auto digit = static_cast<std::uint64_t>(text[digits] - '0');
    if (to > (most - digit) / 10) return false;
    to = 10 * to + digit;
  }
  text.remove_prefix(digits);
  return digits != 0;
}

}  // namespace penstock::detail
