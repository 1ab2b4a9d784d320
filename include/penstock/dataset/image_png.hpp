// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <png.h>

#include <bit>
#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include <penstock/dataset/image_exif.hpp>
#include <penstock/dataset/image_options.hpp>

namespace penstock::detail {

/// The orientation in a PNG file's chunk eXIf.
inline unsigned png_orientation(std::span<const std::byte> file) noexcept {
  constexpr std::size_t signature = 8, frame = 12;  // a chunk's length, name and checksum
  const auto four = [&](std::size_t i) {
    std::uint32_t value = 0;
    for (std::size_t k = 0; k < 4; ++k) value = value << 8 | std::to_integer<std::uint32_t>(file[i + k]);
    return value;
  };
  for (std::size_t at = signature; at <= file.size() && file.size() - at >= frame;) {
    const std::size_t length = four(at), rest = file.size() - at - frame;
    if (length > rest) break;
    if (std::memcmp(file.data() + at + 4, "eXIf", 4) == 0) return exif_orientation(file.subspan(at + 8, length));
    at += frame + length;
  }
  return 1;
}

/// One PNG file in memory, by libpng. What libpng calls errors or warnings ends the reading by a jump over libpng's
/// frames into `guarded`, which has nothing to destroy, and becomes an exception there. Chunks that do not matter to
/// the pixels are not parsed, so that what remains of its warnings is about pixels.
class png_reader {
 public:
  png_reader(std::span<const std::byte> file, const std::string& path) : file_(file), path_(path) {
    png_ = ::png_create_read_struct(PNG_LIBPNG_VER_STRING, this, &png_reader::on_problem, &png_reader::on_problem);
    info_ = png_ == nullptr ? nullptr : ::png_create_info_struct(png_);
    if (info_ == nullptr) {
      ::png_destroy_read_struct(&png_, nullptr, nullptr);
      throw_image_error(path_, {}, "libpng cannot begin: no memory, or the library is not the one compiled for");
    }
  }
  png_reader(const png_reader&) = delete;
  png_reader& operator=(const png_reader&) = delete;
  ~png_reader() { ::png_destroy_read_struct(&png_, &info_, nullptr); }

  decoded_image read(const image_decode_options& options) {
    guarded([this] {
      ::png_set_read_fn(png_, this, &png_reader::on_read);
      ::png_set_user_limits(png_, PNG_UINT_31_MAX, PNG_UINT_31_MAX);
#ifdef PNG_SET_UNKNOWN_CHUNKS_SUPPORTED
      ::png_set_keep_unknown_chunks(png_, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);
#endif
      ::png_read_info(png_, info_);
    });
    const std::size_t height = ::png_get_image_height(png_, info_), width = ::png_get_image_width(png_, info_);
    check_image_size(path_, height, width, options);
    const bool alpha = options.channels % 2 == 0;
    guarded([this, alpha] { expand(alpha); });

    const pixel_type type = ::png_get_bit_depth(png_, info_) == 16 ? pixel_type::uint16 : pixel_type::uint8;
    decoded_image result{
        image(type, height, width, ::png_get_channels(png_, info_)), png_orientation(file_), {height, width}};
    const std::size_t row_bytes = result.pixels.bytes() / height;
    if (::png_get_rowbytes(png_, info_) != row_bytes)
      throw_image_error(path_, {}, "libpng gives rows of another size than the header says");
    auto* const pixels = reinterpret_cast<png_bytep>(result.pixels.data());
    guarded([this, pixels, row_bytes, height] {
      in_rows_ = true;
      for (int pass = 0; pass < passes_; ++pass)
        for (row_ = 0; row_ < height; ++row_) ::png_read_row(png_, pixels + row_ * row_bytes, nullptr);
      in_rows_ = false;
      ::png_read_end(png_, nullptr);
    });
    return result;
  }

 private:
  void expand(bool alpha) {
    const int colours = ::png_get_color_type(png_, info_), depth = ::png_get_bit_depth(png_, info_);
    if (colours == PNG_COLOR_TYPE_PALETTE) ::png_set_palette_to_rgb(png_);
    if (colours == PNG_COLOR_TYPE_GRAY && depth < 8) ::png_set_expand_gray_1_2_4_to_8(png_);
    if (!alpha)
      ::png_set_strip_alpha(png_);
    else if (::png_get_valid(png_, info_, PNG_INFO_tRNS) != 0)
      ::png_set_tRNS_to_alpha(png_);
    if (depth == 16 && std::endian::native == std::endian::little) ::png_set_swap(png_);
    passes_ = ::png_set_interlace_handling(png_);
    ::png_read_update_info(png_, info_);
  }

  /// `steps` calls libpng and makes no object that would have to be destroyed.
  template <class Steps>
  void guarded(const Steps& steps) {
    if (completes(steps)) return;
    throw_image_error(path_, in_rows_ && !ended_ ? concat("row ", row_) : concat("byte ", at_),
                      ended_ ? std::string("the file ends here, within the image; wanted the rest of it")
                             : concat("the file is damaged, libpng says: ", std::string_view(problem_)));
  }
  template <class Steps>
  [[gnu::noinline]] bool completes(const Steps& steps) {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    steps();
    return true;
  }

  [[noreturn]] static void on_problem(png_structp png, png_const_charp text) {
    auto& self = *static_cast<png_reader*>(::png_get_error_ptr(png));
    std::snprintf(self.problem_, sizeof self.problem_, "%s", text);
    ::png_longjmp(png, 1);
  }
  static void on_read(png_structp png, png_bytep to, std::size_t count) {
    auto& self = *static_cast<png_reader*>(::png_get_io_ptr(png));
    if (count > self.file_.size() - self.at_) {
      self.at_ = self.file_.size();
      self.ended_ = true;
      ::png_longjmp(png, 1);
    }
    std::memcpy(to, self.file_.data() + self.at_, count);
    self.at_ += count;
  }

  std::span<const std::byte> file_;
  const std::string& path_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  int passes_ = 1;
  std::size_t at_ = 0;   // what libpng reads next
  std::size_t row_ = 0;  // what it decodes
  bool in_rows_ = false;
  bool ended_ = false;
  char problem_[160] = "";
};

inline decoded_image read_png(std::span<const std::byte> file, const std::string& path,
                              const image_decode_options& options) {
  return png_reader(file, path).read(options);
}

}  // namespace penstock::detail
