// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <variant>

#include <penstock/dataset/dataset.hpp>
#include <penstock/dataset/mapped_file.hpp>
#include <penstock/dataset/npy_convert.hpp>
#include <penstock/dataset/npy_header.hpp>
#include <penstock/dataset/npy_type.hpp>

namespace penstock {

/// How an array's elements are fetched from its file.
enum class npy_access {
  mapped,      ///< through a memory map: no system call per sample; the file must not shrink while it is open
  positioned,  ///< by reads at given positions of one open file: for file systems whose maps are slow or missing
};

namespace detail {

/// An NPY file of plain numbers, open and checked, from which numbers are read as `T` by any number of threads.
template <npy_element T>
class npy_source {
 public:
  npy_source(const std::string& path, npy_access access, bool convert) : npy_source(file_descriptor(path), access) {
    const std::string wanted = concat("'", npy_type_text<T>(), "' (", npy_type_name(npy_kind<T>, sizeof(T)), ")");
    std::string shown = header_.type.substr(0, 60);
    if (shown.size() < header_.type.size()) shown += "...";
    const std::string found =
        concat("the array's type is '", shown, "' (", describe_npy_type(header_.type), "), wanted ", wanted);
    const auto type = parse_npy_type(header_.type);
    if (!type) throw_npy_error(header_.path, header_.type_offset, concat(found, " or another plain number"));
    same_ = type->kind == npy_kind<T> && type->size == sizeof(T);
    converter_ = find_npy_converter<T>(*type);
    if (converter_ == nullptr)
      throw_npy_error(header_.path, header_.type_offset, concat(found, " or another real number"));
    if (!same_ && !convert) {
      throw_npy_error(header_.path, header_.type_offset, concat(found, "; the option .convert = true converts"));
    }
    same_bytes_ = same_ && !type->swapped && npy_kind<T> != 'b';
    item_size_ = type->size;
    // Small rows share pages, and what lies in many places of the file is better loaded at large.
    const bool in_rows = !header_.fortran_order || header_.shape.size() < 2;
    const auto* const map = std::get_if<mapped_file>(&bytes_);
    if (map != nullptr && in_rows && header_.shape.size() > 0 && header_.shape[0] > 0 &&
        (map->size() - header_.data_offset) / header_.shape[0] >= page)
      map->is_read_at_random();
  }

  const npy_header& header() const noexcept { return header_; }
  std::size_t item_size() const noexcept { return item_size_; }

  /// Reads `count` elements, the first one at byte `offset`, the others `stride` bytes apart.
  void read(std::uint64_t offset, std::size_t stride, std::size_t count, T* to) const {
    if (const auto* map = std::get_if<mapped_file>(&bytes_)) {
      convert(map->bytes().data() + offset, offset, stride, count, to);
      return;
    }
    const auto& file = std::get<file_descriptor>(bytes_);
    if (stride == item_size_ && same_bytes_) {
      file.read_at(offset, std::as_writable_bytes(std::span(to, count)));
      return;
    }
    std::byte piece[4096];
    const std::size_t most = stride == item_size_ ? sizeof(piece) / item_size_ : 1;
    while (count > 0) {
      const std::size_t now = count < most ? count : most;
      file.read_at(offset, std::span(piece, now * item_size_));
      convert(piece, offset, item_size_, now, to);
      offset += now * stride;
      to += now;
      count -= now;
    }
  }

  /// Tells the system that these bytes are wanted soon. Never fails.
  void prefetch(std::uint64_t offset, std::size_t count) const noexcept {
    // A system call for every small row would cost more than it gains.
    if (count >= page) fetch(offset, count);
    bring_near(offset, count);
  }
  /// The same, whatever their number.
  void fetch(std::uint64_t offset, std::size_t count) const noexcept {
    if (const auto* map = std::get_if<mapped_file>(&bytes_))
      map->will_need(static_cast<std::size_t>(offset), count);
    else
      std::get<file_descriptor>(bytes_).will_need(offset, count);
  }
  /// Tells the processor, where the bytes are mapped.
  void bring_near(std::uint64_t offset, std::size_t count) const noexcept {
    if (const auto* map = std::get_if<mapped_file>(&bytes_)) prefetch_lines(map->bytes().data() + offset, count);
  }
  /// False if reading this byte would wait for the disk.
  bool is_cached(std::uint64_t offset) const noexcept {
    if (const auto* map = std::get_if<mapped_file>(&bytes_)) return map->is_cached(static_cast<std::size_t>(offset));
    return std::get<file_descriptor>(bytes_).is_cached(offset);
  }

 private:
  static constexpr std::size_t page = 4096;
  using access_to_bytes = std::variant<mapped_file, file_descriptor>;

  npy_source(file_descriptor file, npy_access access)
      : header_(read_npy_header(file)),
        bytes_(access == npy_access::mapped ? access_to_bytes(mapped_file(file)) : access_to_bytes(std::move(file))) {}

  void convert(const std::byte* from, std::uint64_t offset, std::size_t stride, std::size_t count, T* to) const {
    const std::size_t done = converter_(from, stride, count, to);
    if (done == count) return;
    throw_npy_error(header_.path, offset + done * stride,
                    concat("a number of type '", header_.type, "' has no equal in '", npy_type_text<T>(), "' (",
                           npy_type_name(npy_kind<T>, sizeof(T)), ")"));
  }

  npy_header header_;
  access_to_bytes bytes_;
  npy_converter<T> converter_ = nullptr;
  std::size_t item_size_ = 1;
  bool same_ = false;
  bool same_bytes_ = false;
};

}  // namespace detail
}  // namespace penstock
