# Finds oneDNN by its header and its library, as the target DNNL::dnnl. Its own package file is not used: Debian's
# version requires the headers of OpenCL, which only its GPU engine needs.
if(TARGET DNNL::dnnl)
  set(dnnl_FOUND TRUE)
  return()
endif()
find_path(dnnl_INCLUDE_DIR oneapi/dnnl/dnnl.hpp)
find_library(dnnl_LIBRARY dnnl)
mark_as_advanced(dnnl_INCLUDE_DIR dnnl_LIBRARY)
if(dnnl_INCLUDE_DIR)
  file(STRINGS "${dnnl_INCLUDE_DIR}/oneapi/dnnl/dnnl_version.h" lines
       REGEX "define DNNL_VERSION_(MAJOR|MINOR|PATCH)[ \t]+[0-9]")
  list(TRANSFORM lines REPLACE "[^0-9]+" "")
  list(JOIN lines "." dnnl_VERSION)
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(dnnl REQUIRED_VARS dnnl_LIBRARY dnnl_INCLUDE_DIR VERSION_VAR dnnl_VERSION)
if(dnnl_FOUND)
  add_library(DNNL::dnnl UNKNOWN IMPORTED)
  set_target_properties(DNNL::dnnl PROPERTIES IMPORTED_LOCATION "${dnnl_LIBRARY}"
                                              INTERFACE_INCLUDE_DIRECTORIES "${dnnl_INCLUDE_DIR}")
endif()
