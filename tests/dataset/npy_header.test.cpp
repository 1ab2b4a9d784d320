// SPDX-License-Identifier: Apache-2.0
// ctest: no tsan: one thread
#include <gtest/gtest.h>

#include "npy_files.hpp"

namespace {

using namespace npy_test;
using penstock::npy_array;

class npy_header : public testing::Test {
 protected:
  penstock::npy_header header_of(std::string_view bytes) {
    return penstock::npy_info(write_file(directory / "a.npy", bytes));
  }
  std::string message_of(std::string_view bytes) {
    return error_of([&] { header_of(bytes); });
  }
  /// The message for a header's text, without data.
  std::string message_of_text(std::string text) { return message_of(with_header(std::move(text), "")); }
  temporary_directory directory;
};

const std::string plain = "{'descr': '<i2', 'fortran_order': False, 'shape': (2,), }";

// NPY-2
TEST_F(npy_header, NPY_2_all_versions_at_both_alignments) {
  const std::string data = bytes_of<std::int16_t>({-5, 300});
  for (int version : {1, 2, 3}) {
    for (std::size_t alignment : {1u, 16u, 64u}) {
      const std::string bytes = with_header(plain, data, version, alignment);
      const auto header = header_of(bytes);
      EXPECT_EQ(header.major_version, version);
      EXPECT_EQ(header.minor_version, 0);
      EXPECT_EQ(header.data_offset, bytes.size() - 4);
      EXPECT_EQ(header.data_offset % alignment, 0u);
      EXPECT_EQ(all_of(npy_array<std::int16_t>(directory / "a.npy")), (std::vector<std::int16_t>{-5, 300}));
    }
  }
}

// NPY-2
TEST_F(npy_header, NPY_2_version_2_with_70000_bytes_of_header) {
  const std::string text = plain + std::string(70000 - plain.size() - 1, ' ');
  const auto header = header_of(with_header(text, bytes_of<std::int16_t>({1, 2}), 2, 1));
  EXPECT_EQ(header.data_offset, 12u + 70000u);
  EXPECT_EQ(all_of(npy_array<std::int16_t>(directory / "a.npy")), (std::vector<std::int16_t>{1, 2}));
}

// NPY-2
TEST_F(npy_header, NPY_2_version_3_with_a_field_name_in_UTF_8) {
  const std::string type =
      "[('gr\xc3\xb6\xc3\x9f"
      "e', '<f8'), ('x)]', '|u1', (2, 3))]";
  const auto header = header_of(
      with_header("{'descr': " + type + ", 'fortran_order': False, 'shape': (1,), }", std::string(14, 'x'), 3));
  EXPECT_EQ(header.type, type);
  EXPECT_EQ(header.shape, (std::vector<std::size_t>{1}));
}

// NPY-5
TEST_F(npy_header, NPY_5_shapes_of_no_one_and_two_dimensions) {
  const std::pair<const char*, std::size_t> shapes[] = {{"()", 1},    {"(0,)", 0},    {"(5,)", 5},  {"(0, 3)", 0},
                                                        {"(2L,)", 2}, {"( 2 , )", 2}, {"(2,3)", 6}, {"(2L, 1L,)", 2}};
  for (const auto& [shape, elements] : shapes) {
    const auto header = header_of(npy_file("<f4", shape, std::string(elements * 4, '\0')));
    EXPECT_EQ(header.elements(), elements) << shape;
  }
  EXPECT_EQ(header_of(npy_file("<f4", "(0, 3)", "")).shape, (std::vector<std::size_t>{0, 3}));
}

// NPY-5
TEST_F(npy_header, NPY_5_as_datasets_empty_arrays_have_no_samples_and_a_scalar_is_refused) {
  EXPECT_EQ(npy_array<float>(write_file(directory / "a.npy", npy_file("<f4", "(0,)", ""))).size(), 0u);
  const npy_array<float, 1> wide(write_file(directory / "a.npy", npy_file("<f4", "(0, 3)", "")));
  EXPECT_EQ(wide.size(), 0u);
  EXPECT_EQ(std::get<0>(wide.schema().fields).shape[0], 3u);
  const npy_array<float, 2> hollow(write_file(directory / "a.npy", npy_file("<f4", "(2, 0, 3)", "", true)));
  EXPECT_TRUE(sample_of(hollow, 1).empty());
  hollow.prefetch(1);
  write_file(directory / "a.npy", npy_file("<f4", "()", "abcd"));
  EXPECT_EQ(missing(error_of([&] { npy_array<float>(directory / "a.npy"); }),
                    {"a.npy, byte ", "the shape is (), a single element without a dimension of samples"}),
            "");
}

TEST_F(npy_header, keys_in_any_order_with_either_quotes_and_without_a_last_comma) {
  const auto header = header_of(
      with_header("{ \"shape\":(1 ,2),'fortran_order':True , \"descr\" : \">u4\"}", std::string(8, 'x'), 1, 1));
  EXPECT_EQ(header.type, ">u4");
  EXPECT_TRUE(header.fortran_order);
  EXPECT_EQ(header.shape_text(), "(1, 2)");
}

TEST_F(npy_header, damaged_texts_are_errors_with_the_byte) {
  const std::string order = "'fortran_order': False, ";
  const std::string type = "'descr': '<f4', ";
  const std::pair<std::string, const char*> texts[] = {
      {"", "byte 64: the header is damaged, wanted the dictionary's opening brace"},
      {"{" + type + order + "}", "no 'shape'"},
      {"{" + type + "'shape': ()}", "no 'fortran_order'"},
      {"{" + order + "'shape': ()}", "no 'descr'"},
      {"{" + type + type + order + "'shape': ()}", "byte 27: the header has 'descr' twice"},
      {"{'order': 1}", "byte 11: the header has an unknown key"},
      {"{descr: 1}", "byte 11: wanted a text in quotes"},
      {"{'descr' '<f4'}", "byte 19: the header is damaged, wanted a colon"},
      {"{'descr: 1}", "closing quote"},
      {"{'descr\\", "closing quote"},
      {"{'descr': 4}", "wanted a text in quotes"},
      {"{'descr': [('a', '<f4'), }", "closing bracket"},
      {"{'descr': [('a', '<f4'])}", "do not match"},
      {"{'fortran_order': 1}", "wanted True or False"},
      {"{" + type + order + "'shape': 3}", "opening bracket of the shape"},
      {"{" + type + order + "'shape': (3)}", "not a tuple"},
      {"{" + type + order + "'shape': (3 4)}", "not a tuple"},
      {"{" + type + order + "'shape': (3, 4 5)}", "not a tuple"},
      {"{" + type + order + "'shape': (,)}", "not a number"},
      {"{" + type + order + "'shape': (3,", "not a number"},
      {"{" + type + order + "'shape': (1.5,)}", "not a tuple"},
      {"{" + type + order + "'shape': (-3,)}", "negative"},
      {"{" + type + order + "'shape': (99999999999999999999,)}", "too large"},
      {"{" + type + order + "'shape': ()} x", "after its closing brace"},
      {"{" + type + order + "'shape': () 'a'", "a comma or the dictionary's closing brace"},
  };
  for (const auto& [text, wanted] : texts)
    EXPECT_EQ(missing(message_of_text(text), {"a.npy, byte ", wanted}), "") << text;
  std::string many = "{" + type + order + "'shape': (";
  for (int i = 0; i < 65; ++i) many += "1, ";
  EXPECT_EQ(missing(message_of_text(many + ")}"), {"more than 64 dimensions"}), "");
}

TEST_F(npy_header, sizes_are_checked_before_anything_is_allocated) {
  const auto shaped = [&](std::string_view shape) { return message_of(npy_file("<f8", shape, "1234567")); };
  EXPECT_EQ(missing(shaped("(1,)"), {"a.npy, byte 135", "7 bytes after its header", "wants 8"}), "");
  EXPECT_EQ(missing(shaped("(1000000000000,)"), {"wants 8000000000000"}), "");
  EXPECT_EQ(missing(shaped("(4611686018427387904, 4611686018427387904)"), {"more elements than memory can hold"}), "");
  EXPECT_EQ(missing(shaped("(0, 4611686018427387904, 4)"), {"more elements than memory can hold"}), "");
  EXPECT_EQ(missing(shaped("(2305843009213693952,)"), {"more elements than memory can hold"}), "");
}

TEST_F(npy_header, the_length_of_the_header_is_checked_against_the_file) {
  std::string bytes = with_header(plain, "1234", 2);
  bytes[11] = '\x7f';
  EXPECT_EQ(
      missing(message_of(bytes), {"a.npy, byte 8", "the header is said to have 21307", "the file ends at byte 132"}),
      "");
  std::string large = with_header(plain + std::string(17 << 20, ' '), "1234", 2);
  EXPECT_EQ(missing(message_of(large), {"a.npy, byte 8", "or fewer"}), "");
}

TEST_F(npy_header, other_files_are_named) {
  EXPECT_EQ(missing(message_of(""), {"a.npy, byte 0", "the file ends within the first 12 bytes"}), "");
  EXPECT_EQ(missing(message_of("\x93NUMPY\x01"), {"byte 7", "the file ends"}), "");
  EXPECT_EQ(missing(message_of("PK\x03\x04 and more of it"), {"byte 0", "NPZ"}), "");
  EXPECT_EQ(missing(message_of("\x1f\x8b\x08 and more of it"), {"gzip"}), "");
  EXPECT_EQ(missing(message_of("carat,cut,color\n0.23,Ideal,E\n"), {"not an NPY file"}), "");
  std::string version = with_header(plain, "1234");
  version[6] = 4;
  EXPECT_EQ(missing(message_of(version), {"byte 6", "NPY version 4.0 is not supported, wanted 1.0, 2.0 or 3.0"}), "");
  EXPECT_EQ(missing(error_of([&] { penstock::npy_info(directory.path()); }), {"directory"}), "");
}

TEST_F(npy_header, bytes_after_the_array_are_allowed) {
  EXPECT_EQ(header_of(npy_file("<i2", "(1,)", "ab and another array")).elements(), 1u);
}

}  // namespace
