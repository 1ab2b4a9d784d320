// SPDX-License-Identifier: Apache-2.0
// expect: read takes quarantine.*, of <penstock/dataset/quarantine.hpp>, .* is given a path
#include <penstock/penstock.hpp>

int main() {
#ifdef PENSTOCK_REJECTED
  const auto reading = penstock::read({.bad = penstock::bad_samples::skip, .quarantine = "bad.csv"});
#else
  const auto reading = penstock::read({.bad = penstock::bad_samples::skip, .quarantine = {}});
#endif
  static_cast<void>(reading);
}
