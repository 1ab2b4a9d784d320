// SPDX-License-Identifier: Apache-2.0
#include "../train_mpi.hpp"

namespace trainer {

ending train_on_mpi(const settings&, const std::optional<checkpoint>&, const parts&, std::stop_token,
                    const std::string&) {
  throw penstock::error("mpirun began this process as one of several, and this program was built without MPI");
}

}  // namespace trainer
