// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace penstock::detail {

/// A running estimate of a median, which a few that are far off do not move: what `usual` becomes when there is one
/// more, `time`. It is 0 before the first, and 1 at the least after.
constexpr std::int64_t usual_after(std::int64_t usual, std::int64_t time) noexcept {
  if (usual == 0) return time < 1 ? 1 : time;
  const std::int64_t step = usual / 16 + 1;
  return time > usual ? usual + step : usual > step ? usual - step : 1;
}

}  // namespace penstock::detail
