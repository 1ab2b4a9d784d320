// SPDX-License-Identifier: Apache-2.0
#pragma once

// Marks what kernels may call too. Empty unless nvcc (or clang as a CUDA compiler) reads the header.
#if defined(__CUDACC__)
#define PENSTOCK_HOST_DEVICE __host__ __device__
#else
#define PENSTOCK_HOST_DEVICE
#endif

// The sanitizer that knows neither fences nor membarrier gets the fully fenced protocol.
#if defined(__SANITIZE_THREAD__)
#define PENSTOCK_THREAD_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define PENSTOCK_THREAD_SANITIZER 1
#endif
#endif
#ifndef PENSTOCK_THREAD_SANITIZER
#define PENSTOCK_THREAD_SANITIZER 0
#endif
