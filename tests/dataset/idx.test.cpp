// SPDX-License-Identifier: Apache-2.0
// ctest: no tsan: one thread
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <penstock/dataset/idx.hpp>
#include <penstock/penstock.hpp>

#include "../support/error_of.hpp"
#include "../support/temporary_directory.hpp"

namespace {

using namespace std::string_literals;
using penstock::idx_array;
using penstock_test::error_of;

class idx : public testing::Test {
 protected:
  std::string write(std::string_view bytes) { return directory.file("a-idx", bytes); }
  /// What opening these bytes as images, which `T` and `Rank` say, has to say without the path.
  template <class T = std::uint8_t, std::size_t Rank = 2>
  std::string refusal(std::string_view bytes) {
    const std::string path = write(bytes), message = error_of([&] { idx_array<T, Rank>{path}; });
    EXPECT_TRUE(message.starts_with(path + ", ")) << message;
    return message.substr(std::min(message.size(), path.size() + 2));
  }
  penstock_test::temporary_directory directory;
};

/// Sample `index` in a heap block of exactly its size (for the address sanitizer).
template <class T, std::size_t Rank>
std::vector<T> sample_of(const idx_array<T, Rank>& array, std::size_t index) {
  const auto field = std::get<0>(array.schema().fields);
  const std::unique_ptr<T[]> block(new T[field.elements()]());
  array.read(index, {penstock::tensor_view<T, Rank>(block.get(), field.shape)});
  return {block.get(), block.get() + field.elements()};
}

// Two images of 2 x 3, as the format's description has them.
const std::string images = "\0\0\x08\x03\0\0\0\2\0\0\0\2\0\0\0\3"s + "abcdef" + "ghijkl";
const std::string labels = "\0\0\x08\x01\0\0\0\2"s + "\5\7";

TEST_F(idx, images_and_labels) {
  const idx_array<std::uint8_t, 2> pictures(write(images));
  EXPECT_EQ(pictures.size(), 2u);
  EXPECT_EQ(std::get<0>(pictures.schema().fields).shape, (std::array<std::size_t, 2>{2, 3}));
  EXPECT_EQ(std::get<0>(pictures.schema().fields).name, "a-idx");
  EXPECT_EQ(sample_of(pictures, 1), (std::vector<std::uint8_t>{'g', 'h', 'i', 'j', 'k', 'l'}));
  const idx_array<std::uint8_t> numbers(write(labels), {.name = "label"});
  EXPECT_EQ(std::get<0>(numbers.schema().fields).name, "label");
  EXPECT_EQ(sample_of(numbers, 1), (std::vector<std::uint8_t>{7}));
  EXPECT_NE(error_of([&] { sample_of(numbers, 2); }).find("sample 2 is wanted, the file has 2"), std::string::npos);
}

TEST_F(idx, numbers_of_several_bytes_are_big_endian_in_the_file) {
  EXPECT_EQ(sample_of(idx_array<std::int16_t>(write("\0\0\x0B\1\0\0\0\1"s + "\xff\x38"s)), 0)[0], -200);
  EXPECT_EQ(sample_of(idx_array<std::int32_t>(write("\0\0\x0C\1\0\0\0\1"s + "\1\2\3\4"s)), 0)[0], 0x01020304);
  EXPECT_EQ(sample_of(idx_array<float>(write("\0\0\x0D\1\0\0\0\1"s + "\x3f\xc0\0\0"s)), 0)[0], 1.5f);
  EXPECT_EQ(sample_of(idx_array<double>(write("\0\0\x0E\1\0\0\0\1"s + "\xc0\2\0\0\0\0\0\0"s)), 0)[0], -2.25);
  EXPECT_EQ(sample_of(idx_array<std::int8_t>(write("\0\0\x09\1\0\0\0\1"s + "\xfe"s)), 0)[0], -2);
}

// IDX-1
TEST_F(idx, IDX_1_packed_swapped_and_mistaken_files_are_named) {
  EXPECT_EQ(refusal("\x1f\x8b\x08\0\0\0\0\0"s), "byte 0: this is gzip, wanted the IDX file in it: gunzip unpacks it");
  EXPECT_EQ(refusal("\3\x08\0\0\2\0\0\0\2\0\0\0\3\0\0\0abcdefghijkl"s),
            "byte 0: this is type 0x0803 with its bytes swapped, wanted big-endian numbers as the format has them");
  EXPECT_EQ(refusal(labels),
            "byte 2: this is type 0x0801 (uint8 of 1 dimensions), wanted 0x0803 (uint8 of 3, the samples' among them)");
  EXPECT_EQ((refusal<std::int32_t, 2>(images)),
            "byte 2: this is type 0x0803 (uint8 of 3 dimensions), wanted 0x0C03 (int32 of 3, the samples' among them)");
  EXPECT_EQ(refusal("\0\0\x0A\3"s + images.substr(4)),
            "byte 0: this is type 0x0A03, which the format does not know; wanted 0x08.., 0x09.., 0x0B.., 0x0C.., "
            "0x0D.. or 0x0E..");
  EXPECT_NE(refusal("\x93NUMPY").find("this is an NPY file"), std::string::npos);
  EXPECT_NE(refusal("PK\3\4").find("zip"), std::string::npos);
  for (const auto& odd : {""s, "\0\0\x08"s, "plain text"s})
    EXPECT_NE(refusal(odd).find("byte 0: this is not an IDX file"), std::string::npos);
}

TEST_F(idx, the_size_is_held_against_the_header) {
  EXPECT_EQ(refusal(images.substr(0, images.size() - 1)),
            "byte 27: the file ends here, 11 bytes after its header; 2 x 2 x 3 of uint8 wants 12");
  EXPECT_EQ(refusal(images + "!"),
            "byte 28: the file goes on here, 13 bytes after its header; 2 x 2 x 3 of uint8 wants 12");
  EXPECT_EQ(refusal(images.substr(0, 13)), "byte 13: the file ends here, within a header of 16 bytes for 3 dimensions");
  const std::string huge = "\0\0\x08\3"s + std::string(12, '\xff');
  EXPECT_NE(refusal(huge).find("byte 4: the size 4294967295 x 4294967295 x 4294967295 has more elements"),
            std::string::npos);
  EXPECT_NE(refusal("\0\0\x08\0!"s).find("of 0 dimensions), wanted 0x0803"), std::string::npos);
  // No samples, and samples of nothing.
  EXPECT_EQ((idx_array<std::uint8_t, 2>(write("\0\0\x08\3\0\0\0\0\0\0\0\2\0\0\0\3"s)).size()), 0u);
  EXPECT_TRUE(sample_of(idx_array<float, 1>(write("\0\0\x0D\2\0\0\0\2\0\0\0\0"s)), 1).empty());
}

TEST_F(idx, what_is_written_is_read_back_and_its_bytes_are_the_formats) {
  const std::string path = directory / "written-idx";
  penstock::write_idx(path, std::vector<std::uint8_t>(images.begin() + 16, images.end()), {2, 2, 3});
  std::ifstream in(path, std::ios::binary);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(in), {}), images);

  std::vector<float> numbers(50000);  // more than are swapped at once
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i) * 0.5f - 100;
  penstock::write_idx(path, numbers, {10, 5000});
  const idx_array<float, 1> array(path);
  for (std::size_t i = 0; i < 10; ++i)
    EXPECT_EQ(sample_of(array, i), std::vector<float>(numbers.begin() + static_cast<long>(i) * 5000,
                                                      numbers.begin() + static_cast<long>(i + 1) * 5000));
  EXPECT_THROW(penstock::write_idx(path, numbers, {10, 4999}), std::invalid_argument);
  EXPECT_THROW(penstock::write_idx(path, std::vector<float>(), {0, std::size_t{1} << 32}), std::invalid_argument);
  EXPECT_THROW(penstock::write_idx(path, std::vector<float>(1), std::vector<std::size_t>(256, 1)),
               std::invalid_argument);
}

TEST_F(idx, goes_through_a_feed) {
  std::vector<std::int32_t> numbers(1000 * 3);
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<std::int32_t>(i);
  penstock::write_idx(directory / "a-idx", numbers, {1000, 3});
  auto feed = idx_array<std::int32_t, 1>(directory / "a-idx") | penstock::partition({.seed = 3}) |
              penstock::read({.readers = 2}) | penstock::batch(64) | penstock::transfer(penstock::cpu_device{});
  std::vector<int> seen(1000);
  for (auto& batch : feed.epoch(0))
    for (std::size_t row = 0; row < batch.size(); ++row) {
      const auto values = std::get<0>(batch.fields()).sub(row);
      ASSERT_EQ(values[1], values[0] + 1);
      ++seen.at(static_cast<std::size_t>(values[0]) / 3);
    }
  EXPECT_EQ(seen, std::vector<int>(1000, 1));
}

}  // namespace
