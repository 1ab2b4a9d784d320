// SPDX-License-Identifier: Apache-2.0
// A channel driven by hand, and what it hands out.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <penstock/channel/channel.hpp>
#include <penstock/device/cpu.hpp>
#include <penstock/device/modelled.hpp>

namespace {

using schema_type = penstock::schema<penstock::field<int>>;

/// Two slots (and two twins) of three numbers.
template <class Device>
struct by_hand {
  using channel = penstock::channel<schema_type, Device>;
  Device device{};
  std::shared_ptr<channel> to = std::make_shared<channel>(
      device, penstock::batch_layout<schema_type>(schema_type{penstock::field<int>{"x"}}, 3),
      penstock::ring_shape{.host = 2, .device = penstock::separate_device<Device> ? 2U : 0U}, std::nullopt, nullptr);

  by_hand() { to->turns.open(100); }

  /// Fills the next step with `value`, or with a failure.
  void fill(int value, std::exception_ptr failure = nullptr, penstock::provenance where = {}) {
    penstock::ticket held;
    while (to->try_take(0, held) == penstock::take_result::fenced) {
    }
    auto& record = to->record(held.slot);
    record.info = {.epoch = 1, .step = held.step, .count = 2, .rows = 2};
    record.indices = {static_cast<std::uint64_t>(value), 77, 0};
    std::get<0>(to->views(held.slot, 2, 0))[0] = value;
    std::get<0>(to->views(held.slot, 2, 0))[1] = value + 1;
    if (failure) to->fail(held.slot, std::move(failure), std::move(where), 1);
    if (to->turns.arrive(held)) to->publish(held);
    to->turns.leave(0);
  }
  /// What the step that is next arrives as.
  penstock::error failure() {
    try {
      to->receive();
    } catch (const penstock::error& caught) {
      return caught;
    }
    return penstock::error("nothing was thrown");
  }
};

template <class Device>
class lease : public testing::Test, public by_hand<Device> {};
struct device_name {
  template <class Device>
  static std::string GetName(int) {
    return penstock::separate_device<Device> ? "modelled" : "cpu";
  }
};
using devices = testing::Types<penstock::cpu_device, penstock::modelled_device>;
TYPED_TEST_SUITE(lease, devices, device_name);

TYPED_TEST(lease, shows_what_the_readers_wrote) {
  for (int step = 0; step < 5; ++step) {
    this->fill(10 * step);
    ASSERT_TRUE(this->to->turns.is_ready());
    auto batch = this->to->receive();
    ASSERT_TRUE(batch);
    EXPECT_EQ(batch.size(), 2U);
    EXPECT_EQ(batch.rows(), 2U);
    EXPECT_EQ(batch.epoch(), 1U);
    EXPECT_EQ(batch.step(), static_cast<std::uint64_t>(step));
    EXPECT_EQ(std::vector<std::uint64_t>(batch.indices().begin(), batch.indices().end()),
              (std::vector<std::uint64_t>{static_cast<std::uint64_t>(10 * step), 77}));
    batch.stream().synchronize();
    EXPECT_EQ(batch.template get<0>().data()[1], 10 * step + 1);
    EXPECT_EQ(std::get<0>(batch.fields()).data()[0], 10 * step);
    EXPECT_EQ(batch.template host<0>()[1], 10 * step + 1);
  }
}

TYPED_TEST(lease, returns_its_buffer_once) {
  this->fill(1);
  this->fill(2);
  auto first = this->to->receive();
  auto second = this->to->receive();
  EXPECT_EQ(this->to->turns.outstanding(), 2U);
  auto moved = std::move(first);
  first.release();
  EXPECT_EQ(this->to->turns.outstanding(), 2U);
  moved = std::move(second);
  EXPECT_EQ(this->to->turns.outstanding(), 1U);
  moved.release();
  moved.release();
  EXPECT_EQ(this->to->turns.outstanding(), 0U);
}

TYPED_TEST(lease, of_a_failed_step_is_its_error_and_costs_no_buffer) {
  for (int step = 0; step < 6; ++step) {
    this->fill(1, std::make_exception_ptr(std::runtime_error("broken")), {.sample = 5});
    const auto failure = this->failure();
    EXPECT_STREQ(failure.what(), ("read: epoch 1, step " + std::to_string(step) + ", sample 5: broken").c_str());
    EXPECT_THROW(failure.rethrow_cause(), std::runtime_error);
    EXPECT_EQ(this->to->turns.outstanding(), 0U);
  }
  this->fill(3);
  EXPECT_EQ(this->to->receive().template host<0>()[0], 3) << "the failure does not stick to the slot";
}

TYPED_TEST(lease, an_error_that_knows_its_place_keeps_it_and_a_time_out_stays_one) {
  this->fill(1, std::make_exception_ptr(penstock::error("no number", {.sample = 9, .path = "t.csv"})), {.sample = 5});
  EXPECT_STREQ(this->failure().what(), "read: epoch 1, step 0, sample 9, t.csv: no number");
  this->fill(1, std::make_exception_ptr(penstock::timeout_error("the disk is asleep")));
  EXPECT_THROW(this->to->receive(), penstock::timeout_error);
}

TYPED_TEST(lease, keeps_the_channel_that_its_consumer_has_left) {
  std::weak_ptr<typename by_hand<TypeParam>::channel> seen = this->to;
  this->fill(1);
  this->fill(2);
  auto first = this->to->receive(), second = this->to->receive();
  this->to->turns.park();
  this->to->abandon();
  this->to.reset();
  second.release();
  EXPECT_FALSE(seen.expired());
  EXPECT_EQ(first.template host<0>()[0], 1);
  first.release();
  EXPECT_TRUE(seen.expired());
}

TEST(lease, of_a_device_is_used_on_four_further_streams_at_most) {
  by_hand<penstock::modelled_device> of;
  of.fill(1);
  auto batch = of.to->receive();
  std::vector<penstock::modelled_stream> streams;
  for (int i = 0; i < 5; ++i) streams.push_back(of.device.make_stream());
  for (int again = 0; again < 2; ++again)
    for (std::size_t i = 0; i < 4; ++i) batch.used_on(streams[i].view());
  EXPECT_THROW(batch.used_on(streams[4].view()), penstock::error);
  batch.release();
}

TEST(step_failure, the_lowest_rows_counts_and_all_are_numbered) {
  penstock::detail::step_failure failure;
  EXPECT_FALSE(failure);
  for (std::uint32_t row : {5U, 2U, 7U})
    failure.add(std::make_exception_ptr(std::runtime_error("row " + std::to_string(row))), {.sample = row}, row);
  EXPECT_TRUE(failure);
  EXPECT_EQ(failure.where.sample, 2U);
  try {
    penstock::detail::throw_failure(failure, {.epoch = 4, .step = 3});
    ADD_FAILURE();
  } catch (const penstock::error& caught) {
    EXPECT_STREQ(caught.what(), "read: epoch 4, step 3, sample 2: row 2 (and 2 more in this batch)");
  }
}

}  // namespace
