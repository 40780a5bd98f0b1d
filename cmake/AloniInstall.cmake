# find_package(aloni) and pkg-config.
include(CMakePackageConfigHelpers)

# Users link the private dependencies of a static library themselves; a shared library has them linked in.
get_target_property(type aloni_core TYPE)
if(type STREQUAL "STATIC_LIBRARY")
  set(aloni_IS_STATIC ON)
else()
  set(aloni_IS_STATIC OFF)
endif()
set(config_folder ${CMAKE_INSTALL_LIBDIR}/cmake/aloni)
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/aloniConfig.cmake.in ${aloni_BINARY_DIR}/aloniConfig.cmake
                              INSTALL_DESTINATION ${config_folder})
# Before 1.0 a minor version may break.
write_basic_package_version_file(${aloni_BINARY_DIR}/aloniConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${aloni_BINARY_DIR}/aloniConfig.cmake ${aloni_BINARY_DIR}/aloniConfigVersion.cmake
              ${CMAKE_CURRENT_LIST_DIR}/FindNCCL.cmake
              ${CMAKE_CURRENT_LIST_DIR}/Finddnnl.cmake
              ${CMAKE_CURRENT_LIST_DIR}/Findhdf5_serial.cmake
        DESTINATION ${config_folder})
install(
  EXPORT aloniTargets
  NAMESPACE aloni::
  DESTINATION ${config_folder})

# For makefiles: MPI has its own .pc file. This file names aloni's flags and the folder of Kokkos.
get_property(folders GLOBAL PROPERTY aloni_folders)
list(REVERSE folders)
list(TRANSFORM folders PREPEND -laloni_)
list(JOIN folders " " pc_libraries)
get_filename_component(pc_kokkos "${Kokkos_DIR}/../../.." ABSOLUTE)
set(pc_private "")
if(aloni_IS_STATIC)
  if(aloni_ENABLE_KOKKOSKERNELS)
    string(APPEND pc_private " -lkokkoskernels")
  endif()
  if(aloni_ENABLE_LAPACK)
    list(JOIN LAPACK_LIBRARIES " " pc_lapack)
    string(APPEND pc_private " ${pc_lapack}")
  endif()
  if(aloni_ENABLE_ONEDNN)
    string(APPEND pc_private " -ldnnl")
  endif()
  if(aloni_ENABLE_ZLIB)
    string(APPEND pc_private " -lz")
  endif()
  if(aloni_ENABLE_HDF5)
    string(APPEND pc_private " ${hdf5_serial_LIBRARY}")
  endif()
endif()
# The prefix is relative to the .pc file, so that `cmake --install --prefix` and a moved installation work.
file(RELATIVE_PATH pc_prefix "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
configure_file(${CMAKE_CURRENT_LIST_DIR}/aloni.pc.in ${aloni_BINARY_DIR}/aloni.pc @ONLY)
install(FILES ${aloni_BINARY_DIR}/aloni.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

function(aloni_print_summary)
  feature_summary(WHAT REQUIRED_PACKAGES_FOUND OPTIONAL_PACKAGES_FOUND QUIET_ON_EMPTY
                  DESCRIPTION "aloni: packages found")
  feature_summary(WHAT ENABLED_FEATURES QUIET_ON_EMPTY DESCRIPTION "aloni: on")
  feature_summary(WHAT DISABLED_FEATURES QUIET_ON_EMPTY DESCRIPTION "aloni: off")
  message(STATUS
          "aloni ${aloni_VERSION}: ${CMAKE_BUILD_TYPE}, Kokkos ${Kokkos_VERSION} (${Kokkos_DEVICES}) in ${Kokkos_DIR}")
endfunction()
