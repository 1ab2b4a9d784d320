// SPDX-License-Identifier: Apache-2.0
#include <cstddef>

#include <penstock/device/modelled.hpp>
#include <penstock/observe/progress.hpp>
#include <penstock/penstock.hpp>

using sample_schema = penstock::schema<penstock::field<float, 1>, penstock::field<float>>;
using feed_type = penstock::any_feed<sample_schema, penstock::cpu_device>;

feed_type make_feed(int readers);

struct trainer {
  feed_type feed;  // a member, and moved into place
  std::size_t samples = 0;

  void epoch(std::size_t number) {
    for (auto& batch : feed.epoch(number)) {
      auto [x, y] = batch.fields();
      if (x(0, 1) + y(0) == 5.0F) samples += batch.size();
    }
  }
};

int main() {
  trainer one{make_feed(2)};
  one.feed.observe(penstock::progress_bar{});
  one.epoch(0);
  one.epoch(1);
  return one.samples == 200 ? 0 : 1;
}
