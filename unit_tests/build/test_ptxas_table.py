#!/usr/bin/env python3
"""Tests of scripts/ptxas_table.py without nvcc: test_ptxas_table.py ROOT"""
import pathlib
import sys
import unittest

ROOT = pathlib.Path(sys.argv.pop(1)).resolve()
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "scripts"))
import ptxas_table

OUTPUT = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_Z5firstv' for 'sm_80'
ptxas info    : Function properties for _Z5firstv
    56 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 44 registers, used 0 barriers, 400 bytes cmem[0]
ptxas info    : Function properties for _Z6helperv
    0 bytes stack frame, 999 bytes spill stores, 999 bytes spill loads
ptxas info    : Compiling entry function '_Z6secondv' for 'sm_90'
ptxas info    : Function properties for _Z6secondv
    16 bytes stack frame, 12 bytes spill stores, 20 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers
"""


class Ptxas(unittest.TestCase):
    def test_kernels_have_registers_stack_and_spills(self):
        self.assertEqual([tuple(kernel) for kernel in ptxas_table.parse(OUTPUT)],
                         [("_Z5firstv", "80", 44, 56, 0, 0), ("_Z6secondv", "90", 255, 16, 12, 20)])

    def test_output_without_figures_is_refused(self):
        lines = OUTPUT.splitlines()
        for missing, what in ((4, "registers"), (3, "spills")):
            with self.assertRaisesRegex(ValueError, what):
                ptxas_table.parse("\n".join(line for i, line in enumerate(lines[:8]) if i != missing))
        with self.assertRaisesRegex(ValueError, "registers of _Z6secondv"):
            ptxas_table.parse("\n".join(lines[:-1]))

    def test_spills_and_files_without_kernels_are_faults(self):
        row = {"file": "a.cpp", "architecture": "80", "kernels": 3, "registers": 1, "stack_bytes": 0, "spilled": []}
        spilled = row | {"spilled": [{"kernel": "aloni::f", "mangled": "_Z", "stores": 4, "loads": 8}]}
        self.assertEqual(ptxas_table.faults_of({"rows": [row]}), [])
        self.assertRegex(ptxas_table.faults_of({"rows": [row, spilled]})[0], "aloni::f spills: 4 bytes of stores, 8")
        self.assertRegex(ptxas_table.faults_of({"rows": [row | {"kernels": 0}]})[0], "has no kernel")

    def test_the_command_compiles_device_code_of_all_architectures(self):
        command = ptxas_table.device_command(
            "nvcc -O0 -g -Ifolder --generate-code=arch=compute_90,code=[compute_90,sm_90] -x cu -c a.cpp -o a.o", "out")
        self.assertEqual(command, ["nvcc", "-Ifolder", "-x", "cu", "a.cpp", "-O3",
                                   "--generate-code=arch=compute_80,code=sm_80",
                                   "--generate-code=arch=compute_90,code=sm_90", "-Xptxas", "-v", "--fatbin", "-o",
                                   "out"])

    def test_the_files_exist(self):
        for file in ptxas_table.FILES:
            self.assertTrue((ROOT / file).exists(), file)


if __name__ == "__main__":
    unittest.main()
