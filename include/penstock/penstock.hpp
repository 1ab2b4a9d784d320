// SPDX-License-Identifier: Apache-2.0
#pragma once

// The host core: standard library only. File formats, the progress bar and devices with memory of their own have
// headers of their own.
#include <penstock/dataset/any_dataset.hpp>
#include <penstock/dataset/dataset.hpp>
#include <penstock/dataset/range.hpp>
#include <penstock/dataset/split.hpp>
#include <penstock/dataset/stream.hpp>
#include <penstock/device/cpu.hpp>
#include <penstock/observe/observer.hpp>
#include <penstock/sample/error.hpp>
#include <penstock/sample/philox.hpp>
#include <penstock/sample/schema.hpp>
#include <penstock/sample/tensor_view.hpp>
#include <penstock/schedule/describe.hpp>
#include <penstock/schedule/feed.hpp>
#include <penstock/schedule/pipeline.hpp>
#include <penstock/schedule/run.hpp>
#include <penstock/schedule/state.hpp>
#include <penstock/stage/batch.hpp>
#include <penstock/stage/bucket.hpp>
#include <penstock/stage/collate.hpp>
#include <penstock/stage/compute.hpp>
#include <penstock/stage/partition.hpp>
#include <penstock/stage/plan.hpp>
#include <penstock/stage/read.hpp>
#include <penstock/stage/reduce.hpp>
#include <penstock/stage/transfer.hpp>
