# Every option is ON or OFF. ON fails if the dependency is absent; OFF leaves out the sources of the backend.
# A project that embeds aloni gets only the library by default.
option(aloni_ENABLE_CUDA "Compile for Kokkos::Cuda (needs a Kokkos built with it)" OFF)
option(aloni_ENABLE_ONEDNN "Convolution through oneDNN" ON)
option(aloni_ENABLE_KOKKOSKERNELS "Convolution through the GEMM of Kokkos Kernels" ON)
option(aloni_ENABLE_LAPACK "Factorisations of matrices (tasks) through BLAS and LAPACK" ON)
option(aloni_ENABLE_UCX "Messages between ranks over UCX" ON)
cmake_dependent_option(aloni_ENABLE_NCCL "Collectives on device memory through NCCL" ON aloni_ENABLE_CUDA OFF)
# Without CUDA it adds the plans of cuDNN only, which need no device.
option(aloni_ENABLE_CUDNN "Convolution on devices through cuDNN, loaded at run time" ${aloni_ENABLE_CUDA})
option(aloni_ENABLE_ZLIB "Read gzip-compressed data files" ON)
option(aloni_ENABLE_HDF5 "Read data sets in HDF5 files" OFF)
option(aloni_ENABLE_TESTS "Unit tests" ${PROJECT_IS_TOP_LEVEL})
option(aloni_ENABLE_BENCHMARKS "Google Benchmark suites" ${PROJECT_IS_TOP_LEVEL})
option(aloni_ENABLE_EXAMPLES "Example programs" ${PROJECT_IS_TOP_LEVEL})
option(aloni_ENABLE_COMMAND "The aloni command" ${PROJECT_IS_TOP_LEVEL})
cmake_dependent_option(aloni_ENABLE_PRECOMPILED_HEADERS "Compile the headers of Kokkos and GoogleTest once" OFF
                       "NOT aloni_ENABLE_CUDA" OFF)
option(aloni_NIGHTLY_TESTS "Run every test on every rank count, and the long tests of the build (nightly)" OFF)
option(aloni_FUZZ_COVERAGE "Readers tell fuzz_readers which code an input reaches; no other program links" OFF)
set(aloni_TESTS_PER_FOLDER 0 CACHE STRING "Most files in a folder's program of tests; 0: all")
mark_as_advanced(aloni_NIGHTLY_TESTS aloni_FUZZ_COVERAGE aloni_TESTS_PER_FOLDER)
set(aloni_CXX_ARCH ""
    CACHE STRING "-march= of aloni's own sources (native, x86-64-v3, …), never of its users; empty: none")
# Without the inlining of -O3 these files compile in two thirds of the time, and with its vectors they are as fast.
set(pure_flags "")
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  set(pure_flags "$<$<CONFIG:Release>:-O2>" "$<$<CONFIG:Release>:-fvect-cost-model=dynamic>")
endif()
set(aloni_PURE_FLAGS "${pure_flags}"
    CACHE STRING "Compiler flags of the library's files without Kokkos: plans, schedules, models, readers of data")
mark_as_advanced(aloni_PURE_FLAGS)
set(aloni_all_activations float double bfloat16 float16)
set(aloni_ACTIVATIONS "${aloni_all_activations}"
    CACHE STRING "Types of activations for which networks are compiled, float among them; tests need all")
set(aloni_SANITIZE "" CACHE STRING "-fsanitize= of aloni's own sources: address,undefined or thread")
set_property(CACHE aloni_SANITIZE PROPERTY STRINGS "" "address,undefined" thread)

if(PROJECT_IS_TOP_LEVEL AND NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Debug, Release, RelWithDebInfo or MinSizeRel" FORCE)
  message(STATUS "aloni: no CMAKE_BUILD_TYPE given, using ${CMAKE_BUILD_TYPE}")
endif()

foreach(type IN LISTS aloni_ACTIVATIONS)
  if(NOT type IN_LIST aloni_all_activations)
    message(FATAL_ERROR "aloni_ACTIVATIONS has ${type}, which is none of ${aloni_all_activations}")
  endif()
endforeach()
if(NOT "float" IN_LIST aloni_ACTIVATIONS)
  message(FATAL_ERROR "aloni_ACTIVATIONS is ${aloni_ACTIVATIONS}: float must be among the types, other types need it")
endif()
foreach(type IN LISTS aloni_all_activations)
  foreach(user IN ITEMS TESTS BENCHMARKS)
    if(aloni_ENABLE_${user} AND NOT type IN_LIST aloni_ACTIVATIONS)
      message(FATAL_ERROR "aloni_ACTIVATIONS has no ${type}, which aloni_ENABLE_${user} needs: "
                          "add it, or switch aloni_ENABLE_${user} OFF")
    endif()
  endforeach()
endforeach()

if(PROJECT_IS_TOP_LEVEL)
  set(CMAKE_CXX_EXTENSIONS OFF) # Kokkos warns of any other value
endif()

# Checks that cost time; ON by default where assertions are on. The value is fixed when configuring and written to
# <aloni/core/config.hpp>. A user who compiles with other flags than the library then sees the same classes.
if(NOT DEFINED aloni_ENABLE_DEBUG_CHECKS)
  if(CMAKE_BUILD_TYPE STREQUAL "Debug")
    set(debug_checks_default ON)
  else()
    set(debug_checks_default OFF)
  endif()
endif()
option(aloni_ENABLE_DEBUG_CHECKS "Checks inside the step, such as the state of ghosts" ${debug_checks_default})

foreach(option IN ITEMS CUDA ONEDNN KOKKOSKERNELS LAPACK NCCL CUDNN UCX ZLIB HDF5 TESTS BENCHMARKS EXAMPLES COMMAND
                        DEBUG_CHECKS)
  add_feature_info(aloni_ENABLE_${option} aloni_ENABLE_${option} "")
endforeach()
