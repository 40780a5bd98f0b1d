#!/usr/bin/env python3
"""Compares the recipe of Spack with the options of CMake: test_spack.py ROOT

- The recipe is Python, and its calls use only variants that it declares.
- Each variant sets one CMake option that exists, with the default of that option; each option of users has a variant.
- Minimum versions of dependencies are those that CMake asks for.
"""
import ast
import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(sys.argv.pop(1)).resolve()
RECIPE = ROOT / "spack/spack_repo/aloni/packages/aloni/package.py"
INHERITED = {"cuda": "OFF", "cuda_arch": None}  # of CudaPackage
# Options without a variant: Spack's compiler wrapper chooses the processor, and no user of a package needs the others.
WITHOUT_VARIANT = {"aloni_ENABLE_PRECOMPILED_HEADERS"}
OF_CMAKE = {"BUILD_SHARED_LIBS": "OFF"}
# Options that are on in a build of this project alone, but off inside other projects. Spack's users want the library
# and the command.
TOP_LEVEL = {"tests", "benchmarks", "examples"}


def calls(tree, name):
    return [node for node in ast.walk(tree) if isinstance(node, ast.Call)
            and (getattr(node.func, "id", None) == name or getattr(node.func, "attr", None) == name)]


def keyword(call, name):
    return next((ast.literal_eval(word.value) for word in call.keywords if word.arg == name), None)


def cmake_options():
    """Name → default of the options in cmake/AloniOptions.cmake: ON, OFF, or the text of an expression."""
    text = (ROOT / "cmake/AloniOptions.cmake").read_text()
    options = dict(re.findall(r'^option\((aloni_\w+) "[^"]*" (\S+)\)', text, re.M))
    options |= dict(re.findall(r'^cmake_dependent_option\((aloni_\w+) "[^"]*" (\w+)\s', text, re.M))
    return {name: default for name, default in options.items() if name.startswith("aloni_ENABLE_")}


class Recipe(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.tree = ast.parse(RECIPE.read_text(), str(RECIPE))
        cls.variants = {ast.literal_eval(call.args[0]): call for call in calls(cls.tree, "variant")}
        cls.defined = [tuple(ast.literal_eval(word) for word in call.args)
                       for call in calls(cls.tree, "define_from_variant")]
        cls.options = cmake_options()

    def test_the_options_are_found(self):
        self.assertGreater(len(self.options), 12)
        self.assertGreater(len(self.variants), 12)

    def test_each_variant_sets_one_option_that_exists(self):
        for option, variant in self.defined:
            self.assertIn(option, self.options | OF_CMAKE)
            self.assertIn(variant, self.variants.keys() | INHERITED.keys())
        set_by = [variant for _, variant in self.defined]
        self.assertEqual(sorted(set_by), sorted({*self.variants, "cuda"}))
        self.assertEqual(len({option for option, _ in self.defined}), len(self.defined))

    def test_each_option_of_users_has_a_variant(self):
        self.assertEqual({option for option, _ in self.defined} - OF_CMAKE.keys(),
                         self.options.keys() - WITHOUT_VARIANT)

    def test_defaults_agree(self):
        for option, variant in self.defined:
            if variant in INHERITED or variant in TOP_LEVEL:
                continue
            default = (self.options | OF_CMAKE)[option]
            ours = keyword(self.variants[variant], "default")
            if default == "${aloni_ENABLE_CUDA}" or "NCCL" in option:  # ON with CUDA
                self.assertEqual((ours, keyword(self.variants[variant], "when")), (True, "+cuda"), option)
            elif default == "${PROJECT_IS_TOP_LEVEL}":
                self.assertEqual((variant, ours), ("command", True))
            elif option == "aloni_ENABLE_DEBUG_CHECKS":
                self.assertFalse(ours)
            else:
                self.assertEqual("ON" if ours else "OFF", default, option)

    def test_conditions_name_declared_variants(self):
        for name in ("depends_on", "conflicts", "when"):
            for call in calls(self.tree, name):
                words = [word.value for word in call.keywords if word.arg == "when"]
                if name == "when":
                    words = [call.args[0]]
                for condition in map(ast.unparse, words):
                    for variant in re.findall(r"[+~]([a-z_0-9]+)", condition):
                        self.assertIn(variant, self.variants.keys() | INHERITED.keys())

    def test_each_variant_describes_itself(self):
        for name, call in self.variants.items():
            self.assertTrue(keyword(call, "description"), name)

    def test_versions_are_those_of_cmake(self):
        text = (ROOT / "cmake/AloniDependencies.cmake").read_text()
        text += (ROOT / "CMakeLists.txt").read_text()
        asked = {"kokkos": r"find_package\(Kokkos ([\d.]+) CONFIG REQUIRED", "onednn": r"AND|dnnl .*OFF\" ([\d.]+)\)",
                 "ucx": r"aloni_ENABLE_UCX=OFF\" ([\d.]+)\)", "nccl": r"aloni_ENABLE_NCCL=OFF\" ([\d.]+)\)",
                 "cudnn": r"aloni_ENABLE_CUDNN=OFF\" ([\d.]+)\)", "cuda": r"find_package\(CUDAToolkit (\d+) REQUIRED",
                 "cmake": r"cmake_minimum_required\(VERSION ([\d.]+)\)"}
        specs = " ".join(ast.literal_eval(call.args[0]) for call in calls(self.tree, "depends_on")
                         if isinstance(call.args[0], ast.Constant))
        for package, pattern in asked.items():
            version = next(found for found in re.findall(pattern, text) if found)
            self.assertIn(f"{package}@{version}:", specs)


if __name__ == "__main__":
    unittest.main()
