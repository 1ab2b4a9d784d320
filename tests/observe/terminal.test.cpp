// SPDX-License-Identifier: Apache-2.0
// ctest: no tsan: one thread
#include <penstock/observe/progress.hpp>
#include <penstock/observe/terminal.hpp>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstdio>
#include <string>

namespace {

/// A terminal of the system's, whose other end this process reads.
class pseudo_terminal : public testing::Test {
 protected:
  void SetUp() override {
    other_end_ = ::posix_openpt(O_RDWR | O_NOCTTY);
    if (other_end_ < 0 || ::grantpt(other_end_) != 0 || ::unlockpt(other_end_) != 0)
      GTEST_SKIP() << "no terminals here";
    const int descriptor = ::open(::ptsname(other_end_), O_RDWR | O_NOCTTY);
    if (descriptor < 0) GTEST_SKIP() << "no terminals here";
    stream_ = ::fdopen(descriptor, "w");
    ASSERT_NE(stream_, nullptr);
  }
  void TearDown() override {
    if (stream_ != nullptr) std::fclose(stream_);
    if (other_end_ >= 0) ::close(other_end_);
  }

  void resize(unsigned short columns) {
    ::winsize size{};
    size.ws_col = columns;
    size.ws_row = 24;
    ASSERT_EQ(::ioctl(other_end_, TIOCSWINSZ, &size), 0);
  }

  int other_end_ = -1;
  std::FILE* stream_ = nullptr;
};

TEST_F(pseudo_terminal, is_known_as_one_with_its_width) {
  EXPECT_TRUE(penstock::detail::is_terminal(stream_));
  resize(57);
  EXPECT_EQ(penstock::detail::terminal_width(stream_, 80), 57U);
  resize(0);
  EXPECT_EQ(penstock::detail::terminal_width(stream_, 80), 80U);
}

TEST_F(pseudo_terminal, gets_lines_fitted_to_its_width_without_being_told) {
  resize(30);
  penstock::progress_bar bar({.stream = stream_});
  bar.on_begin({.epochs = 3, .steps_per_epoch = 1'000'000, .first_step = 500'000});
  std::string text(200, '\0');
  const auto size = ::read(other_end_, text.data(), text.size());
  ASSERT_GT(size, 0);
  text.resize(static_cast<std::size_t>(size));
  EXPECT_EQ(text.front(), '\r');
  EXPECT_LE(text.size(), 30U) << text;
  EXPECT_NE(text.find("17%"), text.npos) << text;
}

// PRG-1
TEST(terminal, PRG_1_a_pipe_is_none) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  std::FILE* stream = ::fdopen(ends[1], "w");
  ASSERT_NE(stream, nullptr);
  EXPECT_FALSE(penstock::detail::is_terminal(stream));
  std::fclose(stream);
  ::close(ends[0]);
}

// PRG-1
TEST(terminal, PRG_1_a_file_and_memory_are_none) {
  std::FILE* file = std::tmpfile();
  ASSERT_NE(file, nullptr);
  EXPECT_FALSE(penstock::detail::is_terminal(file));
  EXPECT_EQ(penstock::detail::terminal_width(file, 80), 80U);
  std::fclose(file);

  char bytes[16];
  std::FILE* memory = ::fmemopen(bytes, sizeof bytes, "w");
  ASSERT_NE(memory, nullptr);
  EXPECT_FALSE(penstock::detail::is_terminal(memory));
  EXPECT_EQ(penstock::detail::terminal_width(memory, 80), 80U);
  std::fclose(memory);
}

}  // namespace
