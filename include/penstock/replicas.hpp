// SPDX-License-Identifier: Apache-2.0
#pragma once

// Several replicas that train alike, in one process: standard library only. Devices with memory of their own, NCCL and
// MPI have headers of their own.
#include <penstock/communicator/communicator.hpp>
#include <penstock/communicator/local_world.hpp>
#include <penstock/schedule/describe_replicas.hpp>
#include <penstock/schedule/replica.hpp>
#include <penstock/schedule/replicas.hpp>
#include <penstock/schedule/run_replicas.hpp>
#include <penstock/stage/all_reduce.hpp>
