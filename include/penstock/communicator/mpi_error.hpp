// SPDX-License-Identifier: Apache-2.0
#pragma once

// Bindings of MPI's own for C++, long withdrawn: they bring warnings, and a library to link.
#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX 1
#endif
#ifndef MPICH_SKIP_MPICXX
#define MPICH_SKIP_MPICXX 1
#endif
#include <mpi.h>

#include <string>
#include <utility>

#include <penstock/sample/error.hpp>

namespace penstock {

/// A call of MPI that failed: `code()` is what it returned.
class mpi_error : public error {
 public:
  mpi_error(int code, std::string problem, provenance where = {})
      : error(std::move(problem), std::move(where)), code_(code) {}
  int code() const noexcept { return code_; }

 private:
  int code_;
};

namespace detail {

/// Throws what a call of MPI returned, unless that is success.
inline void check_mpi(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING + 1] = {};
  int length = 0;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) length = 0;
  throw mpi_error(code, concat(call, " failed: ", length == 0 ? "an unknown error" : text));
}

}  // namespace detail
}  // namespace penstock
