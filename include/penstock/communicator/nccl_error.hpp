// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nccl.h>

#include <string>
#include <string_view>
#include <utility>

#include <penstock/sample/error.hpp>

namespace penstock {

/// A call of NCCL that failed: "ncclAllReduce: unhandled cuda error (1): ..." and what NCCL last said of it.
class nccl_error : public error {
 public:
  nccl_error(ncclResult_t code, std::string_view call, ncclComm_t of = nullptr, provenance where = {})
      : error(text(code, call, of), std::move(where)), code_(code) {}
  ncclResult_t code() const noexcept { return code_; }

 private:
  static std::string text(ncclResult_t code, std::string_view call, ncclComm_t of) {
    std::string result =
        detail::concat(call, ": ", std::string_view(ncclGetErrorString(code)), " (", static_cast<int>(code), ")");
    const char* const last = ncclGetLastError(of);
    if (last != nullptr && *last != '\0') result += detail::concat(": ", std::string_view(last));
    return result;
  }

  ncclResult_t code_;
};

namespace detail {

/// Calls that are in progress go on to be asked for; see `nccl_seat::settle`.
inline void nccl_check(ncclResult_t code, std::string_view call, ncclComm_t of = nullptr) {
  if (code != ncclSuccess && code != ncclInProgress) throw nccl_error(code, call, of);
}

}  // namespace detail
}  // namespace penstock
