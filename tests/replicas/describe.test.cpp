// SPDX-License-Identifier: Apache-2.0
// ctest: no tsan: what it calls is tested elsewhere
// ctest: no asan: what it calls is tested elsewhere
// Which workers are tied to which device, and how the devices are linked.
#include <unistd.h>

#include "support.hpp"

namespace {

using namespace replicated;
using penstock::replicas;

std::string host_name() {
  char text[256] = {};
  return gethostname(text, sizeof(text) - 1) == 0 ? text : "unknown";
}
bool has(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

TEST(describe, is_a_table_of_the_ranks_the_same_for_all) {
  const rows data{13};
  const auto allowed = penstock::detail::allowed_cpus();
  for (const std::uint64_t n : {std::uint64_t{1}, std::uint64_t{2}, std::uint64_t{4}}) {
    by_rank<std::string> texts(n);
    replicas(static_cast<int>(n), [&](auto& replica) {
      auto work = work_of(data, replica, {.readers = static_cast<int>(replica.rank()) + 1});
      texts.tell(replica, penstock::describe(replica, work));
      // And the loop goes on as usual.
      auto feed = replica.start(work);
      for (auto& batch : feed.epoch(0)) {
        float value[1] = {1};
        EXPECT_TRUE(replica.all_reduce(batch, std::span(value)));
      }
    });
    const std::string text = texts.same();
    EXPECT_TRUE(text.starts_with("rank  host")) << text;
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), static_cast<std::ptrdiff_t>(n + 1)) << text;
    const std::string cpus = (allowed.size() == 1 ? " on CPU " : " on CPUs ") + allowed.text();
    for (std::uint64_t r = 0; r < n; ++r)
      EXPECT_TRUE(has(text, "\n" + std::to_string(r) + "     " + host_name())) << text;
    EXPECT_TRUE(has(text, "  " + std::to_string(getpid()) + "  ")) << text;
    EXPECT_TRUE(has(text, "1 reader thread" + cpus)) << text;
    EXPECT_EQ(has(text, cpus + "  -\n"), n == 1) << text;
    EXPECT_EQ(has(text, "2 reader threads" + cpus), n >= 2) << text;
    if (n == 4) {
      EXPECT_TRUE(has(text, "host memory to 1-3\n")) << text;
      EXPECT_TRUE(has(text, "host memory to 0,2-3\n")) << text;
    }
  }
}

TEST(describe, tells_a_placed_reader_s_cpus) {
  const rows data{13};
  const int cpu = penstock::detail::allowed_cpus()[0];
  replicas(2, [&](auto& replica) {
    const auto work = data | penstock::partition({.world = replica}) | penstock::read({.readers = 2, .cpus = {cpu}}) |
                      penstock::batch({.global = 4}) | penstock::transfer(replica.device());
    const std::string text = penstock::describe(replica, work);
    EXPECT_TRUE(has(text, "2 reader threads on CPU " + std::to_string(cpu) + "  ")) << text;
  });
}

TEST(describe, a_rank_whose_readers_cannot_be_so_ends_the_run_for_all) {
  const rows data{13};
  try {
    replicas(2, [&](auto& replica) {
      auto work = data | penstock::partition({.world = replica}) |
                  penstock::read({.readers = 2, .cpus = {replica.rank() == 1 ? 1024 : 0}}) |
                  penstock::batch({.global = 4}) | penstock::transfer(replica.device());
      static_cast<void>(penstock::describe(replica, work));
    });
    FAIL();
  } catch (const penstock::replica_error& caught) {
    EXPECT_EQ(caught.rank(), 1U);
    EXPECT_TRUE(has(caught.what(), "cpus is 1024")) << caught.what();
  }
}

/// A host device with a place and links, such as no test machine has: 0 and 1 are linked, 2 is on another bus.
struct placed_device : penstock::cpu_device {
  int number = 0;
  std::string describe() const { return "placed " + std::to_string(number); }
  std::string pci_bus_id() const { return "0000:0" + std::to_string(number) + ":00.0"; }
  std::string link_to(const std::string& pci) const {
    const int other = pci[6] - '0';
    return number + other == 1 ? "NVLink" : number < 3 && other < 3 ? "PCIe" : "host";
  }
  bool operator==(const placed_device&) const = default;
};

TEST(describe, devices_tell_their_place_and_links) {
  const rows data{13};
  std::vector<placed_device> devices(5);
  for (int i = 0; i < 4; ++i) devices[static_cast<std::size_t>(i)].number = i;
  by_rank<std::string> texts(devices.size());
  replicas(penstock::local_world(devices),
           [&](auto& replica) { texts.tell(replica, penstock::describe(replica, work_of(data, replica))); });
  const std::string text = texts.same();
  EXPECT_TRUE(has(text, "placed 3  0000:03:00.0")) << text;
  EXPECT_TRUE(has(text, "NVLink to 1, PCIe to 2, host to 3, same device to 4\n")) << text;
  EXPECT_TRUE(has(text, "NVLink to 0,4, PCIe to 2, host to 3\n")) << text;
  EXPECT_TRUE(has(text, "PCIe to 0-1,4, host to 3\n")) << text;
  EXPECT_TRUE(has(text, "host to 0-2,4\n")) << text;
}

}  // namespace
