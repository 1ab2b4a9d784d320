// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostream>

#include "channel_model.hpp"

namespace penstock::checker {

/// The ring with these depths under these settings: 2 readers of 2 ranges each (or the one reader that the settings
/// name, alone), 1 consumer, and whoever the settings add. Each is explored to its end, over every interleaving of
/// sequentially consistent operations. (Memory orders are the thread sanitizer's matter.) `large` ones take minutes and
/// gigabytes: only with PENSTOCK_CHECK_ALL=1.
struct configuration {
  const char* name;
  std::uint32_t host, device;
  channel_settings settings = {};
  bool large = false;

  friend void PrintTo(const configuration& of, std::ostream* to) {
    *to << of.host << "+" << of.device << " " << of.name;
  }

  channel_settings settings_for_model() const {
    auto made = settings;
    made.shape.host = host;
    made.shape.device = device;
    if (made.widens) made.shape.in_use = host - 1;
    return made;
  }
};

}  // namespace penstock::checker
