"""aloni simulate-factorisation predicts factorisations, with kernels of the roofline or of calibrate --tiles."""
import json
import pathlib
import tempfile
import unittest

from command import USAGE, WITHOUT_MPI, aloni


class SimulateFactorisation(unittest.TestCase):
    def simulate(self, *arguments, ranks=0, **options):
        """The output and the JSON."""
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "times.json")
            result = aloni("simulate-factorisation", *arguments, "--json", str(path), ranks=ranks, **options)
            self.assertEqual(result.code, 0, result.err)
            self.assertEqual(result.own_lines(), [])
            return result.out, json.loads(path.read_text())

    def refused(self, code, words, *arguments):
        result = aloni("simulate-factorisation", *arguments, ranks=0)
        self.assertEqual((result.code, result.out), (code, ""), result.err)
        self.assertEqual(len(result.own_lines()), 1, result.err)
        for word in words:
            self.assertIn(word, result.err)

    def test_predicts_many_ranks_where_mpi_cannot_start(self):
        text, result = self.simulate("--machine", "x86_server", "--n", "16384", "--tile", "512", "--tall", "1",
                                     "--ranks", "1,4,64",
                                     "--workers", "2", env=WITHOUT_MPI)
        self.assertIn("Cholesky of 16384 rows", text)
        one, four, many = result["cases"]
        self.assertEqual(one["tasks"], 32 * 33 * 34 // 6)
        self.assertEqual((one["bytes_sent"], one["payloads"]), (0, 0))
        self.assertLess(four["seconds"], one["seconds"])
        self.assertLess(many["seconds"], four["seconds"])
        self.assertGreater(four["parallel_efficiency"], many["parallel_efficiency"])
        self.assertEqual(many["payloads"], many["requests"])
        self.assertEqual(many["bytes_sent"], many["payloads"] * 512 * 512 * 8)
        for case in result["cases"]:
            self.assertGreaterEqual(case["seconds"], case["critical_path_seconds"])
            self.assertAlmostEqual(case["gflops"], 16384 ** 3 / 3e9 / case["seconds"], delta=1e-3 * case["gflops"])
            self.assertFalse(case["kernels_measured"])

    def test_lu_takes_twice_the_operations(self):
        arguments = ["--machine", "x86_server", "--n", "4096", "--tile", "256", "--tall", "1"]
        cholesky, lu = (self.simulate(*arguments, "--algorithm", a)[1]["cases"][0] for a in ("cholesky", "lu"))
        self.assertGreater(lu["kernel_seconds"], 1.7 * cholesky["kernel_seconds"])

    def test_tiles_may_be_taller_than_wide(self):
        arguments = ["--machine", "x86_server", "--n", "8192", "--tile", "256"]
        square, tall = (self.simulate(*arguments, "--tall", h)[1]["cases"][0] for h in ("1", "4"))
        self.assertEqual((tall["tile_rows"], tall["tile_columns"]), (1024, 256))
        self.assertLess(3 * tall["tasks"], square["tasks"])
        self.assertAlmostEqual(tall["kernel_seconds"], square["kernel_seconds"], delta=0.1 * square["kernel_seconds"])

    def test_is_the_same_for_any_number_of_processes(self):
        arguments = ["--machine", "lassen", "--n", "8192", "--tile", "1024", "--ranks", "8"]
        self.assertEqual(self.simulate(*arguments, ranks=0), self.simulate(*arguments, ranks=2))

    def test_writes_the_time_line_of_all_ranks(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "trace.json")
            self.simulate("--machine", "x86_server", "--n", "800", "--tile", "100", "--tall", "1",
                          "--ranks", "4", "--workers", "2",
                          "--trace", str(path))
            slices = [e for e in json.loads(path.read_text())["traceEvents"] if e["ph"] == "X"]
            self.assertEqual(len(slices), 8 * 9 * 10 // 6)
            self.assertEqual({e["pid"] for e in slices}, {0, 1, 2, 3})
            self.assertEqual({e["name"] for e in slices}, {"potrf", "trsm", "syrk", "gemm"})

    def test_takes_measured_kernels(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "machine.json")
            result = aloni("calibrate", "--quick", "--seconds", "0.01", "--tiles", "32,64", "--output", str(path),
                           ranks=1)
            self.assertEqual(result.code, 0, result.err)
            machine = json.loads(path.read_text())
            names = {t["kernel"]: t["seconds"] for table in machine["kernels"] for t in table["times"]}
            self.assertEqual(len([n for n in names if n.startswith("tile ")]), 2 * 2 * 6)
            text, result = self.simulate("--machine", str(path), "--n", "64", "--tile", "64")
            self.assertIn("kernels measured", text)
            case = result["cases"][0]
            self.assertTrue(case["kernels_measured"])
            self.assertAlmostEqual(case["kernel_seconds"], names["tile potrf double 64x64x64"], delta=1e-12)

    def test_refuses_what_it_cannot_serve(self):
        machine = ["--machine", "lassen", "--n", "4096"]
        for words in (["--ranks", "0"], ["--ranks", "1,"], ["--workers", "0"], ["--tall", "-1"], ["--tile", "1"],
                      ["--precision", "half"],
                      ["--algorithm", "qr"], ["--n", "0"], ["--trace", ""]):
            self.refused(USAGE, words[:1], *machine, *words)
        self.refused(USAGE, ["--trace"], *machine, "--trace", "a.json", "--ranks", "1,2")
        self.refused(USAGE, ["--trace", "larger tiles"], *machine, "--tile", "8", "--trace", "a.json")
        self.refused(USAGE, ["ranks"], *machine, "--ranks", "65536")  # the machine has fewer


if __name__ == "__main__":
    unittest.main()
