// SPDX-License-Identifier: Apache-2.0
// What the double for NCCL finds.
#include "nccl_support.hpp"

namespace {

using namespace doubled;

struct pair {
  ncclComm_t of[2] = {};
  std::vector<penstock::cuda_device> device = devices(2);
  std::vector<penstock::cuda_memory> memory;
  std::vector<penstock::cuda_stream> stream;
  pair() {
    ncclUniqueId id;
    EXPECT_EQ(ncclGetUniqueId(&id), ncclSuccess);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    for (int r = 0; r < 2; ++r) {
      const on_device current(r);
      EXPECT_EQ(ncclCommInitRankConfig(&of[r], 2, id, r, &config), ncclInProgress);
      memory.push_back(device[static_cast<std::size_t>(r)].allocate(64));
      stream.push_back(device[static_cast<std::size_t>(r)].make_stream());
    }
    settle(0);
    settle(1);
  }
  ~pair() {
    for (ncclComm_t one : of) EXPECT_EQ(ncclCommAbort(one), ncclSuccess);
    cuda_double::finish();
  }
  void settle(int r) {
    for (ncclResult_t state = ncclInProgress; state == ncclInProgress;)
      ASSERT_EQ(ncclCommGetAsyncError(of[r], &state), ncclSuccess);
  }
  void reduce(int r, std::size_t count) {
    const auto i = static_cast<std::size_t>(r);
    ncclGroupStart();
    EXPECT_EQ(ncclAllReduce(memory[i].data(), memory[i].data(), count, ncclFloat32, ncclSum, of[r], stream[i].view()),
              ncclSuccess);
    ncclGroupEnd();
  }
};
std::string only_fault() {
  const auto faults = cuda_double::take_faults();
  return faults.size() == 1 ? faults[0] : std::to_string(faults.size()) + " faults";
}

TEST(nccl_bites, sizes_that_differ_hang_and_are_told) {
  pair two;
  two.reduce(0, 2);
  two.settle(0);
  two.reduce(1, 3);
  two.settle(1);
  cuda_double::finish();
  EXPECT_FALSE(two.stream[0].view().is_done());
  EXPECT_NE(only_fault().find("they hang"), std::string::npos);
}
TEST(nccl_bites, a_rank_that_does_not_come_is_waited_for_until_the_abort) {
  pair two;
  two.reduce(0, 2);
  two.settle(0);
  cuda_double::finish();
  EXPECT_FALSE(two.stream[0].view().is_done());
}
TEST(nccl_bites, memory_that_is_made_while_a_rank_is_missing) {
  pair two;
  two.reduce(0, 2);
  two.settle(0);
  {
    const on_device current(1);
    auto more = two.device[1].allocate(8);
    EXPECT_NE(only_fault().find("cudaMalloc while a collective waits"), std::string::npos);
    two.reduce(1, 2);
    two.settle(1);
  }
  cuda_double::finish();
}
TEST(nccl_bites, what_is_recorded_before_the_call_is_on_the_stream) {
  // Some delay or other has it in progress.
  bool found = false;
  for (std::uint64_t seed = 1; seed <= 20 && !found; ++seed) {
    fresh({.seed = seed});
    pair two;
    for (int r = 0; r < 2; ++r) two.reduce(r, 2);
    auto done = two.device[0].make_event();
    auto other = two.device[0].make_stream();
    two.device[0].record(done, two.stream[0].view());
    two.device[0].wait(other.view(), done);
    cuda_double::launch(other.view(), {writes(two.memory[0].data(), 8)});
    for (int r = 0; r < 2; ++r) two.settle(r);
    cuda_double::finish();
    for (const std::string& fault : cuda_double::take_faults())
      found = found || fault.find("with nothing that orders it") != std::string::npos;
  }
  EXPECT_TRUE(found);
}

}  // namespace
