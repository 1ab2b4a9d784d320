// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <thread>

#include "npy_files.hpp"

namespace {

using namespace npy_test;
using penstock::npy_access;
using penstock::npy_array;

class npy_readers : public testing::TestWithParam<npy_access> {};

INSTANTIATE_TEST_SUITE_P(access, npy_readers, testing::Values(npy_access::mapped, npy_access::positioned),
                         [](const auto& at) { return at.param == npy_access::mapped ? "mapped" : "positioned"; });

// REC-2
TEST_P(npy_readers, REC_2_eight_readers_of_one_open_file_each_get_the_right_records) {
  constexpr std::size_t records = 10000, width = 5, readers = 8;
  temporary_directory directory;
  std::vector<std::uint32_t> values(records * width);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::uint32_t>(i / width);
  for (char order : {'<', '>'}) {
    const std::string path = write_file(directory / "records.npy",
                                        npy_file(order == '<' ? "<u4" : ">u4", "(10000, 5)", bytes_of(values, order)));
    const npy_array<std::uint32_t, 1> array(path, {.access = GetParam()});
    std::latch start(readers);
    std::atomic<std::size_t> right = 0;
    {
      std::vector<std::jthread> threads;
      for (std::size_t reader = 0; reader < readers; ++reader) {
        threads.emplace_back([&, reader] {
          start.arrive_and_wait();
          for (std::size_t i = 0; i < records; ++i) {
            const std::size_t index = (i * 7919 + reader * 1231) % records;
            std::array<std::uint32_t, width> to{};
            array.prefetch(index);
            array.read(index, {penstock::tensor_view<std::uint32_t, 1>(to.data(), {width})});
            bool all = true;
            for (std::uint32_t number : to) all = all && number == index;
            right += all;
          }
        });
      }
    }
    EXPECT_EQ(right, records * readers);
  }
}

}  // namespace
