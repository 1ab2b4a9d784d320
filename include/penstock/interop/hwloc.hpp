// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <hwloc.h>

#include <memory>
#include <string>

#include <penstock/sample/error.hpp>
#include <penstock/schedule/threads.hpp>
#include <penstock/stage/cpu_set.hpp>

namespace penstock {

/// The CPUs that a PCI device's data are near to, those of its NUMA node as hwloc knows it, as far as the calling
/// thread may run on them: `read({.cpus = cpus_near(device.pci_bus_id())})`. Where the machine tells nothing of the
/// device's place those are all. Link `penstock::hwloc`; looks the machine over, which takes milliseconds.
///
/// Throws `penstock::error` where hwloc knows no such device, or this thread may run on none of its CPUs.
inline cpu_set cpus_near(const std::string& pci_bus_id) {
  struct closer {
    void operator()(hwloc_topology_t topology) const noexcept { hwloc_topology_destroy(topology); }
  };
  hwloc_topology_t made = nullptr;
  if (hwloc_topology_init(&made) != 0) throw error("hwloc: hwloc_topology_init failed");
  const std::unique_ptr<hwloc_topology, closer> machine(made);
  // Whatever this process may use, for the error's sake; and no caches, which nobody asks for here.
  if (hwloc_topology_set_io_types_filter(made, HWLOC_TYPE_FILTER_KEEP_ALL) != 0 ||
      hwloc_topology_set_cache_types_filter(made, HWLOC_TYPE_FILTER_KEEP_NONE) != 0 || hwloc_topology_load(made) != 0)
    throw error("hwloc: the machine's topology could not be read");
  const hwloc_obj_t device = hwloc_get_pcidev_by_busidstring(made, pci_bus_id.c_str());
  if (device == nullptr)
    throw error("hwloc knows no PCI device " + pci_bus_id +
                ", wanted one such as 0000:3b:00.0 that this machine shows");
  const hwloc_obj_t place = hwloc_get_non_io_ancestor_obj(made, device);

  const cpu_set allowed = detail::allowed_cpus();
  cpu_set near, usable;
  for (int cpu = hwloc_bitmap_first(place->cpuset); cpu != -1; cpu = hwloc_bitmap_next(place->cpuset, cpu)) {
    near.add(cpu);
    if (allowed.contains(cpu)) usable.add(cpu);
  }
  if (usable.empty())
    throw error("PCI device " + pci_bus_id + " is near CPUs " + near.text() + ", and this thread may run on " +
                allowed.text() + " alone");
  return usable;
}

}  // namespace penstock
