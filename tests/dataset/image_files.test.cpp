// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include <penstock/dataset/image_files.hpp>

#include "image_bytes.hpp"

namespace {

using namespace image_test;
using penstock::image_files;
using penstock::image_pairs;

static_assert(penstock::image_source<image_files>);

std::string grey(char value) { return png_bytes(1, 2, std::string(2, value)); }

class image_files_of : public testing::Test {
 protected:
  void put(const std::string& name) {
    std::filesystem::create_directories(std::filesystem::path(directory / name).parent_path());
    directory.file(name, grey('a'));
  }
  std::vector<std::string> names(const image_files& files) {
    std::vector<std::string> all;
    for (const std::string& path : files.paths()) all.push_back(path.substr(directory.path().size() + 1));
    return all;
  }
  temporary_directory directory;
};

TEST_F(image_files_of, a_folder_lists_images_by_ending_in_the_order_of_bytes) {
  for (const char* name : {"b.png", "a.jpg", "B.JPG", "c.tiff", "d.Tif", "e.jpeg", "._b.png", ".png", "notes.txt",
                           "png", "a10.png", "a2.png", "c.png.bak", "g.png/inner.png", "deep/er/x.png"})
    put(name);
  ::mkfifo((directory / "pipe.png").c_str(), 0600);
  std::filesystem::create_symlink(directory / "b.png", directory / "link.png");
  std::filesystem::create_symlink(directory / "nowhere", directory / "broken.png");
  const std::vector<std::string> flat{"B.JPG",  "a.jpg", "a10.png", "a2.png",  "b.png",
                                      "c.tiff", "d.Tif", "e.jpeg",  "link.png"};
  EXPECT_EQ(names(image_files(directory.path())), flat);
  std::vector<std::string> all = flat;
  all.insert(all.end(), {"g.png/inner.png", "deep/er/x.png"});
  std::sort(all.begin(), all.end());
  EXPECT_EQ(names(image_files(directory.path(), {.recursive = true})), all);
}

TEST_F(image_files_of, a_list_keeps_its_order_and_takes_any_name) {
  put("b.png");
  put("a.data");
  const image_files files({directory / "b.png", directory / "a.data", directory / "b.png"},
                          {.decode = {.channels = 1}});
  EXPECT_EQ(names(files), (std::vector<std::string>{"b.png", "a.data", "b.png"}));
  EXPECT_EQ(files.size(), 3u);
  EXPECT_EQ(files.channels(), 1u);
  EXPECT_EQ(values_of<std::uint8_t>(files.load(1)), (std::vector<std::uint8_t>{'a', 'a'}));
  const image_files one({directory / "b.png"}), two({"a.png", "b.png"});
  EXPECT_EQ(two.paths(), (std::vector<std::string>{"a.png", "b.png"}));
  EXPECT_EQ(one.size(), 1u);
  EXPECT_EQ(one.channels(), 3u);
}

TEST_F(image_files_of, nothing_to_read_is_an_error_that_says_what_was_looked_for) {
  EXPECT_EQ(message_of([&] { image_files files(directory.path()); }),
            directory.path() +
                ": no image is in the folder, wanted files ending in .png, .jpg, .jpeg, .tif or .tiff; "
                ".recursive = true looks into folders within");
  EXPECT_EQ(missing(message_of([&] { image_files files(directory / "none"); }), {"/none: cannot list the folder: No"}),
            "");
  put("a.png");
  EXPECT_EQ(missing(message_of([&] { image_files files(directory / "a.png"); }), {"Not a directory"}), "");
  EXPECT_EQ(message_of([] { image_files files(std::vector<std::string>{}); }),
            "penstock: image_files: the list is empty, wanted 1 path or more");
  EXPECT_EQ(missing(message_of([&] { image_files files(directory.path(), {.decode = {.channels = 0}}); }),
                    {"penstock: image_files: channels is 0"}),
            "");
}

// SYN-7: it could not, of names that are nowhere.
TEST_F(image_files_of, SYN_7_the_constructor_opens_no_file) {
  std::vector<std::string> paths;
  for (int i = 0; i < 32; ++i) paths.push_back(directory / ("none" + std::to_string(i) + ".png"));
  const image_files files(paths);
  EXPECT_EQ(files.size(), 32u);
  EXPECT_EQ(missing(message_of([&] { files.load(31); }), {"none31.png: cannot open: "}), "");
  // Nor of a folder: this one's file may be listed, but not opened, and is no image.
  directory.file("a.png", "no image");
  EXPECT_EQ(image_files(directory.path()).size(), 1u);
}

TEST_F(image_files_of, pairs_by_name) {
  for (const char* name : {"in/b.jpg", "in/a-1.jpg", "in/a.jpg", "out/a.png", "out/b.tif", "out/a-1.png"}) put(name);
  const auto [inputs, outputs] = image_pairs(image_files(directory / "in", {.decode = {.channels = 1}}),
                                             image_files(directory / "out", {.decode = {.channels = 4}}));
  EXPECT_EQ(names(inputs), (std::vector<std::string>{"in/a.jpg", "in/a-1.jpg", "in/b.jpg"}));
  EXPECT_EQ(names(outputs), (std::vector<std::string>{"out/a.png", "out/a-1.png", "out/b.tif"}));
  EXPECT_EQ(inputs.channels(), 1u);
  EXPECT_EQ(outputs.channels(), 4u);
}

TEST_F(image_files_of, pairs_within_folders) {
  for (const char* name : {"in/x/a.png", "in/y/a.png", "out/x/a.png", "out/y/a.png"}) put(name);
  const auto [inputs, outputs] = image_pairs(image_files(directory / "in/", {.recursive = true}),
                                             image_files(directory / "out", {.recursive = true}));
  EXPECT_EQ(outputs.path(1), directory / "out/y/a.png");
  EXPECT_EQ(inputs.path(1), directory / "in/y/a.png");
  EXPECT_EQ(image_files(directory / "in/", {.recursive = true}).stem(1), "y/a");
}

TEST_F(image_files_of, images_without_a_partner_are_named) {
  for (const char* name : {"in/a.png", "in/b.png", "out/b.png", "out/c.png"}) put(name);
  const auto message = [&] {
    return message_of([&] { image_pairs(image_files(directory / "in"), image_files(directory / "out")); });
  };
  EXPECT_EQ(message(),
            "images have no partner of their name: " + directory / "in/a.png" + "; " + directory / "out/c.png");
  for (int i = 0; i < 7; ++i) put("out/more" + std::to_string(i) + ".png");
  EXPECT_EQ(missing(message(), {"out/more3.png and 3 more"}), "");
  put("in/b.jpg");
  EXPECT_EQ(missing(message(), {"two images are named alike, ", "in/b.jpg and ", "in/b.png"}), "");
}

// MEM-4
TEST_F(image_files_of, MEM_4_descriptors_stay_within_one_for_each_reader) {
  constexpr int readers = 8, count = 120, epochs = 3;
  std::vector<std::string> paths;
  const std::string files[] = {grey('a'), jpeg_bytes(smooth(8, 8, 1))};
  for (int i = 0; i < count; ++i) {
    const std::string& whole = files[static_cast<std::size_t>(i % 2)];
    const std::string kinds[] = {whole.substr(0, whole.size() - 20), "II*\0nonsense", "GIF89a"};
    paths.push_back(directory.file(std::to_string(i), i % 10 == 0 ? kinds[i / 10 % 3] : whole));
  }
  paths.push_back(directory / "none");
  const image_files source(paths);
  const auto open_now = [] {
    return static_cast<std::size_t>(
        std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator()));
  };
  const std::size_t before = open_now();
  ::rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  const ::rlimit low{static_cast<::rlim_t>(before + readers), limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &low), 0);
  std::atomic<int> loaded{0}, failed{0}, limited{0};
  {
    std::vector<std::jthread> threads;
    std::atomic<std::uint64_t> next{0};
    for (int reader = 0; reader < readers; ++reader)
      threads.emplace_back([&] {
        for (std::uint64_t i = next++; i < source.size() * epochs; i = next++) {
          try {
            source.load(i % source.size());
            ++loaded;
          } catch (const penstock::error& caught) {
            ++failed;
            if (std::string(caught.what()).find("Too many open files") != std::string::npos) ++limited;
          }
        }
      });
  }
  ::setrlimit(RLIMIT_NOFILE, &limit);
  EXPECT_EQ(limited, 0);
  EXPECT_EQ(failed, (count / 10 + 1) * epochs);
  EXPECT_EQ(loaded, count * 9 / 10 * epochs);
  EXPECT_EQ(open_now(), before);
}

}  // namespace
