// SPDX-License-Identifier: Apache-2.0
#include <penstock/sample/schema.hpp>

std::size_t elements_elsewhere();
std::size_t elements_elsewhere() { return penstock::field<float, 2>{"x", {2, 3}}.elements(); }
