// SPDX-License-Identifier: Apache-2.0
// ctest: no tsan: one thread
#include <gtest/gtest.h>

#include <array>
#include <concepts>
#include <cstddef>
#include <numeric>
#include <ranges>
#include <span>
#include <type_traits>

#include <penstock/sample/tensor_view.hpp>

namespace {

using penstock::device_memory;
using penstock::tensor_view;

/// What std::mdspan, Kokkos::mdspan and cuda::std::mdspan have in common, as far as the conversion asks.
template <class T, std::size_t Rank>
class fake_mdspan {
 public:
  using element_type = T;
  using extents_type = std::array<std::size_t, Rank>;
  using layout_type = void;
  fake_mdspan(T* data, extents_type extents) : data_(data), extents_(extents) {}
  static constexpr std::size_t rank() { return Rank; }
  std::size_t extent(std::size_t i) const { return extents_[i]; }
  T* data_handle() const { return data_; }

 private:
  T* data_;
  extents_type extents_;
};

class tensor_view_test : public testing::Test {
 protected:
  tensor_view_test() { std::iota(values_.begin(), values_.end(), 0.0f); }
  std::array<float, 24> values_;
  tensor_view<float, 3> view_{values_.data(), {2, 3, 4}};
};

TEST_F(tensor_view_test, finds_elements_in_row_major_order) {
  EXPECT_EQ(view_.size(), 24u);
  EXPECT_EQ(view_.size_bytes(), 96u);
  EXPECT_EQ(view_.shape(), (std::array<std::size_t, 3>{2, 3, 4}));
  EXPECT_EQ(view_.stride(0), 12u);
  EXPECT_EQ(view_.stride(1), 4u);
  EXPECT_EQ(view_.stride(2), 1u);
  float expected = 0;
  for (std::size_t i = 0; i < 2; ++i)
    for (std::size_t j = 0; j < 3; ++j)
      for (std::size_t k = 0; k < 4; ++k) {
        EXPECT_EQ(view_(i, j, k), expected);
        EXPECT_EQ(view_[i][j][k], expected);
        EXPECT_EQ(view_.sub(i).sub(j).sub(k)(), expected);
        ++expected;
      }
  static_assert(!std::invocable<tensor_view<float, 3>, int, int>);
}

TEST_F(tensor_view_test, writes_through_copies_and_parts) {
  const auto copy = view_;
  copy[1](2, 3) = -1;
  view_.sub(0).sub(0).sub(1)() = -2;
  EXPECT_EQ(values_[23], -1);
  EXPECT_EQ(values_[1], -2);
}

TEST_F(tensor_view_test, first_keeps_the_other_extents) {
  const auto part = view_.first(1);
  EXPECT_EQ(part.shape(), (std::array<std::size_t, 3>{1, 3, 4}));
  EXPECT_EQ(part.data(), values_.data());
  EXPECT_TRUE(view_.first(0).empty());
  EXPECT_EQ(view_.sub(1).first(2).end(), values_.data() + 20);
}

TEST_F(tensor_view_test, is_a_range_and_a_span_of_all_elements) {
  static_assert(std::ranges::contiguous_range<tensor_view<float, 3>>);
  EXPECT_EQ(std::accumulate(view_.begin(), view_.end(), 0.0f), 276.0f);
  const std::span<float> from_lvalue = view_;
  const std::span<const float> constant = view_;
  const std::span<float> from_rvalue = view_.sub(1);
  EXPECT_EQ(from_lvalue.data(), values_.data());
  EXPECT_EQ(constant.size(), 24u);
  EXPECT_EQ(from_rvalue.data(), values_.data() + 12);
  EXPECT_EQ(from_rvalue.size(), 12u);
  const auto fixed = view_;
  EXPECT_EQ(std::span<float>(fixed).size(), 24u);
}

TEST_F(tensor_view_test, becomes_one_of_constant_elements_but_not_back) {
  const tensor_view<const float, 3> constant = view_;
  EXPECT_EQ(constant(1, 2, 3), 23.0f);
  static_assert(std::same_as<decltype(constant(0, 0, 0)), const float&>);
  static_assert(!std::convertible_to<tensor_view<const float, 3>, tensor_view<float, 3>>);
  static_assert(!std::convertible_to<tensor_view<float, 3>, tensor_view<double, 3>>);
  static_assert(!std::convertible_to<tensor_view<float, 3>, tensor_view<float, 3, device_memory>>);
}

TEST_F(tensor_view_test, becomes_any_mdspan_of_its_type_and_rank) {
  const fake_mdspan<float, 3> other = view_;
  EXPECT_EQ(other.data_handle(), values_.data());
  EXPECT_EQ(other.extent(0), 2u);
  EXPECT_EQ(other.extent(2), 4u);
  static_assert(!std::convertible_to<tensor_view<float, 3>, fake_mdspan<float, 2>>);
  static_assert(!std::convertible_to<tensor_view<float, 3>, fake_mdspan<double, 3>>);
  static_assert(!std::convertible_to<tensor_view<const float, 3>, fake_mdspan<float, 3>>);
}

TEST(tensor_view, of_rank_zero_is_one_element) {
  int value = 3;
  const tensor_view<int, 0> view(&value, {});
  EXPECT_EQ(view.size(), 1u);
  view() += 1;
  EXPECT_EQ(value, 4);
}

TEST(tensor_view, made_from_nothing_is_empty) {
  EXPECT_TRUE((tensor_view<int, 2>().empty()));
  EXPECT_EQ((tensor_view<int, 2>().data()), nullptr);
}

template <class View>
concept readable_on_the_host = requires(const View& view) { view(0); } || requires(const View& view) { view[0]; } ||
                               requires(const View& view) { view.begin(); };

TEST(tensor_view, of_a_device_gives_addresses_and_no_elements) {
  std::array<double, 6> memory{};
  const tensor_view<double, 2, device_memory> view(memory.data(), {2, 3});
  EXPECT_EQ(view.sub(1).data(), memory.data() + 3);
  EXPECT_EQ(view.first(1).size(), 3u);
  static_assert(readable_on_the_host<tensor_view<double, 1>>);
  static_assert(!readable_on_the_host<tensor_view<double, 1, device_memory>>);
  static_assert(!std::convertible_to<decltype(view), std::span<double>>);
  static_assert(!std::convertible_to<decltype(view), fake_mdspan<double, 2>>);
  EXPECT_EQ(static_cast<std::span<double>>(view).size(), 6u);
  EXPECT_EQ((static_cast<fake_mdspan<double, 2>>(view)).extent(1), 3u);
}

static_assert(std::is_trivially_copyable_v<tensor_view<float, 3>>);

}  // namespace
