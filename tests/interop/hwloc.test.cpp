// SPDX-License-Identifier: Apache-2.0
// ctest: no tsan: what it calls is tested elsewhere
// ctest: no asan: plugins of hwloc leak, which are gone when that is told
#include <sched.h>
#include <stdlib.h>

#include <cstddef>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <penstock/interop/hwloc.hpp>
#include <penstock/penstock.hpp>

#include "../support/temporary_directory.hpp"

namespace {

using penstock::cpu_set;
using penstock::cpus_near;

/// A machine as hwloc writes it: two nodes of two CPUs, a PCI device at each, and one at neither.
const char* const two_nodes = R"(<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE topology SYSTEM "hwloc2.dtd">
<topology version="2.0">
  <object type="Machine" os_index="0" cpuset="0x0000000f" complete_cpuset="0x0000000f" allowed_cpuset="0x0000000f" nodeset="0x00000003" complete_nodeset="0x00000003" allowed_nodeset="0x00000003" gp_index="1">
    <object type="Package" os_index="0" cpuset="0x00000003" complete_cpuset="0x00000003" nodeset="0x00000001" complete_nodeset="0x00000001" gp_index="2">
      <object type="NUMANode" os_index="0" cpuset="0x00000003" complete_cpuset="0x00000003" nodeset="0x00000001" complete_nodeset="0x00000001" gp_index="3" local_memory="1073741824"/>
      <object type="Core" os_index="0" cpuset="0x00000001" complete_cpuset="0x00000001" nodeset="0x00000001" complete_nodeset="0x00000001" gp_index="4">
        <object type="PU" os_index="0" cpuset="0x00000001" complete_cpuset="0x00000001" nodeset="0x00000001" complete_nodeset="0x00000001" gp_index="5"/>
      </object>
      <object type="Core" os_index="1" cpuset="0x00000002" complete_cpuset="0x00000002" nodeset="0x00000001" complete_nodeset="0x00000001" gp_index="6">
        <object type="PU" os_index="1" cpuset="0x00000002" complete_cpuset="0x00000002" nodeset="0x00000001" complete_nodeset="0x00000001" gp_index="7"/>
      </object>
      <object type="Bridge" gp_index="8" bridge_type="0-1" depth="0" bridge_pci="0000:[00-3b]">
        <object type="PCIDev" gp_index="9" pci_busid="0000:3b:00.0" pci_type="0302 [10de:2335] [10de:18be] a1" pci_link_speed="15.754"/>
      </object>
    </object>
    <object type="Package" os_index="1" cpuset="0x0000000c" complete_cpuset="0x0000000c" nodeset="0x00000002" complete_nodeset="0x00000002" gp_index="10">
      <object type="NUMANode" os_index="1" cpuset="0x0000000c" complete_cpuset="0x0000000c" nodeset="0x00000002" complete_nodeset="0x00000002" gp_index="11" local_memory="1073741824"/>
      <object type="Core" os_index="2" cpuset="0x00000004" complete_cpuset="0x00000004" nodeset="0x00000002" complete_nodeset="0x00000002" gp_index="12">
        <object type="PU" os_index="2" cpuset="0x00000004" complete_cpuset="0x00000004" nodeset="0x00000002" complete_nodeset="0x00000002" gp_index="13"/>
      </object>
      <object type="Core" os_index="3" cpuset="0x00000008" complete_cpuset="0x00000008" nodeset="0x00000002" complete_nodeset="0x00000002" gp_index="14">
        <object type="PU" os_index="3" cpuset="0x00000008" complete_cpuset="0x00000008" nodeset="0x00000002" complete_nodeset="0x00000002" gp_index="15"/>
      </object>
      <object type="Bridge" gp_index="16" bridge_type="0-1" depth="0" bridge_pci="0000:[80-86]">
        <object type="PCIDev" gp_index="17" pci_busid="0000:86:00.0" pci_type="0302 [10de:2335] [10de:18be] a1" pci_link_speed="15.754"/>
      </object>
    </object>
    <object type="Bridge" gp_index="18" bridge_type="0-1" depth="0" bridge_pci="0001:[00-01]">
      <object type="PCIDev" gp_index="19" pci_busid="0001:01:00.0" pci_type="0302 [10de:2335] [10de:18be] a1" pci_link_speed="15.754"/>
    </object>
  </object>
</topology>
)";

class Hwloc : public testing::Test {
 protected:
  void SetUp() override { setenv("HWLOC_XMLFILE", machine.file("machine.xml", two_nodes).c_str(), 1); }
  void TearDown() override { unsetenv("HWLOC_XMLFILE"); }

  // On that CPU alone, where the test's machine has it.
  template <class Body>
  static void on(int cpu, Body body) {
    std::thread([&] {
      cpu_set_t mask;
      CPU_ZERO(&mask);
      CPU_SET(cpu, &mask);
      if (sched_setaffinity(0, sizeof(mask), &mask) == 0) body();
    }).join();
  }

  penstock_test::temporary_directory machine;
  const cpu_set allowed = penstock::detail::allowed_cpus();
};

TEST_F(Hwloc, the_cpus_near_a_device_are_those_of_its_node_that_are_allowed) {
  const cpu_set nodes[] = {{0, 1}, {2, 3}};
  const char* const devices[] = {"0000:3b:00.0", "0000:86:00.0"};
  for (std::size_t n = 0; n < 2; ++n) {
    cpu_set wanted;
    for (std::size_t i = 0; i < 2; ++i)
      if (allowed.contains(nodes[n][i])) wanted.add(nodes[n][i]);
    if (!wanted.empty()) {
      EXPECT_EQ(cpus_near(devices[n]).text(), wanted.text());
      continue;
    }
    try {
      cpus_near(devices[n]);
      FAIL();
    } catch (const penstock::error& caught) {
      EXPECT_EQ(std::string(caught.what()), "PCI device " + std::string(devices[n]) + " is near CPUs " +
                                                nodes[n].text() + ", and this thread may run on " + allowed.text() +
                                                " alone");
    }
  }
  on(1, [&] { EXPECT_EQ(cpus_near("0000:3b:00.0").text(), "1"); });
}

// As the CUDA runtime writes them, too.
TEST_F(Hwloc, letters_of_either_kind_name_a_device) {
  on(0, [&] { EXPECT_EQ(cpus_near("0000:3B:00.0").text(), "0"); });
}

TEST_F(Hwloc, a_device_at_no_node_is_near_to_all) {
  on(0, [&] { EXPECT_EQ(cpus_near("0001:01:00.0").text(), "0"); });
}

TEST_F(Hwloc, a_device_that_is_not_there_is_an_error) {
  for (const char* name : {"0000:99:00.0", "no device", ""}) {
    try {
      cpus_near(name);
      FAIL();
    } catch (const penstock::error& caught) {
      EXPECT_NE(std::string(caught.what()).find("knows no PCI device " + std::string(name)), std::string::npos)
          << caught.what();
    }
  }
}

TEST_F(Hwloc, readers_are_placed_near_a_device) {
  if (!allowed.contains(0)) GTEST_SKIP() << "the first CPU may not be used";
  const std::vector<float> numbers(100, 1.0F);
  auto feed = (numbers | penstock::partition() | penstock::read({.readers = 2, .cpus = cpus_near("0000:3b:00.0")}) |
               penstock::batch(10) | penstock::transfer(penstock::cpu_device{}))
                  .start();
  std::size_t samples = 0;
  for (auto& batch : feed.epoch(0)) samples += batch.size();
  EXPECT_EQ(samples, 100U);
}

// This machine's own devices, as far as the system shows them: each is near to some of its CPUs.
TEST(HwlocHere, every_device_is_near_to_cpus_of_this_machine) {
  const auto allowed = penstock::detail::allowed_cpus();
  std::error_code none;
  std::size_t found = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/sys/bus/pci/devices", none)) {
    cpu_set near;
    try {
      near = cpus_near(entry.path().filename().string());
    } catch (const penstock::error& caught) {
      continue;  // hidden, or near to CPUs that are not ours
    }
    EXPECT_TRUE(near.within(allowed)) << entry.path();
    if (++found == 4) break;
  }
  if (found == 0) GTEST_SKIP() << "no PCI devices here";
}

}  // namespace
