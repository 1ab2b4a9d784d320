// SPDX-License-Identifier: Apache-2.0
// ctest: no tsan: processes that are killed report nothing
// ctest: no asan: likewise
// Training that is killed wherever it happens to be, and goes on from its checkpoint with other readers and depth,
// comes to the same bits as an unbroken run. PENSTOCK_SEED replays the points; PENSTOCK_KILLED_RUNS is how many runs.
#include <gtest/gtest.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <random>
#include <ranges>
#include <span>
#include <string>

#include <penstock/dataset/atomic_file.hpp>
#include <penstock/device/modelled.hpp>

#include "../known_failures/support.hpp"

namespace {

using namespace known_failures;

constexpr std::uint64_t samples = 61;
constexpr std::uint64_t epochs = 3;
constexpr std::uint64_t batch_size = 4;
constexpr std::uint64_t steps = epochs * ((samples + batch_size - 1) / batch_size);
constexpr std::uint32_t format = 1;

enum class source { dataset, stream };
enum class where { cpu, modelled };

struct setting {
  source from = source::dataset;
  where on = where::cpu;
  int readers = 2;
  int depth = 3;
  std::uint64_t every = 3;  // steps from checkpoint to checkpoint
};

/// A model whose bits tell every sample, its random draw, and the order of all.
struct model {
  double value = 1;
  std::uint64_t hash = 0;
  std::uint64_t steps = 0;

  void step(std::span<const std::uint64_t> rows) {
    for (const std::uint64_t row : rows) {
      value = value * 0.9 + static_cast<double>(row & 0xFFFFFFFF) * 1e-9;
      hash = (hash ^ row) * 0x9E3779B97F4A7C15U;
    }
    ++steps;
  }
  bool operator==(const model& other) const {
    return std::bit_cast<std::uint64_t>(value) == std::bit_cast<std::uint64_t>(other.value) && hash == other.hash &&
           steps == other.steps;
  }
};

struct checkpoint {
  model trained;
  std::array<char, 200> feed{};
};

/// Each `point()` is where the process may be killed; the file is written in parts for that.
template <class Point>
void save(const std::string& path, const model& trained, const penstock::feed_state& state, Point&& point) {
  checkpoint all{trained};
  const std::string text = state.text();
  std::memcpy(all.feed.data(), text.data(), text.size());
  const auto bytes = std::as_bytes(std::span(&all, 1));
  penstock::atomic_file file(path);
  point();
  file.write(penstock::detail::checked_head(format, bytes));
  file.write(bytes.first(bytes.size() / 2));
  point();
  file.write(bytes.subspan(bytes.size() / 2));
  point();
  file.commit();
  point();
}
std::optional<checkpoint> load(const std::string& path) {
  if (!std::filesystem::exists(path)) return {};
  const auto bytes = penstock::read_checked(path, format);
  checkpoint all;
  if (bytes.size() != sizeof all) throw penstock::error("a checkpoint of another size");
  std::memcpy(&all, bytes.data(), bytes.size());
  return all;
}

template <class Feed, class Point>
model train(Feed feed, const setting& with, const std::string& path, Point&& point) {
  model trained;
  if (const auto last = load(path)) {
    trained = last->trained;
    feed.resume(penstock::feed_state::parse(last->feed.data()));
  }
  for (std::uint64_t epoch = feed.state().epoch; epoch < epochs; ++epoch)
    for (auto& batch : feed.epoch(epoch)) {
      point();
      const auto rows = batch.template host<0>();
      trained.step({rows.data(), batch.size()});
      point();
      // The batch is in the loop's hands, and the next ones are being read.
      if (trained.steps % with.every == 0) save(path, trained, feed.state(), point);
    }
  save(path, trained, feed.state(), point);
  return trained;
}

template <class Device, class Point>
model train_on(const Device& device, const setting& with, const std::string& path, Point&& point) {
  const auto draw = [](const auto& sample, penstock::philox& random) {
    auto& number = *std::get<0>(sample).data();
    number = number << 32 | random();
  };
  if (with.from == source::dataset)
    return train(
        (numbers<>{samples} | penstock::partition({.seed = 5}) | penstock::read({.readers = with.readers}, draw) |
         penstock::batch(batch_size) | penstock::transfer(device, {.depth = with.depth}))
            .start(),
        with, path, point);
  return train((penstock::stream([] { return std::views::iota(std::uint64_t{0}, samples); }) |
                penstock::partition({.seed = 5, .shuffle = penstock::shuffle::window(9)}) |
                penstock::read({.readers = with.readers}, draw) | penstock::batch(batch_size) |
                penstock::transfer(device, {.depth = with.depth}))
                   .start(),
               with, path, point);
}
template <class Point>
model train_with(const setting& with, const std::string& path, Point&& point) {
  if (with.on == where::cpu) return train_on(penstock::cpu_device{}, with, path, point);
  return train_on(penstock::modelled_device({.copy_time = std::chrono::microseconds(5)}), with, path, point);
}

struct folder {
  std::string path;
  folder() {
    const bool in_memory = ::access("/dev/shm", W_OK) == 0;  // checkpoints are synchronised with the disk
    path = (in_memory ? std::string("/dev/shm") : std::filesystem::temp_directory_path().string()) + "/penstock_XXXXXX";
    if (::mkdtemp(path.data()) == nullptr) throw penstock::error("no temporary folder");
  }
  folder(const folder&) = delete;
  ~folder() { std::filesystem::remove_all(path); }
};

bool put(int to) {
  const char byte = 0;
  ::ssize_t done;
  do done = ::write(to, &byte, 1);
  while (done < 0 && errno == EINTR);
  return done == 1;
}
bool get(int from) {
  char byte;
  ::ssize_t done;
  do done = ::read(from, &byte, 1);
  while (done < 0 && errno == EINTR);
  return done == 1;
}

enum class ending { killed, through, failed };

/// Trains in a process of its own, which is killed at its point number `kill_at`: there, or, if `let_go`, wherever it
/// has come to since.
ending train_and_kill(const setting& with, const std::string& path, std::uint64_t kill_at, bool let_go) {
  int tells[2], goes[2];
  if (::pipe(tells) != 0 || ::pipe(goes) != 0) return ending::failed;
  std::fflush(nullptr);
  const ::pid_t child = ::fork();
  if (child < 0) return ending::failed;
  if (child == 0) {
    ::close(tells[0]);
    ::close(goes[1]);
    try {
      train_with(with, path, [&] {
        if (!put(tells[1]) || !get(goes[0])) ::_exit(3);  // nobody is there any more
      });
    } catch (const std::exception& caught) {
      std::fprintf(stderr, "%s\n", caught.what());
      ::_exit(2);
    }
    ::_exit(0);
  }
  ::close(tells[1]);
  ::close(goes[0]);
  std::uint64_t point = 0;
  bool killed = false;
  while (!killed && get(tells[0])) {
    killed = point++ == kill_at;
    if ((!killed || let_go) && !put(goes[1])) break;
  }
  if (killed) ::kill(child, SIGKILL);
  ::close(tells[0]);
  ::close(goes[1]);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0)
    if (errno != EINTR) return ending::failed;
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) return ending::killed;
  // It may have been let go to its end.
  return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? ending::through : ending::failed;
}

TEST(stress, CKP_killed_anywhere_a_training_goes_on_to_the_same_bits) {
  const hang_limit limit(280);
  (void)std::signal(SIGPIPE, SIG_IGN);
  const char* const wanted_seed = std::getenv("PENSTOCK_SEED");
  const std::uint64_t seed = wanted_seed ? std::strtoull(wanted_seed, nullptr, 10) : std::random_device()();
  const char* const wanted_runs = std::getenv("PENSTOCK_KILLED_RUNS");
  const std::uint64_t runs = wanted_runs ? std::strtoull(wanted_runs, nullptr, 10) : 50;
  std::printf("PENSTOCK_SEED=%ju\n", static_cast<std::uintmax_t>(seed));
  std::fflush(stdout);

  const folder files;
  const std::array wanted{train_with({.from = source::dataset}, files.path + "/dataset", [] {}),
                          train_with({.from = source::stream}, files.path + "/stream", [] {})};
  std::uint64_t kills = 0, equal = 0;
  for (std::uint64_t run = 0; run < runs; ++run) {
    penstock::philox random(seed, 0, run);
    const auto from = static_cast<source>(random.below(2));
    const auto next_setting = [&] {
      return setting{from, static_cast<where>(random.below(2)), static_cast<int>(random.below(4)),
                     1 + static_cast<int>(random.below(5)), 1 + random.below(std::uint64_t{5})};
    };
    const std::string path = files.path + "/" + std::to_string(run);
    std::uint64_t reached = 0;
    ending how = ending::killed;
    for (bool first = true; how == ending::killed; first = false) {
      // The first one never comes through.
      const std::uint64_t at = random.below(first ? steps : 3 * steps);
      const setting with = next_setting();
      how = train_and_kill(with, path, at, !first && random.below(2) == 1);
      kills += how == ending::killed;
      const auto now = load(path);
      ASSERT_GE(now ? now->trained.steps : 0, reached) << "run " << run << " has lost a checkpoint";
      reached = now ? now->trained.steps : 0;
    }
    ASSERT_EQ(how, ending::through) << "run " << run;
    const auto last = load(path);
    ASSERT_TRUE(last);
    EXPECT_EQ(last->trained.steps, steps);
    EXPECT_EQ(penstock::feed_state::parse(last->feed.data()).epoch, epochs);
    const bool same = last->trained == wanted[static_cast<std::size_t>(from)];
    EXPECT_TRUE(same) << "run " << run;
    equal += same;
  }
  EXPECT_EQ(equal, runs);
  EXPECT_GE(kills, runs);
  std::printf("%ju of %ju runs, killed %ju times, have the bits of an unbroken one\n",
              static_cast<std::uintmax_t>(equal), static_cast<std::uintmax_t>(runs),
              static_cast<std::uintmax_t>(kills));
}

}  // namespace
