// SPDX-License-Identifier: Apache-2.0
// ctest: no tsan: one thread
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "npy_files.hpp"

namespace {

/// A 16-bit float of somebody else's: its upper half of a float's bits.
struct users_half {
  std::uint16_t bits = 0;
  users_half() = default;
  explicit users_half(float value) : bits(static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16)) {}
};

}  // namespace

template <>
inline constexpr char penstock::npy_kind<users_half> = 'f';

namespace {

using namespace npy_test;
using penstock::npy_access;
using penstock::npy_array;

/// One element type in a file: its letters and values that it can hold.
template <class T>
struct kind_of_number {
  static std::vector<T> values() {
    if constexpr (std::is_same_v<T, bool>) {
      return {true, false, true};
    } else if constexpr (penstock::npy_kind<T> == 'c') {
      return {T(1.5f, -2), T(0, 3), T(-7, 0.25f)};
    } else if constexpr (penstock::npy_kind<T> == 'f') {
      return {T(1.5), T(-0.0), std::numeric_limits<T>::infinity()};
    } else {
      return {std::numeric_limits<T>::max(), std::numeric_limits<T>::min(), T(1)};
    }
  }
};

template <class T>
class npy_convert : public testing::Test {
 protected:
  temporary_directory directory;
};
using numbers = testing::Types<bool, std::int8_t, std::int16_t, std::int32_t, std::int64_t, std::uint8_t, std::uint16_t,
                               std::uint32_t, std::uint64_t, float, double, std::complex<float>, std::complex<double>>;
TYPED_TEST_SUITE(npy_convert, numbers);

/// Little-endian values with each number's bytes reversed: each part's, for complex numbers.
template <class T>
std::string stored(const std::vector<T>& values, char order) {
  if constexpr (penstock::npy_kind<T> == 'c') {
    std::vector<typename T::value_type> parts;
    for (const T& value : values) parts.insert(parts.end(), {value.real(), value.imag()});
    return bytes_of(parts, order);
  } else if constexpr (std::is_same_v<T, bool>) {
    std::string out;
    for (bool value : values) out += value ? '\1' : '\0';
    return out;
  } else {
    return bytes_of(values, order);
  }
}

// NPY-4
TYPED_TEST(npy_convert, NPY_4_each_type_is_read_in_both_byte_orders) {
  const auto values = kind_of_number<TypeParam>::values();
  for (char order : {'<', '>'}) {
    const std::string type = penstock::detail::concat(order, penstock::detail::npy_type_text<TypeParam>().substr(1));
    write_file(this->directory / "a.npy", npy_file(type, "(3,)", stored(values, order)));
    for (npy_access access : {npy_access::mapped, npy_access::positioned}) {
      EXPECT_EQ(all_of(npy_array<TypeParam>(this->directory / "a.npy", {.access = access})), values) << type;
      EXPECT_EQ(sample_of(npy_array<TypeParam>(this->directory / "a.npy", {.access = access}), 1).size(), 1u);
    }
  }
}

TYPED_TEST(npy_convert, each_real_type_converts_to_double_and_back_where_equal) {
  if constexpr (penstock::npy_kind<TypeParam> != 'c') {
    const std::vector<TypeParam> values{TypeParam(1), TypeParam(0), TypeParam(1)};
    write_file(this->directory / "a.npy",
               npy_file(penstock::detail::npy_type_text<TypeParam>(), "(3,)", stored(values, '<')));
    const std::string path = this->directory / "a.npy";
    EXPECT_EQ(all_of(npy_array<double>(path, {.convert = true})), (std::vector<double>{1, 0, 1}));
    EXPECT_EQ(all_of(npy_array<std::uint8_t>(path, {.convert = true})), (std::vector<std::uint8_t>{1, 0, 1}));
    EXPECT_EQ(all_of(npy_array<bool>(path, {.convert = true})), (std::vector<bool>{true, false, true}));
    EXPECT_EQ(all_of(npy_array<std::complex<float>>(path, {.convert = true})),
              (std::vector<std::complex<float>>{1, 0, 1}));
  }
}

class npy_conversion : public testing::Test {
 protected:
  template <class T>
  std::string write(std::string_view type, const std::vector<T>& values) {
    return write_file(directory / "a.npy",
                      npy_file(type, penstock::detail::concat("(", values.size(), ",)"), bytes_of(values)));
  }
  temporary_directory directory;
};

// NPY-7
TEST_F(npy_conversion, NPY_7_another_type_is_an_error_that_names_file_found_and_wanted_unless_asked_for) {
  const std::string path = write<double>("<f8", {1.5, 1e300, 0.1});
  EXPECT_EQ(missing(error_of([&] { npy_array<float> array(path); }),
                    {"a.npy, byte ", "'<f8' (float64)", "wanted '<f4' (float32)", ".convert = true"}),
            "");
  const auto converted = all_of(npy_array<float>(path, {.convert = true}));
  EXPECT_EQ(converted, (std::vector<float>{1.5f, std::numeric_limits<float>::infinity(), 0.1f}));
}

// NPY-7
TEST_F(npy_conversion, NPY_7_what_is_no_plain_number_is_refused_by_name_even_with_conversion) {
  const std::pair<const char*, const char*> types[] = {
      {"'|O'", "Python objects"},       {"'<U5'", "text"},        {"'<M8[D]'", "dates"}, {"'<f16'", "long double"},
      {"[('a', '<f4')]", "structured"}, {"'<q9'", "unknown type"}};
  for (const auto& [type, words] : types) {
    write_file(directory / "a.npy",
               with_header(penstock::detail::concat("{'descr': ", type, ", 'fortran_order': False, 'shape': (1,)}"),
                           std::string(64, 'x')));
    const std::string message = error_of([&] { npy_array<float>(directory / "a.npy", {.convert = true}); });
    const std::string found = type[0] == '\'' ? type : std::string("'") + type + "'";
    EXPECT_EQ(missing(message, {"a.npy, byte 20: the array's type is ", found, words, "wanted '<f4' (float32)"}), "");
  }
  const std::string path = write<std::complex<float>>("<c8", {{1, 2}});
  EXPECT_EQ(missing(error_of([&] { npy_array<float>(path, {.convert = true}); }), {"complex64", "wanted '<f4'"}), "");
}

TEST_F(npy_conversion, half_precision_is_read_into_float_by_any_compiler) {
  const std::string path = write<std::uint16_t>(
      "<f2", {0x3c00, 0xc000, 0x7bff, 0x0001, 0x8000, 0x03ff, 0x0400, 0x7c00, 0xfc00, 0x3555, 0x7e01});
  const auto values = all_of(npy_array<float>(path, {.convert = true}));
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> wanted{1.0f,       -2.0f,    65504.0f, 0x1p-24f,  -0.0f,
                                  0x3ffp-24f, 0x1p-14f, infinity, -infinity, 0x1.554p-2f};
  EXPECT_EQ(std::vector<float>(values.begin(), values.end() - 1), wanted);
  EXPECT_TRUE(std::signbit(values[4]));
  EXPECT_TRUE(std::isnan(values.back()));
  write_file(directory / "b.npy", npy_file(">f2", "(1,)", std::string("\x3c\x00", 2)));
  EXPECT_EQ(all_of(npy_array<double>(directory / "b.npy", {.convert = true})), (std::vector<double>{1.0}));
}

TEST_F(npy_conversion, half_precision_goes_bit_by_bit_into_a_16_bit_type_of_the_users) {
  const npy_array<users_half> same(write<std::uint16_t>("<f2", {0x3c00, 0x7e01}));
  EXPECT_EQ(sample_of(same, 0)[0].bits, 0x3c00);
  EXPECT_EQ(sample_of(same, 1)[0].bits, 0x7e01);
  const npy_array<users_half> converted(write<double>("<f8", {1.0}), {.convert = true});
  EXPECT_EQ(sample_of(converted, 0)[0].bits, 0x3f80);
#if defined(__FLT16_MANT_DIG__) && defined(__clang__)
  EXPECT_EQ(static_cast<float>(sample_of(npy_array<_Float16>(write<std::uint16_t>("<f2", {0x3e00})), 0)[0]), 1.5f);
#endif
}

/// Whether the only element, of the file's type, can be read as T.
template <class T, class Source>
bool fits(const std::string& path) {
  const std::string message = error_of([&] { sample_of(npy_array<T>(path, {.convert = true}), 0); });
  if (message.empty()) return true;
  EXPECT_EQ(missing(message, {"a.npy, byte 128", "has no equal in"}), "");
  return false;
}

TEST_F(npy_conversion, integers_take_only_what_they_can_hold) {
  const auto whole = [&](double value) { return fits<std::int32_t, double>(write<double>("<f8", {value})); };
  EXPECT_TRUE(whole(-2147483648.0));
  EXPECT_TRUE(whole(2147483647.0));
  for (double value :
       {2147483648.0, -2147483649.0, 0.5, 1e300, std::nan(""), -std::numeric_limits<double>::infinity()}) {
    EXPECT_FALSE(whole(value)) << value;
  }
  const auto large = [&](double value) { return fits<std::uint64_t, double>(write<double>("<f8", {value})); };
  EXPECT_TRUE(large(0x1.fffffffffffffp63));
  EXPECT_FALSE(large(0x1p64));
  EXPECT_FALSE(large(-1.0));
  const auto narrow = [&](std::int64_t value) {
    return fits<std::uint8_t, std::int64_t>(write<std::int64_t>("<i8", {value}));
  };
  EXPECT_TRUE(narrow(255));
  EXPECT_FALSE(narrow(256));
  EXPECT_FALSE(narrow(-1));
  EXPECT_FALSE((fits<bool, std::int64_t>(write<std::int64_t>("<i8", {2}))));
}

TEST_F(npy_conversion, the_byte_of_the_element_without_an_equal_is_named_in_both_accesses) {
  std::vector<std::int32_t> values(3000, 7);
  values[2500] = -1;
  write_file(directory / "a.npy", npy_file("<i4", "(2, 1500)", bytes_of(values)));
  for (npy_access access : {npy_access::mapped, npy_access::positioned}) {
    const npy_array<std::uint16_t, 1> array(directory / "a.npy", {.convert = true, .access = access});
    EXPECT_EQ(sample_of(array, 0), std::vector<std::uint16_t>(1500, 7));
    EXPECT_EQ(missing(error_of([&] { sample_of(array, 1); }), {"byte 10128", "'<i4'", "'<u2' (uint16)"}), "");
  }
}

TEST_F(npy_conversion, any_byte_of_a_bool_but_0_is_true) {
  write_file(directory / "a.npy", npy_file("|b1", "(3,)", std::string("\x00\x02\xff", 3)));
  for (npy_access access : {npy_access::mapped, npy_access::positioned}) {
    EXPECT_EQ(all_of(npy_array<bool>(directory / "a.npy", {.access = access})), (std::vector<bool>{false, true, true}));
  }
}

TEST_F(npy_conversion, elements_need_no_alignment_in_the_file) {
  for (std::size_t blanks = 0; blanks < 8; ++blanks) {
    const std::string text = "{'descr': '<f8', 'fortran_order': False, 'shape': (2,)}" + std::string(blanks, ' ');
    write_file(directory / "a.npy", with_header(text, bytes_of<double>({1.5, -2.5}), 1, 1));
    EXPECT_EQ(all_of(npy_array<double>(directory / "a.npy")), (std::vector<double>{1.5, -2.5}));
    EXPECT_EQ(all_of(npy_array<float>(directory / "a.npy", {.convert = true})), (std::vector<float>{1.5f, -2.5f}));
  }
}

}  // namespace
