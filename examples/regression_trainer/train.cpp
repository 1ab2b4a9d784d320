// SPDX-License-Identifier: Apache-2.0
#include "train.hpp"

#include <cstdlib>
#include <span>

#include "chart.hpp"
#include "cpu_network.hpp"
#include "replicated.hpp"
#include "train_cuda.hpp"
#include "train_mpi.hpp"

namespace trainer {
namespace {

/// This process's place among those that mpirun began, of Open MPI or of MPICH and its kin, as they tell it.
penstock::world place_under_mpirun() {
  penstock::world result;
  for (const auto& [rank, size] : {std::pair{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"}, {"PMI_RANK", "PMI_SIZE"}})
    if (std::getenv(rank) != nullptr && std::getenv(size) != nullptr)
      result = {std::strtoull(std::getenv(rank), nullptr, 10), std::strtoull(std::getenv(size), nullptr, 10)};
  return result;
}

}  // namespace

const char* name_of(ending how) {
  switch (how) {
    case ending::done: return "done";
    case ending::early_stop: return "early stop";
    case ending::not_a_number: return "the loss is no number";
    case ending::timeout: return "time-out";
    case ending::interrupted: return "interrupted";
    default: return "error";
  }
}

bool is_timeout(const std::exception& problem) {
  if (dynamic_cast<const penstock::timeout_error*>(&problem) != nullptr) return true;
  const auto* const of_a_replica = dynamic_cast<const penstock::replica_error*>(&problem);
  try {
    if (of_a_replica != nullptr) of_a_replica->rethrow_cause();
  } catch (const penstock::timeout_error&) {
    return true;
  } catch (...) {
  }
  return false;
}

void draw_curve(const std::string& file, const std::string& target, const checkpoint& state) {
  const std::string svg = chart("RMSE of " + target,
                                {{"training", "#1f77b4", state.training}, {"validation", "#d62728", state.validation}});
  penstock::write_atomically(file, std::as_bytes(std::span(svg)));
}

baselines score_baselines(const table& data, const settings& s, const comoments& moments) {
  const Eigen::VectorXd line = moments.least_squares();
  auto batches = ordered_batches(data, s, {});
  const auto score = [&](std::uint64_t epoch, auto function) {
    return evaluate(
        batches, epoch, {},
        [&](auto& batch, auto& use) {
          const auto [x, y] = batch.fields();
          const Eigen::VectorXd outputs = function(x.data(), static_cast<Eigen::Index>(batch.size()));
          use(outputs.data(), y.data(), batch.size());
        },
        [](auto&) {});
  };
  const scores ols = score(0, [&](const float* x, Eigen::Index rows) -> Eigen::VectorXd {
    const Eigen::Map<const matrix> all(x, rows, line.size() - 1);
    return (all.cast<double>() * line.head(all.cols())).array() + line.tail(1).value();
  });
  const scores mean = score(1, [&](const float*, Eigen::Index rows) -> Eigen::VectorXd {
    return Eigen::VectorXd::Constant(rows, moments.mean.tail(1).value());
  });
  return {ols, mean};
}

device_choice choose_device(const settings& s) {
  if (s.device == "cpu") return {false, "cpu"};
  if (place_under_mpirun().size > 1) {
    if (s.device == "cuda") throw penstock::error("--device cuda under mpirun, wanted cpu, or --replicas without it");
    return {false, "cpu (no CUDA under mpirun)"};
  }
  const std::string problem = why_no_cuda();
  if (problem.empty()) return {true, cuda_name()};
  if (s.device == "cuda") throw penstock::error("--device cuda: " + problem + ", wanted a GPU that can be used");
  return {false, "cpu (no CUDA: " + problem + ")"};
}

ending train(const settings& s, std::optional<checkpoint> from, const parts& data, std::stop_token stop) {
  device_choice device = choose_device(s);
  const penstock::world processes = place_under_mpirun();
  if (s.replicas > 1 && processes.size > 1)
    throw penstock::error("--replicas under mpirun, where each process is one: wanted either");
  if (s.replicas > 1) device.text += ", " + std::to_string(s.replicas) + " replicas";
  if (processes.size > 1) device.text += ", " + std::to_string(processes.size) + " processes";
  if (processes.rank == 0) std::printf("device: %s\n", device.text.c_str());
  if (processes.size > 1) return train_on_mpi(s, from, data, stop, device.text);
  if (device.cuda) return train_on_cuda(s, std::move(from), data, stop, device.text);
  if (s.replicas > 1)
    return train_replicas<cpu_network>(penstock::local_world<>(s.replicas), s, from, data, stop, device.text);
  return training<cpu_network>(s, std::move(from), data).run(stop, device.text);
}

void predict(const settings& s) {
  const device_choice device = choose_device(s);
  const checkpoint model = load(s.model);
  const table rows = open_rows(s.predict, model.options);
  const auto features = std::get<0>(rows.schema().fields).shape[0];
  const network_layout layout(features, model.options.layers, model.options.width);
  if (model.inputs.mean.size() != features + 1 || !fits(layout, model.network))
    throw penstock::error(penstock::detail::concat("the model is not one of ", features, " features"),
                          {.path = s.model});
  if (device.cuda) return predict_on_cuda(layout, model, rows, s);
  predict_on(cpu_network(layout, s), model, rows, s);
}

}  // namespace trainer
