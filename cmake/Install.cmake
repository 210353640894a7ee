# SPDX-License-Identifier: Apache-2.0
# What `cmake --install` gives: headers, libraries, find_package(weft) and pkg-config weft. Both find
# everything relative to themselves, so an installed tree may be moved.
include(CMakePackageConfigHelpers)

set(weft_targets weft weft_stack_clash)
if(WEFT_SHARED)
  list(APPEND weft_targets weft_shared)
endif()
set(weft_cmake_dir ${CMAKE_INSTALL_LIBDIR}/cmake/weft)

install(DIRECTORY include/weft DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(TARGETS ${weft_targets} EXPORT weftTargets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT weftTargets NAMESPACE weft:: DESTINATION ${weft_cmake_dir})

configure_package_config_file(cmake/weftConfig.cmake.in ${PROJECT_BINARY_DIR}/weftConfig.cmake
  INSTALL_DESTINATION ${weft_cmake_dir} NO_SET_AND_CHECK_MACRO NO_CHECK_REQUIRED_COMPONENTS_MACRO)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/weftConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/weftConfig.cmake ${PROJECT_BINARY_DIR}/weftConfigVersion.cmake
  DESTINATION ${weft_cmake_dir})

set(weft_pc_dir ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig)
file(RELATIVE_PATH weft_pc_prefix ${weft_pc_dir} ${CMAKE_INSTALL_PREFIX})
set(weft_pc_clash "")
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU OR WEFT_ARCH STREQUAL x86_64)
  set(weft_pc_clash -fstack-clash-protection)
endif()
list(JOIN WEFT_SANITIZE_FLAGS " " weft_pc_sanitize)
configure_file(cmake/weft.pc.in ${PROJECT_BINARY_DIR}/weft.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/weft.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
