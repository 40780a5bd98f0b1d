# How every target of the project is declared: aloni_add_library, aloni_add_test, aloni_add_benchmark,
# aloni_add_program.
include(CheckCXXCompilerFlag)

# What the compiler is told about our own sources, and about nobody else's: linked privately, never exported.
add_library(aloni_build_flags INTERFACE)
target_compile_options(aloni_build_flags INTERFACE $<$<COMPILE_LANG_AND_ID:CXX,GNU,Clang,AppleClang>:-Wall>
                                                   $<$<COMPILE_LANG_AND_ID:CXX,GNU,Clang,AppleClang>:-Wextra>)
# The C++ bindings that MPI dropped in 2012 and mpi.h still includes.
target_compile_definitions(aloni_build_flags INTERFACE OMPI_SKIP_MPICXX MPICH_SKIP_MPICXX)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND PROJECT_IS_TOP_LEVEL)
  cmake_host_system_information(RESULT memory QUERY TOTAL_PHYSICAL_MEMORY) # MiB
  if(memory GREATER 8000) # GCC compiles a tenth faster if it frees memory from a gigabyte on only
    set(rare_collection --param=ggc-min-heapsize=1000000)
    target_compile_options(aloni_build_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:${rare_collection}>
                                                       $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=${rare_collection}>)
  endif()
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # GCC 12 sees overlapping copies in any "text" + std::string (its bug 105651)
  target_compile_options(aloni_build_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>)
  if(aloni_ENABLE_PRECOMPILED_HEADERS) # optimising, it warns of std::string when that comes from there
    set(optimised_cxx $<AND:$<COMPILE_LANGUAGE:CXX>,$<NOT:$<CONFIG:Debug>>>)
    target_compile_options(aloni_build_flags INTERFACE "$<${optimised_cxx}:-Wno-stringop-overflow;-Wno-array-bounds>")
  endif()
endif()
# By the flag: CMake 3.25.1 does not know yet that nvcc has a CUDA_STANDARD 20.
target_compile_options(aloni_build_flags INTERFACE
                       "$<$<COMPILE_LANG_AND_ID:CUDA,NVIDIA>:-std=c++20;--expt-relaxed-constexpr>")
if(CMAKE_UNITY_BUILD) # there, other source files' unnamed namespaces are taken for those of headers
  target_compile_options(aloni_build_flags INTERFACE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-subobject-linkage>)
endif()
if(aloni_CXX_ARCH)
  target_compile_options(aloni_build_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-march=${aloni_CXX_ARCH}>)
  # GCC 12 takes vectors of 512 bits on a processor that it does not know. Loops over memory are slower then (Zen 5).
  check_cxx_compiler_flag("-march=${aloni_CXX_ARCH} -mprefer-vector-width=256" aloni_HAS_PREFERRED_VECTORS)
  if(aloni_HAS_PREFERRED_VECTORS)
    target_compile_options(aloni_build_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-mprefer-vector-width=256>)
  endif()
  if(aloni_CXX_ARCH STREQUAL "native" AND EXISTS /proc/cpuinfo)
    # `native` means another thing on another machine: naming this one in the command makes a build folder that has
    # moved there compile again instead of crashing on an unknown instruction.
    file(STRINGS /proc/cpuinfo cpu_flags REGEX "^(flags|Features)[ \t]*:" LIMIT_COUNT 1)
    string(SHA1 cpu_flags "${cpu_flags}")
    string(SUBSTRING "${cpu_flags}" 0 12 cpu_flags)
    target_compile_options(aloni_build_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-DALONI_NATIVE_CPU_${cpu_flags}>)
  endif()
endif()
if(aloni_SANITIZE)
  set(sanitize -fsanitize=${aloni_SANITIZE} -fno-omit-frame-pointer)
  if(aloni_SANITIZE MATCHES "undefined")
    # What AddressSanitizer finds too costs a third of the time to compile.
    list(APPEND sanitize -fno-sanitize=null,vptr,object-size -fno-sanitize-recover=undefined)
  endif()
  if(aloni_SANITIZE STREQUAL "thread" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    list(APPEND sanitize -Wno-tsan) # a warning for each fence inside Kokkos' headers
  endif()
  target_compile_options(aloni_build_flags INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:${sanitize}>")
  target_link_options(aloni_build_flags INTERFACE ${sanitize})
endif()

# Files that include Kokkos are compiled by nvcc in a CUDA build, all others by the C++ compiler always.
function(aloni_mark_kokkos_sources)
  if(aloni_ENABLE_CUDA AND ARGN)
    set_source_files_properties(${ARGN} PROPERTIES LANGUAGE CUDA)
  endif()
endfunction()

# aloni_optimise(<sources…>): files with loops over much data, which aloni_PURE_FLAGS does not concern.
function(aloni_optimise)
  set_source_files_properties(${ARGN} PROPERTIES COMPILE_OPTIONS $<$<CONFIG:Release>:-O3>)
endfunction()

# aloni_trace_coverage(<sources…>): with aloni_FUZZ_COVERAGE, unit_tests/fuzz sees which blocks of these files run.
function(aloni_trace_coverage)
  if(aloni_FUZZ_COVERAGE)
    set_source_files_properties(${ARGN} PROPERTIES COMPILE_OPTIONS -fsanitize-coverage=trace-pc
                                                   SKIP_PRECOMPILE_HEADERS ON)
  endif()
endfunction()

# aloni_unite(<variable> <name>): with CMAKE_UNITY_BUILD, replaces the Kokkos sources in the variable by files that
# include CMAKE_UNITY_BUILD_BATCH_SIZE of them each, in a CUDA build: CMake itself does so for CUDA only since 3.31.
# nvcc, which knows no precompiled headers, then reads those of Kokkos a tenth as often.
function(aloni_unite variable name)
  if(NOT CMAKE_UNITY_BUILD OR NOT aloni_ENABLE_CUDA OR NOT ${variable})
    return()
  endif()
  list(TRANSFORM ${variable} REPLACE "(.+)" "#include \"${CMAKE_CURRENT_SOURCE_DIR}/\\1\"\n" OUTPUT_VARIABLE includes)
  list(LENGTH includes count)
  math(EXPR last "${count} - 1")
  set(files "")
  foreach(first RANGE 0 ${last} ${aloni_UNITY_BATCH_SIZE})
    list(SUBLIST includes ${first} ${aloni_UNITY_BATCH_SIZE} batch)
    list(JOIN batch "" content)
    list(LENGTH files number)
    set(file "${CMAKE_CURRENT_BINARY_DIR}/unity_cuda/${name}_${number}.cpp")
    file(CONFIGURE OUTPUT "${file}" CONTENT "${content}")
    list(APPEND files "${file}")
  endforeach()
  set_source_files_properties(${files} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  set(${variable} "${files}" PARENT_SCOPE)
endfunction()

# A unity build compiles four times as many files without Kokkos as others at once: they spend their time on headers.
set(aloni_UNITY_BATCH_SIZE ${CMAKE_UNITY_BUILD_BATCH_SIZE})
if(NOT aloni_UNITY_BATCH_SIZE)
  set(aloni_UNITY_BATCH_SIZE 8) # CMake's own choice
endif()
math(EXPR aloni_PURE_BATCH_SIZE "4 * ${aloni_UNITY_BATCH_SIZE}")

# aloni_precompile(<target> <carrier> [HEADERS …]): with aloni_ENABLE_PRECOMPILED_HEADERS the files of the target begin
# with the precompiled headers of `carrier`, which has the same compiler flags; if that is the target itself, with
# Kokkos_Core.hpp and the HEADERS.
function(aloni_precompile target carrier)
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "" HEADERS)
  if(NOT aloni_ENABLE_PRECOMPILED_HEADERS)
    return()
  endif()
  if(target STREQUAL carrier)
    target_precompile_headers(${target} PRIVATE <Kokkos_Core.hpp> ${arg_HEADERS})
  else()
    target_precompile_headers(${target} REUSE_FROM ${carrier})
  endif()
endfunction()

# What libraries and programs have in common.
function(aloni_set_up_target target)
  target_link_libraries(${target} PRIVATE $<BUILD_INTERFACE:aloni_build_flags>)
  target_compile_features(${target} PRIVATE cxx_std_20) # CXX_STANDARD would be taken for CUDA too
  set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF)
endfunction()

# The folder of include links: `<aloni/halo/…>` is found by a target only if it, or a folder it depends on, put the link
# there; this is what keeps halo from including nn.
set(aloni_INCLUDE_LINKS "${aloni_BINARY_DIR}/include")
set(aloni_GENERATED "${aloni_BINARY_DIR}/include/generated")

# aloni_add_library(<folder> [PURE_HEADERS …] [HEADERS …] [PURE_SOURCES …] [SOURCES …] [PUBLIC_DEPENDS <folders>]
#                   [PRIVATE_DEPENDS <libraries>] [PUBLIC_LIBRARIES <libraries>] [GENERATED_HEADERS <files>])
# Target aloni_<folder>, alias aloni::<folder>, exported. Pure files include neither Kokkos nor MPI.
function(aloni_add_library folder)
  cmake_parse_arguments(
    PARSE_ARGV 1 arg "" ""
    "PURE_HEADERS;HEADERS;PURE_SOURCES;SOURCES;PUBLIC_DEPENDS;PRIVATE_DEPENDS;PUBLIC_LIBRARIES;GENERATED_HEADERS")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "aloni_add_library(${folder}): unknown argument ${arg_UNPARSED_ARGUMENTS}")
  endif()
  set(target aloni_${folder})
  aloni_unite(arg_SOURCES ${folder})
  # Files without Kokkos are a target of their own, with flags of their own. The library's precompiled headers take
  # longer to load than the headers of these files take to parse.
  set(targets ${target})
  set(objects "")
  if(arg_PURE_SOURCES)
    add_library(${target}_pure OBJECT ${arg_PURE_SOURCES})
    list(APPEND targets ${target}_pure)
    set(objects $<TARGET_OBJECTS:${target}_pure>)
  endif()
  if(NOT arg_SOURCES)
    file(CONFIGURE OUTPUT "${CMAKE_CURRENT_BINARY_DIR}/no_kokkos.cpp" CONTENT "// ${folder} has no file with Kokkos\n")
    set(arg_SOURCES "${CMAKE_CURRENT_BINARY_DIR}/no_kokkos.cpp")
  endif()
  add_library(${target} ${arg_SOURCES} ${objects})
  add_library(aloni::${folder} ALIAS ${target})
  aloni_mark_kokkos_sources(${arg_SOURCES})
  aloni_precompile(${target} aloni_core)

  file(MAKE_DIRECTORY "${aloni_INCLUDE_LINKS}/${folder}/aloni")
  file(CREATE_LINK "${CMAKE_CURRENT_SOURCE_DIR}" "${aloni_INCLUDE_LINKS}/${folder}/aloni/${folder}" SYMBOLIC)
  list(TRANSFORM arg_PUBLIC_DEPENDS PREPEND aloni_ OUTPUT_VARIABLE depends)
  foreach(part IN LISTS targets)
    aloni_set_up_target(${part})
    target_include_directories(${part} PUBLIC $<BUILD_INTERFACE:${aloni_INCLUDE_LINKS}/${folder}>
                                              $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
    if(arg_GENERATED_HEADERS)
      target_include_directories(${part} PUBLIC $<BUILD_INTERFACE:${aloni_GENERATED}>)
    endif()
    target_link_libraries(${part} PUBLIC ${depends} ${arg_PUBLIC_LIBRARIES})
    foreach(library IN LISTS arg_PRIVATE_DEPENDS)
      # Headers only: nothing of them is left for the linker of a user.
      if(library MATCHES "^(fmt::|nlohmann_json::|UCX::)")
        target_link_libraries(${part} PRIVATE $<BUILD_INTERFACE:${library}>)
      else()
        target_link_libraries(${part} PRIVATE ${library})
      endif()
    endforeach()
    set_target_properties(${part} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  endforeach()
  if(arg_PURE_SOURCES)
    set_target_properties(${target}_pure PROPERTIES UNITY_BUILD_BATCH_SIZE ${aloni_PURE_BATCH_SIZE})
    target_compile_options(${target}_pure PRIVATE ${aloni_PURE_FLAGS})
  endif()
  target_compile_features(${target} PUBLIC cxx_std_20)
  if(NOT aloni_SANITIZE) # the program brings the run time of the sanitizers
    target_link_options(${target} PRIVATE $<$<PLATFORM_ID:Linux>:LINKER:--no-undefined>) # of shared libraries
  endif()
  set_target_properties(
    ${target}
    PROPERTIES EXPORT_NAME ${folder}
               VERSION ${aloni_VERSION}
               SOVERSION ${aloni_VERSION_MAJOR}.${aloni_VERSION_MINOR}
               INSTALL_RPATH "$ORIGIN"
               INSTALL_RPATH_USE_LINK_PATH ON)
  set_property(GLOBAL APPEND PROPERTY aloni_folders ${folder})
  set_property(GLOBAL PROPERTY aloni_${folder}_pure_headers ${arg_PURE_HEADERS})
  set_property(GLOBAL PROPERTY aloni_${folder}_headers ${arg_HEADERS})
  set_property(GLOBAL PROPERTY aloni_${folder}_pure_sources ${arg_PURE_SOURCES})
  set_property(GLOBAL PROPERTY aloni_${folder}_depends ${arg_PUBLIC_DEPENDS})

  install(TARGETS ${target} EXPORT aloniTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
                                                LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  foreach(header IN LISTS arg_PURE_HEADERS arg_HEADERS)
    get_filename_component(subfolder "${header}" DIRECTORY)
    install(FILES ${header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/aloni/${folder}/${subfolder})
  endforeach()
  install(FILES ${arg_GENERATED_HEADERS} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/aloni/${folder})
endfunction()

# aloni::aloni, everything at once.
function(aloni_add_umbrella)
  get_property(folders GLOBAL PROPERTY aloni_folders)
  list(TRANSFORM folders PREPEND aloni_)
  add_library(aloni INTERFACE)
  add_library(aloni::aloni ALIAS aloni)
  target_link_libraries(aloni INTERFACE ${folders})
  install(TARGETS aloni EXPORT aloniTargets)
endfunction()

# aloni_add_program(NAME <name> [SOURCES …] [PURE_SOURCES …] LIBRARIES <folders or libraries>): an executable in
# <build>/bin.
function(aloni_add_program)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" NAME "SOURCES;PURE_SOURCES;LIBRARIES")
  add_executable(${arg_NAME} ${arg_SOURCES} ${arg_PURE_SOURCES})
  aloni_set_up_target(${arg_NAME})
  aloni_mark_kokkos_sources(${arg_SOURCES})
  aloni_link_folders(${arg_NAME} ${arg_LIBRARIES})
  set_target_properties(${arg_NAME} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${aloni_BINARY_DIR}/bin"
                                               INSTALL_RPATH_USE_LINK_PATH ON
                                               INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
endfunction()

# Folder names mean the folders' targets; everything else is taken as it is.
function(aloni_link_folders target)
  get_property(folders GLOBAL PROPERTY aloni_folders)
  foreach(library IN LISTS ARGN)
    if(library IN_LIST folders)
      target_link_libraries(${target} PRIVATE aloni_${library})
    else()
      target_link_libraries(${target} PRIVATE ${library})
    endif()
  endforeach()
endfunction()

# The one place that knows how tests are started and what their environment is.
set(aloni_MPIRUN "${aloni_SOURCE_DIR}/scripts/mpirun")
# As scripts/mpirun, for programs without a launcher
file(GLOB fast_networks LIST_DIRECTORIES true /sys/class/infiniband/* /sys/class/cxi/*)
set(without_fast_network)
if(NOT fast_networks)
  set(without_fast_network OMPI_MCA_pml=ob1)
endif()
set(aloni_TEST_ENVIRONMENT
    OMP_NUM_THREADS=1
    OMP_PROC_BIND=false
    # Several tests, or ranks of one, share a core
    OMPI_MCA_mpi_yield_when_idle=1
    # Open MPI looks for no PCI devices: in a virtual machine that takes half of the time of the system in a launch.
    HWLOC_COMPONENTS=-pci,-linuxio
    ${without_fast_network}
    OPENBLAS_NUM_THREADS=1
    # The slow unwinder sees through Open MPI, so that its leaks are known for its own.
    "ASAN_OPTIONS=detect_stack_use_after_return=1:strict_init_order=1:fast_unwind_on_malloc=0"
    "LSAN_OPTIONS=suppressions=${aloni_SOURCE_DIR}/unit_tests/support/lsan.supp:print_suppressions=0"
    "TSAN_OPTIONS=suppressions=${aloni_SOURCE_DIR}/unit_tests/support/tsan.supp:ignore_noninstrumented_modules=1:halt_on_error=1:second_deadlock_stack=1"
    "UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1")

# ThreadSanitizer of GCC 12 cannot place its shadow memory where addresses are randomised by more than 28 bits.
set(aloni_TEST_LAUNCHER "")
if(aloni_SANITIZE STREQUAL "thread" AND CMAKE_SYSTEM_NAME STREQUAL "Linux")
  find_program(SETARCH_PROGRAM setarch)
  mark_as_advanced(SETARCH_PROGRAM)
  if(SETARCH_PROGRAM)
    execute_process(COMMAND "${SETARCH_PROGRAM}" -R true RESULT_VARIABLE refused ERROR_QUIET)
    if(NOT refused)
      set(aloni_TEST_LAUNCHER "${SETARCH_PROGRAM}" -R)
    endif()
  endif()
endif()

# How tests are compiled.
function(aloni_set_test_flags target)
  # Optimising the tests themselves takes longer than running them, and so do these checks of their own functions; the
  # library has both.
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-Og>)
  if(aloni_SANITIZE MATCHES "undefined")
    target_compile_options(${target} PRIVATE -fno-sanitize=undefined)
  endif()
  if(aloni_SANITIZE MATCHES "address")
    target_compile_options(${target} PRIVATE -fno-sanitize-address-use-after-scope)
  endif()
endfunction()

# aloni_add_test(NAME test_x [SOURCES test_x.cpp | PURE_SOURCES test_x.cpp] LIBRARIES <folders or libraries>
#                [RANKS 1 2 …] [LABELS …] [TRANSPORTS mpi ucx …] [TIMEOUT seconds] [REQUIRES ONEDNN ZLIB …]
#                [THREADED | PURE] [SEPARATE])
# Adds a file of tests to the program of its folder, which aloni_add_test_programs() makes, and one ctest entry per rank
# count, named test_x.np4. Files with the usual TIMEOUT share entries, test_x,test_y.np4, and so a process. A test
# leaves it as it was.
# PURE_SOURCES include no Kokkos.
# PURE: the test uses neither MPI nor Kokkos. It goes to the folder's program test_<folder>_pure and runs as one
# process.
# SEPARATE: a program of its own, for tests that replace parts of the process (operator new, wrapped symbols, Kokkos
# Tools).
# THREADED: once more with 3 threads per rank, named test_x.np2.threads3. Not under sanitizers: ThreadSanitizer takes
# the barriers of GCC's OpenMP for races.
# TRANSPORTS: once more over each of these that the build has (support/transport.hpp), named test_x.np4.ucx. "thread"
# has a thread that makes progress, "nodes" has nodes of two ranks, "faulty" and "faulty-shared" delay and reorder
# messages.
# REQUIRES: left out when one of these options is OFF.
# Each (test, rank count) runs in few configurations: pure tests, 1, 2 and the most ranks up to 8 in Release; one rank
# count under AddressSanitizer (3, or else 4, 1 or 2); 2 ranks with a progress thread under ThreadSanitizer. Those on 3
# or 4 ranks under AddressSanitizer do not run again in Release, but for tests without 2 ranks.
# aloni_NIGHTLY_TESTS runs all of them everywhere (scripts/test_nightly.sh).
# <build>/tests.list names those on 1, 2 and 4 ranks, for machines without CMake (scripts/gpu_acceptance.sh).
function(aloni_add_test)
  cmake_parse_arguments(PARSE_ARGV 0 arg "PURE;THREADED;SEPARATE" "NAME;TIMEOUT"
                        "SOURCES;PURE_SOURCES;LIBRARIES;RANKS;TRANSPORTS;LABELS;REQUIRES")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "aloni_add_test(${arg_NAME}): unknown argument ${arg_UNPARSED_ARGUMENTS}")
  endif()
  foreach(source IN LISTS arg_SOURCES arg_PURE_SOURCES)
    set_property(GLOBAL APPEND PROPERTY aloni_listed_tests "${CMAKE_CURRENT_SOURCE_DIR}/${source}")
  endforeach()
  foreach(option IN LISTS arg_REQUIRES)
    if(NOT DEFINED aloni_ENABLE_${option})
      message(FATAL_ERROR "aloni_add_test(${arg_NAME}): there is no option aloni_ENABLE_${option}")
    endif()
    if(NOT aloni_ENABLE_${option})
      return()
    endif()
  endforeach()
  if(NOT arg_RANKS)
    set(arg_RANKS 1)
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  if(arg_PURE AND (arg_SOURCES OR NOT arg_RANKS STREQUAL "1"))
    message(FATAL_ERROR "aloni_add_test(${arg_NAME}): a PURE test has PURE_SOURCES and is one process")
  endif()
  if(arg_PURE AND (aloni_ENABLE_CUDA OR (aloni_SANITIZE AND NOT aloni_NIGHTLY_TESTS)))
    return() # it runs in Release
  endif()
  aloni_choose_ranks(ranks_here ${arg_RANKS})
  set(transports_here "")
  foreach(transport IN LISTS arg_TRANSPORTS)
    if(NOT transport STREQUAL "ucx" OR aloni_ENABLE_UCX)
      aloni_choose_transport_ranks(transport_ranks ${transport})
      foreach(ranks IN LISTS transport_ranks)
        list(APPEND transports_here ${ranks}.${transport})
      endforeach()
    endif()
  endforeach()
  if(NOT ranks_here AND NOT transports_here)
    return()
  endif()

  get_filename_component(folder "${CMAKE_CURRENT_SOURCE_DIR}" NAME)
  if(aloni_TESTS_PER_FOLDER GREATER 0 AND NOT arg_PURE AND NOT arg_SEPARATE)
    get_property(files DIRECTORY PROPERTY test_${folder}_SOURCES)
    list(LENGTH files count)
    if(count GREATER_EQUAL aloni_TESTS_PER_FOLDER)
      return()
    endif()
  endif()
  if(NOT arg_PURE)
    set(command "bin/test_${folder} --test_files=${arg_NAME}")
    if(arg_SEPARATE)
      set(command "bin/${arg_NAME}")
    endif()
    foreach(ranks IN ITEMS 1 2 4)
      if(ranks IN_LIST arg_RANKS)
        set_property(GLOBAL APPEND_STRING PROPERTY aloni_test_list
                                                   "${arg_NAME}.np${ranks} ${ranks} ${arg_TIMEOUT} ${command}\n")
      endif()
    endforeach()
  endif()
  if(arg_SEPARATE)
    set(program ${arg_NAME})
    aloni_add_test_program(${program} SOURCES ${arg_SOURCES} PURE_SOURCES ${arg_PURE_SOURCES}
                           LIBRARIES ${arg_LIBRARIES})
    set(select "")
  else()
    set(program test_${folder})
    if(arg_PURE)
      string(APPEND program _pure)
    endif()
    foreach(list IN ITEMS SOURCES PURE_SOURCES LIBRARIES)
      set_property(DIRECTORY APPEND PROPERTY ${program}_${list} ${arg_${list}})
    endforeach()
    set_property(DIRECTORY APPEND PROPERTY aloni_test_programs ${program})
    set(select --test_files=${arg_NAME})
  endif()

  if(arg_PURE)
    add_test(NAME ${arg_NAME} COMMAND ${aloni_TEST_LAUNCHER} $<TARGET_FILE:${program}> ${select})
    aloni_set_up_test(${arg_NAME} 1 ${arg_TIMEOUT} ${folder} ${arg_LABELS})
    return()
  endif()
  # Launches take most of the time of short tests, so these share one. Not at night, where each has its own entry.
  set(shares ON)
  if(arg_SEPARATE OR arg_TIMEOUT GREATER 120 OR aloni_NIGHTLY_TESTS)
    set(shares OFF)
  endif()
  foreach(run IN LISTS ranks_here transports_here)
    if(shares)
      string(REPLACE ";" "," labels "${arg_LABELS}")
      set_property(DIRECTORY APPEND PROPERTY aloni_shared_launches "${program}/${run}/${labels}")
      set_property(DIRECTORY APPEND PROPERTY "aloni_tests_of_${program}/${run}/${labels}" ${arg_NAME})
    else()
      aloni_add_launch(${program} ${run} "${arg_NAME}" "${select}" ${arg_TIMEOUT} ${folder} ${arg_LABELS})
    endif()
  endforeach()
  if(arg_THREADED AND NOT aloni_SANITIZE)
    list(GET ranks_here 0 ranks)
    if(2 IN_LIST ranks_here)
      set(ranks 2)
    endif()
    math(EXPR cores "3 * ${ranks}")
    set(name ${arg_NAME}.np${ranks}.threads3)
    add_test(NAME ${name} COMMAND "${aloni_MPIRUN}" -n ${ranks} $<TARGET_FILE:${program}> ${select})
    aloni_set_up_test(${name} ${cores} ${arg_TIMEOUT} ${folder} ${arg_LABELS})
    set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT OMP_NUM_THREADS=3 OMP_WAIT_POLICY=passive)
  endif()
endfunction()

# A ctest entry that runs a program of tests. `run`: the ranks, and behind a point the transport if it isn't the usual
# one: 4 or 4.ucx. `names`: of the tests. More arguments: labels.
function(aloni_add_launch program run names select timeout)
  string(REGEX MATCH "^[0-9]+" ranks ${run})
  string(REGEX REPLACE "^[0-9]+[.]?" "" transport ${run})
  set(name ${names}.np${run})
  add_test(NAME ${name}
           COMMAND ${aloni_TEST_LAUNCHER} "${aloni_MPIRUN}" -n ${ranks} $<TARGET_FILE:${program}> ${select})
  aloni_set_up_test(${name} ${ranks} ${timeout} ${ARGN})
  if(NOT transport AND aloni_SANITIZE STREQUAL "thread")
    set(transport thread)
  endif()
  if(transport)
    set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT ALONI_TEST_TRANSPORT=${transport})
  elseif(aloni_SANITIZE MATCHES "address" AND ranks EQUAL 1)
    # The main of the tests keeps the start and the end of MPI out of the leak check: no slow unwinding.
    set_property(TEST ${name} APPEND PROPERTY
                 ENVIRONMENT "ASAN_OPTIONS=detect_stack_use_after_return=1:strict_init_order=1")
  endif()
endfunction()

# The launches that tests of the calling folder share: up to 8 tests each, with one program, run and set of labels.
function(aloni_add_shared_launches)
  get_filename_component(folder "${CMAKE_CURRENT_SOURCE_DIR}" NAME)
  get_property(launches DIRECTORY PROPERTY aloni_shared_launches)
  list(REMOVE_DUPLICATES launches)
  foreach(launch IN LISTS launches)
    string(REGEX MATCH "^([^/]*)/([^/]*)/(.*)$" matched "${launch}")
    set(program ${CMAKE_MATCH_1})
    set(run ${CMAKE_MATCH_2})
    string(REPLACE "," ";" labels "${CMAKE_MATCH_3}")
    get_property(tests DIRECTORY PROPERTY "aloni_tests_of_${launch}")
    while(tests)
      list(SUBLIST tests 0 8 names)
      list(REMOVE_ITEM tests ${names})
      list(LENGTH names count)
      list(JOIN names "," names)
      math(EXPR timeout "60 + 60 * ${count}")
      aloni_add_launch(${program} ${run} ${names} --test_files=${names} ${timeout} ${folder} ${labels})
      set_tests_properties(${names}.np${run} PROPERTIES COST ${count}) # the longest begin first
    endwhile()
  endforeach()
endfunction()

# Of a test's rank counts those that this configuration runs (see aloni_add_test).
function(aloni_choose_ranks variable)
  set(chosen "")
  set(most 0)
  foreach(ranks IN LISTS ARGN)
    if(aloni_SANITIZE AND ranks GREATER 4) # what a sanitizer finds there, it finds on fewer
      continue()
    elseif(aloni_NIGHTLY_TESTS)
      list(APPEND chosen ${ranks})
    elseif(aloni_SANITIZE STREQUAL "thread") # sees the threads of one process only
      if(ranks EQUAL 2)
        list(APPEND chosen ${ranks})
      endif()
    elseif(aloni_SANITIZE) # chosen below
      continue()
    elseif(ranks LESS_EQUAL 2)
      list(APPEND chosen ${ranks})
    elseif(ranks LESS_EQUAL 8 AND ranks GREATER most)
      set(most ${ranks})
    endif()
  endforeach()
  if(2 IN_LIST ARGN AND (most EQUAL 3 OR (most EQUAL 4 AND NOT 3 IN_LIST ARGN)))
    set(most 0)
  endif()
  if(most)
    list(APPEND chosen ${most})
  endif()
  if(aloni_SANITIZE MATCHES "address" AND NOT aloni_NIGHTLY_TESTS)
    foreach(ranks IN ITEMS 3 4 1 2)
      if(NOT chosen AND ranks IN_LIST ARGN)
        set(chosen ${ranks})
      endif()
    endforeach()
  endif()
  set(${variable} "${chosen}" PARENT_SCOPE)
endfunction()

function(aloni_choose_transport_ranks variable transport)
  if(transport STREQUAL "nodes")
    set(release 5)
    set(sanitized 4)
  elseif(transport MATCHES "^faulty")
    set(release 4)
    if(aloni_NIGHTLY_TESTS)
      set(release 2 4)
    endif()
    set(sanitized 3)
  else()
    set(release 2)
    set(sanitized 4)
  endif()
  if(aloni_SANITIZE STREQUAL "thread") # it runs everything with a progress thread, and no other transport
    set(chosen "")
  elseif(aloni_NIGHTLY_TESTS)
    set(chosen ${release} ${sanitized})
  elseif(aloni_SANITIZE AND transport STREQUAL "mpi") # the library's own code is in the other transports
    set(chosen "")
  elseif(aloni_SANITIZE)
    set(chosen ${sanitized})
  else()
    set(chosen ${release})
  endif()
  set(${variable} "${chosen}" PARENT_SCOPE)
endfunction()

# aloni_add_test_programs(): the programs of the folder whose CMakeLists.txt calls it last, from what aloni_add_test has
# collected. Several files are compiled as one, so each has a namespace of its own.
function(aloni_add_test_programs)
  get_property(programs DIRECTORY PROPERTY aloni_test_programs)
  list(REMOVE_DUPLICATES programs)
  foreach(program IN LISTS programs)
    foreach(list IN ITEMS SOURCES PURE_SOURCES LIBRARIES)
      get_property(${list} DIRECTORY PROPERTY ${program}_${list})
    endforeach()
    list(REMOVE_DUPLICATES LIBRARIES)
    set(pure "")
    if(program MATCHES "_pure$")
      set(pure PURE)
    endif()
    aloni_add_test_program(${program} ${pure} SOURCES ${SOURCES} PURE_SOURCES ${PURE_SOURCES} LIBRARIES ${LIBRARIES})
  endforeach()
  aloni_add_shared_launches()
endfunction()

# One GoogleTest program. Several of its files are compiled as one.
function(aloni_add_test_program program)
  cmake_parse_arguments(PARSE_ARGV 1 arg "PURE" "" "SOURCES;PURE_SOURCES;LIBRARIES")
  set(main aloni_test_main)
  if(arg_PURE)
    set(main aloni_pure_test_main)
  endif()
  # For aloni_unite too. Tests spend their time on headers: twelve files as one take 0.7 of the time of three batches.
  set(CMAKE_UNITY_BUILD ON)
  if(NOT CMAKE_UNITY_BUILD_BATCH_SIZE GREATER 12)
    set(CMAKE_UNITY_BUILD_BATCH_SIZE 12)
  endif()
  aloni_unite(arg_SOURCES ${program})
  aloni_add_program(NAME ${program} SOURCES ${arg_SOURCES} PURE_SOURCES ${arg_PURE_SOURCES}
                    LIBRARIES ${arg_LIBRARIES} ${main})
  set_target_properties(${program} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${CMAKE_UNITY_BUILD_BATCH_SIZE})
  aloni_precompile(${program} ${main})
  target_include_directories(${program} PRIVATE "${aloni_SOURCE_DIR}/unit_tests")
  aloni_set_test_flags(${program})
endfunction()

function(aloni_set_up_test name processors timeout)
  if(aloni_SANITIZE)
    math(EXPR timeout "${timeout} * 5")
  endif()
  if(DEFINED ENV{ALONI_NIGHTLY}) # eight times as many random cases (unit_tests/support/random_cases.hpp)
    math(EXPR timeout "${timeout} * 8")
  endif()
  set_tests_properties(${name} PROPERTIES PROCESSORS ${processors} TIMEOUT ${timeout} LABELS "${ARGN}"
                                          ENVIRONMENT "${aloni_TEST_ENVIRONMENT}")
  if(aloni_SANITIZE MATCHES "address" AND processors GREATER 1)
    # Leaks are looked for on one rank: with several, the leak checker itself crashed now and then in the threads that
    # MPI leaves behind at exit.
    set_property(
      TEST ${name} APPEND PROPERTY ENVIRONMENT
                                   "ASAN_OPTIONS=detect_leaks=0:detect_stack_use_after_return=1:strict_init_order=1")
  elseif(aloni_SANITIZE MATCHES "address")
    # The data store that scripts/mpirun chooses, against ranks that are killed, leaks in a module that is closed before
    # the leak check. These are the defaults.
    set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT "PMIX_MCA_gds=ds21,ds12,hash")
  endif()
endfunction()

# aloni_add_benchmark(NAME bench_x SOURCES … [LIBRARIES …] [SMOKE_ARGUMENTS …] [TIMEOUT seconds]): a Google Benchmark
# program and a smoke run of it on two ranks in ctest.
function(aloni_add_benchmark)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "NAME;TIMEOUT" "SOURCES;PURE_SOURCES;LIBRARIES;SMOKE_ARGUMENTS")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "aloni_add_benchmark(${arg_NAME}): unknown argument ${arg_UNPARSED_ARGUMENTS}")
  endif()
  aloni_add_program(NAME ${arg_NAME} SOURCES ${arg_SOURCES} PURE_SOURCES ${arg_PURE_SOURCES} LIBRARIES ${arg_LIBRARIES}
                    benchmark::benchmark)
  if(aloni_ENABLE_TESTS)
    if(NOT arg_TIMEOUT)
      set(arg_TIMEOUT 120)
    endif()
    add_test(NAME ${arg_NAME}.smoke COMMAND "${aloni_MPIRUN}" -n 2 $<TARGET_FILE:${arg_NAME}> --benchmark_min_time=0.001
                                            ${arg_SMOKE_ARGUMENTS})
    aloni_set_up_test(${arg_NAME}.smoke 2 ${arg_TIMEOUT} bench)
  endif()
endfunction()
