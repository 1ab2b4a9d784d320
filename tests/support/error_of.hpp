// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include <penstock/sample/error.hpp>

namespace penstock_test {

/// The message of the `penstock::error` that `action` throws; empty if it throws none.
template <class Action>
std::string error_of(const Action& action) {
  try {
    action();
  } catch (const penstock::error& caught) {
    return caught.what();
  }
  return {};
}

}  // namespace penstock_test
