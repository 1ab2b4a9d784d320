// SPDX-License-Identifier: Apache-2.0
// ctest: no tsan: one thread
// A batch as DLPack's tensors, by structs of the names that DLPack gives; torch.test.cpp does so with LibTorch's own.
#include <array>
#include <cstdint>
#include <utility>

#include <gtest/gtest.h>
#include <penstock/interop/dlpack.hpp>
#include <penstock/penstock.hpp>

namespace {

enum class kind : std::int32_t { cpu = 1, cuda = 2 };
struct managed_tensor {
  struct {
    void* data;
    struct {
      kind device_type;
      std::int32_t device_id;
    } device;
    std::int32_t ndim;
    struct {
      std::uint8_t code, bits;
      std::uint16_t lanes;
    } dtype;
    std::int64_t* shape;
    std::int64_t* strides;
    std::uint64_t byte_offset;
  } dl_tensor;
  void* manager_ctx;
  void (*deleter)(managed_tensor*);
};
static_assert(penstock::dlpack_managed_tensor<managed_tensor>);
static_assert(!penstock::dlpack_managed_tensor<int>);

using columns = std::array<std::tuple<float, std::uint16_t, bool, std::array<std::int32_t, 3>>, 4>;

auto feed_of(int batch, int depth) {
  columns rows;
  for (int i = 0; i < 4; ++i)
    rows[static_cast<std::size_t>(i)] = {
        0.5F * static_cast<float>(i), static_cast<std::uint16_t>(60000 + i), i == 3, {i, 10 * i, 100 * i}};
  return (std::move(rows) | penstock::partition({.shuffle = penstock::shuffle::none}) | penstock::read({.readers = 0}) |
          penstock::batch(batch) | penstock::transfer(penstock::cpu_device{}, {.depth = depth}))
      .start();
}

TEST(dlpack, describes_each_field) {
  auto feed = feed_of(3, 2);
  auto batch = feed.next();
  const auto [x, id, flag, values] = batch.fields();
  const auto all = penstock::to_dlpack<managed_tensor>(std::move(batch), penstock::cpu_device{});
  const void* const addresses[] = {x.data(), id.data(), flag.data(), values.data()};
  const int codes[] = {2, 1, 6, 0}, bits[] = {32, 16, 8, 32};
  for (std::size_t i = 0; i < 4; ++i) {
    const auto& one = all[i]->dl_tensor;
    EXPECT_EQ(one.data, addresses[i]);
    EXPECT_EQ(one.device.device_type, kind::cpu);
    EXPECT_EQ(one.device.device_id, 0);
    EXPECT_EQ(one.ndim, i == 3 ? 2 : 1);
    EXPECT_EQ(one.dtype.code, codes[i]);
    EXPECT_EQ(one.dtype.bits, bits[i]);
    EXPECT_EQ(one.dtype.lanes, 1);
    EXPECT_EQ(one.shape[0], 3);
    EXPECT_EQ(one.strides[0], i == 3 ? 3 : 1);
    EXPECT_EQ(one.byte_offset, 0U);
  }
  EXPECT_EQ(all[3]->dl_tensor.shape[1], 3);
  EXPECT_EQ(all[3]->dl_tensor.strides[1], 1);
}

TEST(dlpack, returns_the_slot_with_the_last_tensor_be_the_feed_gone) {
  penstock::dlpack_tensor<managed_tensor> kept;
  {
    auto feed = feed_of(1, 1);
    for (int step = 0; step < 4; ++step) {
      // The only slot: it has to have come back.
      auto all = penstock::to_dlpack<managed_tensor>(feed.next(), penstock::cpu_device{});
      ASSERT_EQ(*static_cast<std::uint16_t*>(all[1]->dl_tensor.data), 60000 + step);
      managed_tensor* const given = all[3].release();  // as another library is, which calls the deleter
      for (auto& one : all) one.reset();
      EXPECT_EQ(static_cast<std::int32_t*>(given->dl_tensor.data)[2], 100 * step);
      if (step < 3)
        given->deleter(given);
      else
        kept.reset(given);
    }
  }
  EXPECT_EQ(static_cast<std::int32_t*>(kept->dl_tensor.data)[1], 30);
}

}  // namespace
