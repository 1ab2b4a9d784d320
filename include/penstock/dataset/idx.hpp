// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <ranges>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <penstock/dataset/atomic_file.hpp>
#include <penstock/dataset/dataset.hpp>
#include <penstock/dataset/idx_header.hpp>
#include <penstock/dataset/mapped_file.hpp>
#include <penstock/dataset/npy_convert.hpp>
#include <penstock/sample/schema.hpp>

namespace penstock {

struct idx_options {
  std::string name = {};  ///< of the field; empty: the file's name without folder
};

namespace detail {

/// The format's numbers are big-endian.
template <idx_element T>
inline constexpr bool idx_swaps = sizeof(T) > 1 && std::endian::native == std::endian::little;

}  // namespace detail

/// The dataset of one IDX file, the format of MNIST: the first dimension counts the samples, each sample is one field
/// of rank `Rank`. Images are `idx_array<std::uint8_t, 2>`, their labels `idx_array<std::uint8_t>`.
///
/// `T` is the file's element type; big-endian numbers become this machine's. Opening checks type, dimensions and the
/// file's size, and throws `error` with path and byte. The file is mapped and must not shrink. Copies share it. All
/// members are const, `read` may be called by any number of threads.
template <idx_element T, std::size_t Rank = 0>
class idx_array {
 public:
  using schema_type = penstock::schema<field<T, Rank>>;

  explicit idx_array(const std::string& path, const idx_options& options = {})
      : file_(std::make_shared<const mapped_file>(path)), header_(detail::read_idx_header(path, file_->bytes())) {
    using detail::concat, detail::idx_magic_text;
    static_assert(Rank < 255, "penstock: idx_array has 254 dimensions at most beside the samples'");
    if (header_.type != detail::idx_type<T> || header_.shape.size() != Rank + 1)
      detail::throw_idx_error(
          path, 2,
          concat("this is type ", idx_magic_text(header_.type, header_.shape.size()), " (", kind(header_.type), " of ",
                 header_.shape.size(), " dimensions), wanted ", idx_magic_text(detail::idx_type<T>, Rank + 1), " (",
                 kind(detail::idx_type<T>), " of ", Rank + 1, ", the samples' among them)"));
    field_.name = options.name.empty() ? path.substr(path.rfind('/') + 1) : options.name;  // npos + 1 is 0
    for (std::size_t i = 0; i != Rank; ++i) field_.shape[i] = header_.shape[i + 1];
    elements_ = field_.elements();
  }

  std::size_t size() const { return header_.shape[0]; }
  schema_type schema() const { return schema_type(field_); }
  const idx_header& header() const { return header_; }

  void read(std::size_t index, sample_view<schema_type> to) const {
    if (index >= size())
      throw error(detail::concat("sample ", index, " is wanted, the file has ", size()),
                  detail::place_in_file(header_.path));
    if (elements_ != 0)
      detail::npy_convert<T, T, detail::idx_swaps<T>>(at(index), sizeof(T), elements_, std::get<0>(to).data());
  }

  /// Has the processor bring the sample near.
  void prefetch(std::size_t index) const {
    if (index < size() && elements_ != 0) prefetch_lines(at(index), elements_ * sizeof(T));
  }

 private:
  static std::string_view kind(std::uint8_t type) { return detail::idx_type_name(type); }
  const std::byte* at(std::size_t index) const {
    return file_->bytes().data() + header_.data_offset + index * elements_ * sizeof(T);
  }

  std::shared_ptr<const mapped_file> file_;
  idx_header header_;
  field<T, Rank> field_;
  std::size_t elements_ = 0;  // of a sample
};

/// Writes an IDX file: `write_idx("labels", labels, {60000})`.
///
/// The file appears under its name when it is whole and on disk. Throws `std::invalid_argument` if the shape has
/// another number of elements or is none that the format can say, `error` with path and reason; then a file that was
/// there before is untouched.
template <std::ranges::contiguous_range Range>
  requires idx_element<std::ranges::range_value_t<Range>>
void write_idx(const std::string& path, const Range& values, const std::vector<std::size_t>& shape) {
  using detail::concat, detail::reject_option;
  using value_type = std::ranges::range_value_t<Range>;
  constexpr std::size_t most = std::numeric_limits<std::uint32_t>::max();
  if (shape.size() > 255) reject_option("write_idx", "shape", concat(shape.size(), " extents long"), "255 or fewer");
  std::string header{'\0', '\0', static_cast<char>(detail::idx_type<value_type>),
                     static_cast<char>(static_cast<unsigned char>(shape.size()))};
  for (const std::size_t extent : shape) {
    if (extent > most) reject_option("write_idx", "an extent of shape", concat(extent), concat(most, " or less"));
    for (const unsigned shift : {24u, 16u, 8u, 0u})
      header += static_cast<char>(static_cast<unsigned char>(extent >> shift & 0xff));
  }
  const auto elements = detail::count_npy_elements(shape);
  if (!elements || *elements != std::ranges::size(values))
    reject_option("write_idx", "shape",
                  elements ? concat("one of ", *elements, " elements") : std::string("larger than memory"),
                  concat(std::ranges::size(values), " as given"));

  atomic_file file(path);
  file.write(std::as_bytes(std::span(header)));
  const auto bytes = std::as_bytes(std::span(std::ranges::data(values), std::ranges::size(values)));
  if constexpr (!detail::idx_swaps<value_type>) {
    file.write(bytes);
  } else {
    std::vector<value_type> piece(16384);
    for (std::size_t done = 0; done < *elements; done += piece.size()) {
      if (*elements - done < piece.size()) piece.resize(*elements - done);
      detail::npy_convert<value_type, value_type, true>(bytes.data() + done * sizeof(value_type), sizeof(value_type),
                                                        piece.size(), piece.data());
      file.write(std::as_bytes(std::span(piece)));
    }
  }
  file.commit();
}

}  // namespace penstock
