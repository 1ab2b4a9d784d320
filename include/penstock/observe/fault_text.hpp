// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include <penstock/sample/error.hpp>
#include <penstock/sample/fault.hpp>

namespace penstock::detail {

/// "photos/17.png, byte 8: bad checksum; sample 18 was read in its place"
inline std::string fault_text(const sample_fault& fault) {
  std::string text = fault.where.path;
  if (!fault.where.position.empty()) text += (text.empty() ? "" : ", ") + fault.where.position;
  text += (text.empty() ? "" : ": ") + fault.problem;
  if (fault.substitute) text += concat("; sample ", *fault.substitute, " was read in its place");
  return text;
}

}  // namespace penstock::detail
