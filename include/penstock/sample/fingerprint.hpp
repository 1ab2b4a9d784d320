// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <tuple>
#include <type_traits>

#include <penstock/sample/schema.hpp>

namespace penstock::detail {

/// FNV-1a over the eight bytes of each number: a fingerprint is to catch mistakes, not attacks.
inline std::uint64_t mix(std::uint64_t hash, std::uint64_t number) {
  for (int i = 0; i < 8; ++i) hash = (hash ^ (number >> (8 * i) & 0xFF)) * 0x100000001B3u;
  return hash;
}
inline std::uint64_t mix(std::uint64_t hash, std::string_view text) {
  hash = mix(hash, text.size());
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  return hash;
}
inline constexpr std::uint64_t mix_start = 0xCBF29CE484222325u;

/// Of a number of samples, and of their fields' names, element types and shapes.
template <class Schema>
std::uint64_t fingerprint_of(std::uint64_t samples, const Schema& schema) {
  std::uint64_t hash = mix(mix_start, samples);
  const auto add = [&](const auto& field) {
    using element = typename std::remove_cvref_t<decltype(field)>::element_type;
    hash = mix(hash, std::string_view(field.name));
    hash = mix(hash, std::uint64_t{sizeof(element)} << 2 | std::uint64_t{std::is_floating_point_v<element>} << 1 |
                         std::uint64_t{std::is_signed_v<element>});
    hash = mix(hash, field.shape.size());
    for (const std::size_t extent : field.shape) hash = mix(hash, extent);
  };
  std::apply([&](const auto&... fields) { (add(fields), ...); }, schema.fields);
  return hash;
}

}  // namespace penstock::detail
