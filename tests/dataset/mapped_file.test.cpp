// SPDX-License-Identifier: Apache-2.0
// ctest: no tsan: one thread
#include <penstock/dataset/mapped_file.hpp>

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "csv_support.hpp"

namespace {

using penstock::file_descriptor;
using penstock::mapped_file;
using penstock_test::temporary_directory;

std::string_view text_of(const mapped_file& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

template <class File>
std::string complaint(const std::string& path) {
  try {
    const File file(path);
  } catch (const penstock::error& caught) {
    EXPECT_EQ(caught.where().path, path);
    return caught.problem();
  }
  return "";
}

TEST(mapped_file, gives_the_bytes_of_the_file) {
  const temporary_directory directory;
  const mapped_file file(directory.file("a", std::string_view("ab\0c", 4)));
  EXPECT_EQ(text_of(file), std::string_view("ab\0c", 4));
  EXPECT_EQ(file.size(), 4u);
  file.will_need(0, 4);
  file.will_need(3, 1'000'000);
  file.will_need(9, 1);
}

TEST(mapped_file, tells_whether_bytes_are_in_memory) {
  const temporary_directory directory;
  const std::string path = directory.file("a", std::string(20'000, 'x'));
  const file_descriptor file(path);
  const mapped_file map(file);
  EXPECT_TRUE(file.is_cached(10'000)) << "just written";
  EXPECT_TRUE(map.is_cached(10'000));
  EXPECT_TRUE(map.is_cached(1'000'000)) << "nothing to wait for beyond the end";
  EXPECT_TRUE(file.is_cached(1'000'000));
  map.is_read_at_random();
  file.will_need(0, 1'000'000);
  EXPECT_EQ(text_of(map), std::string(20'000, 'x'));
}

TEST(mapped_file, of_an_empty_file_is_an_empty_span) {
  const temporary_directory directory;
  const mapped_file file(directory.file("empty", ""));
  EXPECT_TRUE(file.bytes().empty());
  file.will_need(0, 1);
  file.is_read_at_random();
  EXPECT_TRUE(file.is_cached(0));
}

TEST(mapped_file, keeps_its_bytes_in_place_when_it_moves) {
  const temporary_directory directory;
  mapped_file first(directory.file("a", "first"));
  const std::byte* const address = first.bytes().data();
  mapped_file second(std::move(first));
  EXPECT_EQ(second.bytes().data(), address);
  mapped_file third(directory.file("b", "third"));
  third = std::move(second);
  EXPECT_EQ(third.bytes().data(), address);
  EXPECT_EQ(text_of(third), "first");
  static_assert(!std::is_copy_constructible_v<mapped_file> && !std::is_copy_assignable_v<mapped_file>);
}

TEST(mapped_file, outlives_the_descriptor_and_the_name) {
  const temporary_directory directory;
  const std::string path = directory.file("a", "still here");
  const mapped_file file{file_descriptor(path)};
  std::filesystem::remove(path);
  EXPECT_EQ(text_of(file), "still here");
}

template <class File>
class any_file : public testing::Test {};
using file_types = testing::Types<mapped_file, file_descriptor>;
TYPED_TEST_SUITE(any_file, file_types);

TYPED_TEST(any_file, says_which_file_is_not_there_and_why) {
  const temporary_directory directory;
  EXPECT_EQ(complaint<TypeParam>(directory.file("none")), "cannot open: No such file or directory");
}

TYPED_TEST(any_file, refuses_a_directory) {
  const temporary_directory directory;
  EXPECT_EQ(complaint<TypeParam>(directory.file("")), "cannot read: Is a directory");
}

TYPED_TEST(any_file, refuses_a_named_pipe_without_waiting_for_a_writer) {
  const temporary_directory directory;
  const std::string path = directory.file("pipe");
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_EQ(complaint<TypeParam>(path), "not a regular file, wanted one that can be read anywhere");
}

TEST(file_descriptor, reads_at_any_position) {
  const temporary_directory directory;
  file_descriptor file(directory.file("a", "0123456789"));
  EXPECT_EQ(file.size(), 10u);
  std::array<char, 3> got{};
  file.read_at(7, std::as_writable_bytes(std::span(got)));
  EXPECT_EQ(std::string_view(got.data(), 3), "789");
  const file_descriptor moved(std::move(file));
  moved.read_at(0, std::as_writable_bytes(std::span(got)));
  EXPECT_EQ(std::string_view(got.data(), 3), "012");
  moved.read_at(10, std::span<std::byte>());
}

TEST(file_descriptor, says_where_a_file_ends_too_early) {
  const temporary_directory directory;
  const file_descriptor file(directory.file("a", "0123456789"));
  std::array<std::byte, 6> to{};
  try {
    file.read_at(8, to);
    FAIL() << "read 6 bytes where there are 2";
  } catch (const penstock::error& caught) {
    EXPECT_EQ(caught.problem(), "the file ends here, wanted 4 more bytes");
    EXPECT_EQ(caught.where().position, "byte 10");
    EXPECT_EQ(caught.where().path, file.path());
  }
}

}  // namespace
