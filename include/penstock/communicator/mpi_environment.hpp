// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <utility>

#include <penstock/communicator/mpi_error.hpp>

namespace penstock::detail {

/// MPI, begun here unless it was already, and ended here only if it was begun here.
class mpi_environment {
 public:
  /// Throws `mpi_error` if MPI has ended, or was begun for less than what is needed: readers are threads beside the one
  /// that calls MPI, and call none of it.
  mpi_environment() {
    int begun = 0, ended = 0;
    check_mpi(MPI_Initialized(&begun), "MPI_Initialized");
    check_mpi(MPI_Finalized(&ended), "MPI_Finalized");
    if (ended != 0) throw mpi_error(MPI_ERR_OTHER, "MPI has been finalised, and cannot be begun again");
    if (begun != 0) {
      check(level());
      return;
    }
    int provided = MPI_THREAD_SINGLE;
    check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided), "MPI_Init_thread");
    owns_ = true;
    try {
      check(provided);
    } catch (...) {
      MPI_Finalize();
      throw;
    }
  }
  mpi_environment(mpi_environment&& other) noexcept : owns_(std::exchange(other.owns_, false)) {}
  mpi_environment& operator=(mpi_environment&&) = delete;
  ~mpi_environment() {
    if (owns_) MPI_Finalize();
  }

  bool owns() const noexcept { return owns_; }

 private:
  static int level() {
    int result = MPI_THREAD_SINGLE;
    check_mpi(MPI_Query_thread(&result), "MPI_Query_thread");
    return result;
  }
  static void check(int level) {
    if (level < MPI_THREAD_FUNNELED)
      throw mpi_error(MPI_ERR_OTHER,
                      "MPI was begun with MPI_THREAD_SINGLE, wanted MPI_THREAD_FUNNELED or more, as penstock reads on "
                      "other threads: MPI_Init_thread(..., MPI_THREAD_FUNNELED, ...)");
    int is_main = 0;
    check_mpi(MPI_Is_thread_main(&is_main), "MPI_Is_thread_main");
    if (level == MPI_THREAD_FUNNELED && is_main == 0)
      throw mpi_error(MPI_ERR_OTHER,
                      "MPI was begun with MPI_THREAD_FUNNELED by another thread, wanted the same thread for all that "
                      "calls MPI, or MPI_THREAD_SERIALIZED");
  }

  bool owns_ = false;
};

/// A duplicate of a communicator, whose errors are returned.
class mpi_duplicate {
 public:
  explicit mpi_duplicate(MPI_Comm of) {
    check_mpi(MPI_Comm_dup(of, &comm_), "MPI_Comm_dup");
    check_mpi(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  }
  mpi_duplicate(const mpi_duplicate&) = delete;
  mpi_duplicate& operator=(const mpi_duplicate&) = delete;
  ~mpi_duplicate() {
    int ended = 0;
    if (comm_ != MPI_COMM_NULL && MPI_Finalized(&ended) == MPI_SUCCESS && ended == 0) MPI_Comm_free(&comm_);
  }

  MPI_Comm get() const noexcept { return comm_; }
  /// What is still under way on it stays so.
  void leave() noexcept { comm_ = MPI_COMM_NULL; }
  std::uint64_t rank() const {
    int result = 0;
    check_mpi(MPI_Comm_rank(comm_, &result), "MPI_Comm_rank");
    return static_cast<std::uint64_t>(result);
  }
  std::uint64_t size() const {
    int result = 0;
    check_mpi(MPI_Comm_size(comm_, &result), "MPI_Comm_size");
    return static_cast<std::uint64_t>(result);
  }
  struct local {
    int rank = 0, size = 1;
  };
  /// Among the ranks of the same machine.
  local on_this_machine() const {
    MPI_Comm here = MPI_COMM_NULL;
    check_mpi(MPI_Comm_split_type(comm_, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &here), "MPI_Comm_split_type");
    local result;
    const int codes[] = {MPI_Comm_rank(here, &result.rank), MPI_Comm_size(here, &result.size)};
    MPI_Comm_free(&here);
    check_mpi(codes[0], "MPI_Comm_rank");
    check_mpi(codes[1], "MPI_Comm_size");
    return result;
  }

 private:
  MPI_Comm comm_ = MPI_COMM_NULL;
};

}  // namespace penstock::detail
