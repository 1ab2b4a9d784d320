// SPDX-License-Identifier: Apache-2.0
#include <penstock/observe/stop_on_signal.hpp>

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <condition_variable>
#include <cstdlib>
#include <latch>
#include <mutex>
#include <stop_token>
#include <thread>

namespace {

/// Waits in a way that lets signal handlers run, with sanitizers too.
class gate {
 public:
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return open_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
};

void wait_for(const std::stop_token& token) {
  std::latch stopped(1);
  const std::stop_callback callback(token, [&] { stopped.count_down(); });
  stopped.wait();
}

bool is_blocked(int signal) {
  sigset_t mask;
  ::pthread_sigmask(SIG_BLOCK, nullptr, &mask);
  return ::sigismember(&mask, signal) == 1;
}

class stop_on_signal : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    // The tests may run as a script's background job, which ignores SIGINT.
    for (const int each : {SIGINT, SIGTERM}) ::signal(each, SIG_DFL);
  }
};
INSTANTIATE_TEST_SUITE_P(signals, stop_on_signal, testing::Values(SIGINT, SIGTERM));

TEST_P(stop_on_signal, asks_to_stop) {
  penstock::stop_on_signal stop;
  EXPECT_FALSE(stop.stopped());
  EXPECT_EQ(stop.signal(), 0);
  ASSERT_EQ(::kill(::getpid(), GetParam()), 0);
  wait_for(stop.token());
  EXPECT_TRUE(stop.stopped());
  EXPECT_EQ(stop.signal(), GetParam());
}

TEST_P(stop_on_signal, leaves_mask_and_handler_as_they_were) {
  struct sigaction before{};
  ::sigaction(GetParam(), nullptr, &before);
  {
    const penstock::stop_on_signal stop;
    EXPECT_TRUE(is_blocked(GetParam()));
    EXPECT_FALSE(is_blocked(SIGUSR1));
  }
  struct sigaction after{};
  ::sigaction(GetParam(), nullptr, &after);
  EXPECT_FALSE(is_blocked(GetParam()));
  EXPECT_EQ(after.sa_handler, before.sa_handler);
}

TEST_P(stop_on_signal, can_be_made_again) {
  for (int i = 0; i < 10; ++i) {
    penstock::stop_on_signal stop;
    ASSERT_EQ(::kill(::getpid(), GetParam()), 0);
    wait_for(stop.token());
    EXPECT_EQ(stop.signal(), GetParam());
  }
}

TEST_P(stop_on_signal, hears_of_a_signal_that_an_older_thread_got) {
  gate ready, leave;
  std::thread older([&] {
    ready.open();
    leave.wait();
  });
  ready.wait();
  {
    penstock::stop_on_signal stop;
    ASSERT_EQ(::pthread_kill(older.native_handle(), GetParam()), 0);
    wait_for(stop.token());
    EXPECT_EQ(stop.signal(), GetParam());
  }
  leave.open();
  older.join();
}

TEST_P(stop_on_signal, the_second_signal_ends_the_process) {
  const int signal = GetParam();
  EXPECT_EXIT(
      {
        const penstock::stop_on_signal stop;
        ::kill(::getpid(), SIGINT);
        wait_for(stop.token());
        ::kill(::getpid(), signal);
        gate never;
        never.wait();
      },
      testing::KilledBySignal(signal), "");
}

TEST_P(stop_on_signal, tells_what_it_does_at_the_first_signal) {
  const int signal = GetParam();
  EXPECT_EXIT(
      {
        const penstock::stop_on_signal stop({.notice = "finishing the step"});
        if (!stop.reason().empty()) ::_exit(1);
        ::kill(::getpid(), signal);
        wait_for(stop.token());
        ::kill(::getpid(), SIGTERM);  // after the notice: the same thread tells and ends
        gate never;
        never.wait();
      },
      testing::KilledBySignal(SIGTERM), "\nfinishing the step\n$");
  const penstock::stop_on_signal stop;
  ASSERT_EQ(::kill(::getpid(), signal), 0);
  wait_for(stop.token());
  EXPECT_EQ(stop.reason(), signal == SIGINT ? "stopped by SIGINT (Ctrl-C)" : "stopped by SIGTERM");
}

TEST_P(stop_on_signal, without_it_one_signal_ends_the_process) {
  const int signal = GetParam();
  EXPECT_EXIT(
      {
        {
          const penstock::stop_on_signal stop;
        }
        ::kill(::getpid(), signal);
        gate never;
        never.wait();
      },
      testing::KilledBySignal(signal), "");
}

TEST_P(stop_on_signal, a_signal_that_was_ignored_stays_ignored) {
  const int other = GetParam() == SIGINT ? SIGTERM : SIGINT;
  ::signal(GetParam(), SIG_IGN);
  {
    penstock::stop_on_signal stop;
    ASSERT_EQ(::kill(::getpid(), GetParam()), 0);
    ASSERT_EQ(::kill(::getpid(), other), 0);
    wait_for(stop.token());
    EXPECT_EQ(stop.signal(), other);
  }
  ::signal(GetParam(), SIG_DFL);
}

TEST_F(stop_on_signal, a_second_object_is_refused) {
  penstock::stop_on_signal first;
  EXPECT_THROW(penstock::stop_on_signal{}, penstock::error);
  ASSERT_EQ(::kill(::getpid(), SIGINT), 0);
  wait_for(first.token());
}

}  // namespace
