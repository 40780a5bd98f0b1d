# Finds the headers of cuDNN: cudnn_INCLUDE_DIR, beside the CUDA toolkit or in the folders of the system. The library
# itself is loaded at run time.
find_path(cudnn_INCLUDE_DIR cudnn_graph.h HINTS ${CUDAToolkit_INCLUDE_DIRS} PATH_SUFFIXES include)
mark_as_advanced(cudnn_INCLUDE_DIR)
if(cudnn_INCLUDE_DIR)
  set(cudnn_lines "")
  # cudnn_version.h includes the file with the numbers in some packages.
  foreach(file IN ITEMS cudnn_version.h cudnn_version_v9.h)
    if(EXISTS "${cudnn_INCLUDE_DIR}/${file}" AND NOT cudnn_lines)
      file(STRINGS "${cudnn_INCLUDE_DIR}/${file}" cudnn_lines REGEX "define CUDNN_(MAJOR|MINOR|PATCHLEVEL)[ \t]+[0-9]")
    endif()
  endforeach()
  list(TRANSFORM cudnn_lines REPLACE "[^0-9]+" "")
  list(JOIN cudnn_lines "." cudnn_VERSION)
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(cudnn REQUIRED_VARS cudnn_INCLUDE_DIR VERSION_VAR cudnn_VERSION)
