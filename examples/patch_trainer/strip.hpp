// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "photos.hpp"

namespace patch_trainer {

/// A picture with what is written under it.
struct strip_cell {
  std::string name;
  picture pixels;
  std::optional<double> psnr;
};
struct strip_row {
  std::string name;
  std::vector<strip_cell> cells;
};

/// Writes `folder`/strip.svg: a row of pictures for each photo, with the figures of each under it, in one file.
void draw_strip(const std::string& folder, const std::vector<strip_row>& rows);

}  // namespace patch_trainer
