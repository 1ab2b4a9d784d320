// SPDX-License-Identifier: Apache-2.0
#include "../train_cuda.hpp"

namespace trainer {

std::string why_no_cuda() { return "this program was built without it"; }

std::string cuda_name() { throw penstock::error(why_no_cuda()); }

ending train_on_cuda(const settings&, std::optional<checkpoint>, const parts&, std::stop_token, const std::string&) {
  throw penstock::error(why_no_cuda());
}

void predict_on_cuda(const network_layout&, const checkpoint&, const table&, const settings&) {
  throw penstock::error(why_no_cuda());
}

}  // namespace trainer
