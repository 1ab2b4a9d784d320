// SPDX-License-Identifier: Apache-2.0
// ctest: no tsan: one thread
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <vector>

#include <penstock/channel/layout.hpp>

namespace {

using penstock::field;
using schema_type = penstock::schema<field<float, 2>, field<std::uint8_t>, field<double, 1>>;
using layout = penstock::batch_layout<schema_type>;

const schema_type schema{field<float, 2>{"image", {3, 5}}, field<std::uint8_t>{"label"}, field<double, 1>{"row", {7}}};

TEST(layout, puts_fields_one_after_the_other_each_aligned) {
  for (std::size_t capacity : {1U, 3U, 256U, 1000U}) {
    const layout of(schema, capacity);
    EXPECT_EQ(of.capacity(), capacity);
    EXPECT_EQ(of.row_bytes(0), 60U);
    EXPECT_EQ(of.row_bytes(1), 1U);
    EXPECT_EQ(of.row_bytes(2), 56U);
    std::size_t end = 0;
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(of.offset(i) % layout::alignment, 0U);
      EXPECT_GE(of.offset(i), end) << "fields overlap";
      EXPECT_LT(of.offset(i), end + layout::alignment) << "room is wasted";
      end = of.offset(i) + of.row_bytes(i) * capacity;
    }
    EXPECT_GE(of.bytes(), end);
    EXPECT_EQ(of.schema(), schema);
  }
}

TEST(layout, a_short_batch_is_copied_up_to_its_last_byte) {
  const layout of(schema, 100);
  EXPECT_EQ(of.bytes_of(0), of.offset(2));
  EXPECT_EQ(of.bytes_of(7), of.offset(2) + 7 * 56);
  EXPECT_LE(of.bytes_of(100), of.bytes());
}

TEST(layout, views_begin_at_any_row_and_know_their_extents) {
  const layout of(schema, 10);
  std::vector<std::byte> memory(of.bytes());
  const auto [image, label, row] = of.views(memory.data(), 4, 3);
  EXPECT_EQ(image.shape(), (std::array<std::size_t, 3>{4, 3, 5}));
  EXPECT_EQ(label.shape(), (std::array<std::size_t, 1>{4}));
  EXPECT_EQ(row.shape(), (std::array<std::size_t, 2>{4, 7}));
  EXPECT_EQ(reinterpret_cast<std::byte*>(image.data()), memory.data() + of.offset(0) + 3 * 60);
  EXPECT_EQ(reinterpret_cast<std::byte*>(label.data()), memory.data() + of.offset(1) + 3);
  EXPECT_EQ(reinterpret_cast<std::byte*>(row.data()), memory.data() + of.offset(2) + 3 * 56);
  const auto on_device = of.view<2, penstock::device_memory>(memory.data(), 10);
  EXPECT_EQ(on_device.extent(0), 10U);
  EXPECT_EQ(reinterpret_cast<std::byte*>(on_device.data()), memory.data() + of.offset(2));
}

TEST(layout, a_field_without_elements_takes_no_room) {
  const penstock::batch_layout of(penstock::schema{field<float, 1>{"none", {0}}, field<int>{"one"}}, 8);
  EXPECT_EQ(of.row_bytes(0), 0U);
  EXPECT_EQ(of.offset(1), 0U);
  EXPECT_EQ(of.bytes_of(8), 32U);
}

}  // namespace
