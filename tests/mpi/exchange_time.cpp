// SPDX-License-Identifier: Apache-2.0
// How long an exchange takes beside MPI_Allreduce alone: exchange_time [ELEMENTS [REPEATS]], run by mpirun.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <penstock/communicator/mpi.hpp>

int main(int argc, char** argv) {
  const std::size_t count = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1000000;
  const int repeats = argc > 2 ? std::atoi(argv[2]) : 200;
  penstock::mpi_world world;
  world.begin({}, 0);
  auto one = world.join(0);
  std::vector<float> values(count, 1.0F);
  const auto median = [&](auto&& action) {
    std::vector<double> times;
    for (int i = 0; i < repeats; ++i) {
      std::fill(values.begin(), values.end(), 1.0F);
      MPI_Barrier(MPI_COMM_WORLD);
      const auto begin = std::chrono::steady_clock::now();
      action();
      times.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count());
    }
    std::nth_element(times.begin(), times.begin() + repeats / 2, times.end());
    return times[static_cast<std::size_t>(repeats / 2)];
  };
  const auto bare = [&] {
    MPI_Allreduce(MPI_IN_PLACE, values.data(), static_cast<int>(count), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  };
  const auto bare_later = [&] {
    MPI_Request request;
    MPI_Iallreduce(MPI_IN_PLACE, values.data(), static_cast<int>(count), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
  };
  const auto exchange = [&](penstock::reduction how) {
    const penstock::reduce_buffer buffers[] = {penstock::buffer(values, how)};
    penstock::exchange<penstock::cpu_stream> step{};
    step.words.sums[penstock::control_words::weight] = 1;
    step.words.describe(1, count);
    step.buffers = buffers;
    one.post(step);
  };
  bool right = true;
  for (int round = 0; round < 3; ++round) {
    const double plain = median(bare), later = median(bare_later);
    const double sum = median([&] { exchange(penstock::reduction::sum); });
    right = right && values[count - 1] == static_cast<float>(world.size());
    const double mean = median([&] { exchange(penstock::reduction::weighted_mean); });
    right = right && values[0] == 1.0F;
    if (world.rank() == 0)
      std::printf(
          "%zu floats, %d ranks: MPI_Allreduce %.0f us, MPI_Iallreduce %.0f us, exchange of a sum %.0f us "
          "(%.2f), of a mean %.0f us (%.2f)\n",
          count, static_cast<int>(world.size()), plain, later, sum, sum / plain, mean, mean / plain);
  }
  return right ? 0 : 1;
}
