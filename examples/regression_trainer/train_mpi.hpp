// SPDX-License-Identifier: Apache-2.0
// The trainer as several processes, `mpirun -n 2 regression_trainer ...`. The program has it from the folder mpi/, or,
// built without MPI, that there is none from the folder no_mpi/.
#pragma once

#include <optional>
#include <stop_token>
#include <string>

#include "train.hpp"

namespace trainer {

/// On the CPU, each process one of the replicas. Only the first one writes files and prints.
ending train_on_mpi(const settings& s, const std::optional<checkpoint>& from, const parts& data, std::stop_token stop,
                    const std::string& device);

}  // namespace trainer
