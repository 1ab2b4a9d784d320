// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

namespace replicated {

/// The library's version; nothing where the program was built without MPI, or there is no mpirun.
std::string mpi_version();
/// What the program does where `mpirun` has started it: `MPI_Allreduce` of floats. Prints the median, in microseconds.
int mpi_worker(std::size_t count, int times);
/// That median: of an `MPI_Allreduce` of so many floats over two processes, each on a CPU of its own.
double mpi_all_reduce(std::size_t count, int times);

}  // namespace replicated
