// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <png.h>

#include <bit>
#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <span>
#include <string>

#include <penstock/dataset/atomic_file.hpp>
#include <penstock/dataset/image.hpp>
#include <penstock/sample/error.hpp>

namespace penstock {

namespace detail {

/// One image on its way into a file, by libpng; its jumps are guarded as those of `png_reader` are.
class png_writer {
 public:
  explicit png_writer(atomic_file& file) : file_(file) {
    png_ = ::png_create_write_struct(PNG_LIBPNG_VER_STRING, this, &png_writer::on_error, &png_writer::on_warning);
    info_ = png_ == nullptr ? nullptr : ::png_create_info_struct(png_);
    if (info_ == nullptr) {
      ::png_destroy_write_struct(&png_, nullptr);
      throw error("libpng cannot begin: no memory, or the library is not the one compiled for");
    }
  }
  png_writer(const png_writer&) = delete;
  png_writer& operator=(const png_writer&) = delete;
  ~png_writer() { ::png_destroy_write_struct(&png_, &info_); }

  void write(const image& from) {
    if (completes(from)) return;
    if (cause_) std::rethrow_exception(cause_);
    throw error(concat("cannot be written as PNG, libpng says: ", problem_));
  }

 private:
  /// Makes no object that would have to be destroyed.
  [[gnu::noinline]] bool completes(const image& from) {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    constexpr int colours[] = {PNG_COLOR_TYPE_GRAY, PNG_COLOR_TYPE_GRAY_ALPHA, PNG_COLOR_TYPE_RGB,
                               PNG_COLOR_TYPE_RGB_ALPHA};
    ::png_set_write_fn(png_, this, &png_writer::on_bytes, [](png_structp) {});
    ::png_set_user_limits(png_, PNG_UINT_31_MAX, PNG_UINT_31_MAX);
    ::png_set_IHDR(png_, info_, static_cast<png_uint_32>(from.width()), static_cast<png_uint_32>(from.height()),
                   from.type() == pixel_type::uint16 ? 16 : 8, colours[from.channels() - 1], PNG_INTERLACE_NONE,
                   PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    ::png_write_info(png_, info_);
    if (from.type() == pixel_type::uint16 && std::endian::native == std::endian::little) ::png_set_swap(png_);
    const std::size_t row_bytes = from.bytes() / from.height();
    for (std::size_t y = 0; y < from.height(); ++y)
      ::png_write_row(png_, reinterpret_cast<png_const_bytep>(from.data() + y * row_bytes));
    ::png_write_end(png_, info_);
    return true;
  }

  [[noreturn]] static void on_error(png_structp png, png_const_charp text) {
    auto& self = *static_cast<png_writer*>(::png_get_error_ptr(png));
    std::snprintf(self.problem_, sizeof self.problem_, "%s", text);
    ::png_longjmp(png, 1);
  }
  static void on_warning(png_structp, png_const_charp) {}
  static void on_bytes(png_structp png, png_bytep bytes, std::size_t count) {
    auto& self = *static_cast<png_writer*>(::png_get_io_ptr(png));
    if (!self.put(std::as_bytes(std::span(bytes, count)))) ::png_longjmp(png, 1);
  }
  bool put(std::span<const std::byte> bytes) noexcept {
    try {
      file_.write(bytes);
      return true;
    } catch (...) {
      cause_ = std::current_exception();
      return false;
    }
  }

  atomic_file& file_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  std::exception_ptr cause_;
  char problem_[160] = "";
};

}  // namespace detail

/// Writes an image of 1 to 4 channels (grey, grey and alpha, RGB, RGBA) as PNG of 8 or 16 bits: `decode_image` gives
/// the same pixels back.
///
/// The file appears under its name when it is whole and on disk. Throws `std::invalid_argument` for volumes, floating
/// point and other numbers of channels, `error` with path and reason; then a file that was there before is untouched.
inline void write_png(const std::string& path, const image& from) {
  using detail::concat, detail::reject_option;
  if (from.size() == 0) reject_option("write_png", "the image", "empty", "one of 1 pixel or more");
  if (from.depth() != 1) reject_option("write_png", "depth", concat(from.depth()), "1");
  if (from.channels() > 4) reject_option("write_png", "channels", concat(from.channels()), "1 to 4");
  if (from.type() == pixel_type::float32)
    reject_option("write_png", "the pixels' type", "float32", "uint8 or uint16, which PNG can hold");
  constexpr std::size_t most = PNG_UINT_31_MAX;
  if (from.height() > most || from.width() > most)
    reject_option("write_png", "the size", concat(from.height(), " x ", from.width()), "less than 2^31 each way");
  atomic_file file(path);
  try {
    detail::png_writer(file).write(from);
  } catch (const error& problem) {
    provenance where = problem.where();
    where.complete_from(detail::place_in_file(path));
    throw error(problem.problem(), where);
  }
  file.commit();
}

}  // namespace penstock
