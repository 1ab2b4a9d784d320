# SPDX-License-Identifier: Apache-2.0
# What `g++ main.cpp $(pkg-config --cflags --libs penstock)` does.
set(ENV{PKG_CONFIG_PATH} ${PREFIX}/share/pkgconfig)
execute_process(COMMAND ${PKG_CONFIG} --cflags --libs penstock OUTPUT_VARIABLE flags OUTPUT_STRIP_TRAILING_WHITESPACE
                COMMAND_ERROR_IS_FATAL ANY)
separate_arguments(flags UNIX_COMMAND "${flags}")
execute_process(COMMAND ${COMPILER} -std=c++20 -Wall -Wextra -Wconversion -Wshadow -Werror ${CMAKE_CURRENT_LIST_DIR}/main.cpp
                        ${CMAKE_CURRENT_LIST_DIR}/second.cpp -o ${OUT} ${flags}
                COMMAND_ECHO STDOUT COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${OUT} COMMAND_ERROR_IS_FATAL ANY)
