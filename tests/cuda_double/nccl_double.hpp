// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nccl.h>

#include <cstddef>
#include <cstdint>
#include <string_view>

/// NCCL over the double's streams. A rank's part of a group waits at the head of its stream until those of all ranks
/// have come there. Groups that differ between ranks are a fault, and never complete; calls are in progress for a
/// while, and are on the stream only then; memory that is made or freed while a rank's part is missing is a fault.
namespace cuda_double {

/// The n-th call of a function from now (1: the next) returns `code`, and its communicator has failed.
void fail_nccl(std::string_view function, std::uint64_t n, ncclResult_t code);
/// From here on a rank's communicator has this asynchronous error.
void set_async_error(int rank, ncclResult_t code);
std::size_t communicators_alive();
std::uint64_t nccl_aborts();

}  // namespace cuda_double
