// SPDX-License-Identifier: Apache-2.0
// How a program ends: ends MODE FOLDER, run by mpirun. Each rank leaves a file FOLDER/ok.RANK once it has seen what it
// should.
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

#include <penstock/communicator/mpi.hpp>
#include <penstock/penstock.hpp>
#include <penstock/replicas.hpp>

namespace {

using penstock::replica_error;
using penstock::replicas;
namespace fs = std::filesystem;

fs::path folder;

void check(bool holds, const std::string& what) {
  if (holds) return;
  std::fprintf(stderr, "wrong: %s\n", what.c_str());
  std::fflush(nullptr);
  MPI_Abort(MPI_COMM_WORLD, 99);
}
void leave(const std::string& name, std::uint64_t rank) {
  std::ofstream(folder / (name + "." + std::to_string(rank))) << "\n";
}
// Until the ranks that are asked for have left it, or a minute is over.
void await(const std::string& name, std::uint64_t first, std::uint64_t last) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  for (std::uint64_t r = first; r < last; ++r)
    while (!fs::exists(folder / (name + "." + std::to_string(r)))) {
      check(std::chrono::steady_clock::now() < deadline, name + " did not come");
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
}
bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

struct listener {
  std::function<void(const penstock::late_event&)> hear;
  void on_late(const penstock::late_event& event) { hear(event); }
};

void loop(auto& world, penstock::replica_options options, const std::function<void(std::uint64_t)>& before,
          const std::function<void(const penstock::late_event&)>& hear = {}) {
  const penstock::range_dataset data(std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8});
  replicas(
      world,
      [&](auto& replica) {
        auto feed = replica.start(data | penstock::partition({.world = replica}) | penstock::read() |
                                  penstock::batch({.global = 4}) | penstock::transfer(replica.device()));
        if (hear) feed.observe(listener{hear});
        std::vector<float> value(1, 1);
        for (std::uint64_t epoch = 0; epoch < 2; ++epoch)
          for (auto& batch : feed.epoch(epoch)) {
            before(2 * epoch + batch.step());
            replica.all_reduce(batch, value);
          }
      },
      options);
}

// The last rank comes to its third step only when all others were told twice that they wait for it alone, and the
// lowest has said so where nobody hears. Nothing comes of it.
void warned(auto& world) {
  const std::uint64_t last = world.size() - 1, rank = world.rank();
  const penstock::replica_options options{.warn_after = std::chrono::milliseconds(1)};
  int times = 0;
  const auto hear = [&](const penstock::late_event& event) {
    if (event.missing.size() != 1 || event.missing[0].rank != last || event.where.epoch != 1U) return;
    const std::string text(event.message);
    check(event.rank == rank && event.where.step == 0U && event.missing[0].epoch == 0U && event.missing[0].step == 1U &&
              has(text, "all_reduce: epoch 1, step 0: rank " + std::to_string(rank) + " has waited for rank " +
                            std::to_string(last) + " for ") &&
              has(text, "rank " + std::to_string(last) + " came last in epoch 0, step 1"),
          text);
    if (++times == 2) leave("warned", rank);
  };
  loop(
      world, options,
      [&](std::uint64_t step) {
        if (rank == last && step == 2) await("warned", 0, last);
      },
      hear);

  const auto file = [](std::uint64_t of) { return folder / ("stderr." + std::to_string(of)); };
  const auto said = [&](std::uint64_t by) {
    std::ifstream from(file(by));
    const std::string text{std::istreambuf_iterator<char>(from), {}};
    return has(text, "penstock: all_reduce: epoch 1, step 0: rank " + std::to_string(by) + " has waited for rank " +
                         std::to_string(last) + " for ");
  };
  std::fflush(stderr);
  const int before = ::dup(STDERR_FILENO);
  const int own = ::open(file(rank).c_str(), O_CREAT | O_WRONLY | O_APPEND, 0600);
  check(before >= 0 && ::dup2(own, STDERR_FILENO) >= 0, "stderr.N");
  loop(world, options, [&](std::uint64_t step) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (rank == last && step == 2 && !said(0) && std::chrono::steady_clock::now() < deadline)
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
  });
  ::dup2(before, STDERR_FILENO);
  check(said(rank) == (rank == 0), "who says it");
}

// The last rank comes to its third step only when all others have given up on it.
void stalled(auto& world) {
  warned(world);
  const std::uint64_t last = world.size() - 1, rank = world.rank();
  const penstock::replica_options options{.timeout = std::chrono::milliseconds(300)};
  std::string text;
  try {
    loop(world, options, [&](std::uint64_t step) {
      if (rank == last && step == 2) await("gave_up", 0, last);
    });
  } catch (const replica_error& caught) {
    text = caught.what();
    check(caught.rank() == last, "the rank of " + text);
  }
  std::fprintf(stderr, "rank %d: %s\n", static_cast<int>(rank), text.c_str());
  check(has(text, "rank " + std::to_string(last) + " did not come within 300 ms"), text);
  check(has(text, "epoch 1, step 0"), text);
  leave("gave_up", rank);
  // It is dead, and says so again.
  try {
    loop(world, options, [](std::uint64_t) {});
    check(false, "a dead world works");
  } catch (const replica_error& caught) {
    check(text == caught.what(), caught.what());
  }
  leave("ok", rank);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 98;
  const std::string mode = argv[1];
  folder = argv[2];

  if (mode == "owned") {  // begun and ended here
    int begun = 1, ended = 1;
    MPI_Initialized(&begun);
    check(begun == 0, "MPI is begun");
    {
      penstock::mpi_world world;
      int level = 0;
      MPI_Query_thread(&level);
      check(level >= MPI_THREAD_FUNNELED, "level");
      loop(world, {}, [](std::uint64_t) {});
      leave("ok", world.rank());
    }
    MPI_Finalized(&ended);
    check(ended != 0, "MPI is not ended");
    try {
      penstock::mpi_world again;
      check(false, "MPI began twice");
    } catch (const penstock::mpi_error& caught) {
      check(has(caught.what(), "has been finalised"), caught.what());
    }
    return 0;
  }
  if (mode == "adopted") {
    int level = 0, ended = 1, result = -1;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
    MPI_Comm mine = MPI_COMM_NULL;
    MPI_Comm_dup(MPI_COMM_WORLD, &mine);
    for (int i = 0; i < 2; ++i) {
      penstock::mpi_world world(mine);
      loop(world, {}, [](std::uint64_t) {});
      leave("ok", world.rank());
    }
    MPI_Finalized(&ended);
    check(ended == 0, "MPI is ended");
    MPI_Comm_compare(mine, MPI_COMM_WORLD, &result);
    check(result == MPI_CONGRUENT, "the communicator is gone");
    check(MPI_Barrier(mine) == MPI_SUCCESS, "the communicator does not work");
    std::thread([&] {
      try {
        penstock::mpi_world world(mine);
        check(false, "another thread is taken");
      } catch (const penstock::mpi_error& caught) {
        check(has(caught.what(), "by another thread"), caught.what());
      }
    }).join();
    MPI_Comm_free(&mine);
    MPI_Finalize();
    return 0;
  }
  if (mode == "single") {  // a level that is too low
    int level = 0, rank = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_SINGLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (level > MPI_THREAD_SINGLE) {
      std::fprintf(stderr, "not tested: this MPI gives more than MPI_THREAD_SINGLE\n");
    } else {
      try {
        penstock::mpi_world world;
        check(false, "MPI_THREAD_SINGLE is taken");
      } catch (const penstock::mpi_error& caught) {
        check(has(caught.what(), "MPI_THREAD_SINGLE, wanted MPI_THREAD_FUNNELED or more"), caught.what());
      }
    }
    leave("ok", static_cast<std::uint64_t>(rank));
    MPI_Finalize();
    return 0;
  }
  if (mode == "stalled") {  // with an MPI of the user's, who has only MPI_Abort left
    int level = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
    std::uint64_t rank = 0, size = 0;
    {
      penstock::mpi_world world;
      rank = world.rank(), size = world.size();
      stalled(world);
    }
    if (rank == 0) {
      await("ok", 0, size);
      MPI_Abort(MPI_COMM_WORLD, 7);
    }
    std::this_thread::sleep_for(std::chrono::seconds(60));
    return 0;
  }
  penstock::mpi_world world;
  if (mode == "stalled_owned") {  // the world's destructor ends all
    stalled(world);
    if (world.rank() == 0)
      await("ok", 0, world.size());
    else
      std::this_thread::sleep_for(std::chrono::seconds(60));
    return 0;
  }
  if (mode == "throws") {  // the exit status is the program's
    try {
      loop(world, {}, [&](std::uint64_t step) {
        if (world.rank() == 1 && step == 1) throw std::runtime_error("not today");
      });
    } catch (const replica_error& caught) {
      check(has(caught.what(), "rank 1 failed: not today"), caught.what());
      leave("ok", world.rank());
      return 3;
    }
  }
  if (mode == "killed") {
    loop(world, {}, [&](std::uint64_t step) {
      if (step == 1) leave("ok", world.rank());
      if (world.rank() == 1 && step == 1) {
        await("ok", 0, world.size());
        std::raise(SIGKILL);
      }
    });
  }
  return 0;
}
