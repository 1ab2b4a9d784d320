// SPDX-License-Identifier: Apache-2.0
// ctest: no tsan: one thread
#include <gtest/gtest.h>

#include <array>
#include <concepts>
#include <cstdint>
#include <tuple>

#include <penstock/sample/schema.hpp>

namespace {

using penstock::batch_view;
using penstock::device_memory;
using penstock::field;
using penstock::field_t;
using penstock::sample_view;
using penstock::schema;
using penstock::tensor_view;

using stones = schema<field<float, 1>, field<double>, field<std::uint8_t, 3>>;

static_assert(stones::size == 3);
static_assert(field<float, 1>::rank == 1 && field<double>::rank == 0);
static_assert(std::same_as<field_t<2, stones>, field<std::uint8_t, 3>>);
static_assert(std::same_as<sample_view<stones>,
                           std::tuple<tensor_view<float, 1>, tensor_view<double, 0>, tensor_view<std::uint8_t, 3>>>);
static_assert(std::same_as<batch_view<stones, device_memory>,
                           std::tuple<tensor_view<float, 2, device_memory>, tensor_view<double, 1, device_memory>,
                                      tensor_view<std::uint8_t, 4, device_memory>>>);
static_assert(std::same_as<batch_view<schema<field<int>>>, std::tuple<tensor_view<int, 1>>>);
static_assert(penstock::detail::is_schema<stones> && !penstock::detail::is_schema<field<float>>);

TEST(schema, deduces_its_fields) {
  const schema made{field<float, 1>{"x", {9}}, field<double>{"price"}};
  static_assert(std::same_as<decltype(made), const schema<field<float, 1>, field<double>>>);
  EXPECT_EQ(std::get<0>(made.fields).name, "x");
  EXPECT_EQ(std::get<1>(made.fields).name, "price");
}

TEST(schema, is_equal_if_all_names_and_shapes_are) {
  const auto make = [](const char* name, std::size_t extent) { return schema{field<float, 1>{name, {extent}}}; };
  EXPECT_EQ(make("x", 3), make("x", 3));
  EXPECT_NE(make("x", 3), make("y", 3));
  EXPECT_NE(make("x", 3), make("x", 4));
}

TEST(field, counts_the_elements_of_one_sample) {
  EXPECT_EQ((field<float>{"y"}.elements()), 1u);
  EXPECT_EQ((field<float, 3>{"image", {4, 5, 6}}.elements()), 120u);
  EXPECT_EQ((field<float, 2>{"none", {4, 0}}.elements()), 0u);
}

TEST(sample_at, is_the_row_of_every_field) {
  std::array<float, 6> x{0, 1, 2, 3, 4, 5};
  std::array<double, 3> y{10, 11, 12};
  const batch_view<schema<field<float, 1>, field<double>>> batch{{x.data(), {3, 2}}, {y.data(), {3}}};
  const auto sample = penstock::sample_at(batch, 1);
  static_assert(std::same_as<decltype(sample), const sample_view<schema<field<float, 1>, field<double>>>>);
  EXPECT_EQ(std::get<0>(sample)(0), 2);
  EXPECT_EQ(std::get<0>(sample)(1), 3);
  std::get<1>(sample)() = -1;
  EXPECT_EQ(y[1], -1);
}

TEST(sample_at, stays_a_tuple_for_a_single_field) {
  std::array<int, 2> y{1, 2};
  const batch_view<schema<field<int>>> batch{{y.data(), {2}}};
  static_assert(std::same_as<decltype(penstock::sample_at(batch, 1)), sample_view<schema<field<int>>>>);
  EXPECT_EQ(std::get<0>(penstock::sample_at(batch, 1))(), 2);
}

}  // namespace
