// SPDX-License-Identifier: Apache-2.0
#include "options.hpp"

#include <CLI/CLI.hpp>
#include <cstdlib>

namespace patch_trainer {

void parse(int argc, char** argv, settings& to) {
  CLI::App app{
      "Trains a convolutional network on random patches: to take noise out of photos, or from pairs of images.\n"
      "Exit status: 0 done, 11 loss no number, 12 time-out, 1 error, 130 interrupted"};
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);  // scripts' options may be overridden
  auto* photos = app.add_option("--photos", to.photos, "folder of clean photos, to which noise is added");
  auto* inputs = app.add_option("--inputs", to.inputs, "folder of images, each with a response")->excludes(photos);
  inputs->needs(app.add_option("--responses", to.responses, "folder of responses with the same names")->needs(inputs));
  app.add_flag("--colour,!--grey", to.colour, "three channels; else one");
  app.add_option("--longest-side", to.longest_side, "larger photos are shrunk to this; 0: never")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--held-out", to.held_out, "photos, the last ones by name, that are for the report alone")
      ->check(CLI::PositiveNumber);
  app.add_option("--crop", to.crop, "of these, the upper left corner that is looked at")->check(CLI::PositiveNumber);
  app.add_option("--sigma", to.sigma, "deviation of the Gaussian noise, where white is 255")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--patch", to.patch, "height and width of a patch")->check(CLI::PositiveNumber);
  app.add_option("--per-image", to.per_image, "patches of each photo in an epoch")->check(CLI::PositiveNumber);
  app.add_option("--together", to.together, "photos whose patches are mixed, so that the others need no memory")
      ->check(CLI::PositiveNumber);
  app.add_option("--batch", to.batch, "patches in a batch, over all replicas")->check(CLI::PositiveNumber);
  app.add_option("--layers", to.layers, "of 3 x 3 convolutions")->check(CLI::Range(2, 100));
  app.add_option("--width", to.width, "channels between them")->check(CLI::Range(1, 4096));
  app.add_option("--epochs", to.epochs, "in all, those before a resume included")->check(CLI::PositiveNumber);
  app.add_option("--learning-rate", to.rate, "of Adam, at its peak; it falls to 0 by half a cosine")
      ->check(CLI::PositiveNumber);
  app.add_option("--seed", to.seed, "of order, patches, noise and initial weights");
  app.add_option("--readers", to.readers, "threads that read; 0: none but the main one");
  app.add_option("--depth", to.depth, "batches in existence");
  app.add_option("--cache", to.cache_mb, "megabytes of decoded photos")->check(CLI::NonNegativeNumber);
  app.add_option("--replicas", to.replicas, "that train alike, each its share of each batch")
      ->check(CLI::Range(1, 1024));
  app.add_option("--timeout", to.timeout, "seconds to wait for a batch")->check(CLI::Range(1e-9, 1e9));
  app.add_option("--device", to.device, "cpu, cuda, or auto: cuda where it can be used")
      ->check(CLI::IsMember({"cpu", "cuda", "auto"}));
  app.add_option("--precision", to.precision,
                 "float32, bfloat16 for the convolutions, or auto: bfloat16 where this processor is made for it")
      ->check(CLI::IsMember({"float32", "bfloat16", "auto"}));
  app.add_option("--loader", to.loader, "penstock, or torch: the same patches through LibTorch's own DataLoader")
      ->check(CLI::IsMember({"penstock", "torch"}));
  app.add_option("--out", to.out, "folder for the model, curves and pictures");
  app.add_option("--resume", to.resume, "checkpoint of a run to go on with, with its options");
  app.get_formatter()->column_width(32);
  try {
    app.parse(argc, argv);
    if (to.photos.empty() && to.inputs.empty() && to.resume.empty())
      throw CLI::RequiredError("--photos FOLDER, or --inputs FOLDER --responses FOLDER,");
  } catch (const CLI::ParseError& end) {  // --help, too
    std::exit(app.exit(end));
  }
}

}  // namespace patch_trainer
