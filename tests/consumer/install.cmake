# SPDX-License-Identifier: Apache-2.0
file(REMOVE_RECURSE ${WHERE}/installed ${WHERE}/moved)
execute_process(COMMAND ${CMAKE_COMMAND} --install ${WHERE}/package COMMAND_ERROR_IS_FATAL ANY)
file(RENAME ${WHERE}/installed ${WHERE}/moved)
