// SPDX-License-Identifier: Apache-2.0
// The pipeline stands in this file alone: what leaves it is a feed, whose type says what its batches look like.
#include <array>
#include <tuple>
#include <vector>

#include <penstock/penstock.hpp>

using sample_schema = penstock::schema<penstock::field<float, 1>, penstock::field<float>>;

penstock::any_feed<sample_schema, penstock::cpu_device> make_feed(int readers);

penstock::any_feed<sample_schema, penstock::cpu_device> make_feed(int readers) {
  std::vector<std::tuple<std::array<float, 2>, float>> rows(100, {{1.0F, 2.0F}, 3.0F});
  return (std::move(rows) | penstock::partition({.seed = 7}) | penstock::read({.readers = readers}) |
          penstock::batch(16) | penstock::transfer(penstock::cpu_device{}))
      .start();
}
