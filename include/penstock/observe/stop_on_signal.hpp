// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pthread.h>
#include <signal.h>
#include <ucontext.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include <penstock/sample/error.hpp>

namespace penstock {

namespace detail {

/// Signals that stop a program, caught for as long as this lives: blocked for the thread that makes it and the threads
/// made by it, so that they can be waited for, and passed on by threads that are older.
class caught_signals {
 public:
  static constexpr std::array<int, 2> candidates{SIGINT, SIGTERM};

  caught_signals() {
    ::sigemptyset(&set_);
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      ::sigaction(candidates[i], nullptr, &old_actions_[i]);
      const bool ours = (old_actions_[i].sa_flags & SA_SIGINFO) != 0 && old_actions_[i].sa_sigaction == &pass_on;
      if (ours) throw error("stop_on_signal: another one is alive in this process, wanted none");
      // nohup and shells' background jobs ignore a signal on purpose: that stays so
      const bool ignored = (old_actions_[i].sa_flags & SA_SIGINFO) == 0 && old_actions_[i].sa_handler == SIG_IGN;
      if (!ignored) ::sigaddset(&set_, candidates[i]);
    }
    ::pthread_sigmask(SIG_BLOCK, &set_, &old_mask_);
    struct sigaction action{};
    action.sa_sigaction = &pass_on;
    action.sa_flags = SA_SIGINFO | SA_RESTART;
    ::sigemptyset(&action.sa_mask);
    for (const int each : candidates) {
      if (contains(each)) ::sigaction(each, &action, nullptr);
    }
  }
  caught_signals(const caught_signals&) = delete;
  caught_signals& operator=(const caught_signals&) = delete;
  ~caught_signals() {
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      if (contains(candidates[i])) ::sigaction(candidates[i], &old_actions_[i], nullptr);
    }
    ::pthread_sigmask(SIG_SETMASK, &old_mask_, nullptr);
  }

  bool contains(int signal) const noexcept { return ::sigismember(&set_, signal) == 1; }
  const sigset_t& set() const noexcept { return set_; }

 private:
  /// Runs on a thread that is older than this object and so does not block the signal. It has no state to find anybody
  /// by: it sends the signal to the process again and leaves the thread with the signal blocked, so that each thread
  /// passes it on once at most and it ends at the one that waits for it.
  static void pass_on(int signal, siginfo_t*, void* context) {
    const int kept = errno;
    ::sigaddset(&static_cast<::ucontext_t*>(context)->uc_sigmask, signal);
    ::kill(::getpid(), signal);
    errno = kept;
  }

  sigset_t set_{}, old_mask_{};
  std::array<struct sigaction, candidates.size()> old_actions_{};
};

/// All signals blocked on this thread for a scope, for a thread to be made in it that is no host to others' handlers.
class all_signals_blocked {
 public:
  all_signals_blocked() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &old_mask_);
  }
  all_signals_blocked(const all_signals_blocked&) = delete;
  all_signals_blocked& operator=(const all_signals_blocked&) = delete;
  ~all_signals_blocked() { ::pthread_sigmask(SIG_SETMASK, &old_mask_, nullptr); }

 private:
  sigset_t old_mask_{};
};

}  // namespace detail

struct stop_options {
  /// Told on stderr at the first signal, so that whoever pressed Ctrl-C knows what is going on: "finishing the step;
  /// once more ends at once". Empty: nothing.
  std::string notice{};
};

/// Turns SIGINT (Ctrl-C) and SIGTERM into a stop request: an object that the application makes, one at a time.
///
///     penstock::stop_on_signal stop({.notice = "finishing the step; once more ends at once"});  // first thing in main
///     penstock::run(pipeline, {.epochs = 10, .stop = stop.token()});
///     save("model.ckpt");
///     if (stop.stopped()) {
///       std::printf("%s; to go on: trainer --resume model.ckpt\n", stop.reason().data());
///       return 128 + stop.signal();
///     }
///
/// The second signal ends the process at once, by the signal's default action. A thread of its own waits for the
/// signals, so stop callbacks run on an ordinary thread and may do anything. The signals are blocked for the thread
/// that makes it and those that it makes later; older threads pass them on and block them from then on. Programs
/// started meanwhile inherit the block. A signal that the process ignores when this is made (nohup, a script's
/// background job) stays ignored. One sent to a single thread (`raise`, `pthread_kill`) may not be seen. To be
/// destroyed by the thread that made it: handlers and that thread's mask are as before then.
class stop_on_signal {
 public:
  explicit stop_on_signal(stop_options options = {}) : options_(std::move(options)) {
    const detail::all_signals_blocked scope;
    thread_ = std::thread([this] { wait(); });
  }
  stop_on_signal(const stop_on_signal&) = delete;
  stop_on_signal& operator=(const stop_on_signal&) = delete;
  ~stop_on_signal() {
    leave_.store(true);
    ::pthread_kill(thread_.native_handle(), wake_signal);
    thread_.join();
  }

  std::stop_token token() const noexcept { return source_.get_token(); }
  bool stopped() const noexcept { return source_.stop_requested(); }
  /// The signal that asked to stop, 0 while none has.
  int signal() const noexcept { return signal_.load(); }
  /// For a program's closing line: "stopped by SIGINT (Ctrl-C)", "stopped by SIGTERM", empty while nothing has.
  std::string_view reason() const noexcept {
    const int signal = signal_.load();
    return signal == SIGINT ? "stopped by SIGINT (Ctrl-C)" : signal == SIGTERM ? "stopped by SIGTERM" : "";
  }

 private:
  // Sent by the destructor to the waiting thread alone, which waits for it in any case.
  static constexpr int wake_signal = SIGTERM;

  void wait() {
    ::pthread_setname_np(::pthread_self(), "penstock:signal");
    sigset_t set = caught_.set();
    ::sigaddset(&set, wake_signal);
    while (true) {
      siginfo_t info{};
      const int signal = ::sigwaitinfo(&set, &info);
      if (signal < 0) continue;  // EINTR: a debugger, or the process was paused
      // Others' signals that arrive during destruction stay pending, or are acted on as ever.
      if (leave_.load() && signal == wake_signal && info.si_pid == ::getpid()) return;
      if (!caught_.contains(signal)) continue;
      if (signal_.load() != 0) end_process(signal);
      signal_.store(signal);
      source_.request_stop();
      tell();
    }
  }

  /// Behind a line of a progress bar, perhaps, and the terminal's "^C". In one piece, without a lock that another
  /// thread may hold; if stderr is not there, nobody is told.
  void tell() const {
    if (options_.notice.empty()) return;
    const std::string text = '\n' + options_.notice + '\n';
    static_cast<void>(::write(STDERR_FILENO, text.data(), text.size()) == 0);
  }

  static void end_process(int signal) {
    struct sigaction action{};
    action.sa_handler = SIG_DFL;
    ::sigaction(signal, &action, nullptr);
    sigset_t only;
    ::sigemptyset(&only);
    ::sigaddset(&only, signal);
    ::pthread_sigmask(SIG_UNBLOCK, &only, nullptr);
    ::raise(signal);
  }

  stop_options options_;
  detail::caught_signals caught_;  // outlives the thread, restores last
  std::stop_source source_;
  std::atomic<int> signal_{0};
  std::atomic<bool> leave_{false};
  std::thread thread_;
};

}  // namespace penstock
