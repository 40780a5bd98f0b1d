# Finds the serial C library of HDF5 by its header and its library, as the target hdf5_serial::hdf5. CMake's own module
# compiles and runs programs, and prefers a parallel HDF5 where there are both.
if(TARGET hdf5_serial::hdf5)
  set(hdf5_serial_FOUND TRUE)
  return()
endif()
find_path(hdf5_serial_INCLUDE_DIR hdf5.h PATH_SUFFIXES hdf5/serial)
find_library(hdf5_serial_LIBRARY NAMES hdf5_serial hdf5)
mark_as_advanced(hdf5_serial_INCLUDE_DIR hdf5_serial_LIBRARY)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(hdf5_serial REQUIRED_VARS hdf5_serial_LIBRARY hdf5_serial_INCLUDE_DIR)
if(hdf5_serial_FOUND)
  add_library(hdf5_serial::hdf5 UNKNOWN IMPORTED)
  set_target_properties(hdf5_serial::hdf5 PROPERTIES IMPORTED_LOCATION "${hdf5_serial_LIBRARY}"
                                                     INTERFACE_INCLUDE_DIRECTORIES "${hdf5_serial_INCLUDE_DIR}")
endif()
