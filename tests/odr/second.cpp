// SPDX-License-Identifier: Apache-2.0
#include "every_header.hpp"

const void* second_address();
const void* second_address() { return reinterpret_cast<const void*>(&penstock::detail::message_of); }
