// SPDX-License-Identifier: Apache-2.0
// large packages: libtorch-dev
// What does it take to put shuffled rows of an array together to batches? An epoch of ours, its order computed as it
// goes, against a loop of memcpy over a list of indices that was made before, and against LibTorch. Nothing is done
// with the batches: one number of each is looked at.
#include <chrono>
#include <cstring>
#include <memory>

#include <contest.hpp>
#include <penstock/penstock.hpp>

#include "gather.hpp"

namespace gather {

namespace {

using clock_type = std::chrono::steady_clock;

/// The rows as samples: a dataset of one's own, as in the README.
struct rows {
  const array* all;

  std::uint64_t size() const { return all->rows; }
  auto schema() const { return penstock::schema{penstock::field<float, 1>{"row", {all->columns}}}; }
  void read(std::uint64_t index, auto& sample) const {
    auto [row] = sample;
    std::memcpy(row.data(), all->row(index), all->row_bytes());
  }
  void prefetch(std::uint64_t index) const { penstock::prefetch_lines(all->row(index), all->row_bytes()); }
};

struct shape {
  int readers;
  int depth;
};

template <class Data>
contest::figures through_penstock(Data&& data, const array& of, int batch, shape how) {
  auto feed = std::forward<Data>(data) | penstock::partition({.seed = 7}) | penstock::read({.readers = how.readers}) |
              penstock::batch(batch) | penstock::transfer(penstock::cpu_device{}, {.depth = how.depth});
  const auto epoch = [&](std::uint64_t number) {
    float seen = 0;
    std::uint64_t rows = 0;
    for (auto& one : feed.epoch(number)) {
      seen += one.template get<0>()(one.size() - 1, 0);
      rows += one.size();
    }
    check(rows, of.rows, seen);
  };
  epoch(0);  // makes threads and buffers
  const auto begin = clock_type::now();
  for (int number = 1; number <= of.epochs(); ++number) epoch(static_cast<std::uint64_t>(number));
  return rate(of, clock_type::now() - begin);
}

contest::figures by_memcpy(const array& of, int batch, int depth) {
  const auto order = shuffled(of.rows);
  const auto size = static_cast<std::size_t>(batch);
  const floats buffers(size * of.columns * static_cast<std::size_t>(depth));
  const auto epoch = [&] {
    float seen = 0;
    std::size_t turn = 0;
    for (std::size_t first = 0; first < of.rows; first += size) {
      float* const to = buffers.data() + turn * size * of.columns;
      turn = turn + 1 == static_cast<std::size_t>(depth) ? 0 : turn + 1;
      const std::size_t count = std::min(size, of.rows - first);
      for (std::size_t i = 0; i < count; ++i)
        std::memcpy(to + i * of.columns, of.row(order[first + i]), of.row_bytes());
      seen += to[(count - 1) * of.columns];
    }
    check(of.rows, of.rows, seen);
  };
  epoch();
  const auto begin = clock_type::now();
  for (int number = 1; number <= of.epochs(); ++number) epoch();
  return rate(of, clock_type::now() - begin);
}

}  // namespace

}  // namespace gather

int main(int argc, char** argv) {
  using namespace gather;
  contest::question ask("gather", "GB/s", argc, argv);
  const bool one_size = ask.sizes.given("row");
  struct size {
    std::string name;
    std::size_t row_bytes;
    int batch = 1;
  };
  std::vector<size> all{{"k1", 1 << 10}, {"k64", 1 << 16}};
  int most_readers = static_cast<int>(contest::cpus().size()), depth = 3;
  ask.guarded([&] {
    if (one_size) {
      const auto bytes = static_cast<std::size_t>(ask.sizes.integer("row", 1 << 10, 4));
      all = {{"row", bytes / sizeof(float) * sizeof(float)}};
    }
    for (size& one : all)
      one.batch = ask.sizes.integer("batch", static_cast<int>(std::max(batch_bytes / one.row_bytes, std::size_t{1})));
    most_readers = ask.sizes.integer("readers", std::max(most_readers, 2), 0);
    depth = ask.sizes.integer("depth", depth);
  });
  std::vector<std::unique_ptr<array>> arrays;
  for (const size& one : all) {
    arrays.push_back(std::make_unique<array>(one.row_bytes));
    const array& of = *arrays.back();
    const int batch = one.batch;
    ask.fact(one.name, std::to_string(of.rows) + " rows of " + std::to_string(of.row_bytes()) + " bytes, batches of " +
                           std::to_string(batch));
    const auto add = [&](const std::string& name, shape how) {
      ask.add(one.name + "_" + name, [&of, batch, how] { return through_penstock(rows{&of}, of, batch, how); });
    };
    ask.add(one.name + "_memcpy", [&of, batch, depth] { return by_memcpy(of, batch, depth); });
    ask.add(one.name + "_memcpy_again", [&of, batch, depth] { return by_memcpy(of, batch, depth); });
    add("ring", {1, 2});
    for (int readers = 0; readers <= most_readers; ++readers)
      add(readers == 0 ? "inline" : "readers" + std::to_string(readers), {readers, depth});
    add_libtorch(ask, one.name, of, batch, most_readers);
  }
  return ask.run([&](contest::line& line) {
    const auto& table = ask.results();
    for (const size& one : all) {
      const auto of = [&](const char* name) { return one.name + "_" + name; };
      line.ratio(of("inline"), of("inline"), of("memcpy"));
      line.ratio(of("two"), of("readers2"), of("memcpy"));
      line.ratio(of("ring"), of("ring"), of("memcpy"));
    }
    line.ratio("one_reader", all[0].name + "_readers1", all[0].name + "_inline");
    for (const size& one : all) {
      std::vector<std::string> ours{one.name + "_inline"};
      for (int readers = 1; readers <= most_readers; ++readers)
        ours.push_back(one.name + "_readers" + std::to_string(readers));
      line.ratio(one.name + "_libtorch", table.greatest(ours), table.greatest(libtorch_forms(one.name, most_readers)));
    }
    line.again(all[0].name + "_memcpy", all[0].name + "_memcpy_again");
  });
}
