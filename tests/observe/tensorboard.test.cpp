// SPDX-License-Identifier: Apache-2.0
// ctest: no tsan: one thread
#include <penstock/observe/tensorboard.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "../support/temporary_directory.hpp"
#include "modelled_events.hpp"

namespace {

using namespace std::chrono_literals;
using penstock_test::content_of;

std::uint64_t little_endian(std::string_view bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = bytes.size(); i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

/// The checksum as the format's definition states it, and not as the header computes it: bit by bit.
std::uint32_t masked_checksum(std::string_view bytes) {
  std::uint32_t crc = 0xffffffff;
  for (const char c : bytes) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = (crc & 1) != 0 ? crc >> 1 ^ 0x82f63b78 : crc >> 1;
  }
  crc = ~crc;
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8;
}

/// Takes a file apart; every length and checksum must be right, to the last byte.
std::vector<std::string> records(std::string_view file) {
  std::vector<std::string> all;
  while (!file.empty()) {
    if (file.size() < 16) throw std::runtime_error("half a head");
    const std::size_t size = little_endian(file.substr(0, 8));
    if (masked_checksum(file.substr(0, 8)) != little_endian(file.substr(8, 4))) throw std::runtime_error("length");
    if (file.size() < 16 + size) throw std::runtime_error("half a record");
    all.emplace_back(file.substr(12, size));
    if (masked_checksum(all.back()) != little_endian(file.substr(12 + size, 4))) throw std::runtime_error("data");
    file.remove_prefix(16 + size);
  }
  return all;
}

/// Fields of a message by number: bytes, or the bits of a number.
std::multimap<std::uint64_t, std::string> fields(std::string_view message) {
  std::multimap<std::uint64_t, std::string> all;
  const auto varint = [&] {
    std::uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = static_cast<unsigned char>(message.at(0));
      message.remove_prefix(1);
      value |= std::uint64_t{byte & 0x7fU} << shift;
      if (byte < 0x80) return value;
    }
  };
  const auto take = [&](std::size_t size) {
    if (message.size() < size) throw std::runtime_error("half a field");
    const std::string bytes(message.substr(0, size));
    message.remove_prefix(size);
    return bytes;
  };
  while (!message.empty()) {
    const std::uint64_t key = varint();
    switch (key & 7) {
      case 0: all.emplace(key >> 3, std::to_string(varint())); break;
      case 1: all.emplace(key >> 3, take(8)); break;
      case 2: all.emplace(key >> 3, take(varint())); break;
      case 5: all.emplace(key >> 3, take(4)); break;
      default: throw std::runtime_error("kind");
    }
  }
  return all;
}

struct point {
  std::string tag;
  std::uint64_t step;
  float value;
};
std::uint64_t step_of(const std::string& event) {
  const auto all = fields(event);
  return all.contains(2) ? std::stoull(all.find(2)->second) : 0;
}
std::vector<point> scalars(const std::string& path, std::string_view tag) {
  std::vector<point> points;
  for (const auto& event : records(content_of(path))) {
    const auto all = fields(event);
    if (!all.contains(5)) continue;
    const auto value = fields(fields(all.find(5)->second).find(1)->second);
    if (value.find(1)->second != tag || !value.contains(2)) continue;
    const auto bits = static_cast<std::uint32_t>(little_endian(value.find(2)->second));
    points.push_back({value.find(1)->second, step_of(event), std::bit_cast<float>(bits)});
  }
  return points;
}

TEST(tensorboard_record, has_the_checksums_and_bytes_of_the_format) {
  EXPECT_EQ(penstock::detail::crc32c(std::as_bytes(std::span(std::string_view("123456789")))), 0xE3069283U);
  // RFC 3720, B.4: 32 bytes of zeros.
  const std::string zeros(32, '\0');
  EXPECT_EQ(penstock::detail::crc32c(std::as_bytes(std::span(zeros))), 0x8A9136AAU);
  EXPECT_EQ(penstock::detail::masked_crc32c("123456789"), masked_checksum("123456789"));
  // As TensorFlow writes the head of the record of 24 bytes that begins its files.
  std::string record;
  penstock::detail::append_record(record, penstock::detail::tensorboard_version(1.5).bytes());
  EXPECT_EQ(record.substr(0, 12), std::string("\x18\0\0\0\0\0\0\0\xa3\x7f\x4b\x22", 12));
  EXPECT_EQ(record.substr(12, 24), std::string("\x09\0\0\0\0\0\0\xf8\x3f\x1a\x0d"
                                               "brain.Event:2",
                                               24));
  EXPECT_EQ(penstock::detail::tensorboard_event(0, 300).bytes(), std::string("\x09\0\0\0\0\0\0\0\0\x10\xac\x02", 12));
}

class tensorboard : public testing::Test {
 protected:
  void SetUp() override { penstock_test::modelled_now = std::chrono::steady_clock::time_point{1h}; }
  static penstock::tensorboard_options modelled(penstock::tensorboard_options options = {}) {
    options.clock = &penstock_test::modelled_clock;
    options.wall_clock = &penstock_test::modelled_wall_clock;
    return options;
  }
  penstock_test::temporary_directory folder_;
};

TEST_F(tensorboard, writes_metrics_over_steps_through_all_epochs_and_the_speed) {
  penstock::tensorboard observer(folder_ / "deep/er", modelled());
  penstock_test::modelled_events run{observer};
  observer.on_begin({.steps_per_epoch = 4, .description = "stage one\nstage two"});
  for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
    run.steps(epoch, 0, 3);
    run.end_epoch(epoch);
  }
  observer.on_end({"done"});
  EXPECT_TRUE(std::filesystem::path(observer.path()).filename().string().starts_with("events.out.tfevents.1767326645."))
      << observer.path();

  const auto all = records(content_of(observer.path()));
  EXPECT_EQ(fields(all.at(0)).find(3)->second, "brain.Event:2");
  EXPECT_EQ(fields(fields(all.at(1)).find(7)->second).find(1)->second, "1") << "START";
  EXPECT_NE(all.at(2).find("    stage one\n    stage two\n"), std::string::npos);
  const auto losses = scalars(observer.path(), "loss");
  ASSERT_EQ(losses.size(), 12U);
  for (std::uint64_t i = 0; i < losses.size(); ++i) {
    EXPECT_EQ(losses[i].step, i);
    EXPECT_EQ(losses[i].value, static_cast<float>(i));
  }
  const auto waits = scalars(observer.path(), "penstock/wait_share");
  ASSERT_EQ(waits.size(), 3U) << "an epoch is shorter than a second";
  EXPECT_FLOAT_EQ(waits[0].value, 0.25F);
  EXPECT_FLOAT_EQ(scalars(observer.path(), "penstock/samples_per_second").at(2).value, 100);
  double time = 0;
  std::memcpy(&time, fields(all.back()).find(1)->second.data(), sizeof time);
  EXPECT_NEAR(time, 1767326646.2, 1e-3);
}

TEST_F(tensorboard, a_resumed_run_marks_the_steps_that_are_done_again_in_a_file_that_sorts_behind) {
  std::vector<std::string> paths;
  for (const std::uint64_t first : {0, 2, 2}) {  // the clock stands: the same second, the same process
    penstock::tensorboard observer(folder_.path(), modelled());
    observer.on_begin({.steps_per_epoch = 4, .first_epoch = first > 0 ? 1U : 0U, .first_step = first});
    const auto mark = records((observer.on_end({"done"}), content_of(observer.path()))).at(1);
    EXPECT_TRUE(fields(mark).contains(7));
    EXPECT_EQ(step_of(mark), first > 0 ? 6U : 0U);
    paths.push_back(observer.path());
  }
  EXPECT_TRUE(std::is_sorted(paths.begin(), paths.end()));
  EXPECT_EQ(std::unique(paths.begin(), paths.end()), paths.end());
}

TEST_F(tensorboard, epochs_of_unknown_length_and_faults) {
  penstock::tensorboard observer(folder_.path(), modelled({.interval = 0ns}));
  penstock_test::modelled_events run{observer};
  run.steps(0, 0, 6);
  const std::vector<penstock::sample_fault> faults(3);
  observer.on_epoch({.faults = faults});
  run.steps(1, 0, 0);
  run.batch(1, 1);
  EXPECT_EQ(scalars(observer.path(), "loss").back().step, 7U) << "an interval of 0: it is in the file";
  EXPECT_EQ(scalars(observer.path(), "penstock/faults").at(0).value, 3);
  EXPECT_EQ(scalars(observer.path(), "penstock/faults").at(0).step, 6U);
}

TEST_F(tensorboard, refuses_what_it_cannot_write_with_path_and_reason) {
  const std::string file = folder_.file("file", "");
  try {
    penstock::tensorboard observer(file);
    FAIL() << "it was taken";
  } catch (const penstock::error& problem) {
    EXPECT_NE(std::string(problem.what()).find(file + ": cannot create: "), std::string::npos) << problem.what();
  }
  EXPECT_THROW(penstock::tensorboard(folder_.path(), {.interval = -1ns}), std::invalid_argument);
  EXPECT_THROW(penstock::tensorboard(folder_.path(), {.wall_clock = nullptr}), std::invalid_argument);
}

}  // namespace
