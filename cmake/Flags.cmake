# SPDX-License-Identifier: Apache-2.0
# The flags of our own sources, weft_compile_flags(<target>), and the one that users should share,
# weft::stack_clash.
#
# Not here: -fno-plt. Calls inside the library bind directly at link time as it is; with it the compiler
# keeps function addresses in registers, which is slower and hides calls from tools/check_tls.py.

# A frame larger than the guard below a goroutine's stack must not step over it: this makes the compiler
# touch each page of a large frame in order. Clang knows the flag on x86-64 only (as of 14).
add_library(weft_stack_clash INTERFACE)
add_library(weft::stack_clash ALIAS weft_stack_clash)
set_target_properties(weft_stack_clash PROPERTIES EXPORT_NAME stack_clash)
set(clash_compilers GNU)
if(WEFT_ARCH STREQUAL x86_64)
  list(APPEND clash_compilers Clang)
endif()
foreach(lang C CXX)
  list(JOIN clash_compilers "," ids)
  target_compile_options(weft_stack_clash INTERFACE
    "$<$<COMPILE_LANG_AND_ID:${lang},${ids}>:-fstack-clash-protection>")
endforeach()

set(WEFT_SANITIZE_FLAGS "")
if(WEFT_SANITIZE STREQUAL "address")
  set(WEFT_SANITIZE_FLAGS -fsanitize=address,undefined -fno-sanitize-recover=undefined)
elseif(WEFT_SANITIZE STREQUAL "thread")
  set(WEFT_SANITIZE_FLAGS -fsanitize=thread)
elseif(WEFT_SANITIZE)
  message(FATAL_ERROR "WEFT_SANITIZE is '${WEFT_SANITIZE}', not address or thread")
endif()

function(weft_compile_flags target)
  set_target_properties(${target} PROPERTIES
    CXX_STANDARD 20 CXX_STANDARD_REQUIRED ON CXX_EXTENSIONS OFF
    CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
  set(cxx
    -Wall -Wextra -Wpedantic -Wshadow -Wconversion
    -fno-omit-frame-pointer                      # cheap stack walks
    -fexceptions -fasynchronous-unwind-tables    # unwinding and gdb from any instruction
    -ftls-model=initial-exec)                    # no call into the loader to find a thread_local
  if(WEFT_SANITIZE STREQUAL "thread" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # GCC warns that TSan does not see fences. Ours order a store before a later load; no data is handed
    # over by them, so there is nothing that TSan could miss.
    list(APPEND cxx -Wno-tsan)
  endif()
  if(WEFT_WERROR)
    list(APPEND cxx -Werror)
  endif()
  target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:${cxx}>" ${WEFT_SANITIZE_FLAGS})
  target_compile_definitions(${target} PRIVATE
    $<$<BOOL:${WEFT_DEV}>:WEFT_DEV=1>
    $<$<BOOL:${WEFT_CHAOS}>:WEFT_CHAOS=1>
    $<$<STREQUAL:${WEFT_SANITIZE},address>:WEFT_ASAN=1>
    $<$<STREQUAL:${WEFT_SANITIZE},thread>:WEFT_TSAN=1>)
  target_link_libraries(${target} PRIVATE weft_stack_clash)
endfunction()
