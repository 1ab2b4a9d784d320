// SPDX-License-Identifier: Apache-2.0
// packages: libopenmpi-dev openmpi-bin
// The rival that has processes for ranks: the program starts itself anew, twice, by mpirun.
#include "mpi.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#if __has_include(<mpi.h>)
#define OMPI_SKIP_MPICXX 1
#include <mpi.h>
#define REPLICAS_MPI 1
#endif

namespace replicated {

std::string mpi_version() {
#if REPLICAS_MPI
  if (std::system("command -v mpirun >/dev/null 2>&1") != 0) return {};
#if defined(OMPI_MAJOR_VERSION)
  return "Open MPI " + std::to_string(OMPI_MAJOR_VERSION) + "." + std::to_string(OMPI_MINOR_VERSION) + "." +
         std::to_string(OMPI_RELEASE_VERSION);
#else
  return "MPI " + std::to_string(MPI_VERSION) + "." + std::to_string(MPI_SUBVERSION);
#endif
#else
  return {};
#endif
}

int mpi_worker([[maybe_unused]] std::size_t count, [[maybe_unused]] int times) {
#if REPLICAS_MPI
  MPI_Init(nullptr, nullptr);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  std::vector<float> values(count);
  std::vector<double> all;
  double before = 0;
  for (int i = -times / 10 - 1; i < times; ++i) {
    MPI_Allreduce(MPI_IN_PLACE, values.data(), static_cast<int>(count), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    const double now = MPI_Wtime();
    if (i >= 0) all.push_back(now - before);
    before = now;
  }
  std::nth_element(all.begin(), all.begin() + times / 2, all.end());
  if (rank == 0) std::printf("%.6f\n", all[static_cast<std::size_t>(times / 2)] * 1e6);
  MPI_Finalize();
  return 0;
#else
  return 1;
#endif
}

double mpi_all_reduce(std::size_t count, int times) {
  const std::string command = "mpirun --allow-run-as-root --bind-to core -n 2 '" +
                              std::filesystem::read_symlink("/proc/self/exe").string() + "' --mpi-worker " +
                              std::to_string(count) + " " + std::to_string(times) + " 2>&1";
  std::FILE* const out = popen(command.c_str(), "r");
  if (out == nullptr) throw std::runtime_error("mpirun cannot be started");
  std::string text;
  for (char piece[256]; std::fgets(piece, sizeof(piece), out) != nullptr;) text += piece;
  char* end = nullptr;
  const double result = std::strtod(text.c_str(), &end);
  if (pclose(out) != 0 || end == text.c_str()) throw std::runtime_error("mpirun: " + text);
  return result;
}

}  // namespace replicated
