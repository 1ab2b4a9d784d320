// SPDX-License-Identifier: Apache-2.0
#include "train.hpp"

#include <torch/cuda.h>
#include <torch/utils.h>

#include <fstream>
#include <iterator>
#include <mutex>
#include <thread>

#include "strip.hpp"
#include "training.hpp"

namespace patch_trainer {

const char* name_of(ending how) {
  switch (how) {
    case ending::done: return "done";
    case ending::not_a_number: return "the loss is no number";
    case ending::timeout: return "time-out";
    case ending::interrupted: return "interrupted";
    default: return "error";
  }
}

ending ending_of(const std::function<ending()>& work) {
  try {
    return work();
  } catch (const std::exception& problem) {
    std::fprintf(stderr, "error: %s\n", problem.what());
    if (dynamic_cast<const penstock::timeout_error*>(&problem) != nullptr) return ending::timeout;
    const auto* const of_a_replica = dynamic_cast<const penstock::replica_error*>(&problem);
    try {
      if (of_a_replica != nullptr) of_a_replica->rethrow_cause();
    } catch (const penstock::timeout_error&) {
      return ending::timeout;
    } catch (...) {
    }
    return ending::error;
  }
}

void recall(settings& s) {
  checkpoint from(s.resume);
  const settings now = s;
  s = from.options();
  s.resume = now.resume;
}

bool uses_bfloat16(const settings& s) {
  if (s.precision != "auto") return s.precision == "bfloat16";
  std::ifstream file("/proc/cpuinfo");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  return text.find("amx_bf16") != std::string::npos;
}

at::Tensor tensor_of(const picture& one) {
  return torch::from_blob(const_cast<float*>(one.values.data()),
                          {1, static_cast<std::int64_t>(one.channels), static_cast<std::int64_t>(one.height),
                           static_cast<std::int64_t>(one.width)});
}

picture improved(convolutions& net, const picture& input, const at::Device& device) {
  const torch::NoGradGuard no_gradients;
  const at::Tensor output = net.forward(tensor_of(input).to(device)).to(at::kCPU).contiguous();
  picture result = input;
  result.values.assign(output.data_ptr<float>(), output.data_ptr<float>() + result.values.size());
  return result;
}

std::string report(convolutions& net, const held_out& seen, const settings& s, const at::Device& device) {
  const bool noise = !s.pairs();
  const double deviation = noise ? best_blur(seen.inputs, seen.targets) : 0;
  const char* const input = noise ? "noisy" : "input";
  const char* const output = noise ? "denoised" : "network";
  double sums[3] = {};
  std::printf("\nPSNR in dB of photos that the training never saw\n%-40s %9s %9s %9s\n", "", input,
              noise ? "blurred" : "", output);
  std::vector<strip_row> rows;
  for (std::size_t i = 0; i < seen.inputs.size(); ++i) {
    const picture& target = seen.targets[i];
    const picture better = improved(net, seen.inputs[i], device);
    const double from = psnr(seen.inputs[i], target), to = psnr(better, target);
    const double rival = noise ? psnr(blurred(seen.inputs[i], deviation), target) : 0;
    std::printf("%-40s %9.2f %9.2f %9.2f\n", target.name.c_str(), from, rival, to);
    sums[0] += from, sums[1] += rival, sums[2] += to;
    rows.push_back({target.name,
                    {{input, seen.inputs[i], from}, {output, better, to}, {noise ? "clean" : "response", target, {}}}});
  }
  const double count = static_cast<double>(seen.inputs.size());
  for (double& sum : sums) sum /= count;
  std::printf("%-40s %9.2f %9.2f %9.2f\n", "mean", sums[0], sums[1], sums[2]);
  if (noise)
    std::printf(
        "(blurred: by a Gaussian of %.2f pixels, the best one for these photos, chosen by who knows them clean)\n",
        deviation);
  draw_strip(s.out, rows);
  std::printf("pictures: %s/strip.svg\ncurves: %s/report.html\n", s.out.c_str(), s.out.c_str());
  char text[160];
  std::snprintf(text, sizeof text, "test: input=%.2f blur=%.2f network=%.2f dB", sums[0], sums[1], sums[2]);
  return text;
}

ending train(const settings& s, std::stop_token stop) {
  const clock::time_point begun = clock::now();
  std::filesystem::create_directories(s.out);
  if (s.loader == "torch" && (s.replicas > 1 || !s.resume.empty()))
    throw penstock::error(
        "--loader torch with --replicas or --resume, wanted neither: it is for comparison, and has no state");
  if (s.device != "cpu") {
    const std::string problem = why_no_cuda();
    if (problem.empty()) return train_on_cuda(s, stop);
    if (s.device == "cuda") throw penstock::error("--device cuda: " + problem + ", wanted a GPU that can be used");
    std::printf("device: cpu (no CUDA: %s)%s\n", problem.c_str(), uses_bfloat16(s) ? ", convolutions in bfloat16" : "");
  }
  const int cpus = static_cast<int>(std::thread::hardware_concurrency());
  torch::set_num_threads(std::max(1, cpus / s.replicas));

  held_out seen;
  std::vector<std::unique_ptr<training<penstock::cpu_device>>> all(static_cast<std::size_t>(s.replicas));
  std::mutex one_by_one;  // LibTorch has one stream of random numbers: all begin with the same weights
  const auto make = [&](std::size_t rank) -> auto& {
    const std::lock_guard lock(one_by_one);
    torch::manual_seed(static_cast<std::uint64_t>(s.seed));
    all[rank] = std::make_unique<training<penstock::cpu_device>>(s, penstock::cpu_device{}, at::kCPU);
    return *all[rank];
  };
  const auto nothing = [](auto&) { return 0; };
  const ending how = ending_of([&] {
    return with_patches(s, seen, [&](const auto& patches) {
      if (s.loader == "torch") return make(0).loop_of_torch(patches, seen, stop);
      if (s.replicas == 1) {
        only_one here;
        return make(0).template loop<alone>(here, patches, seen, stop, nothing);
      }
      ending of_all{};
      penstock::replicas(s.replicas, [&](auto& replica) {
        using replica_type = std::remove_cvref_t<decltype(replica)>;
        auto& mine = make(replica.rank());
        const ending one =
            mine.template loop<penstock::torch_replica<replica_type>>(replica, patches, seen, stop, nothing);
        if (replica.rank() == 0) of_all = one;
      });
      return of_all;
    });
  });
  return finish(how, all[0].get(), seen, s, at::kCPU, begun);
}

}  // namespace patch_trainer
