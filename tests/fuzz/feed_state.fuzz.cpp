// SPDX-License-Identifier: Apache-2.0
// Most bytes: 256
// A feed's state: what is read is written so that it is read again, and all else is an error.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>

#include <penstock/schedule/state.hpp>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::unique_ptr<char[]> text(new char[size]);
  if (size != 0) std::memcpy(text.get(), data, size);
  try {
    const auto state = penstock::feed_state::parse({text.get(), size});
    if (penstock::feed_state::parse(state.text()) != state) std::abort();
  } catch (const penstock::error&) {
  }
  return 0;
}
