// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

namespace image_test {

struct exif_options {
  unsigned tags_before = 0;  // in the directory
  unsigned gap = 0;          // bytes between head and directory
  unsigned tag = 0x0112, type = 3, count = 1;
};

/// EXIF data with an orientation, as they follow "Exif\0\0" in a JPEG file.
inline std::string exif_block(unsigned orientation, bool big, const exif_options& options = {}) {
  std::string out = big ? "MM" : "II";
  const auto put = [&](unsigned value, unsigned size) {
    for (unsigned i = 0; i < size; ++i)
      out += static_cast<char>(static_cast<unsigned char>(value >> 8 * (big ? size - 1 - i : i) & 0xff));
  };
  put(42, 2);
  put(8 + options.gap, 4);
  out.append(options.gap, '\x7f');
  put(options.tags_before + 1, 2);
  for (unsigned i = 0; i < options.tags_before; ++i) {
    put(0x0100 + i, 2);
    put(4, 2);
    put(1, 4);
    put(640, 4);
  }
  put(options.tag, 2);
  put(options.type, 2);
  put(options.count, 4);
  put(orientation, options.type == 4 ? 4 : 2);
  if (options.type != 4) put(0, 2);
  put(0, 4);  // no other directory
  return out;
}

}  // namespace image_test
