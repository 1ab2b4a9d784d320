// SPDX-License-Identifier: Apache-2.0
// ctest: no tsan: one thread
#include <gtest/gtest.h>

#include <fcntl.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <system_error>

#include <penstock/dataset/image_decode.hpp>
#include <penstock/dataset/image_write.hpp>

#include "image_bytes.hpp"

namespace {

using namespace image_test;
using penstock::write_png;

template <class T>
class image_write : public testing::Test {};
using integers = testing::Types<std::uint8_t, std::uint16_t>;
TYPED_TEST_SUITE(image_write, integers);

TYPED_TEST(image_write, what_is_written_is_read) {
  const temporary_directory directory;
  const std::string path = directory / "a.png";
  for (std::size_t channels = 1; channels <= 4; ++channels) {
    const image from = made<TypeParam>(5, 7, channels);
    write_png(path, from);
    const image back = penstock::decode_image(path, {.channels = channels});
    EXPECT_EQ(shape_of(back), shape_of(from));
    EXPECT_TRUE(bytes_of(back) == bytes_of(from)) << channels;
  }
}

TEST(image_write_errors, what_PNG_cannot_hold_is_refused_and_the_old_file_stays) {
  const temporary_directory directory;
  const std::string path = directory.file("a.png", "old");
  const auto message = [&](const image& from) { return message_of([&] { write_png(path, from); }); };
  EXPECT_EQ(message(made<float>(2, 2, 1)),
            "penstock: write_png: the pixels' type is float32, wanted uint8 or uint16, which PNG can hold");
  EXPECT_EQ(message(made<std::uint8_t>(2, 2, 5)), "penstock: write_png: channels is 5, wanted 1 to 4");
  EXPECT_EQ(message(image(penstock::pixel_type::uint8, 2, 2, 1, 3)), "penstock: write_png: depth is 3, wanted 1");
  EXPECT_EQ(message(image()), "penstock: write_png: the image is empty, wanted one of 1 pixel or more");
  EXPECT_EQ(std::filesystem::file_size(path), 3u);
  EXPECT_EQ(missing(message_of([&] { write_png(directory / "none/a.png", made<std::uint8_t>(2, 2, 1)); }),
                    {"none/a.png: cannot create: "}),
            "");
}

TEST(image_write_errors, a_full_disk_is_an_error_with_the_path) {
  const temporary_directory directory;
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "there is no /dev/full here";
  // Writing fails in libpng's midst: the exception comes out, nothing is left.
  penstock::atomic_file full(directory / "a.png");
  const auto put_on_a_full_disk = [] {
    const int descriptor = ::open("/dev/full", O_WRONLY | O_CLOEXEC);
    for (int number = 3; number < 64; ++number) {
      std::error_code none;
      const auto link = std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(number), none);
      if (!none && link.string().find("a.png.tmp") != std::string::npos) ::dup2(descriptor, number);
    }
    ::close(descriptor);
  };
  put_on_a_full_disk();
  EXPECT_EQ(missing(message_of([&] { penstock::detail::png_writer(full).write(made<std::uint8_t>(200, 200, 3)); }),
                    {"a.png: cannot write: No space left"}),
            "");
}

}  // namespace
