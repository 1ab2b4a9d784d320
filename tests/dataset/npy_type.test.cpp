// SPDX-License-Identifier: Apache-2.0
// ctest: no tsan: one thread
#include <gtest/gtest.h>

#include <penstock/dataset/npy_type.hpp>

namespace {

using penstock::detail::describe_npy_type;
using penstock::detail::npy_type;
using penstock::detail::npy_type_text;
using penstock::detail::parse_npy_type;

static_assert(penstock::npy_element<float> && penstock::npy_element<bool> && penstock::npy_element<long long>);
static_assert(!penstock::npy_element<char> && !penstock::npy_element<long double> && !penstock::npy_element<void*>);

constexpr bool little = std::endian::native == std::endian::little;

TEST(npy_type, plain_numbers_are_parsed_with_their_byte_order) {
  EXPECT_EQ(parse_npy_type("<f4"), (npy_type{'f', 4, !little}));
  EXPECT_EQ(parse_npy_type(">f4"), (npy_type{'f', 4, little}));
  EXPECT_EQ(parse_npy_type("=f8"), (npy_type{'f', 8, false}));
  EXPECT_EQ(parse_npy_type("|u1"), (npy_type{'u', 1, false}));
  EXPECT_EQ(parse_npy_type(">i1"), (npy_type{'i', 1, false}));
  EXPECT_EQ(parse_npy_type("|b1"), (npy_type{'b', 1, false}));
  EXPECT_EQ(parse_npy_type("<c16"), (npy_type{'c', 16, !little}));
}

TEST(npy_type, what_is_no_plain_number_is_not_parsed) {
  for (const char* text :
       {"",    "f4",   "<f",     "<f1", "<f3", "<i16", "<b2",  "<c4",  "|c1", "<f16",           "|O",
        "<U5", "|S75", "<M8[D]", "<M8", "<m8", "|V8",  "<f4 ", "<f44", "<x4", "[('a', '<f4')]", "<f\xff",
        "<c32"}) {
    EXPECT_EQ(parse_npy_type(text), std::nullopt) << text;
  }
}

TEST(npy_type, refused_types_are_described) {
  EXPECT_EQ(describe_npy_type("|O"), "Python objects");
  EXPECT_EQ(describe_npy_type("|O8"), "Python objects");
  EXPECT_EQ(describe_npy_type("<U5"), "text");
  EXPECT_EQ(describe_npy_type("<M8[D]"), "dates");
  EXPECT_EQ(describe_npy_type("[('a', '<f4')]"), "a structured type");
  EXPECT_EQ(describe_npy_type("<f16"), "long double, which differs between machines");
  EXPECT_EQ(describe_npy_type("<f5"), "an unknown type");
  EXPECT_EQ(describe_npy_type(""), "no type at all");
  EXPECT_EQ(describe_npy_type("<c8"), "complex64");
}

TEST(npy_type, our_types_have_numpys_names) {
  EXPECT_EQ(npy_type_text<float>(), little ? "<f4" : ">f4");
  EXPECT_EQ(npy_type_text<unsigned char>(), "|u1");
  EXPECT_EQ(npy_type_text<bool>(), "|b1");
  EXPECT_EQ(npy_type_text<std::complex<double>>(), little ? "<c16" : ">c16");
}

}  // namespace
