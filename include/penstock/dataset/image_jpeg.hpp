// SPDX-License-Identifier: Apache-2.0
#pragma once

// jpeglib.h needs what these declare.
#include <cstddef>
#include <cstdio>

#include <jpeglib.h>

#include <jerror.h>

#include <algorithm>
#include <csetjmp>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include <penstock/dataset/image_exif.hpp>
#include <penstock/dataset/image_options.hpp>

namespace penstock::detail {

/// One JPEG file in memory, by libjpeg-turbo (or another library with libjpeg's interface that makes grey of RGB). What
/// libjpeg calls errors, and its warnings about missing or wrong data, end the reading by a jump over libjpeg's frames
/// into `guarded`, which has nothing to destroy, and become an exception there.
class jpeg_reader {
 public:
  jpeg_reader(std::span<const std::byte> file, const std::string& path) : file_(file), path_(path) {
    codec_.err = ::jpeg_std_error(&errors_);
    codec_.client_data = this;
    errors_.error_exit = [](j_common_ptr codec) { self_of(codec).leave(); };
    errors_.emit_message = [](j_common_ptr codec, int level) {
      if (level < 0 && is_damage(*codec->err)) self_of(codec).leave();
    };
    source_.next_input_byte = reinterpret_cast<const JOCTET*>(file.data());
    source_.bytes_in_buffer = file.size();
    source_.init_source = [](j_decompress_ptr) {};
    source_.term_source = [](j_decompress_ptr) {};
    source_.resync_to_restart = ::jpeg_resync_to_restart;
    source_.fill_input_buffer = [](j_decompress_ptr codec) -> boolean { self_of(codec).end(); };
    source_.skip_input_data = [](j_decompress_ptr codec, long count) {
      if (count <= 0) return;
      if (static_cast<std::size_t>(count) > codec->src->bytes_in_buffer) self_of(codec).end();
      codec->src->next_input_byte += count;
      codec->src->bytes_in_buffer -= static_cast<std::size_t>(count);
    };
  }
  jpeg_reader(const jpeg_reader&) = delete;
  jpeg_reader& operator=(const jpeg_reader&) = delete;
  ~jpeg_reader() { ::jpeg_destroy_decompress(&codec_); }

  decoded_image read(const image_decode_options& options) {
    guarded([this] {
      jpeg_create_decompress(&codec_);
      codec_.src = &source_;
      ::jpeg_save_markers(&codec_, JPEG_APP0 + 1, 0xffff);
      ::jpeg_read_header(&codec_, TRUE);
    });
    const std::size_t height = codec_.image_height, width = codec_.image_width;
    check_image_size(path_, height, width, options);
    choose_colours(options.channels <= 2);
    choose_scale(std::max(height, width), options.longest_side);
    guarded([this] { ::jpeg_start_decompress(&codec_); });

    const auto channels = static_cast<std::size_t>(codec_.output_components);
    decoded_image result{
        image(pixel_type::uint8, codec_.output_height, codec_.output_width, channels), orientation(), {height, width}};
    auto* const pixels = reinterpret_cast<JSAMPROW>(result.pixels.data());
    const std::size_t row_bytes = channels * codec_.output_width;
    guarded([this, pixels, row_bytes] {
      in_rows_ = true;
      while (codec_.output_scanline < codec_.output_height) {
        JSAMPROW row = pixels + codec_.output_scanline * row_bytes;
        ::jpeg_read_scanlines(&codec_, &row, 1);
      }
      ::jpeg_finish_decompress(&codec_);
    });
    return result;
  }

 private:
  void choose_colours(bool grey) {
    switch (codec_.jpeg_color_space) {
      case JCS_GRAYSCALE: grey = true; break;
      case JCS_YCbCr:
      case JCS_RGB: break;
      case JCS_CMYK:
      case JCS_YCCK:
        throw_image_error(
            path_, {},
            "the colours are CMYK (four inks), wanted grey, YCbCr or RGB: convert the file, by its colour "
            "profile");
      default:
        throw_image_error(path_, {},
                          concat("the image has ", codec_.num_components,
                                 " components of unknown meaning, wanted grey, YCbCr or RGB"));
    }
    codec_.out_color_space = grey ? JCS_GRAYSCALE : JCS_RGB;
  }
  /// libjpeg makes images of 1/2, 1/4 and 1/8 of the size fast: the smallest one that is not too small.
  void choose_scale(std::size_t longest, std::size_t wanted) {
    codec_.scale_num = 8;
    codec_.scale_denom = 8;
    if (wanted == 0) return;
    while (codec_.scale_num > 1 && longest * (codec_.scale_num / 2) >= 8 * wanted) codec_.scale_num /= 2;
  }
  /// That of the first segment APP1 with EXIF data.
  unsigned orientation() const {
    constexpr std::string_view mark("Exif\0\0", 6);
    for (jpeg_saved_marker_ptr one = codec_.marker_list; one != nullptr; one = one->next)
      if (one->data_length > mark.size() && std::memcmp(one->data, mark.data(), mark.size()) == 0)
        return exif_orientation(std::as_bytes(std::span(one->data, one->data_length)).subspan(mark.size()));
    return 1;
  }

  /// `steps` calls libjpeg and makes no object that would have to be destroyed.
  template <class Steps>
  void guarded(const Steps& steps) {
    if (completes(steps)) return;
    // Of progressive files all bytes are read before the first row is made.
    const std::size_t byte = ended_ ? file_.size() : file_.size() - source_.bytes_in_buffer;
    throw_image_error(path_, in_rows_ ? concat("row ", codec_.output_scanline) : concat("byte ", byte),
                      ended_ ? std::string("the file ends here, within the image; wanted the rest of it")
                             : concat("the file is damaged, libjpeg says: ", std::string_view(problem_)));
  }
  template <class Steps>
  [[gnu::noinline]] bool completes(const Steps& steps) {
    if (setjmp(way_out_) != 0) return false;
    steps();
    return true;
  }

  template <class Codec>
  static jpeg_reader& self_of(Codec* codec) {
    return *static_cast<jpeg_reader*>(codec->client_data);
  }
  [[noreturn]] void leave() {
    errors_.format_message(reinterpret_cast<j_common_ptr>(&codec_), problem_);
    std::longjmp(way_out_, 1);
  }
  [[noreturn]] void end() {
    ended_ = true;
    std::longjmp(way_out_, 1);
  }
  /// Not what is odd in a header, nor bytes between the image and its end, which some cameras leave.
  static bool is_damage(const jpeg_error_mgr& errors) {
    constexpr int end_of_image = 0xd9;
    switch (errors.msg_code) {
      case JWRN_ADOBE_XFORM:
      case JWRN_BOGUS_PROGRESSION:
      case JWRN_JFIF_MAJOR: return false;
      case JWRN_EXTRANEOUS_DATA: return errors.msg_parm.i[1] != end_of_image;
      default: return true;
    }
  }

  std::span<const std::byte> file_;
  const std::string& path_;
  ::jpeg_decompress_struct codec_{};
  ::jpeg_error_mgr errors_{};
  ::jpeg_source_mgr source_{};
  std::jmp_buf way_out_{};
  bool in_rows_ = false;
  bool ended_ = false;
  char problem_[JMSG_LENGTH_MAX] = "";
};

inline decoded_image read_jpeg(std::span<const std::byte> file, const std::string& path,
                               const image_decode_options& options) {
  return jpeg_reader(file, path).read(options);
}

}  // namespace penstock::detail
