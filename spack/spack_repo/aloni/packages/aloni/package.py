# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Recipe of aloni for Spack 1.0 or newer. It builds the clone in which this file lies.

  spack repo add spack/spack_repo/aloni
  spack install aloni +cuda cuda_arch=90

unit_tests/build/test_spack.py compares the variants with the options of CMake.
"""
import pathlib

from spack_repo.builtin.build_systems.cmake import CMakePackage
from spack_repo.builtin.build_systems.cuda import CudaPackage

from spack.package import *


class Aloni(CMakePackage, CudaPackage):
    """Convolutional networks whose samples are split over MPI ranks, on distributed Kokkos Views."""

    git = pathlib.Path(__file__).resolve().parents[5].as_uri()

    license("Apache-2.0 WITH LLVM-exception")
    test_requires_compiler = True

    version("main", branch="main")

    variant("onednn", default=True, description="Convolution through oneDNN")
    variant("kokkos_kernels", default=True, description="Convolution through the GEMM of Kokkos Kernels")
    variant("ucx", default=True, description="Messages between ranks over UCX")
    variant("nccl", default=True, when="+cuda", description="Collectives on device memory through NCCL")
    variant("cudnn", default=True, when="+cuda", description="Convolution on devices through cuDNN")
    variant("zlib", default=True, description="Read gzip-compressed data files")
    variant("hdf5", default=False, description="Read data sets in HDF5 files")
    variant("command", default=True, description="The aloni command")
    variant("tests", default=False, description="Unit tests")
    variant("benchmarks", default=False, description="Google Benchmark suites")
    variant("examples", default=False, description="Example programs")
    variant("debug_checks", default=False, description="Checks inside the step, such as the state of ghosts")
    variant("shared", default=False, description="Shared libraries")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("python@3.9:", type=("build", "test"))

    depends_on("mpi")
    depends_on("fmt")
    depends_on("nlohmann-json")
    depends_on("kokkos@4.5: +serial +openmp")
    depends_on("kokkos-kernels", when="+kokkos_kernels")
    depends_on("onednn@2.6:", when="+onednn")
    depends_on("ucx@1.11: +thread_multiple", when="+ucx")
    depends_on("zlib-api", when="+zlib")
    depends_on("hdf5~mpi", when="+hdf5")
    depends_on("cli11", when="+command")
    depends_on("googletest+gmock", when="+tests")
    depends_on("benchmark", when="+benchmarks")

    with when("+cuda"):
        # Files that include Kokkos are compiled as CUDA, by CMake's language, without nvcc_wrapper.
        depends_on("kokkos+cuda+cuda_lambda+cmake_lang")
        depends_on("kokkos-kernels+cuda+cublas", when="+kokkos_kernels")
        depends_on("cuda@12:")
        depends_on("nccl@2.14: +cuda", when="+nccl")
        depends_on("cudnn@9.8:", when="+cudnn")
    for arch in CudaPackage.cuda_arch_values:
        depends_on(f"kokkos cuda_arch={arch}", when=f"+cuda cuda_arch={arch}")
        depends_on(f"kokkos-kernels cuda_arch={arch}", when=f"+cuda+kokkos_kernels cuda_arch={arch}")

    conflicts("cuda_arch=none", when="+cuda", msg="Kokkos needs an architecture: cuda_arch=90, for example")
    conflicts("%gcc@:10", msg="C++20 needs GCC 11 or newer")

    def cmake_args(self):
        options = [
            self.define("Kokkos_ROOT", self.spec["kokkos"].prefix),
            self.define_from_variant("aloni_ENABLE_CUDA", "cuda"),
            self.define_from_variant("aloni_ENABLE_ONEDNN", "onednn"),
            self.define_from_variant("aloni_ENABLE_KOKKOSKERNELS", "kokkos_kernels"),
            self.define_from_variant("aloni_ENABLE_UCX", "ucx"),
            self.define_from_variant("aloni_ENABLE_NCCL", "nccl"),
            self.define_from_variant("aloni_ENABLE_CUDNN", "cudnn"),
            self.define_from_variant("aloni_ENABLE_ZLIB", "zlib"),
            self.define_from_variant("aloni_ENABLE_HDF5", "hdf5"),
            self.define_from_variant("aloni_ENABLE_COMMAND", "command"),
            self.define_from_variant("aloni_ENABLE_TESTS", "tests"),
            self.define_from_variant("aloni_ENABLE_BENCHMARKS", "benchmarks"),
            self.define_from_variant("aloni_ENABLE_EXAMPLES", "examples"),
            self.define_from_variant("aloni_ENABLE_DEBUG_CHECKS", "debug_checks"),
            self.define_from_variant("BUILD_SHARED_LIBS", "shared"),
        ]
        if self.spec.satisfies("+kokkos_kernels"):
            options.append(self.define("KokkosKernels_ROOT", self.spec["kokkos-kernels"].prefix))
        if self.spec.satisfies("+cuda"):
            options.append(self.define("CMAKE_CUDA_ARCHITECTURES", self.spec.variants["cuda_arch"].value))
        return options

    @run_after("install")
    def keep_examples(self):
        """Copies the example programs, for `spack test run`."""
        cache_extra_test_sources(self, ["examples"])

    def test_examples(self):
        """Builds the example programs against the installed package."""
        folder = join_path(self.test_suite.current_test_cache_dir, "examples", "first_steps")
        with working_dir(folder):
            cmake = which(self.spec["cmake"].prefix.bin.cmake)
            cmake(
                "-S", ".", "-B", "build",
                self.define("CMAKE_PREFIX_PATH", self.prefix),
                self.define("Kokkos_ROOT", self.spec["kokkos"].prefix),
            )
            cmake("--build", "build")
