// SPDX-License-Identifier: Apache-2.0
// Replicas by NCCL on the devices that are named, one rank for each: training is that of one rank. Exit status 0, 1
// after a failure, 77 where there is no GPU.
//
//   ./replicas_nccl [--devices 0,1]
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include <penstock/communicator/nccl_world.hpp>

#include "check.hpp"
#include "replicas.cuh"

int main(int count, char** arguments) {
  using namespace replicated_on_gpus;
  if (!cuda_device::is_available()) {
    std::puts("skipped: there is no GPU here");
    return 77;
  }
  std::vector<int> devices;
  if (count == 3 && std::string_view(arguments[1]) == "--devices")
    for (const char* at = arguments[2]; *at != 0;) {
      char* end = nullptr;
      devices.push_back(static_cast<int>(std::strtol(at, &end, 10)));
      if (end == at) return std::fprintf(stderr, "--devices takes numbers, as in 0,1\n"), 2;
      at = *end == ',' ? end + 1 : end;
    }
  if (devices.empty()) devices.push_back(0);
  const auto check_on = [](const std::vector<int>& where) {
    std::string name = "training by NCCL is that of one rank, on devices";
    for (const int one : where) name += ' ' + std::to_string(one);
    check(name.c_str(), [&] {
      return trains_as_one([&] {
        std::vector<cuda_device> all;
        for (const int one : where) all.emplace_back(one);
        return penstock::nccl_world<>(std::move(all));
      });
    });
  };
  check_on({devices[0]});
  if (devices.size() > 1) check_on(devices);
  std::printf("%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}
