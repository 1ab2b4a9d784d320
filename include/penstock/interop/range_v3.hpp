// SPDX-License-Identifier: Apache-2.0
#pragma once

// range-v3 does not compile in nvcc: include this from host code only. Its views go into a pipeline without it; it is
// for range-v3's adaptors on what `epoch()` gives, and for their names beside ours.
#include <range/v3/range/concepts.hpp>

#include <penstock/schedule/feed.hpp>

/// What `epoch()` and `steps()` return is a view to range-v3, too: `feed.epoch(0) | ranges::views::enumerate`.
template <class Schema, class Device>
inline constexpr bool ranges::enable_view<penstock::batch_range<Schema, Device>> = true;
