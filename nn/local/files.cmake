# The files of nn/local. Backends that are switched off are left out here.
set(ALONI_NN_LOCAL_PURE_HEADERS local/convolution_problem.hpp local/pooling_problem.hpp)
set(ALONI_NN_LOCAL_HEADERS
    local/batch_norm.hpp
    local/convolution.hpp
    local/dense.hpp
    local/gemm.hpp
    local/local_types.hpp
    local/loss.hpp
    local/pointwise.hpp
    local/pooling.hpp)
set(ALONI_NN_LOCAL_PURE_SOURCES "")
set(ALONI_NN_LOCAL_SOURCES "")
set(ALONI_NN_LOCAL_PRIVATE_DEPENDS "")
if(aloni_ENABLE_ONEDNN)
  list(APPEND ALONI_NN_LOCAL_PRIVATE_DEPENDS DNNL::dnnl)
endif()
if(aloni_ENABLE_KOKKOSKERNELS)
  list(APPEND ALONI_NN_LOCAL_PRIVATE_DEPENDS Kokkos::kokkoskernels)
endif()
