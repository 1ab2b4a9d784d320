// SPDX-License-Identifier: Apache-2.0
// Where a GPU is in the machine, and how others reach it.
#include <gtest/gtest.h>

#include <string>

#include <penstock/device/cuda.hpp>

#include "../cuda_double/cuda_double.hpp"

namespace {

using penstock::cuda_device;

class placement : public testing::Test {
 protected:
  void SetUp() override { cuda_double::reset({.devices = 4}); }
  void TearDown() override {
    for (const std::string& fault : cuda_double::take_faults()) ADD_FAILURE() << fault;
    EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
  }
};

TEST_F(placement, a_device_names_its_place_as_the_system_does) {
  EXPECT_EQ(cuda_device(0).pci_bus_id(), "0000:3a:00.0");
  EXPECT_EQ(cuda_device(3).pci_bus_id(), "0000:3d:00.0");
}

// The double's machine: 0 and 1 are linked, 2 is behind the same switch, 3 reaches nobody.
TEST_F(placement, links_are_told_by_the_other_device_s_place) {
  const cuda_device zero(0), two(2), three(3);
  EXPECT_EQ(zero.link_to(cuda_device(1).pci_bus_id()), "NVLink");
  EXPECT_EQ(cuda_device(1).link_to("0000:3A:00.0"), "NVLink");
  EXPECT_EQ(zero.link_to(two.pci_bus_id()), "PCIe");
  EXPECT_EQ(two.link_to(zero.pci_bus_id()), "PCIe");
  EXPECT_EQ(zero.link_to(three.pci_bus_id()), "host");
  EXPECT_EQ(two.link_to(two.pci_bus_id()), "itself");
  // Hidden from this process, which a worker's own GPU alone may be shown to.
  EXPECT_EQ(zero.link_to("0000:99:00.0"), "unknown");
}

TEST_F(placement, what_fails_is_told) {
  const cuda_device zero(0);
  cuda_double::fail("cudaDeviceGetPCIBusId", 1, cudaErrorInvalidValue);
  EXPECT_THROW(zero.pci_bus_id(), penstock::cuda_error);
  for (const char* function : {"cudaDeviceCanAccessPeer", "cudaDeviceGetP2PAttribute"}) {
    cuda_double::fail(function, 1, cudaErrorInvalidDevice);
    EXPECT_THROW(zero.link_to("0000:3b:00.0"), penstock::cuda_error) << function;
  }
  cuda_double::fail("cudaDeviceGetByPCIBusId", 1, cudaErrorIllegalAddress);
  EXPECT_THROW(zero.link_to("0000:3b:00.0"), penstock::cuda_error);
  cuda_double::reset({.devices = 4});
}

}  // namespace
