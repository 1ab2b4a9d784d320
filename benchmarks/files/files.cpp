// SPDX-License-Identifier: Apache-2.0
// What does it take to read shuffled rows of a file that processors' caches cannot hold? An NPY file through penstock,
// by a memory map and by reads at positions, against threads of one's own that call pread for a list of rows made
// before. Once with the file in the system's page cache, once with it dropped from there.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <contest.hpp>
#include <penstock/dataset/npy.hpp>
#include <penstock/penstock.hpp>

namespace {

using clock_type = std::chrono::steady_clock;

/// Removed at the end.
struct file {
  std::string path;
  std::size_t columns = 0, rows = 0;

  std::size_t row_bytes() const { return columns * sizeof(float); }
  void make() const {
    std::vector<float> values(rows * columns);
    for (std::size_t i = 0; i < rows; ++i)
      std::fill_n(values.begin() + static_cast<std::ptrdiff_t>(i * columns), columns, static_cast<float>(i));
    penstock::write_npy(path, values, {rows, columns});
  }
  ~file() {
    std::error_code none;
    std::filesystem::remove(path, none);
  }
};

/// Bytes of the file in the page cache.
std::size_t cached(const std::string& path) {
  const penstock::mapped_file map(path);
  std::vector<unsigned char> pages((map.size() + 4095) / 4096);
  if (::mincore(const_cast<std::byte*>(map.bytes().data()), map.size(), pages.data()) != 0) return map.size();
  return 4096 * static_cast<std::size_t>(
                    std::count_if(pages.begin(), pages.end(), [](unsigned char page) { return page & 1; }));
}
void drop(const std::string& path) {
  const penstock::file_descriptor open(path);
  ::posix_fadvise(open.native_handle(), 0, 0, POSIX_FADV_DONTNEED);
}
/// How much is read: half the rows with all in the page cache, or so many after the file was dropped.
struct task {
  const file& of;
  std::size_t batch;
  std::size_t cold_rows = 0;

  bool is_warm() const { return cold_rows == 0; }
  std::size_t rows() const { return is_warm() ? of.rows / 2 : cold_rows; }
  contest::figures rate(clock_type::duration time) const {
    return {static_cast<double>(rows() * of.row_bytes()) / std::chrono::duration<double, std::nano>(time).count()};
  }
};

void check(std::size_t came, std::size_t wanted, bool right) {
  if (came < wanted || !right)
    throw std::runtime_error(std::to_string(came) + (right ? "" : " wrong") + " rows came, wanted " +
                             std::to_string(wanted));
}

/// `met`: a map's pages were touched once before, as they are after the first epoch.
contest::figures by_penstock(const task& what, penstock::npy_access access, int readers, int depth, bool met = true) {
  penstock::npy_array<float, 1> array(what.of.path, {.access = access});
  auto feed = array | penstock::partition({.seed = 7}) | penstock::read({.readers = readers}) |
              penstock::batch(static_cast<std::int64_t>(what.batch)) |
              penstock::transfer(penstock::cpu_device{}, {.depth = depth});
  const auto read = [&](std::uint64_t epoch, std::size_t wanted) {
    std::size_t rows = 0;
    bool right = true;
    for (auto& batch : feed.epoch(epoch)) {
      const std::size_t last = batch.size() - 1;
      right = right && batch.template get<0>()(last, what.of.columns - 1) == static_cast<float>(batch.indices()[last]);
      rows += batch.size();
      if (rows >= wanted) break;
    }
    check(rows, wanted, right);
  };
  if (!what.is_warm())
    drop(what.of.path);
  else if (access == penstock::npy_access::mapped && met)
    read(0, what.of.rows);
  const auto begin = clock_type::now();
  read(1, what.rows());
  return what.rate(clock_type::now() - begin);
}

contest::figures by_hand(const task& what, int threads) {
  const penstock::file_descriptor open(what.of.path);
  const std::size_t header = open.size() - what.of.rows * what.of.row_bytes();
  std::vector<std::uint64_t> order(what.of.rows);
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::shuffle(order.begin(), order.end(), std::mt19937_64(7));
  std::atomic<std::size_t> next{0}, done{0};
  std::atomic<bool> right{true};
  const auto work = [&](int number) {
    contest::pin(static_cast<std::size_t>(number));
    contest::unpin();
    std::vector<float> batch(what.batch * what.of.columns);
    for (;;) {
      const std::size_t first = next.fetch_add(what.batch);
      if (first >= what.rows()) return;
      const std::size_t count = std::min(what.batch, what.rows() - first);
      for (std::size_t i = 0; i < count; ++i) {
        char* to = reinterpret_cast<char*>(batch.data() + i * what.of.columns);
        std::size_t wanted = what.of.row_bytes(), at = header + order[first + i] * wanted;
        while (wanted > 0) {
          const auto got = ::pread(open.native_handle(), to, wanted, static_cast<off_t>(at));
          if (got <= 0) {
            right = false;
            return;
          }
          to += got, at += static_cast<std::size_t>(got), wanted -= static_cast<std::size_t>(got);
        }
      }
      if (batch[count * what.of.columns - 1] != static_cast<float>(order[first + count - 1])) right = false;
      done += count;
    }
  };
  if (!what.is_warm()) drop(what.of.path);
  const auto begin = clock_type::now();
  {
    std::vector<std::jthread> team;
    for (int i = 0; i < threads; ++i) team.emplace_back(work, i);
  }
  const auto time = clock_type::now() - begin;
  check(done, what.rows(), right);
  return what.rate(time);
}

std::size_t available_memory() {
  std::ifstream info("/proc/meminfo");
  for (std::string name, unit; info >> name;) {
    std::size_t value = 0;
    info >> value;
    std::getline(info, unit);
    if (name == "MemAvailable:") return value << 10;
  }
  return std::size_t{1} << 30;
}

}  // namespace

int main(int argc, char** argv) {
  contest::question ask("files", "GB/s", argc, argv);
  const long known = ::sysconf(_SC_LEVEL3_CACHE_SIZE);
  const std::size_t caches = known > 0 ? static_cast<std::size_t>(known) : std::size_t{64} << 20;
  file of, dropped;  // two of them: what is dropped for one contestant is warm for the next
  int most_readers = static_cast<int>(contest::cpus().size()), depth = 3;
  std::size_t batch = 256;
  ask.guarded([&] {
    of.columns = static_cast<std::size_t>(ask.sizes.integer("row", 4096, 4)) / sizeof(float);
    batch = static_cast<std::size_t>(
        ask.sizes.integer("batch", static_cast<int>(std::max<std::size_t>((1 << 20) / of.row_bytes(), 1))));
    most_readers = ask.sizes.integer("readers", most_readers);
    depth = ask.sizes.integer("depth", depth);
    of.path = ask.result_file(".npy").string();
    const std::size_t room = std::filesystem::space(std::filesystem::path(of.path).parent_path()).available;
    const std::size_t bytes = std::min({std::size_t{1} << 30, room / 6, available_memory() / 6});
    if (bytes < 2 * caches)
      throw std::runtime_error("there is room for a file of " + std::to_string(bytes >> 20) +
                               " MiB, wanted twice the caches' " + std::to_string(caches >> 20));
    of.rows = std::max<std::size_t>(bytes / of.row_bytes(), 1);
    of.make();
    dropped.columns = of.columns, dropped.rows = of.rows;
    dropped.path = ask.result_file(".dropped.npy").string();
    dropped.make();
  });
  ask.fact("file", std::to_string(of.rows) + " rows of " + std::to_string(of.row_bytes()) + " bytes, " +
                       std::to_string(of.rows * of.row_bytes() >> 20) + " MiB");
  ask.fact("allowance", std::to_string(caches >> 20) + " MiB, the third-level cache");
  drop(dropped.path);
  const std::size_t left = cached(dropped.path);
  const bool drops = left < of.rows * of.row_bytes() / 100;
  if (drops)
    ask.fact("cold", "dropped by posix_fadvise before each run");
  else
    ask.left_out("cold", std::to_string(left >> 20) + " MiB of the file cannot be dropped from the page cache");

  const std::size_t cold_rows =
      std::max<std::size_t>(std::min<std::size_t>(of.rows, (16u << 20) / of.row_bytes()) / batch, 1) * batch;
  const auto add = [&](const std::string& when, const task& what) {
    for (int n = 1; n <= most_readers; ++n) {
      const std::string count = std::to_string(n);
      ask.add(when + "_hand" + count, [=] { return by_hand(what, n); });
      ask.add(when + "_mapped" + count, [=] { return by_penstock(what, penstock::npy_access::mapped, n, depth); });
      ask.add(when + "_positioned" + count,
              [=] { return by_penstock(what, penstock::npy_access::positioned, n, depth); });
    }
    ask.add(when + "_mapped_inline", [=] { return by_penstock(what, penstock::npy_access::mapped, 0, depth); });
    ask.add(when + "_positioned_inline", [=] { return by_penstock(what, penstock::npy_access::positioned, 0, depth); });
  };
  add("warm", {of, batch});
  // The first epoch over a map: each page is met for the first time.
  ask.add("warm_mapped_first",
          [=, &of] { return by_penstock({of, batch}, penstock::npy_access::mapped, most_readers, depth, false); });
  ask.add("warm_hand_again", [=, &of] { return by_hand({of, batch}, most_readers); });
  if (drops) add("cold", {dropped, batch, cold_rows});
  return ask.run([&](contest::line& line) {
    const std::string count = std::to_string(most_readers);
    for (const std::string when : {"warm", "cold"})
      line.ratio(when, ask.results().greatest({when + "_mapped" + count, when + "_positioned" + count}),
                 when + "_hand" + count);
    line.again("warm_hand" + count, "warm_hand_again");
  });
}
