// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <penstock/dataset/tiles.hpp>

#include "made_images.hpp"

namespace tile_test {

using made_images::number;

/// Sample `index`: the tile's numbers and its place.
template <class Dataset>
auto sample_of(const Dataset& data, std::uint64_t index) {
  const auto shape = std::get<0>(data.schema().fields);
  using element = typename std::remove_cvref_t<decltype(shape)>::element_type;
  constexpr std::size_t rank = std::remove_cvref_t<decltype(shape)>::rank;
  std::vector<element> numbers(shape.elements());
  penstock::tile_place place;
  data.read(index, {penstock::tensor_view<element, rank>(numbers.data(), shape.shape),
                    penstock::tensor_view<penstock::tile_place, 0>(&place, {})});
  return std::pair(std::move(numbers), place);
}

template <class Exception, class Action>
std::string message_of(const Action& action) {
  try {
    action();
  } catch (const Exception& caught) {
    return caught.what();
  }
  return {};
}

}  // namespace tile_test
