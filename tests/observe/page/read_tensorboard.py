# SPDX-License-Identifier: Apache-2.0
"""Reads back with TensorBoard itself what observed_run wrote: read_tensorboard.py FOLDER"""
import math
import sys

try:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator, TENSORS
except ImportError as missing:
    print(f"skipped: TensorBoard's Python package is not here ({missing}); `pip install tensorboard` brings it")
    sys.exit(77)


def check(found, wanted, what):
    if found != wanted:
        sys.exit(f"{what}: found {found!r}, wanted {wanted!r}")


events = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0, TENSORS: 0})
events.Reload()

tags = events.Tags()
check(
    sorted(tags["scalars"]),
    [
        "learning rate",
        "penstock/faults",
        "penstock/samples_per_second",
        "penstock/wait_share",
        "training/loss",
        "validation/loss",
    ],
    "curves",
)
losses = events.Scalars("training/loss")
check([point.step for point in losses], list(range(150)), "steps, none lost and none twice")
for point in losses:
    # Before step 60 the first run's, whose losses are greater by 1000.
    wanted = math.exp(-point.step / 30) + 0.1 + (1000 if point.step < 60 else 0)
    if point.step == 100:
        check(math.isnan(point.value), True, "the loss that is no number")
    elif abs(point.value - wanted) > 1e-4:
        sys.exit(f"loss at step {point.step}: found {point.value}, wanted {wanted}")
check([(point.step, point.value) for point in events.Scalars("penstock/faults")], [(99, 1.0)], "faults")
for point in events.Scalars("penstock/samples_per_second"):
    if not 39 < point.value < 45:  # 8 samples in 200 ms, less up to 19 ms where the next batch was asked for before
        sys.exit(f"samples per second at step {point.step}: found {point.value}, wanted 40")
(text,) = events.Tensors("penstock/pipeline")[-1].tensor_proto.string_val
check("    dataset  readers   150 samples" in text.decode(), True, "the pipeline's description")
print(f"{len(losses)} steps read back")
