// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <penstock/channel/gate.hpp>
#include <penstock/channel/ring.hpp>
#include <penstock/sample/error.hpp>
#include <penstock/schedule/threads.hpp>

namespace penstock {

namespace detail {

/// A feed as its readers see it.
class reader_client {
 public:
  virtual ~reader_client() = default;
  /// Called by each reader once, before all else.
  virtual void prepare(std::uint32_t reader) noexcept = 0;
  /// Takes a range to fill, if there is one whose slot is free now.
  virtual take_result try_take(std::uint32_t reader) noexcept = 0;
  /// Fills the range that was taken.
  virtual void work(std::uint32_t reader) noexcept = 0;
  /// Waits for the fence that `try_take` met, where the reader serves nobody else; for `look_every` at the most where
  /// that is not 0.
  virtual void await_fence(std::uint32_t reader) noexcept = 0;
  /// How far ahead of its first step the next ticket is: readers help the feed that is least ahead.
  virtual std::uint64_t ahead() const noexcept = 0;
  /// How often a reader that serves nobody else is to ask for work that nothing tells of; 0 is never.
  virtual std::chrono::steady_clock::duration look_every() const noexcept { return {}; }
  /// Where `look_every` is not 0: takes part in what another reader does not get done, if there is such a thing.
  virtual take_result try_help(std::uint32_t) noexcept { return take_result::none; }
  /// The same: how many of those at work do not get on, so that as many more are to work.
  virtual std::uint32_t stuck() const noexcept { return 0; }
};

}  // namespace detail

struct reader_pool_options {
  /// CPUs that the readers are kept on, such as those near a device: `{0, 1}`. Empty: all that are allowed.
  cpu_set cpus{};
};

/// Threads that read, for one feed or for several alive together (`read({.shared = pool})`).
///
/// A reader takes a range only when its slot is free, of the feed that is least ahead, and waits with none in hand: a
/// feed that is not consumed holds back its own slots and nobody else. Held by `std::shared_ptr`, see `make`.
class reader_pool {
 public:
  /// Throws `std::invalid_argument` unless there are 1 to 256 readers, and for CPUs that the calling thread may not run
  /// on.
  static std::shared_ptr<reader_pool> make(int readers, const reader_pool_options& options = {}) {
    if (readers < 1 || readers > 256)
      detail::reject_option("reader_pool", "readers", std::to_string(readers), "1 to 256");
    const cpu_set cpus = detail::placed_on("reader_pool", options.cpus);
    return std::shared_ptr<reader_pool>(new reader_pool(static_cast<std::uint32_t>(readers), cpus));
  }
  reader_pool(const reader_pool&) = delete;
  reader_pool& operator=(const reader_pool&) = delete;

  /// Joins all readers. One that does not come back from a `read` within its feed's time-out is abandoned with what it
  /// touches.
  ~reader_pool() {
    close();
    const auto deadline = deadline_after(std::chrono::nanoseconds(grace_.load(std::memory_order_relaxed)));
    for (std::uint32_t i = 0; i < size_; ++i) {
      const bool left =
          shared_->leaving.wait([&] { return shared_->threads[i].left.load(std::memory_order_acquire); }, deadline);
      if (left)
        threads_[i].join();
      else
        threads_[i].detach();
    }
  }

  std::uint32_t size() const noexcept { return size_; }
  /// Where the readers run.
  const cpu_set& cpus() const noexcept { return cpus_; }

  /// For feeds: where readers sleep, and joining and leaving. The gate outlives the pool in whoever shares it.
  std::shared_ptr<gate<>> waiting() const noexcept { return {shared_, &shared_->waiting}; }
  void add(std::shared_ptr<detail::reader_client> client) {
    change([&](client_list& clients) { clients.push_back(std::move(client)); });
  }
  void remove(const detail::reader_client* client) {
    change([&](client_list& clients) { std::erase_if(clients, [&](const auto& one) { return one.get() == client; }); });
  }
  /// So many, the first ones, take work; the others sleep, and come where those are stuck. One at the least, as none
  /// would leave the feed without batches, and all until this is called; by one thread.
  void set_active(std::uint32_t readers) noexcept {
    readers = readers < 1 ? 1 : readers > size_ ? size_ : readers;
    shared_->waiting.set_spins(detail::spins_of(readers, cpus_));
    shared_->active.store(readers, std::memory_order_release);
    shared_->waiting.notify();
    shared_->resting.notify();
  }
  std::uint32_t active() const noexcept { return shared_->active.load(std::memory_order_relaxed); }
  /// How long the destructor waits for readers.
  void set_grace(std::chrono::nanoseconds grace) noexcept { grace_.store(grace.count(), std::memory_order_relaxed); }

 private:
  using client_list = std::vector<std::shared_ptr<detail::reader_client>>;

  // Owned by the pool and its threads, so that an abandoned thread finds it.
  struct state {
    struct one {
      std::atomic<bool> left{false};
    };
    explicit state(std::uint32_t size) : active(size), threads(size) {}

    gate<> waiting;
    gate<> resting;
    std::atomic<std::uint32_t> active;
    // Where readers look for what nothing tells of: those at work, and those who sleep until there is one.
    std::atomic<std::uint32_t> at_work{0}, idle{0};
    gate<> leaving;
    std::atomic<bool> closed{false};
    std::atomic<std::uint64_t> version{0};  // of `clients`
    std::mutex mutex;
    client_list clients;
    std::vector<one> threads;
  };

  reader_pool(std::uint32_t readers, const cpu_set& cpus) : shared_(new state(readers)), size_(readers), cpus_(cpus) {
    shared_->waiting.set_spins(detail::spins_of(readers, cpus));
    threads_.reserve(readers);
    try {
      for (std::uint32_t i = 0; i < readers; ++i)
        threads_.push_back(detail::start_thread("penstock:read" + std::to_string(i), cpus, i,
                                                [shared = shared_, i] { serve(*shared, i); }));
    } catch (...) {
      // The system gives no more threads: those that it gave have nothing to do yet, and go at once.
      close();
      for (auto& started : threads_) started.join();
      throw;
    }
  }
  void close() noexcept {
    shared_->closed.store(true, std::memory_order_release);
    shared_->waiting.notify();
    shared_->resting.notify();
  }

  template <class Change>
  void change(Change&& change) {
    {
      const std::scoped_lock lock(shared_->mutex);
      change(shared_->clients);
      shared_->version.fetch_add(1, std::memory_order_release);
    }
    shared_->waiting.notify();
    shared_->resting.notify();
  }

  // Until `ready`, or for `look_every` where that is not 0: with nobody at work there is nothing to look for, and it is
  // until there is. Whoever begins says so first and looks for idle ones then; they do it the other way round.
  template <class Ready>
  static void wait_or_look(state& shared, gate<>& where, Ready&& ready,
                           std::chrono::steady_clock::duration look_every) {
    if (look_every.count() == 0) {
      where.wait(ready);
    } else if (shared.at_work.load() != 0) {
      where.wait(ready, std::chrono::steady_clock::now() + look_every);
    } else {
      shared.idle.fetch_add(1);
      where.wait([&] { return ready() || shared.at_work.load() != 0; });
      shared.idle.fetch_sub(1);
    }
  }
  static void begin_work(state& shared) noexcept {
    shared.at_work.fetch_add(1);
    if (shared.idle.load() == 0) return;
    shared.waiting.notify();
    shared.resting.notify();
  }

  static void serve(state& shared, std::uint32_t reader) {
    client_list clients;
    std::uint64_t version = 0;
    std::chrono::steady_clock::duration look_every{};
    const auto changed = [&] { return shared.version.load(std::memory_order_acquire) != version; };
    const auto looks = [&] { return look_every.count() != 0; };
    const auto active = [&] {
      return shared.active.load(std::memory_order_acquire) + (looks() ? clients[0]->stuck() : 0);
    };
    const auto rests = [&] { return reader >= active(); };
    for (;;) {
      if (changed()) {
        client_list now;
        {
          const std::scoped_lock lock(shared.mutex);
          now = shared.clients;
          version = shared.version.load(std::memory_order_relaxed);
        }
        for (const auto& client : now) {
          bool known = false;
          for (const auto& old : clients) known = known || old == client;
          if (!known) client->prepare(reader);
        }
        clients = std::move(now);
        look_every = clients.size() == 1 ? clients[0]->look_every() : std::chrono::steady_clock::duration::zero();
      }
      offer found;
      bool closed = false;
      const auto is_called = [&] {
        closed = shared.closed.load(std::memory_order_acquire);
        return closed || changed();
      };
      wait_or_look(
          shared, shared.waiting,
          [&] { return is_called() || rests() || (found = take_once(clients, reader)).client != nullptr; }, look_every);
      if (found.client == nullptr && !closed && rests()) {
        const auto helps = [&] {
          if (looks() && clients[0]->try_help(reader) == take_result::taken)
            found = {clients[0].get(), take_result::taken};
          return found.client != nullptr;
        };
        // The fewer are needed before this one is, the more often it looks.
        const std::uint32_t now = active(), behind = reader < now ? 1 : reader - now + 1;
        wait_or_look(shared, shared.resting, [&] { return is_called() || !rests() || helps(); }, look_every * behind);
      }
      if (closed) break;
      if (found.client == nullptr) continue;
      if (found.result == take_result::taken) {
        const bool may_be_late = looks();
        if (may_be_late) begin_work(shared);
        found.client->work(reader);
        if (may_be_late) shared.at_work.fetch_sub(1);
      } else if (clients.size() == 1) {
        found.client->await_fence(reader);
      } else {
        // The fence tells nobody when it has passed, and other feeds may have work: look again in a moment.
        shared.waiting.wait([&] { return shared.closed.load(std::memory_order_acquire) || changed(); },
                            std::chrono::steady_clock::now() + std::chrono::microseconds(50));
      }
    }
    clients.clear();
    shared.threads[reader].left.store(true, std::memory_order_release);
    shared.leaving.notify();
  }

  struct offer {
    detail::reader_client* client = nullptr;
    take_result result = take_result::none;
  };

  // Takes a range of the feed that is least ahead and has one; else names one whose slot waits for a fence.
  static offer take_once(const client_list& clients, std::uint32_t reader) {
    offer fenced;
    std::uint64_t floor = 0;
    for (;;) {
      std::uint64_t least = none_left;
      for (const auto& client : clients) {
        const std::uint64_t ahead = clients.size() == 1 ? floor : client->ahead();
        if (ahead >= floor && ahead < least) least = ahead;
      }
      if (least == none_left) return fenced;
      for (const auto& client : clients) {
        if (clients.size() != 1 && client->ahead() != least) continue;
        const take_result result = client->try_take(reader);
        if (result == take_result::taken) return {client.get(), result};
        if (result == take_result::fenced && fenced.client == nullptr) fenced = {client.get(), result};
      }
      if (clients.size() == 1) return fenced;
      floor = least + 1;
    }
  }

  static constexpr std::uint64_t none_left = ~std::uint64_t{0};

  std::shared_ptr<state> shared_;
  std::uint32_t size_;
  cpu_set cpus_;
  std::vector<std::thread> threads_;
  std::atomic<std::chrono::nanoseconds::rep> grace_{std::chrono::nanoseconds(std::chrono::minutes(10)).count()};
};

}  // namespace penstock
