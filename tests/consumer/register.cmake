# SPDX-License-Identifier: Apache-2.0
# The consumer project, against the installed package and against the source tree. The package is moved after its installation.
set(where ${CMAKE_CURRENT_BINARY_DIR}/consumer)
set(here ${CMAKE_CURRENT_LIST_DIR})
set(prefix ${where}/moved)

# A build tree of its own: without tests, and with the usual destinations.
add_test(NAME consumer.configure
         COMMAND ${CMAKE_COMMAND} -G ${CMAKE_GENERATOR} -DCMAKE_CXX_COMPILER=${CMAKE_CXX_COMPILER} -DPENSTOCK_BUILD_TESTS=OFF
                 -DPENSTOCK_BUILD_EXAMPLES=OFF -DPENSTOCK_BUILD_BENCHMARKS=OFF --install-prefix ${where}/installed
                 -S ${PROJECT_SOURCE_DIR} -B ${where}/package)
add_test(NAME consumer.install COMMAND ${CMAKE_COMMAND} -DWHERE=${where} -P ${here}/install.cmake)
set_tests_properties(consumer.configure PROPERTIES FIXTURES_SETUP penstock_configured)
set_tests_properties(consumer.install PROPERTIES FIXTURES_SETUP penstock_installed FIXTURES_REQUIRED penstock_configured)

foreach(mode IN ITEMS find_package add_subdirectory FetchContent)
  add_test(NAME consumer.${mode}
           COMMAND ${CMAKE_CTEST_COMMAND} --build-and-test ${here} ${where}/${mode} --build-generator ${CMAKE_GENERATOR}
                   --build-options -DCMAKE_CXX_COMPILER=${CMAKE_CXX_COMPILER} -DCONSUMER_MODE=${mode}
                   -DCONSUMER_VERSION=${PROJECT_VERSION} -DCONSUMER_PENSTOCK=${PROJECT_SOURCE_DIR}
                   -DCMAKE_PREFIX_PATH=${prefix} --test-command ${CMAKE_CTEST_COMMAND} --output-on-failure)
endforeach()

find_program(PENSTOCK_PKG_CONFIG NAMES pkg-config pkgconf)
if(PENSTOCK_PKG_CONFIG)
  add_test(NAME consumer.pkg_config
           COMMAND ${CMAKE_COMMAND} -DPKG_CONFIG=${PENSTOCK_PKG_CONFIG} -DCOMPILER=${CMAKE_CXX_COMPILER} -DPREFIX=${prefix}
                   -DOUT=${where}/with_pkg_config -P ${here}/pkg_config.cmake)
  set_tests_properties(consumer.pkg_config PROPERTIES LABELS consumer TIMEOUT 240 FIXTURES_REQUIRED penstock_installed)
else()
  message(STATUS "The pkg-config file is not tested: no pkg-config")
endif()
set_tests_properties(consumer.find_package PROPERTIES FIXTURES_REQUIRED penstock_installed)
set_tests_properties(consumer.configure consumer.install consumer.find_package consumer.add_subdirectory
                     consumer.FetchContent PROPERTIES LABELS consumer TIMEOUT 240)

# The one with kernels, for one kind of GPU: that it builds is the test, as there may be no GPU to run it on.
if(penstock_has_nvcc)
  foreach(mode IN ITEMS find_package add_subdirectory)
    add_test(NAME consumer.cuda_${mode}
             COMMAND ${CMAKE_CTEST_COMMAND} --build-and-test ${here}/cuda ${where}/cuda_${mode} --build-generator ${CMAKE_GENERATOR}
                     --build-options -DCMAKE_CXX_COMPILER=${CMAKE_CXX_COMPILER} -DCMAKE_CUDA_COMPILER=${CMAKE_CUDA_COMPILER}
                     -DCMAKE_CUDA_ARCHITECTURES=90-real -DCONSUMER_MODE=${mode} -DCONSUMER_VERSION=${PROJECT_VERSION}
                     -DCONSUMER_PENSTOCK=${PROJECT_SOURCE_DIR} -DCMAKE_PREFIX_PATH=${prefix}
                     --test-command ${CMAKE_CTEST_COMMAND} --output-on-failure)
    set_tests_properties(consumer.cuda_${mode} PROPERTIES LABELS "consumer;nvcc" TIMEOUT 400)
  endforeach()
  set_tests_properties(consumer.cuda_find_package PROPERTIES FIXTURES_REQUIRED penstock_installed)
else()
  message(STATUS "The consumer with kernels is not tested: no nvcc")
endif()
