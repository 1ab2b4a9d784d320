# SPDX-License-Identifier: Apache-2.0
# cmake -DCOMPILER=/usr/bin/g++ -DKIND=g++ -DSOURCE=case.cpp -DINCLUDE=include [-DFLAGS=..] [-DPRECOMPILED=x.hpp] -P run.cmake
#
# PRECOMPILED includes the umbrella and has its precompiled form beside it, x.hpp.gch. Without SOURCE that form is made, with the
# same options.
#
# A case passes if its accepted twin compiles, the misuse (-DPENSTOCK_REJECTED) does not, the first error is a static assertion
# whose text starts with `penstock:`, and the compiler needs 20 lines at most. The case's comments say what else must be there,
# as CMake regular expressions:
#   // expect: REGEX            in the line of the first error
#   // expect anywhere: REGEX   in the compiler's output
#   // expect g++: REGEX        as `expect`, for g++ alone; `expect clang++:` likewise
#   // no sentence: REASON      the first error is the compiler's own, not a static assertion
#   // lines: N                 allows N lines instead of 20
cmake_minimum_required(VERSION 3.25)
set(ENV{LC_ALL} C)
set(faults 0)

# message(FATAL_ERROR) would break the lines anew.
function(fault text)
  message("${case}: ${text}")
  math(EXPR faults "${faults} + 1")
  set(faults ${faults} PARENT_SCOPE)
endfunction()
function(stop text)
  fault("${text}")
  message(FATAL_ERROR "${case} failed")
endfunction()

set(command ${COMPILER} -std=c++20 -I${INCLUDE} ${FLAGS} -Wall -Wextra -Wconversion -Wshadow -Werror -fdiagnostics-color=never)
if(NOT DEFINED SOURCE)
  execute_process(COMMAND ${command} -x c++-header ${PRECOMPILED} -o ${PRECOMPILED}.gch COMMAND_ERROR_IS_FATAL ANY)
  return()
endif()
get_filename_component(case ${SOURCE} NAME)
list(APPEND command -fsyntax-only)
if(DEFINED PRECOMPILED)
  # -Winvalid-pch: one that does not fit is an error, and not one that is silently parsed anew.
  list(APPEND command -Winvalid-pch -include ${PRECOMPILED})
endif()

execute_process(COMMAND ${command} ${SOURCE} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
if(NOT status EQUAL 0)
  stop("the accepted twin does not compile:\n${output}")
endif()

execute_process(COMMAND ${command} -DPENSTOCK_REJECTED ${SOURCE}
                RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
if(DEFINED PRECOMPILED)
  # clang's note of how it came to that header, which a user of the library does not see.
  string(REPLACE "In file included from ${PRECOMPILED}:1:\n" "" output "${output}")
endif()
message("${output}")
if(status EQUAL 0)
  stop("the misuse compiles")
endif()

if(NOT output MATCHES "[^\n]*error: [^\n]*")
  stop("the compiler failed without an error")
endif()
set(first "${CMAKE_MATCH_0}")

# Brackets and semicolons would disturb CMake's lists, here and in the expectations.
file(READ ${SOURCE} text)
string(ASCII 1 open)
string(ASCII 2 close)
string(REPLACE ";" "," text "${text}")
string(REPLACE "[" "${open}" text "${text}")
string(REPLACE "]" "${close}" text "${text}")
string(REGEX MATCHALL "// (expect|expect anywhere|expect g[+][+]|expect clang[+][+]|no sentence|lines): [^\n]*" notes "${text}")

set(sentence TRUE)
set(limit 20)
set(checked 0)
foreach(note IN LISTS notes)
  string(REGEX MATCH "^// ([^:]*): (.*)$" note "${note}")
  set(kind "${CMAKE_MATCH_1}")
  set(regex "${CMAKE_MATCH_2}")
  string(REPLACE "${open}" "[" regex "${regex}")
  string(REPLACE "${close}" "]" regex "${regex}")
  if(kind STREQUAL "no sentence")
    set(sentence FALSE)
  elseif(kind STREQUAL "lines")
    set(limit ${regex})
  elseif(kind STREQUAL "expect anywhere")
    if(NOT output MATCHES "${regex}")
      fault("wanted `${regex}` in the output")
    endif()
  elseif(kind STREQUAL "expect" OR kind STREQUAL "expect ${KIND}")
    math(EXPR checked "${checked} + 1")
    if(NOT first MATCHES "${regex}")
      fault("wanted `${regex}` in the first error, found\n${first}")
    endif()
  endif()
endforeach()
if(checked EQUAL 0)
  fault("has no `// expect:` for ${KIND}")
endif()
if(sentence AND NOT first MATCHES "error: static assertion failed( due to requirement '.*')?: \"?penstock: ")
  fault("wanted a static assertion that starts with `penstock:` as the first error, found\n${first}")
endif()

string(REGEX MATCHALL "\n" breaks "${output}")
list(LENGTH breaks lines)
if(lines GREATER limit)
  fault("wanted ${limit} lines of errors or fewer, found ${lines}")
endif()
if(faults GREATER 0)
  message(FATAL_ERROR "${case} failed")
endif()
