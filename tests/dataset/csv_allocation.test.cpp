// SPDX-License-Identifier: Apache-2.0
// ctest: plain too: allocations are counted there alone
// ctest: no tsan: one thread
// Reading a row allocates nothing, in either mode.
#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>
#include <string>
#include <tuple>
#include <vector>

#include <penstock/dataset/csv.hpp>

#include "../support/counted_allocations.hpp"
#include "csv_support.hpp"

namespace {

using laws::allocations;

using penstock::csv_mode;

class csv_read : public testing::TestWithParam<csv_mode> {};
INSTANTIATE_TEST_SUITE_P(, csv_read, testing::Values(csv_mode::loaded, csv_mode::indexed),
                         [](const auto& run) { return run.param == csv_mode::loaded ? "loaded" : "indexed"; });

TEST_P(csv_read, allocates_nothing) {
  const penstock_test::temporary_directory directory;
  std::string text = "cut,note,x,y\r\n";
  for (int i = 0; i < 100; ++i) {
    text += i % 2 == 0 ? "Very Good with a long name of many letters" : "\"Fair, with a comma and a long name\"";
    text += ",\"line\r\nbreak\",1234567890.123456789," + std::to_string(i) + "\r\n";
  }
  text.resize(text.size() - 2);  // no last line end
  const penstock::csv_table table(directory.file("t.csv", text), {.target = "y", .mode = GetParam()});
  std::vector<float> x(3);
  float y = 0;
  const std::tuple to{penstock::tensor_view<float, 1>{x.data(), {3}}, penstock::tensor_view<float, 0>{&y, {}}};
  const std::size_t before = allocations;
  float sum = 0;
  for (std::size_t i = 0; i < table.size(); ++i) {
    table.prefetch(i);
    table.read(i, to);
    sum += y;
  }
  EXPECT_EQ(allocations, before);
  EXPECT_EQ(sum, 4950.0F);
  EXPECT_GT(allocations, 0u) << "nothing is counted";
}

}  // namespace
