// SPDX-License-Identifier: Apache-2.0
// expect: penstock: a field's element type must be trivially copyable
#include <string>

#include <penstock/sample/schema.hpp>

#ifdef PENSTOCK_REJECTED
using element = std::string;
#else
using element = float;
#endif

int main() { return static_cast<int>(penstock::field<element>{}.name.size()); }
