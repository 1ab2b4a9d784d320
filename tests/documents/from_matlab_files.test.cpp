// SPDX-License-Identifier: Apache-2.0
// ctest: no tsan: what it calls is tested elsewhere
// ctest: no asan: what it calls is tested elsewhere
// The right-hand sides of the README's table "From MATLAB" that read images and MAT files; see from_matlab.test.cpp.
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <penstock/dataset/hdf5.hpp>
#include <penstock/dataset/image_files.hpp>
#include <penstock/dataset/image_write.hpp>
#include <penstock/dataset/images.hpp>
#include <penstock/dataset/random_patches.hpp>
#include <penstock/observe/html_report.hpp>
#include <penstock/penstock.hpp>

namespace {

using namespace penstock;

struct folder : testing::Test {
  folder() {
    std::filesystem::create_directories("from_matlab/photos");
    image photo(pixel_type::uint8, 50, 60, 3);
    for (auto& one : photo.pixels<std::uint8_t>()) one = 7;
    write_png("from_matlab/photos/a.png", photo);
    write_png("from_matlab/photos/b.png", photo);
    std::filesystem::current_path("from_matlab");
  }
  ~folder() override {
    std::filesystem::current_path("..");
    std::filesystem::remove_all("from_matlab");
  }
};
using from_matlab_files = folder;

TEST_F(from_matlab_files, images_and_patches) {
  EXPECT_EQ(images(image_files("photos")).size(), 2u);
  const image_files a("photos"), b("photos");
  EXPECT_EQ(random_patches(a, b, {.size = {40, 40}, .per_image = 128}).size(), 256u);
}

TEST_F(from_matlab_files, a_progress_monitor) {
  auto f = (images(image_files("photos")) | partition() | read() | batch(1) | transfer(cpu_device{})).start();
  f.observe(html_report("report.html"));
  for (auto& batch : f.epoch(0)) f.report("loss", 1.0 / static_cast<double>(batch.step() + 1));
  f.finish("done");
  EXPECT_TRUE(std::filesystem::exists("report.html"));
}

TEST_F(from_matlab_files, a_MAT_file) {
  EXPECT_THROW((hdf5_array<float, 3>("photos.mat", "/x", {.reversed = true})), error);  // there is none
}

}  // namespace
