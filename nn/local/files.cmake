# The local kernels: included by nn/CMakeLists.txt, paths relative to it. A backend that is off is not compiled.
set(ALONI_NN_LOCAL_PURE_HEADERS
    local/channel_sums.hpp
    local/convolution_choice.hpp
    local/convolution_problem.hpp
    local/convolution_times.hpp
    local/cudnn_engines.hpp
    local/element_type.hpp
    local/filter_orders.hpp
    local/kept_plans.hpp
    local/pooling_problem.hpp
    local/resampling_problem.hpp)
set(ALONI_NN_LOCAL_HEADERS
    local/average.hpp
    local/batch_norm.hpp
    local/bias.hpp
    local/convolution.hpp
    local/dense.hpp
    local/dropout.hpp
    local/gemm.hpp
    local/group_norm.hpp
    local/layer_norm.hpp
    local/local_types.hpp
    local/loss.hpp
    local/metric_sums.hpp
    local/norms.hpp
    local/patches.hpp
    local/pointwise.hpp
    local/pointwise_layers.hpp
    local/pooling.hpp
    local/resampling.hpp)
set(ALONI_NN_LOCAL_PURE_SOURCES
    local/convolution_choice.cpp
    local/convolution_problem.cpp
    local/convolution_times.cpp
    local/detail/depthwise_kernels.cpp
    local/detail/direct_kernels.cpp
    local/detail/onednn_problem.cpp
    local/detail/padded_problem.cpp
    local/detail/pool_kernels.cpp
    local/kept_plans.cpp
    local/pooling_problem.cpp
    local/resampling_problem.cpp)
set(ALONI_NN_LOCAL_SOURCES
    local/average.cpp
    local/batch_norm.cpp
    local/bias.cpp
    local/convolution.cpp
    local/convolution_converting.cpp
    local/convolution_depthwise.cpp
    local/convolution_direct.cpp
    local/convolution_reference.cpp
    local/dense.cpp
    local/dropout.cpp
    local/gemm.cpp
    local/gemm_blocked.cpp
    local/group_norm.cpp
    local/layer_norm.cpp
    local/loss.cpp
    local/metric_sums.cpp
    local/norms.cpp
    local/patches.cpp
    local/pointwise.cpp
    local/pointwise_layers.cpp
    local/pooling.cpp
    local/resampling.cpp)
set(ALONI_NN_LOCAL_PRIVATE_DEPENDS ${CMAKE_DL_LIBS})

if(aloni_ENABLE_ONEDNN)
  # What includes oneDNN knows no Kokkos: it is compiled by the C++ compiler in every build.
  list(APPEND ALONI_NN_LOCAL_PURE_SOURCES local/detail/filter_reorder.cpp local/detail/onednn_primitives.cpp)
  list(APPEND ALONI_NN_LOCAL_SOURCES local/convolution_onednn.cpp)
  list(APPEND ALONI_NN_LOCAL_PRIVATE_DEPENDS DNNL::dnnl)
endif()
if(aloni_ENABLE_CUDNN)
  # What includes cuDNN knows no Kokkos and calls no device: plans are made on any machine.
  list(APPEND ALONI_NN_LOCAL_PURE_SOURCES local/cudnn_engines.cpp local/detail/cudnn_library.cpp
       local/detail/cudnn_plan_cache.cpp
       local/detail/cudnn_plans.cpp)
  if(aloni_ENABLE_CUDA)
    list(APPEND ALONI_NN_LOCAL_SOURCES local/convolution_cudnn.cpp)
  endif()
  set_source_files_properties(local/detail/cudnn_library.cpp local/detail/cudnn_plan_cache.cpp
                              local/detail/cudnn_plans.cpp
                              PROPERTIES INCLUDE_DIRECTORIES "${cudnn_INCLUDE_DIR};${CUDAToolkit_INCLUDE_DIRS}")
else()
  list(APPEND ALONI_NN_LOCAL_PURE_SOURCES local/detail/no_cudnn.cpp)
endif()
if(aloni_ENABLE_KOKKOSKERNELS)
  list(APPEND ALONI_NN_LOCAL_SOURCES local/convolution_kokkos_kernels.cpp local/gemm_kokkos_kernels.cpp)
  list(APPEND ALONI_NN_LOCAL_PRIVATE_DEPENDS Kokkos::kokkoskernels)
endif()

# The vector kernels are the library's inner loops: they keep their optimisation in debug and sanitizer builds.
# A sanitizer in them would spill every accumulator and compile for minutes: their bounds are tested with guarded
# arrays.
set_source_files_properties(local/detail/depthwise_kernels.cpp local/detail/direct_kernels.cpp
                            local/detail/pool_kernels.cpp
                            PROPERTIES COMPILE_OPTIONS "-O3;-ffp-contract=fast;-fno-sanitize=all")
