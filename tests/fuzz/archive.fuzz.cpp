// SPDX-License-Identifier: Apache-2.0
// Most bytes: 512
// The bytes of the regression trainer's checkpoint, behind their checksum: an error, or members that give the same
// bytes again.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include "../../examples/regression_trainer/archive.hpp"
#include "../../examples/regression_trainer/options.hpp"

namespace {

/// As the trainer's checkpoint; the network's parameters, a matrix library's vectors, are plain ones here.
struct checkpoint {
  trainer::settings options;
  std::vector<float> mean, parameters;
  std::vector<double> training;
  double loss = 0;
  std::uint64_t seen = 0;
  std::string feed;
  void each(auto& io) { io(options, mean, parameters, training, loss, seen, feed); }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto given = std::as_bytes(std::span(data, size));
  checkpoint state;
  try {
    trainer::archive from({given.begin(), given.end()});
    state.each(from);
    from.finish();
  } catch (const penstock::error&) {
    return 0;
  }
  // Reading what is no bool is what the sanitizer finds.
  volatile bool flag = state.options.indexed;
  flag = state.options.adam;
  trainer::archive again;
  state.each(again);
  if (!std::equal(again.bytes().begin(), again.bytes().end(), given.begin(), given.end())) std::abort();
  return 0;
}
