// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <penstock/sample/error.hpp>

namespace penstock {

/// A sample that could not be read, where the run goes on without it: see `read_options::bad`.
struct sample_fault {
  std::uint64_t sample = 0;                   ///< its index in the dataset
  std::uint32_t row = 0;                      ///< of the batch, where it would be, and where its substitute is
  std::optional<std::uint64_t> substitute{};  ///< the sample that was read in its place
  provenance where{};                         ///< epoch and step, and, for files, path and position
  std::string problem{};                      ///< what was found and what was wanted
};

}  // namespace penstock
