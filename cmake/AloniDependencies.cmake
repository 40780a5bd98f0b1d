# Finds the dependencies of the enabled options. Each failure names the Debian package.

# aloni_find(<package> <advice in the error message> [arguments of find_package…])
macro(aloni_find package remedy)
  find_package(${package} ${ARGN} QUIET)
  if(NOT ${package}_FOUND)
    message(FATAL_ERROR "aloni: ${package} was not found. ${remedy}")
  endif()
  set_package_properties(${package} PROPERTIES TYPE REQUIRED)
endmacro()

# Kokkos: first the user's (Kokkos_ROOT, CMAKE_PREFIX_PATH, a target of an enclosing project), then the cache of
# cmake/bootstrap. CMAKE_DISABLE_FIND_PACKAGE_Kokkos skips find_package, as in other Kokkos projects.
if(aloni_ENABLE_CUDA)
  if(NOT CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 90) # Kokkos takes one architecture; CMake's default is too old for nvcc 13
  endif()
  enable_language(CUDA)
endif()
if(NOT TARGET Kokkos::kokkos)
  find_package(Kokkos 4.5 CONFIG QUIET)
endif()
if(aloni_ENABLE_CUDA)
  set(bootstrap_variant cuda)
else()
  set(bootstrap_variant host)
endif()
if(NOT TARGET Kokkos::kokkos)
  find_package(Python3 QUIET COMPONENTS Interpreter)
  set(bootstrap "${aloni_SOURCE_DIR}/cmake/bootstrap" --variant ${bootstrap_variant} --cxx "${CMAKE_CXX_COMPILER}")
  if(aloni_ENABLE_CUDA AND CMAKE_CUDA_COMPILER)
    list(APPEND bootstrap --nvcc "${CMAKE_CUDA_COMPILER}")
  endif()
  if(aloni_ENABLE_CUDA AND CMAKE_CUDA_ARCHITECTURES)
    list(APPEND bootstrap --cuda-arch "${CMAKE_CUDA_ARCHITECTURES}")
  endif()
  if(NOT Python3_FOUND)
    message(FATAL_ERROR "aloni: no Kokkos was found, and no Python 3 to look into the cache of cmake/bootstrap. "
                        "Set Kokkos_ROOT, or apt-get install python3-pip.")
  endif()
  execute_process(
    COMMAND "${Python3_EXECUTABLE}" ${bootstrap} --print-prefix
    OUTPUT_VARIABLE aloni_bootstrap_prefix
    OUTPUT_STRIP_TRAILING_WHITESPACE
    RESULT_VARIABLE bootstrap_result)
  if(NOT bootstrap_result EQUAL 0)
    list(JOIN bootstrap " " bootstrap_command)
    message(FATAL_ERROR "aloni: no Kokkos was found. Either set Kokkos_ROOT to your own (>= 4.5), or build one once:\n"
                        "  ${bootstrap_command}\n")
  endif()
  # The user's switch is about other installations of Kokkos; this one is in a known folder.
  set(CMAKE_DISABLE_FIND_PACKAGE_Kokkos OFF)
  find_package(Kokkos 4.5 CONFIG REQUIRED PATHS "${aloni_bootstrap_prefix}" NO_DEFAULT_PATH)
endif()
set_package_properties(Kokkos PROPERTIES TYPE REQUIRED)
if(aloni_ENABLE_CUDA AND NOT Kokkos_ENABLE_CUDA)
  message(FATAL_ERROR "aloni: aloni_ENABLE_CUDA is ON, but the Kokkos in ${Kokkos_DIR} was built without Cuda")
endif()

# No version is required here: the version file of 4.4.0 is empty in builds outside Trilinos.
if(aloni_ENABLE_KOKKOSKERNELS AND NOT TARGET Kokkos::kokkoskernels)
  get_filename_component(kokkos_prefix "${Kokkos_DIR}/../../.." ABSOLUTE)
  aloni_find(KokkosKernels
             "Kokkos in ${Kokkos_DIR} has none beside it: set KokkosKernels_ROOT, or aloni_ENABLE_KOKKOSKERNELS=OFF."
             CONFIG HINTS "${kokkos_prefix}")
endif()

aloni_find(MPI "apt-get install libopenmpi-dev" COMPONENTS CXX)
if(aloni_ENABLE_ONEDNN)
  aloni_find(dnnl "apt-get install libdnnl-dev, or aloni_ENABLE_ONEDNN=OFF" 2.6)
endif()
if(aloni_ENABLE_UCX)
  aloni_find(UCX "apt-get install libucx-dev, or aloni_ENABLE_UCX=OFF" 1.11)
endif()
if(aloni_ENABLE_CUDA)
  find_package(CUDAToolkit 12 REQUIRED)
endif()
if(aloni_ENABLE_NCCL)
  aloni_find(NCCL "install libnccl-dev or add it to the CUDA toolkit, or aloni_ENABLE_NCCL=OFF" 2.14)
endif()
if(aloni_ENABLE_ZLIB)
  aloni_find(ZLIB "apt-get install zlib1g-dev, or aloni_ENABLE_ZLIB=OFF")
endif()
aloni_find(fmt "apt-get install libfmt-dev" CONFIG)
aloni_find(nlohmann_json "apt-get install nlohmann-json3-dev" CONFIG)
if(aloni_ENABLE_COMMAND)
  aloni_find(CLI11 "apt-get install libcli11-dev, or aloni_ENABLE_COMMAND=OFF" CONFIG)
endif()
if(aloni_ENABLE_TESTS)
  aloni_find(GTest "apt-get install libgtest-dev libgmock-dev, or aloni_ENABLE_TESTS=OFF")
endif()
if(aloni_ENABLE_BENCHMARKS)
  aloni_find(benchmark "apt-get install libbenchmark-dev, or aloni_ENABLE_BENCHMARKS=OFF" CONFIG)
endif()
