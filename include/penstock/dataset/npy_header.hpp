// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <penstock/dataset/mapped_file.hpp>
#include <penstock/dataset/npy_type.hpp>
#include <penstock/sample/error.hpp>

namespace penstock {

/// What the header of an NPY file says.
struct npy_header {
  std::string path;
  int major_version = 1;
  int minor_version = 0;
  std::string type;  ///< as in the file: "<f8", or the whole list of a structured type
  bool fortran_order = false;
  std::vector<std::size_t> shape;
  std::uint64_t type_offset = 0;   ///< byte in the file where the type is written
  std::uint64_t shape_offset = 0;  ///< byte in the file where the shape is written
  std::uint64_t data_offset = 0;   ///< byte in the file where the elements begin

  /// Elements in the array; 1 for the shape ().
  std::size_t elements() const {
    std::size_t product = 1;
    for (std::size_t extent : shape) product *= extent;
    return product;
  }
  /// "(3, 4)", as Python writes it.
  std::string shape_text() const {
    std::string text = "(";
    for (std::size_t i = 0; i < shape.size(); ++i) text += detail::concat(i == 0 ? "" : ", ", shape[i]);
    return text + (shape.size() == 1 ? ",)" : ")");
  }
};

namespace detail {

[[noreturn]] inline void throw_npy_error(const std::string& path, std::uint64_t offset, std::string problem) {
  throw error(std::move(problem), place_in_file(path, concat("byte ", offset)));
}

/// Reads the header's text, a Python dictionary with the keys descr, fortran_order and shape, in any order.
class npy_header_parser {
 public:
  /// `to` has the path and gets the rest; `start` is the position of `text` in the file.
  npy_header_parser(std::string_view text, std::uint64_t start, npy_header& to)
      : text_(text), start_(start), header_(to) {}

  void parse() {
    expect('{', "the dictionary's opening brace");
    while (!accept('}')) {
      entry();
      if (!accept(',')) {
        expect('}', "a comma or the dictionary's closing brace");
        break;
      }
    }
    skip_blanks();
    if (at_ != text_.size()) fail("the header goes on after its closing brace");
    if (!has_type_) fail("the header has no 'descr'");
    if (!has_order_) fail("the header has no 'fortran_order'");
    if (!has_shape_) fail("the header has no 'shape'");
  }

 private:
  void entry() {
    skip_blanks();
    const std::size_t begin = at_;
    const std::string_view key = quoted();
    expect(':', "a colon");
    skip_blanks();
    bool* const known = key == "descr"           ? &has_type_
                        : key == "fortran_order" ? &has_order_
                        : key == "shape"         ? &has_shape_
                                                 : nullptr;
    if (known == nullptr) fail_at(begin, "the header has an unknown key, wanted descr, fortran_order or shape");
    if (std::exchange(*known, true)) fail_at(begin, concat("the header has '", key, "' twice"));
    if (known == &has_type_) type();
    if (known == &has_order_) order();
    if (known == &has_shape_) shape();
  }

  void type() {
    header_.type_offset = start_ + at_;
    header_.type = peek() == '[' || peek() == '(' ? bracketed() : quoted();
  }

  void order() {
    for (const auto& [word, value] : {std::pair<std::string_view, bool>{"True", true}, {"False", false}}) {
      if (!text_.substr(at_).starts_with(word)) continue;
      at_ += word.size();
      header_.fortran_order = value;
      return;
    }
    fail("fortran_order is something else, wanted True or False");
  }

  void shape() {
    constexpr std::size_t most = 64;  // NumPy's own limit
    header_.shape_offset = start_ + at_;
    expect('(', "the opening bracket of the shape");
    bool comma = true;  // (5) is no tuple in Python
    while (!accept(')')) {
      if (!comma) fail("the shape is not a tuple, wanted a comma between extents and after a single one");
      if (header_.shape.size() == most) fail(concat("the shape has more than ", most, " dimensions"));
      header_.shape.push_back(extent());
      comma = accept(',');
      if (!comma && header_.shape.size() == 1) fail("the shape is not a tuple, wanted a comma after the extent");
    }
  }

  std::size_t extent() {
    skip_blanks();
    if (peek() == '-') fail("an extent of the shape is negative");
    if (!is_digit(peek())) fail("an extent of the shape is not a number");
    std::size_t value = 0;
    for (; is_digit(peek()); ++at_) {
      const std::size_t digit = static_cast<std::size_t>(peek() - '0');
      if (value > (std::numeric_limits<std::size_t>::max() - digit) / 10) fail("an extent of the shape is too large");
      value = value * 10 + digit;
    }
    if (peek() == 'L') ++at_;  // Python 2's long
    return value;
  }

  /// What is between two quotes; backslashes stay as they are.
  std::string_view quoted() {
    const char quote = peek();
    if (quote != '\'' && quote != '"') fail("wanted a text in quotes");
    const std::size_t begin = ++at_;
    while (at_ < text_.size() && text_[at_] != quote) at_ += text_[at_] == '\\' ? 2 : 1;
    if (at_ >= text_.size()) fail_at(begin - 1, "the closing quote is missing");
    return text_.substr(begin, at_++ - begin);
  }

  /// A whole list or tuple, as it is written.
  std::string_view bracketed() {
    const std::size_t begin = at_;
    std::string open;
    do {
      const char next = peek();
      if (next == '\'' || next == '"') {
        quoted();
        continue;
      }
      if (next == '\0') fail_at(begin, "the closing bracket of the type is missing");
      if (next == '[' || next == '(') open.push_back(next == '[' ? ']' : ')');
      if (next == ']' || next == ')') {
        if (open.back() != next) fail("the brackets of the type do not match");
        open.pop_back();
      }
      ++at_;
    } while (!open.empty());
    return text_.substr(begin, at_ - begin);
  }

  static bool is_digit(char c) { return c >= '0' && c <= '9'; }
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  void skip_blanks() {
    while (peek() == ' ' || peek() == '\n' || peek() == '\r' || peek() == '\t') ++at_;
  }
  bool accept(char wanted) {
    skip_blanks();
    if (peek() != wanted) return false;
    ++at_;
    return true;
  }
  void expect(char wanted, std::string_view what) {
    if (!accept(wanted)) fail(concat("the header is damaged, wanted ", what));
  }
  [[noreturn]] void fail(std::string problem) const { fail_at(at_, std::move(problem)); }
  [[noreturn]] void fail_at(std::size_t at, std::string problem) const {
    throw_npy_error(header_.path, start_ + at, std::move(problem));
  }

  std::string_view text_;
  std::uint64_t start_;
  npy_header& header_;
  std::size_t at_ = 0;
  bool has_type_ = false;
  bool has_order_ = false;
  bool has_shape_ = false;
};

/// Checks the extents' product, and that the file holds all of the elements if their size is known.
inline void check_npy_sizes(const npy_header& header, std::uint64_t file_size) {
  const auto elements = count_npy_elements(header.shape);
  if (!elements) {
    throw_npy_error(header.path, header.shape_offset,
                    concat("the shape ", header.shape_text(), " has more elements than memory can hold"));
  }
  const auto type = parse_npy_type(header.type);
  if (!type) return;
  const std::uint64_t wanted = *elements * type->size;
  const std::uint64_t found = file_size - header.data_offset;
  if (wanted > found) {
    throw_npy_error(header.path, file_size,
                    concat("the file ends here, ", found, " bytes after its header; ", header.shape_text(), " of '",
                           header.type, "' wants ", wanted));
  }
}

inline std::string describe_npy_magic(std::string_view found) {
  if (found.starts_with("PK")) return "this is a zip archive, perhaps an NPZ file; wanted one of the NPY files in it";
  if (found.starts_with("\x1f\x8b")) return "this is gzip; wanted the NPY file in it";
  if (found.starts_with("\x89HDF")) return "this is HDF5, wanted an NPY file";
  return "this is not an NPY file, which begins with \\x93NUMPY";
}

inline npy_header read_npy_header(const file_descriptor& file) {
  npy_header header;
  header.path = file.path();
  std::array<char, 12> start{};
  const std::size_t got = file.size() < start.size() ? static_cast<std::size_t>(file.size()) : start.size();
  file.read_at(0, std::as_writable_bytes(std::span(start)).first(got));
  constexpr std::string_view magic = "\x93NUMPY";
  const std::string_view found(start.data(), got);
  if (found.substr(0, magic.size()) != magic.substr(0, got)) throw_npy_error(header.path, 0, describe_npy_magic(found));
  if (got < start.size()) throw_npy_error(header.path, got, "the file ends within the first 12 bytes of its header");

  const auto byte_at = [&](std::size_t at) {
    return static_cast<std::uint64_t>(static_cast<unsigned char>(start[at]));
  };
  header.major_version = static_cast<int>(byte_at(6));
  header.minor_version = static_cast<int>(byte_at(7));
  if (header.major_version < 1 || header.major_version > 3 || header.minor_version != 0) {
    throw_npy_error(header.path, 6,
                    concat("NPY version ", header.major_version, ".", header.minor_version,
                           " is not supported, wanted 1.0, 2.0 or 3.0"));
  }
  const bool wide = header.major_version > 1;
  const std::uint64_t begin = wide ? 12 : 10;
  std::uint64_t length = byte_at(8) | byte_at(9) << 8;
  if (wide) length |= byte_at(10) << 16 | byte_at(11) << 24;
  if (length > file.size() - begin) {
    throw_npy_error(header.path, 8,
                    concat("the header is said to have ", length, " bytes, but the file ends at byte ", file.size()));
  }
  constexpr std::uint64_t longest = 16u << 20;
  if (length > longest) {
    throw_npy_error(header.path, 8,
                    concat("the header is said to have ", length, " bytes, wanted ", longest, " or fewer"));
  }
  std::string text(static_cast<std::size_t>(length), '\0');
  file.read_at(begin, std::as_writable_bytes(std::span(text)));
  header.data_offset = begin + length;
  npy_header_parser(text, begin, header).parse();
  check_npy_sizes(header, file.size());
  return header;
}

}  // namespace detail

/// The header of an NPY file of version 1, 2 or 3, of any element type and shape; `()` included.
///
/// For plain numbers the file is known to hold all elements. Throws `error` with path and byte.
inline npy_header npy_info(const std::string& path) { return detail::read_npy_header(file_descriptor(path)); }

}  // namespace penstock
