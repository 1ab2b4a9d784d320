// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cstddef>
#include <cstdint>
#include <ranges>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <penstock/dataset/quarantine.hpp>
#include <penstock/device/modelled.hpp>
#include <penstock/penstock.hpp>

namespace {

const std::vector<std::tuple<std::array<float, 9>, double>> samples(1000);

/// The line of a stage, or nothing.
std::string line_of(const std::string& text, const std::string& stage) {
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    const std::string line = text.substr(begin, end - begin);
    if (line.starts_with(stage + " ")) return line;
    begin = end + 1;
  }
  return "";
}
bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(Describe, is_a_table_of_the_stages) {
  const auto work = samples | penstock::partition({.seed = 7}) | penstock::read({.readers = 4}) | penstock::batch(256) |
                    penstock::transfer(penstock::cpu_device{}, {.depth = 2});
  EXPECT_EQ(
      penstock::describe(work),
      "stage      runs on           does                                            gives\n"
      "dataset    readers           1000 samples                                    samples (0 float32[9], 1 float64)\n"
      "partition  readers           shuffled, seed 7                                indices for rank 0 of 1\n"
      "read       4 reader threads  reads in place                                  samples (0 float32[9], 1 float64)\n"
      "batch      4 reader threads  256 samples, last one may be short              host batches (0 float32[256, 9], 1 "
      "float64[256])\n"
      "transfer   no copy           2 host slots of 11 kB, handed over as they are  batches on cpu (0 float32[256, 9], "
      "1 float64[256])\n");
}

TEST(Describe, says_where_a_device_s_stages_run_and_what_is_held) {
  const auto work =
      samples | penstock::partition() | penstock::read({.readers = 0}, [](const auto&) {}) | penstock::batch(4) |
      penstock::transfer(penstock::modelled_device{}, {.depth = 2, .host_depth = 5}) |
      penstock::compute([](auto&) { return 1; }) | penstock::reduce(0, [](int a, int b) { return a + b; });
  const std::string text = penstock::describe(work);
  EXPECT_TRUE(has(line_of(text, "read"), "consumer's thread")) << text;
  EXPECT_TRUE(has(line_of(text, "read"), "transforms")) << text;
  EXPECT_TRUE(has(line_of(text, "transfer"), "copy stream")) << text;
  // 4 rows of 9 floats are 144 bytes, of a double 32; each field has a multiple of 256.
  EXPECT_TRUE(has(line_of(text, "transfer"), "5 host slots of 512 B, 2 device twins of 512 B")) << text;
  EXPECT_TRUE(has(line_of(text, "transfer"), "batches on modelled")) << text;
  EXPECT_TRUE(has(line_of(text, "compute"), "batch's stream")) << text;
  EXPECT_TRUE(has(line_of(text, "reduce"), "one value an epoch")) << text;
}

TEST(Describe, shows_what_is_stored_after_a_cast) {
  const auto work = samples | penstock::partition() | penstock::read() |
                    penstock::batch(8, penstock::cast<std::int16_t, penstock::keep>);
  const std::string text = penstock::describe(work);
  EXPECT_TRUE(has(line_of(text, "read"), "samples (0 float32[9], 1 float64)")) << text;
  EXPECT_TRUE(has(line_of(text, "batch"), "host batches (0 int16[8, 9], 1 float64[8])")) << text;
}

TEST(Describe, tells_the_share_of_a_rank) {
  const auto work = samples | penstock::partition({.world = {1, 4}}) | penstock::read() |
                    penstock::batch({.global = 10, .last = penstock::last_batch::drop});
  const std::string text = penstock::describe(work);
  EXPECT_TRUE(has(line_of(text, "partition"), "rank 1 of 4")) << text;
  EXPECT_TRUE(has(line_of(text, "batch"), "3 samples, last one dropped if short")) << text;
}

TEST(Describe, tells_the_order) {
  const auto order = [](penstock::shuffle how) {
    return line_of(penstock::describe(samples | penstock::partition({.shuffle = how})), "partition");
  };
  EXPECT_TRUE(has(order(penstock::shuffle::none), "in order"));
  EXPECT_TRUE(has(order(penstock::shuffle::blocks(64)), "shuffled in blocks of 64"));
  EXPECT_TRUE(
      has(line_of(penstock::describe(samples | penstock::partition(penstock::sequential_plan(1000))), "partition"),
          "in an order of the user's"));
}

TEST(Describe, of_a_stream_tells_its_samples_and_that_their_number_is_unknown) {
  std::size_t made = 0;
  const auto rows = penstock::stream([&] {
    ++made;
    return std::views::iota(0, 5) | std::views::transform([](int i) { return std::pair(i, std::array<float, 3>{}); });
  });
  const auto work = rows | penstock::partition({.shuffle = penstock::shuffle::window(100)}) |
                    penstock::read({.readers = 1}) | penstock::batch(2) | penstock::transfer(penstock::cpu_device{});
  EXPECT_EQ(made, 0U) << "nothing is drawn to describe";
  const std::string text = penstock::describe(work);
  EXPECT_TRUE(has(line_of(text, "dataset"), "unknown size")) << text;
  EXPECT_TRUE(has(line_of(text, "dataset"), "samples (0 int32, 1 float32[3])")) << text;
  EXPECT_TRUE(has(line_of(text, "partition"), "window of 100")) << text;
  EXPECT_TRUE(has(line_of(text, "read"), "1 reader thread ")) << text;
}

TEST(Describe, of_an_empty_stream_is_an_error) {
  const auto none = penstock::stream([] { return std::vector<float>{}; });
  EXPECT_THROW(penstock::describe(none | penstock::partition()), penstock::error);
}

TEST(Describe, tells_what_becomes_of_bad_samples) {
  using penstock::bad_samples;
  const auto line = [](penstock::read_options options) {
    return line_of(penstock::describe(samples | penstock::partition() | penstock::read(options)), "read");
  };
  EXPECT_TRUE(has(line({.bad = bad_samples::skip}), "in place, leaves out 100 bad samples an epoch at most  "));
  EXPECT_TRUE(
      has(line({.bad = bad_samples::substitute, .most_bad_share = 0.5, .quarantine = penstock::quarantine("bad.csv")}),
          "replaces bad samples, 50.000000 % an epoch at most, listed in bad.csv  "));
  EXPECT_TRUE(has(line({.bad = bad_samples::skip, .most_bad = 7, .most_bad_share = 0.25}),
                  "leaves out 7 bad samples and 25.000000 % an epoch at most  "));
}

TEST(Describe, shared_readers_are_named) {
  const auto work = samples | penstock::partition() | penstock::read({.shared = penstock::reader_pool::make(2)});
  EXPECT_TRUE(has(line_of(penstock::describe(work), "read"), "shared reader threads"));
}

TEST(Describe, late_reads_are_told_of) {
  const auto work =
      samples | penstock::partition() | penstock::read({.readers = 2, .late = penstock::late_reads::reread});
  EXPECT_TRUE(has(line_of(penstock::describe(work), "read"), "reads, late ones again by another"));
}

}  // namespace
