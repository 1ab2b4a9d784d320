// SPDX-License-Identifier: Apache-2.0
#include "options.hpp"

#include <CLI/CLI.hpp>
#include <cstdlib>

namespace trainer {

void parse(int argc, char** argv, settings& to) {
  CLI::App app{
      "Trains a multilayer perceptron for regression on a CSV file or on a pair of NPY files.\n"
      "Exit status: 0 done, 10 early stop, 11 loss no number, 12 time-out, 1 error, 130 interrupted"};
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);  // scripts' options may be overridden
  std::vector<std::string> orders, one_hot;
  std::string method = to.adam ? "adam" : "sgd";
  auto* data = app.add_option("--data", to.data, "CSV file with a header line");
  app.add_flag("--indexed", to.indexed, "leave the CSV file on the disk");
  app.add_option("--target", to.target, "the column to predict");
  app.add_option("--category", orders, "order of a text column's categories: cut=Fair<Good<Ideal")->take_all();
  app.add_option("--one-hot", one_hot, "text column to turn into a feature for each category")->take_all();
  auto* x = app.add_option("--x", to.x, "NPY file of features, samples by features")->excludes(data);
  x->needs(app.add_option("--y", to.y, "NPY file of targets")->needs(x));
  app.add_option("--layers", to.layers, "hidden layers")->check(CLI::Range(1, 100));
  app.add_option("--width", to.width, "units in each")->check(CLI::Range(1, 65536));
  app.add_option("--optimizer", method, "adam or sgd (with momentum)")->check(CLI::IsMember({"adam", "sgd"}));
  app.add_option("--learning-rate", to.rate, "at its peak; it falls to 0 by half a cosine")->check(CLI::PositiveNumber);
  app.add_option("--momentum", to.momentum, "of sgd; beta 1 of adam")->check(CLI::Range(0.0, 0.9999));
  app.add_option("--batch", to.batch, "samples in a batch")->check(CLI::PositiveNumber);
  app.add_option("--epochs", to.epochs, "in all, those before a resume included")->check(CLI::PositiveNumber);
  app.add_option("--patience", to.patience, "epochs without a better validation loss before an early stop; 0: no stop");
  app.add_option("--validation", to.validation, "share of samples for early stopping")->check(CLI::Range(1e-6, 0.99));
  app.add_option("--test", to.test, "share of samples held out for the report")->check(CLI::Range(0.0, 0.99));
  app.add_option("--squash", to.squash, "deviations to which features are softly limited; 0: no limit")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--seed", to.seed, "of split, order and initial weights");
  app.add_option("--readers", to.readers, "threads that read; 0: none but the main one");
  app.add_option("--depth", to.depth, "batches in existence");
  app.add_option("--replicas", to.replicas, "that train alike, each with readers of its own, its share of each batch")
      ->check(CLI::Range(1, 1024));
  app.add_option("--timeout", to.timeout, "seconds to wait for a batch")->check(CLI::Range(1e-9, 1e9));
  app.add_option("--device", to.device, "cpu, cuda, or auto: cuda where it can be used")
      ->check(CLI::IsMember({"cpu", "cuda", "auto"}));
  app.add_option("--out", to.out, "folder for checkpoints and the loss curve");
  app.add_option("--resume", to.resume, "checkpoint of a run to go on with, with its options");
  auto* model = app.add_option("--model", to.model, "checkpoint of the model for --predict");
  app.add_option("--predict", to.predict, "CSV or NPY file with rows to predict, printed line by line")->needs(model);
  app.get_formatter()->column_width(32);
  try {
    app.parse(argc, argv);
    to.adam = method == "adam";
    if (to.data.ends_with("diamonds.csv") && orders.empty() && one_hot.empty() && to.categories.empty())
      orders = {"cut=Fair<Good<Very Good<Premium<Ideal", "color=J<I<H<G<F<E<D",
                "clarity=I1<SI2<SI1<VS2<VS1<VVS2<VVS1<IF"};
    for (const std::string& text : orders) {
      const auto sign = text.find('=');
      if (sign == text.npos) throw CLI::ValidationError("--category", text + ", wanted COLUMN=FIRST<SECOND<...");
      to.categories.push_back({{text.substr(0, sign), CLI::detail::split(text.substr(sign + 1), '<')}});
    }
    for (const std::string& column : one_hot) to.categories.push_back({{column, {}, penstock::csv_text::one_hot}});
  } catch (const CLI::ParseError& end) {  // --help, too
    std::exit(app.exit(end));
  }
}

}  // namespace trainer
