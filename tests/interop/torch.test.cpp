// SPDX-License-Identifier: Apache-2.0
// ctest: no tsan: LibTorch is not instrumented
// Batches as LibTorch's tensors: no copy, and the slot returns with the last of them.
#include <ATen/DLConvertor.h>
#include <ATen/dlpack.h>
#include <torch/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <penstock/interop/dlpack.hpp>
#include <penstock/interop/torch.hpp>
#include <penstock/penstock.hpp>

namespace {

/// A field of every type that both know, some with a shape, and one that LibTorch lacks.
struct all_types {
  using schema_type =
      penstock::schema<penstock::field<float, 2>, penstock::field<double>, penstock::field<bool>,
                       penstock::field<std::uint8_t, 1>, penstock::field<std::int8_t>, penstock::field<std::int16_t>,
                       penstock::field<std::int32_t>, penstock::field<long long>, penstock::field<std::uint64_t>>;
  std::uint64_t n = 7;
  std::atomic<std::uint64_t>* reads = nullptr;

  std::uint64_t size() const { return n; }
  schema_type schema() const {
    return schema_type{penstock::field<float, 2>{"image", {2, 3}},
                       penstock::field<double>{"f64"},
                       penstock::field<bool>{"bool"},
                       penstock::field<std::uint8_t, 1>{"bytes", {5}},
                       penstock::field<std::int8_t>{"i8"},
                       penstock::field<std::int16_t>{"i16"},
                       penstock::field<std::int32_t>{"i32"},
                       penstock::field<long long>{"i64"},
                       penstock::field<std::uint64_t>{"id"}};
  }
  void read(std::uint64_t index, const penstock::sample_view<schema_type>& to) const {
    auto [image, f64, flag, bytes, i8, i16, i32, i64, id] = to;
    const auto k = static_cast<int>(index);
    for (std::size_t i = 0; i < 6; ++i) image.data()[i] = static_cast<float>(10 * k) + static_cast<float>(i);
    for (std::size_t i = 0; i < 5; ++i) bytes(i) = static_cast<std::uint8_t>(200 + i);
    f64() = k + 0.5;
    flag() = k % 2 == 1;
    i8() = static_cast<std::int8_t>(-k);
    i16() = static_cast<std::int16_t>(-300 - k);
    i32() = -70000 - k;
    i64() = -5000000000LL - k;
    id() = index;
    if (reads != nullptr) ++*reads;
  }
};

/// Only what LibTorch has.
struct numbers {
  using schema_type = penstock::schema<penstock::field<float, 1>, penstock::field<std::int64_t>>;
  std::uint64_t n = 7;

  std::uint64_t size() const { return n; }
  schema_type schema() const {
    return schema_type{penstock::field<float, 1>{"x", {2}}, penstock::field<std::int64_t>{"id"}};
  }
  void read(std::uint64_t index, const penstock::sample_view<schema_type>& to) const {
    auto [x, id] = to;
    x(0) = static_cast<float>(index);
    x(1) = -1;
    id() = static_cast<std::int64_t>(index);
  }
};

template <class Data>
auto feed_of(Data data, int batch, int depth = 3, bool pad = false) {
  return (std::move(data) | penstock::partition({.shuffle = penstock::shuffle::none}) | penstock::read({.readers = 1}) |
          penstock::batch({.size = batch, .last = pad ? penstock::last_batch::pad : penstock::last_batch::keep}) |
          penstock::transfer(penstock::cpu_device{}, {.depth = depth}))
      .start();
}

TEST(torch_tensors, have_type_shape_and_address_of_their_fields) {
  const all_types data;
  auto feed = feed_of(data, 4);
  std::vector<std::int64_t> rows;
  for (auto& batch : feed.epoch(0)) {
    const auto image = penstock::to_tensor<0>(batch);
    const auto n = static_cast<std::int64_t>(batch.rows());
    rows.push_back(n);
    EXPECT_EQ(image.data_ptr<float>(), batch.get<0>().data());
    EXPECT_EQ(image.sizes(), (std::vector<std::int64_t>{n, 2, 3}));
    EXPECT_TRUE(image.is_contiguous() && image.is_cpu() && !image.requires_grad());
    EXPECT_EQ(image[1][1][2].item<float>(), static_cast<float>(40 * batch.step() + 15));
    EXPECT_EQ(penstock::to_tensor<3>(batch).sizes(), (std::vector<std::int64_t>{n, 5}));
    const auto last = [&](const torch::Tensor& of, at::ScalarType type) {
      EXPECT_EQ(of.scalar_type(), type);
      EXPECT_EQ(of.size(0), n);
      return of.flatten()[of.numel() - 1].item<double>();
    };
    const auto k = static_cast<double>(batch.indices()[batch.size() - 1]);
    EXPECT_EQ(last(penstock::to_tensor<1>(batch), at::kDouble), k + 0.5);
    EXPECT_EQ(last(penstock::to_tensor<2>(batch), at::kBool), batch.step() == 0);
    EXPECT_EQ(last(penstock::to_tensor<3>(batch), at::kByte), 204);
    EXPECT_EQ(last(penstock::to_tensor<4>(batch), at::kChar), -k);
    EXPECT_EQ(last(penstock::to_tensor<5>(batch), at::kShort), -300 - k);
    EXPECT_EQ(last(penstock::to_tensor<6>(batch), at::kInt), -70000 - k);
    EXPECT_EQ(last(penstock::to_tensor<7>(batch), at::kLong), -5e9 - k);
  }
  EXPECT_EQ(rows, (std::vector<std::int64_t>{4, 3}));
}

TEST(torch_tensors, have_the_rows_of_the_fields_padding_too) {
  auto feed = feed_of(numbers{}, 4, 3, true);
  for (auto& batch : feed.epoch(0)) {
    const auto [x, id] = penstock::to_tensors(batch);
    EXPECT_EQ(x.size(0), 4);
    EXPECT_EQ(x.narrow(0, 0, static_cast<std::int64_t>(batch.size())).size(0), batch.step() == 0 ? 4 : 3);
  }
}

TEST(torch_tensors, of_a_moved_batch_own_it_together) {
  // Two slots, one of which is held: readers go on with the other, and wait when that is held, too.
  std::atomic<std::uint64_t> reads = 0;
  const all_types data{.n = 7, .reads = &reads};
  auto feed = feed_of(data, 1, 2);
  auto first = feed.next();
  auto x = penstock::to_tensor<0>(std::move(first));
  EXPECT_FALSE(first);
  auto second = penstock::to_tensor<7>(feed.next());
  // A view owns the memory as well; its owner's end lets nothing go.
  auto part = x.narrow(1, 1, 1).flatten();
  x.reset();
  // Neither slot is free, and nothing but these two was read.
  EXPECT_EQ(reads, 2U);
  EXPECT_EQ(part[0].item<float>(), 3);
  part.reset();
  auto third = feed.next();  // would never come
  ASSERT_TRUE(third);
  EXPECT_EQ(third.indices()[0], 2U);
  EXPECT_EQ(second.item<std::int64_t>(), -5000000001LL);
}

TEST(torch_tensors, return_the_only_slot_from_any_thread_and_after_the_feed) {
  torch::Tensor kept;
  {
    auto feed = feed_of(numbers{}, 2, 1);
    std::uint64_t steps = 0;
    while (auto batch = feed.next()) {
      auto [x, id] = penstock::to_tensors(std::move(batch));
      ASSERT_EQ(x[0][0].item<float>(), static_cast<float>(2 * steps));
      ++steps;
      if (steps == 4) {
        kept = x;
        break;
      }
      // The two share the slot: the second one's end returns it, on another thread.
      x.reset();
      std::jthread([gone = std::move(id)]() mutable { gone.reset(); });
    }
    EXPECT_EQ(steps, 4U);
  }
  EXPECT_EQ(kept[0][0].item<float>(), 6);
  EXPECT_EQ(kept[0][1].item<float>(), -1);
}

TEST(torch_tensors, stay_in_autograds_graph_until_backward) {
  auto feed = feed_of(numbers{}, 2, 1);
  auto weight = torch::ones({2, 3}, torch::requires_grad());
  std::uint64_t steps = 0;
  while (auto batch = feed.next()) {
    auto loss = torch::matmul(std::get<0>(penstock::to_tensors(std::move(batch))), weight).sum();
    loss.backward();  // the graph was the slot's last owner
    ++steps;
  }
  EXPECT_EQ(steps, 4U);
  EXPECT_EQ(weight.grad()[0][0].item<float>(), 0 + 1 + 2 + 3 + 4 + 5 + 6);
}

TEST(torch_tensors, come_by_dlpack_too) {
  torch::Tensor image, bytes;
  {
    auto feed = feed_of(all_types{}, 4);
    auto all = penstock::to_dlpack<DLManagedTensor>(feed.next(), penstock::cpu_device{});
    image = at::fromDLPack(all[0].release());
    bytes = at::fromDLPack(all[3].release());
  }
  EXPECT_EQ(image.sizes(), (std::vector<std::int64_t>{4, 2, 3}));
  EXPECT_EQ(image[3][1][2].item<float>(), 35);
  EXPECT_EQ(bytes.sizes(), (std::vector<std::int64_t>{4, 5}));
  EXPECT_EQ(bytes[3][4].item<int>(), 204);
}

}  // namespace
