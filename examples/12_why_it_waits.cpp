// SPDX-License-Identifier: Apache-2.0
// Why is my GPU waiting? The ledger says which stage bounds a loop and what to change; then that is changed. Storage
// takes 0.4 ms a sample here, the device is a modelled one: a copy of a batch takes 0.3 ms, computing on it 2 ms.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include <penstock/device/modelled.hpp>
#include <penstock/observe/ledger.hpp>
#include <penstock/observe/timeline.hpp>
#include <penstock/observe/trace.hpp>
#include <penstock/penstock.hpp>

using namespace std::chrono_literals;

struct slow_storage {
  using schema_type = penstock::schema<penstock::field<float, 1>>;
  std::uint64_t size() const { return 1600; }
  schema_type schema() const { return schema_type{penstock::field<float, 1>{"x", {4096}}}; }
  void read(std::uint64_t index, const penstock::sample_view<schema_type>& to) const {
    std::this_thread::sleep_for(400us);
    std::get<0>(to)(0) = static_cast<float>(index);
  }
};

penstock::ledger_values measure(int readers, const std::string& out) {
  penstock::ledger ledger;
  {
    penstock::modelled_options device;
    device.copy_time = 300us;
    auto feed = (slow_storage() | penstock::partition({.seed = 1}) | penstock::read({.readers = readers}) |
                 penstock::batch(16) | penstock::transfer(penstock::modelled_device(device)))
                    .start();
    feed.observe(ledger);
    feed.observe(penstock::timeline(out + ".svg"));
    feed.observe(penstock::chrome_trace(out + ".json"));
    for (auto& batch : feed.epoch(0)) batch.stream().launch(2ms);
  }
  std::printf("%d reader(s): %s\n", readers, ledger.total().text().c_str());
  return ledger.total();
}

int main(int argc, char** argv) {
  const std::string out = argc > 1 ? argv[1] : (std::filesystem::temp_directory_path() / "penstock-waits").string();
  std::filesystem::create_directories(out);
  const auto before = measure(1, out + "/before");
  const auto after = measure(1 + static_cast<int>(before.readers_wanted()), out + "/after");
  const auto seconds = [](const auto& of) { return std::chrono::duration<double>(of.elapsed).count(); };
  std::printf("%.2f s became %.2f s; the schedules are in %s\n", seconds(before), seconds(after), out.c_str());
}
