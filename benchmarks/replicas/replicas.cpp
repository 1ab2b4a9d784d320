// SPDX-License-Identifier: Apache-2.0
// How well do replicas scale, and what does an all-reduce cost?
//
// Scaling: 1, 2, 4 and 8 replicas on modelled devices, each with its own feed, for the same steps each; efficiency is
// the time of one over the time of n. The gradient's exchange is modelled, too, in buckets that are ready early.
// Cost: one all-reduce of threads of one process, for each rank of two, against a copy of the bytes, against the same
// without control words, and against MPI's over two processes.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <contest.hpp>
#include <penstock/communicator/host_reduce.hpp>

#include "modelled_ranks.hpp"
#include "mpi.hpp"

namespace {

using namespace replicated;

/// The median of `times` calls, in microseconds, after a few that do not count: what others do on the CPUs meanwhile
/// delays some, and not most.
template <class Body>
double median_of(int times, Body&& body) {
  for (int i = 0; i <= times / 10; ++i) body();
  std::vector<double> all(static_cast<std::size_t>(times));
  auto before = clock_type::now();
  for (double& one : all) {
    body();
    const auto now = clock_type::now();
    one = std::chrono::duration<double, std::micro>(now - before).count();
    before = now;
  }
  const auto middle = all.begin() + times / 2;
  std::nth_element(all.begin(), middle, all.end());
  return *middle;
}

/// By `replica.ready`, which has everything that a step's all-reduce has, over and over.
double all_reduce(std::size_t count, int times) {
  double result = 0;
  const std::vector<float> rows(2);
  penstock::replicas(2, [&](auto& replica) {
    contest::pin(replica.rank());
    auto feed = replica.start(rows | penstock::partition({.world = replica}) | penstock::read({.readers = 0}) |
                              penstock::batch({.global = 2}) | penstock::transfer(replica.device()));
    std::vector<float> values(count, 1.0F);
    for (auto& batch : feed.epoch(0)) {
      const double each = median_of(times, [&] { replica.ready(batch, values); });
      if (replica.rank() == 0) result = each;
      replica.all_reduce(batch);
    }
    if (values[count / 2] != 1.0F) throw std::runtime_error("the mean of ones is another number");
  });
  return result;
}

/// What is left if nothing but values is exchanged: two meetings, and the reduction between them.
double without_words(std::size_t count, int times) {
  struct seat {
    void* data = nullptr;
  };
  penstock::detail::rendezvous<seat> group(2, penstock::detail::spins_before_sleep);
  double result = 0;
  const auto body = [&](std::uint64_t rank) {
    contest::pin(rank);
    std::vector<float> values(count, 1.0F);
    std::vector<void*> buffers(2);
    const double weights[] = {1, 1};
    const auto [first, last] = penstock::detail::part_of(count, rank, 2);
    const double each = median_of(times, [&] {
      group.seat(rank).data = values.data();
      const auto meeting = group.meet(rank, std::chrono::nanoseconds::max(), 0, 0);
      for (std::uint64_t r = 0; r < 2; ++r) buffers[r] = group.at(meeting, r).data;
      penstock::detail::reduce_range<float>(buffers, weights, 2, penstock::weighted_mean, first, last);
      group.meet_again(rank);
    });
    if (rank == 0) result = each;
  };
  std::thread other(body, 1);
  body(0);
  other.join();
  return result;
}

double copied(std::size_t count, int times) {
  contest::pin(0);
  std::vector<float> from(count, 1.0F), to(count);
  return median_of(times, [&] {
    std::memcpy(to.data(), from.data(), count * sizeof(float));
    benchmark::DoNotOptimize(to.data());
    benchmark::ClobberMemory();
  });
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 4 && std::string_view(argv[1]) == "--mpi-worker")
    return mpi_worker(static_cast<std::size_t>(std::atoll(argv[2])), std::atoi(argv[3]));

  contest::question ask("replicas", "us per step or exchange", argc, argv);
  const nanoseconds notice = measured_notice();
  step_times times{};
  int readers = 0;
  ask.guarded([&] {
    const auto given = [&](const char* name, double otherwise) {
      return nanoseconds(static_cast<nanoseconds::rep>(ask.sizes.number(name, otherwise, 64) * 1e3));
    };
    times = {given("read-us", 1000), given("copy-us", 512), given("kernel-us", 4000), {}, 4};
    times.reduce = times.kernel / 2;
    readers = ask.sizes.integer("readers", 1, 0);
  });
  const auto text = [](nanoseconds time) { return std::to_string(time.count() / 1000) + " us"; };
  ask.fact("modelled", "a device for each replica: a step has a read of " + text(times.read) +
                           ", which waits, a copy of " + text(times.copy) + ", kernels of " + text(times.kernel) +
                           " in " + std::to_string(times.layers) + " layers");
  ask.fact("exchange", text(times.reduce) + " of modelled time on an engine of its own, in " +
                           std::to_string(times.layers) +
                           " buckets, from when the latest rank has it; one replica has none");
  ask.fact("hosts", std::to_string(readers) + (readers == 1 ? " reader" : " readers") +
                        " a replica; all replicas' threads share the CPUs, and meet for each bucket");
  ask.fact("cost", "of two ranks as threads of one process, each on a CPU of its own: a run's median");

  const std::uint64_t steps = 60;
  for (const std::size_t ranks : {1, 2, 4, 8})
    ask.add("replicas_" + std::to_string(ranks), [=] {
      const auto used = contest::usage::now();
      const double seconds = time_of(ranks, times, readers, steps, notice);
      return contest::figures{seconds * 1e6 / static_cast<double>(steps),
                              {{"cores", (contest::usage::now() - used).cpu_seconds / seconds}}};
    });
  const std::string mpi = mpi_version();
  struct a_size {
    const char* name;
    std::size_t count;
    int times;
  };
  for (const a_size& size : {a_size{"_1e6", 1'000'000, 200}, a_size{"_1e3", 1000, 20'000}}) {
    const auto add = [&](const std::string& name, double (*measure)(std::size_t, int)) {
      ask.add(name + size.name, [=] { return contest::figures{measure(size.count, size.times)}; });
    };
    add("all_reduce", all_reduce);
    add("without_words", without_words);
    add("memcpy", copied);
    if (!mpi.empty()) add("mpi", mpi_all_reduce);
  }
  ask.add("all_reduce_1e6_again", [] { return contest::figures{all_reduce(1'000'000, 200)}; });
  if (mpi.empty())
    ask.left_out("MPI", "no libopenmpi-dev or no openmpi-bin");
  else
    ask.rival("MPI", mpi + ", two processes, each on a CPU of its own");
  return ask.run([&](contest::line& line) {
    for (const char* n : {"2", "4", "8"})
      line.ratio(std::string("efficiency") + n, "replicas_1", std::string("replicas_") + n);
    for (const char* size : {"_1e6", "_1e3"}) {
      line.ratio(std::string("over_memcpy") + size, std::string("all_reduce") + size, std::string("memcpy") + size);
      line.ratio(std::string("words") + size, std::string("all_reduce") + size, std::string("without_words") + size);
      line.ratio(std::string("over_mpi") + size, std::string("all_reduce") + size, std::string("mpi") + size);
    }
    line.again("all_reduce_1e6", "all_reduce_1e6_again");
  });
}
