// SPDX-License-Identifier: Apache-2.0
// ctest: no tsan: one thread
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <gtest/gtest.h>
#include <penstock/dataset/atomic_file.hpp>
#include <penstock/sample/philox.hpp>

#include "../support/temporary_directory.hpp"

namespace {

using bytes = std::vector<std::byte>;

bytes bytes_of(std::string_view text) {
  const auto view = std::as_bytes(std::span(text));
  return {view.begin(), view.end()};
}
std::string content(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
void overwrite(const std::string& path, std::string_view text) { std::ofstream(path, std::ios::binary) << text; }
template <class Body>
std::string error_of(Body&& body) {
  try {
    body();
  } catch (const penstock::error& caught) {
    return caught.what();
  }
  return "no error";
}

class atomic_file : public testing::Test {
 protected:
  std::ptrdiff_t files() const {
    return std::distance(std::filesystem::directory_iterator(folder), std::filesystem::directory_iterator());
  }
  const penstock_test::temporary_directory directory;
  const std::string folder = directory.path();
  const std::string path = directory / "state";
};

TEST_F(atomic_file, takes_its_name_when_it_is_committed) {
  overwrite(path, "old");
  {
    penstock::atomic_file file(path);
    file.write(bytes_of("new "));
    file.write(bytes_of("content"));
    EXPECT_EQ(content(path), "old");
    file.commit();
    EXPECT_EQ(content(path), "new content");
  }
  EXPECT_EQ(content(path), "new content");
  EXPECT_EQ(files(), 1);
}

TEST_F(atomic_file, without_a_commit_leaves_the_old_file_and_nothing_else) {
  overwrite(path, "old");
  {
    penstock::atomic_file file(path);
    file.write(bytes_of("new"));
    penstock::atomic_file moved(std::move(file));
    EXPECT_EQ(files(), 2);
  }
  EXPECT_EQ(content(path), "old");
  EXPECT_EQ(files(), 1);
}

TEST_F(atomic_file, two_of_one_name_do_not_mix) {
  penstock::atomic_file one(path), two(path);
  one.write(bytes_of("one"));
  two.write(bytes_of("two"));
  two.commit();
  EXPECT_EQ(content(path), "two");
  one.commit();
  EXPECT_EQ(content(path), "one");
}

TEST_F(atomic_file, a_name_without_a_folder_is_in_the_current_one) {
  const auto here = std::filesystem::current_path();
  std::filesystem::current_path(folder);
  penstock::write_atomically("state", bytes_of("here"));
  std::filesystem::current_path(here);
  EXPECT_EQ(content(path), "here");
}

TEST_F(atomic_file, errors_name_path_and_reason) {
  const std::string found = error_of([&] { penstock::write_atomically(folder + "/no/state", bytes_of("")); });
  EXPECT_NE(found.find("/no/state"), found.npos) << found;
  EXPECT_NE(found.find("No such file"), found.npos) << found;
  std::filesystem::create_directory(path);
  EXPECT_NE(error_of([&] { penstock::write_atomically(path, bytes_of("")); }).find("cannot replace"),
            std::string::npos);
  EXPECT_EQ(files(), 1);
}

TEST_F(atomic_file, the_checksum_is_crc32c) {
  EXPECT_EQ(penstock::detail::crc32c(bytes_of("123456789")), 0xE3069283U);    // the catalogues' check value
  EXPECT_EQ(penstock::detail::crc32c(bytes(32, std::byte{0})), 0x8A9136AAU);  // RFC 3720, B.4
  EXPECT_EQ(penstock::detail::crc32c(bytes(32, std::byte{0xff})), 0x62A8AB43U);
}

TEST_F(atomic_file, checked_bytes_come_back) {
  for (const std::size_t size : {0U, 1U, 100000U}) {
    bytes written(size);
    for (std::size_t i = 0; i < size; ++i) written[i] = static_cast<std::byte>(i * 7 % 251);
    penstock::write_checked(path, written, 3);
    EXPECT_EQ(penstock::read_checked(path, 3), written);
    EXPECT_EQ(std::filesystem::file_size(path), size + 24);
  }
}

TEST_F(atomic_file, another_format_or_kind_is_refused_by_name) {
  penstock::write_checked(path, bytes_of("content"), 3);
  const std::string found = error_of([&] { penstock::read_checked(path, 4); });
  EXPECT_EQ(found, path + ": the file has format 3, wanted 4");
  overwrite(path, "carat,cut,color,clarity,depth,table,price\n");
  EXPECT_EQ(error_of([&] { penstock::read_checked(path, 3); }), path + ": the file is of another kind, wanted PSCHECK");
  EXPECT_NE(error_of([&] { penstock::read_checked(path + "x", 3); }).find("No such file"), std::string::npos);
}

// CKP-6: a damaged file is refused, wherever the damage is.
TEST_F(atomic_file, CKP_6_every_cut_and_every_flipped_bit_is_refused) {
  penstock::write_checked(path, bytes_of("a model's parameters"), 3);
  const std::string whole = content(path);
  for (std::size_t size = 0; size < whole.size(); ++size) {
    overwrite(path, whole.substr(0, size));
    EXPECT_NE(error_of([&] { penstock::read_checked(path, 3); }), "no error") << "cut off after " << size;
  }
  overwrite(path, whole + '\0');
  EXPECT_NE(error_of([&] { penstock::read_checked(path, 3); }), "no error") << "one byte more";
  for (std::size_t bit = 0; bit < 8 * whole.size(); ++bit) {
    std::string damaged = whole;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
    overwrite(path, damaged);
    EXPECT_NE(error_of([&] { penstock::read_checked(path, 3); }), "no error") << "bit " << bit;
  }
  overwrite(path, whole);
  EXPECT_EQ(penstock::read_checked(path, 3), bytes_of("a model's parameters"));
}

/// A child process that does `body` until it is killed; killed at the end of this object at the latest.
class child {
 public:
  template <class Body>
  explicit child(Body body) : id_(::fork()) {
    if (id_ < 0) throw std::runtime_error("cannot fork");
    if (id_ > 0) return;
    int status = 0;
    try {
      status = body();
    } catch (...) {
      status = 99;
    }
    ::_exit(status);
  }
  ~child() { kill(); }
  void kill() {
    if (id_ <= 0) return;
    ::kill(id_, SIGKILL);
    wait();
  }
  int wait() {
    int status = -1;
    ::waitpid(id_, &status, 0);
    id_ = -1;
    return status;
  }

 private:
  ::pid_t id_;
};

// CKP-6: a kill during the write leaves the old state or the new one.
TEST_F(atomic_file, CKP_6_a_kill_at_any_time_leaves_a_whole_state) {
  constexpr std::size_t size = 8 << 20;
  bytes state(size, std::byte{0});
  penstock::write_checked(path, state, 1);
  std::vector<int> seen;
  for (std::uint64_t kill = 0; kill < 50; ++kill) {
    int tell[2];
    ASSERT_EQ(::pipe(tell), 0);
    child writer([&] {
      for (int i = 1;; ++i) {
        std::fill(state.begin(), state.end(), static_cast<std::byte>(i));
        if (::write(tell[1], "x", 1) != 1) return 1;
        penstock::write_checked(path, state, 1);
      }
    });
    ::close(tell[1]);
    // Not an order of events: the kill may come at any moment of any write, and each is to be survived.
    penstock::philox random(6, 0, kill);
    char token = 0;
    for (std::uint64_t writes = 1 + random.below(2); writes > 0; --writes) ASSERT_EQ(::read(tell[0], &token, 1), 1);
    ::usleep(static_cast<unsigned>(random.below(20000)));
    writer.kill();
    ::close(tell[0]);
    const bytes found = penstock::read_checked(path, 1);
    ASSERT_EQ(found.size(), size);
    ASSERT_TRUE(std::all_of(found.begin(), found.end(), [&](std::byte b) { return b == found[0]; }));
    seen.push_back(std::to_integer<int>(found[0]));
    for (const auto& entry : std::filesystem::directory_iterator(folder))  // what a killed process may leave
      if (entry.path().string() != path) {
        EXPECT_NE(entry.path().string().find("state.tmp"), std::string::npos);
        std::filesystem::remove(entry.path());
      }
  }
  EXPECT_GT(*std::max_element(seen.begin(), seen.end()), 0) << "no write was ever completed";
}

// CKP-6: a disk that is full, here by a limit on the size of files, leaves the old state and an error.
TEST_F(atomic_file, CKP_6_a_full_disk_leaves_the_old_state) {
  penstock::write_checked(path, bytes_of("old"), 1);
  child writer([&] {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{1 << 20, 1 << 20};
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return 2;
    const std::string found = error_of([&] { penstock::write_checked(path, bytes(2 << 20), 1); });
    if (found != path + ": cannot write: File too large") return 3;
    return penstock::read_checked(path, 1) == bytes_of("old") && files() == 1 ? 0 : 4;
  });
  EXPECT_EQ(writer.wait(), 0);
  EXPECT_EQ(penstock::read_checked(path, 1), bytes_of("old"));
  EXPECT_EQ(files(), 1);
}

}  // namespace
