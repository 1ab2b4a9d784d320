// SPDX-License-Identifier: Apache-2.0
// ctest: no tsan: one thread
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "npy_files.hpp"

namespace {

using namespace npy_test;
using penstock::npy_access;
using penstock::npy_array;

/// Opens the file and reads all of it. True if that went well; any exception but `penstock::error` fails the test.
template <class T, std::size_t Rank>
bool is_readable(const std::string& path, npy_access access) {
  return error_of([&] { all_of(npy_array<T, Rank>(path, {.convert = true, .access = access})); }).empty();
}

std::size_t open_descriptors() {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

class npy_damage : public testing::TestWithParam<npy_access> {
 protected:
  void SetUp() override {
    std::vector<std::int16_t> values(12);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::int16_t>(i * 100);
    bytes = npy_file(">i2", "(3, 4)", bytes_of(values, '>'), true);
  }
  temporary_directory directory;
  std::string path = directory / "a.npy";
  std::string bytes;
};

INSTANTIATE_TEST_SUITE_P(access, npy_damage, testing::Values(npy_access::mapped, npy_access::positioned),
                         [](const auto& at) { return at.param == npy_access::mapped ? "mapped" : "positioned"; });

TEST_P(npy_damage, every_truncation_is_an_error) {
  write_file(path, bytes);
  ASSERT_TRUE((is_readable<float, 1>(path, GetParam())));
  for (std::size_t length = bytes.size(); length-- > 0;) {
    std::filesystem::resize_file(path, length);
    EXPECT_EQ(missing(error_of([&] { npy_array<float, 1>(path, {.convert = true, .access = GetParam()}); }),
                      {path + ", byte "}),
              "")
        << length;
  }
}

TEST_P(npy_damage, every_changed_byte_of_the_header_ends_in_an_error_or_a_valid_array) {
  write_file(path, bytes);
  const int file = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  ASSERT_GE(file, 0);
  std::size_t readable = 0;
  for (std::size_t at = 0; at < 128; ++at) {
    for (int value = 0; value < 256; ++value) {
      const char changed = static_cast<char>(value);
      ASSERT_EQ(::pwrite(file, &changed, 1, static_cast<off_t>(at)), 1);
      readable += is_readable<float, 1>(path, GetParam());
    }
    ASSERT_EQ(::pwrite(file, &bytes[at], 1, static_cast<off_t>(at)), 1);
  }
  ::close(file);
  EXPECT_GT(readable, 128u);  // the unchanged ones, blanks for blanks, ...
  EXPECT_LT(readable, 1024u);
}

// REC-1. Records of a fixed size are an NPY file of bytes. Its header says how many there are, so that a cut file is
// refused before the first batch, not when training reaches record 40: there is no row to skip, and nobody trains on 39
// of 100 records unawares.
TEST_P(npy_damage, REC_1_a_file_cut_within_record_40_of_100_is_refused_when_it_is_opened) {
  constexpr std::size_t records = 100, size = 24;
  const std::string whole = npy_file("|u1", "(100, 24)", std::string(records * size, 'r'));
  const std::size_t begin = whole.size() - records * size, cut = begin + 39 * size + 10;
  write_file(path, whole.substr(0, cut));
  const std::string message = error_of([&] { npy_array<std::uint8_t, 1>(path, {.access = GetParam()}); });
  EXPECT_EQ(missing(message, {path, penstock::detail::concat("byte ", cut), "the file ends here",
                              penstock::detail::concat(39 * size + 10, " bytes after its header"),
                              penstock::detail::concat("wants ", records * size)}),
            "");
  // A clean end is no error, whole or with the number of records that are there.
  write_file(path, whole);
  EXPECT_EQ((npy_array<std::uint8_t, 1>(path, {.access = GetParam()}).size()), records);
  write_file(path, npy_file("|u1", "(39, 24)", std::string(39 * size + 10, 'r')));
  EXPECT_EQ((npy_array<std::uint8_t, 1>(path, {.access = GetParam()}).size()), 39u);
}

// Mapped files must not shrink, as the options say.
TEST(npy_damage_later, a_file_cut_after_opening_is_an_error_when_read_at_positions) {
  temporary_directory directory;
  const std::string path = write_file(directory / "a.npy", npy_file("<f4", "(4,)", bytes_of<float>({1, 2, 3, 4})));
  const npy_array<float> array(path, {.access = npy_access::positioned});
  std::filesystem::resize_file(path, 130);
  EXPECT_EQ(missing(error_of([&] { sample_of(array, 3); }), {"a.npy, byte 140"}), "");
}

// MEM-4
TEST_P(npy_damage, MEM_4_no_descriptor_is_left_open_by_errors_or_by_datasets_that_are_gone) {
  write_file(directory / "cut.npy", bytes.substr(0, bytes.size() - 1));
  write_file(directory / "text.npy", npy_file("<U5", "(1,)", std::string(20, 'x')));
  write_file(directory / "garbage.npy", "garbage, and quite a lot of it");
  write_file(path, bytes);
  const std::size_t before = open_descriptors();
  for (int round = 0; round < 20; ++round) {
    EXPECT_FALSE((is_readable<float, 1>(directory / "cut.npy", GetParam())));
    EXPECT_FALSE((is_readable<float, 1>(directory / "text.npy", GetParam())));
    EXPECT_FALSE((is_readable<float, 1>(directory / "garbage.npy", GetParam())));
    EXPECT_FALSE((is_readable<float, 2>(path, GetParam())));
    EXPECT_FALSE((is_readable<float, 1>(directory.path(), GetParam())));
    EXPECT_TRUE((is_readable<float, 1>(path, GetParam())));
  }
  EXPECT_EQ(open_descriptors(), before);
  const npy_array<float, 1> array(path, {.convert = true, .access = GetParam()});
  const npy_array<float, 1> copy = array;
  EXPECT_EQ(open_descriptors(), before + (GetParam() == npy_access::mapped ? 0u : 1u));
}

}  // namespace
