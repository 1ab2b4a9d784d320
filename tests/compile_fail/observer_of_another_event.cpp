// SPDX-License-Identifier: Apache-2.0
// expect: on_error or on_end cannot be called with a const reference to its event: run_begin, batch_event
#include <vector>

#include <penstock/penstock.hpp>

const std::vector<float> samples(10);

struct counter {
#ifdef PENSTOCK_REJECTED
  void on_batch(const penstock::epoch_event& event) { seen += event.samples; }
#else
  void on_batch(const penstock::batch_event& event) { seen += event.samples; }
#endif
  void on_end(const penstock::run_end&) {}
  unsigned long seen = 0;
};

int main() {
  auto feed = samples | penstock::partition() | penstock::read() | penstock::batch(2) |
              penstock::transfer(penstock::cpu_device{});
  feed.observe(counter{});
}
