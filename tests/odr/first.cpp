// SPDX-License-Identifier: Apache-2.0
#include "every_header.hpp"

// Addresses of inline things are the same in both translation units.
const void* second_address();

const void* first_address() { return reinterpret_cast<const void*>(&penstock::detail::message_of); }

int main() { return first_address() == second_address() ? 0 : 1; }
