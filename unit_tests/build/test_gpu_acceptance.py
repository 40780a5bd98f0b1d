#!/usr/bin/env python3
"""Tests of scripts/gpu_acceptance.sh and scripts/acceptance/ without a device: test_gpu_acceptance.py ROOT BUILD

The programs are replaced by short scripts: the tests are about steps, limits, resumption and verdicts.
"""
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(sys.argv.pop(1)).resolve()
BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
SCRIPT = ROOT / "scripts/gpu_acceptance.sh"

sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "scripts/acceptance"))
import table

TEST_LIST = """test_a.np1 1 60 bin/test_a --test_files=test_a
test_a.np2 2 60 bin/test_a --test_files=test_a
test_update.np1 1 60 bin/test_a --test_files=test_update
test_slow.np4 4 60 bin/test_slow
"""
# Counts its runs, and ends as GoogleTest does.
TEST_PROGRAM = """#!/bin/sh
echo run >>"$COUNT"
sleep "${SLEEP:-0}"
[ -z "$BREAK" ] || { echo "[  FAILED  ] 1 test"; exit 1; }
echo "[  PASSED  ] ${TESTS:-3} tests."
"""
# The arguments of scripts/mpirun without the launcher's own.
LAUNCHER = """#!/bin/sh
while [ "$1" != -n ]; do shift; done
shift 2
exec "$@"
"""


class Folder(unittest.TestCase):
    """A carried folder of programs, and a folder of results."""

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.scratch = pathlib.Path(scratch.name)
        self.folder, self.out = self.scratch / "carried", self.scratch / "out"
        (self.folder / "bin").mkdir(parents=True)
        (self.folder / "tests.list").write_text(TEST_LIST)
        for name in ("test_a", "test_slow", "test_local", "aloni", "bench_conv", "bench_halo", "bench_local_conv"):
            self.program(self.folder / "bin" / name, TEST_PROGRAM)
        self.program(self.scratch / "launch", LAUNCHER)
        self.count = self.scratch / "count"

    def program(self, path, text):
        path.write_text(text)
        path.chmod(0o755)

    def run_script(self, *arguments, **environment):
        return subprocess.run(
            [SCRIPT, "--from", self.folder, "--out", self.out, *arguments], capture_output=True, text=True, check=False,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "MPIEXEC": str(self.scratch / "launch"), "COUNT": str(self.count), **environment})

    def runs(self):
        return len(self.count.read_text().splitlines()) if self.count.exists() else 0


class Stages(Folder):
    def test_a_stage_runs_the_tests_of_its_rank_count_once(self):
        result = self.run_script("--stage", "tests-np1")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(self.runs(), 2)
        self.assertEqual((self.out / "tests-np1/test_a.np1.status").read_text().split()[0], "0")
        self.assertEqual(self.run_script("--stage", "tests-np1").returncode, 0)
        self.assertEqual(self.runs(), 2, "completed steps must not run again")
        self.assertEqual(self.run_script("--stage", "tests-np1", "--again").returncode, 0)
        self.assertEqual(self.runs(), 4)

    def test_a_failed_step_fails_the_run_and_every_later_one(self):
        self.assertEqual(self.run_script("--stage", "tests-np1", BREAK="1").returncode, 1)
        self.assertEqual(self.run_script("--stage", "tests-np1").returncode, 1)
        self.assertEqual(self.run_script("--stage", "tests-np1", "--again").returncode, 0)

    def test_a_stage_stops_at_its_limit_and_goes_on_where_it_stopped(self):
        # One step ends before the limit and two do not, also on a busy machine where each starts a second late.
        result = self.run_script("--stage", "tests-np1", "--limit", "5", "--jobs", "1", SLEEP="3")
        self.assertEqual(result.returncode, 75, result.stderr)
        self.assertEqual(len(list(self.out.glob("tests-np1/*.status"))), 1, "an unfinished step has no status")
        result = self.run_script("--stage", "tests-np1", "--limit", "60", "--jobs", "1")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(len(list(self.out.glob("tests-np1/*.status"))), 2)

    def test_several_tests_run_at_a_time(self):
        result = self.run_script("--stage", "tests-np1", "--limit", "5", "--jobs", "2", SLEEP="3")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(len(list(self.out.glob("tests-np1/*.status"))), 2)

    def test_one_failure_among_tests_side_by_side_fails_the_run(self):
        self.program(self.folder / "bin/test_a", TEST_PROGRAM + 'case $* in *test_a) exit 1; esac\n')
        self.assertEqual(self.run_script("--stage", "tests-np1", "--jobs", "2").returncode, 1)
        self.assertEqual((self.out / "tests-np1/test_update.np1.status").read_text().split()[0], "0")

    def test_a_step_longer_than_the_limit_of_a_stage_fails_instead_of_repeating_for_ever(self):
        result = self.run_script("--stage", "tests-np4", "--limit", "1", SLEEP="30")
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertEqual((self.out / "tests-np4/test_slow.np4.status").read_text().split()[0], "124")

    def test_results_of_other_programs_are_refused(self):
        self.assertEqual(self.run_script("--stage", "tests-np1").returncode, 0)
        self.program(self.folder / "bin/test_a", TEST_PROGRAM + "# changed\n")
        result = self.run_script("--stage", "tests-np2")
        self.assertEqual(result.returncode, 2)
        self.assertIn("other programs", result.stderr)

    def test_a_missing_tool_is_not_available(self):
        result = self.run_script("--stage", "memcheck", PATH="/usr/bin:/bin")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual((self.out / "memcheck/test_update.np1.status").read_text().split()[0], "77")
        log = (self.out / "memcheck/test_update.np1.log").read_text()
        self.assertEqual(log, "compute-sanitizer is not installed\n")
        self.assertEqual(self.runs(), 0)

    def test_wrong_arguments_are_named(self):
        for arguments, word in ((["--stage", "no"], "expected one of"), (["--limit", "x"], "expected seconds"),
                                (["--jobs", "0"], "expected a number above 0"),
                                (["--no"], "unknown argument"), (["--stage"], "needs a value")):
            result = self.run_script(*arguments)
            self.assertEqual(result.returncode, 2, arguments)
            self.assertIn(word, result.stderr)

    def test_missing_programs_end_the_run(self):
        (self.folder / "bin/bench_halo").unlink()
        result = self.run_script("--stage", "build", "--stage", "tests-np1")
        self.assertEqual(result.returncode, 1)
        self.assertIn("bench_halo is missing", result.stderr)
        self.assertEqual(self.runs(), 0)


class DryRun(Folder):
    @classmethod
    def setUpClass(cls):
        help_text = subprocess.run([BUILD / "bin/aloni", "train", "--help"], capture_output=True, text=True, check=True,
                                   env={**os.environ, "OMP_NUM_THREADS": "1"}).stdout
        cls.options = set(re.findall(r"--[a-z][\w-]*", help_text))

    def steps(self, text):
        return re.findall(r"^(\S+/\S+) \(at most \d+ s[^)]*\): (.+)$", text, re.M)

    def test_every_step_is_listed_and_none_runs(self):
        result = self.run_script("--dry-run")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(self.runs(), 0)
        self.assertFalse(self.out.exists())
        steps = dict(self.steps(result.stdout))
        stages = re.search(r"^stages=\(([^)]*)\)", SCRIPT.read_text(), re.M)[1].split()
        for stage in stages:
            self.assertIn(stage, {step.split("/")[0] for step in steps} | {"table"})
        self.assertIn("bin/test_a --test_files=test_a", steps["tests-np2/test_a.np2"])

    def test_steps_are_listed_in_order_however_many_run_at_a_time(self):
        names = [f"test_{i}.np1" for i in range(40)]
        (self.folder / "tests.list").write_text("".join(f"{name} 1 60 bin/test_a --test_files=x\n" for name in names))
        result = self.run_script("--dry-run", "--stage", "tests-np1", "--jobs", "16")
        self.assertEqual([step for step, _ in self.steps(result.stdout)], [f"tests-np1/{name}" for name in names])

    def test_the_build_lists_its_tests_and_has_the_programs_cases_and_options_of_all_steps(self):
        result = subprocess.run([SCRIPT, "--dry-run", "--from", BUILD, "--out", self.out], capture_output=True,
                                text=True, check=False)
        self.assertEqual(result.returncode, 0, result.stderr)
        steps = dict(self.steps(result.stdout))
        for stage, least in (("tests-np1", 60), ("tests-np2", 50), ("tests-np4", 40), ("memcheck", 12)):
            found = [step for step in steps if step.startswith(stage + "/")]
            self.assertGreaterEqual(len(found), least, stage)
        sanitized = re.search(r"^sanitized=\(([^)]*)\)", SCRIPT.read_text(), re.M)[1].split()
        for name in sanitized:
            self.assertIn(f"memcheck/{name}.np1", steps)
        for step, command in steps.items():
            for program in re.findall(rf"{re.escape(str(BUILD))}/bin/(?!lib)\S+", command):
                self.assertTrue(os.access(program, os.X_OK), f"{step}: {program}")
            if " train " in command:
                self.assertEqual(set(re.findall(r"--[a-z][\w-]*", command.split(" train ")[1])) - self.options, set())
        for step, least in (("interior/mesh_conv1_1_2048", 2), ("halo/faces", 6)):
            words = shlex.split(steps[step])
            program = next(i for i, word in enumerate(words) if "/bin/bench_" in word)
            listed = subprocess.run([words[program], words[program + 1], "--benchmark_list_tests"], capture_output=True,
                                    text=True, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"}).stdout
            self.assertEqual(listed.count("manual_time"), least, listed)


class Pack(Folder):
    def pack(self):
        return subprocess.run([ROOT / "scripts/acceptance/pack", self.folder, self.scratch / "packed"],
                              capture_output=True, text=True, check=False)

    def test_a_packed_folder_runs_from_another_place_with_its_own_libraries(self):
        (self.folder / "bin/aloni").unlink()
        shutil.copy(BUILD / "bin/aloni", self.folder / "bin/aloni")
        result = self.pack()
        self.assertEqual(result.returncode, 0, result.stderr)
        elsewhere = (self.scratch / "packed").rename(self.scratch / "elsewhere")
        libraries = {path.name for path in (elsewhere / "lib").iterdir()}
        self.assertTrue(any(name.startswith("libkokkoscore") for name in libraries))
        of_machine = re.compile(r"lib(c|stdc\+\+|cuda|cudart|cublas)\.so")
        self.assertEqual([name for name in libraries if of_machine.match(name)], [])
        own_mpi = elsewhere / "mpi/bin/mpirun"
        environment = {**os.environ, "COUNT": str(self.count)}
        environment.pop("MPIEXEC", None)
        if not own_mpi.exists():
            self.assertIn("needs the MPI of this build", result.stderr)
        run = subprocess.run([elsewhere / "scripts/gpu_acceptance.sh", "--out", self.out, "--stage", "build", "--stage",
                              "device", "--stage", "tests-np2"], capture_output=True, text=True, check=False,
                             env=environment)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertIn("options", json.loads((self.out / "device/info.json").read_text()))
        self.assertEqual(self.runs(), 2, "two ranks of one test")

    def test_a_missing_program_or_an_existing_folder_is_refused(self):
        (self.folder / "bin/test_slow").unlink()
        result = self.pack()
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("bin/test_slow is missing", result.stderr)
        self.assertIn("exists; name a new folder", self.pack().stderr)


def benchmark(**times):
    return json.dumps({"benchmarks": [{"name": name + "/iterations:1/manual_time", "best_us": us}
                                      for name, us in times.items()]})


class Table(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.out = pathlib.Path(scratch.name)
        self.expected = ["device/nvidia-smi", "device/info"]
        for stage in ("tests-np1", "tests-np2", "tests-np4", "memcheck", "racecheck", "synccheck"):
            self.expected += [f"{stage}/test_a", f"{stage}/test_b"]
        for step in self.expected:
            self.result(step, log="[  PASSED  ] 3 tests.\n", json='{"options": {"device": true}}')
        self.result("convolution/float", json=benchmark(**{
            "limit/one/forward/cudnn": 98, "local_conv/one/forward/automatic": 100,
            "limit/two/forward/cudnn": 110, "local_conv/two/forward/automatic": 100}))
        prefix = "interior/mesh_conv1_1_2048/h2w2/"
        self.result("interior/mesh_conv1_1_2048",
                    json=benchmark(**{prefix + "unsplit": 100, prefix + "interior_and_border": 107}))
        self.halo(width=140)
        for model in ("mesh1k", "resnet50"):
            for kind, ms in (("bfloat16", 10), ("bfloat16-pytorch", 12), ("bfloat16-recorded", 9), ("float", 20),
                             ("float-pytorch", 18)):
                self.result(f"steps/{model}-{kind}", json=json.dumps({"step_seconds": ms / 1e3}))
        self.result("idle/mesh1k", json='{"idle_share": 0.02}')
        self.result("memory/mesh2k", json='{"step_seconds": 1.0}')
        self.result("memory/mesh2k-6G", json='{"step_seconds": 1.5}')
        self.result("memory/mesh2k-6G-offloaded", json='{"step_seconds": 1.3}')

    def halo(self, width):
        cases = {}
        for face, us in (("depth", 120), ("height", 130), ("width", width)):
            cases |= {f"copy/face-{face}-large": 100, f"halo/face-{face}-large/shared": us}
        self.result("halo/faces", json=benchmark(**cases))

    def result(self, step, status=0, log="", json=None):
        file = self.out / step
        file.parent.mkdir(exist_ok=True)
        (self.out / f"{step}.status").write_text(f"{status} 1\n")
        (self.out / f"{step}.log").write_text(log)
        (self.out / f"{step}.json").write_text(json if json is not None else "")

    def make(self):
        """Exit status, and verdicts and reasons by check."""
        rows = table.rows(table.Results(self.out), self.expected)
        return table.exit_status(rows), {row["check"]: (row["verdict"], row["reason"]) for row in rows}

    def assert_fails(self, check, reason):
        status, rows = self.make()
        self.assertEqual(status, 1)
        self.assertEqual(rows[check][0], "failed")
        self.assertIn(reason, rows[check][1])

    def test_all_passed(self):
        status, rows = self.make()
        self.assertEqual(status, 0, rows)
        self.assertEqual({verdict for verdict, _ in rows.values()}, {"passed", "information"})
        self.assertEqual(len(rows), 18)
        self.assertIn("worst: one/forward", rows["local convolution / cuDNN called directly"][1])

    def test_the_program_writes_table_and_json_and_ends_with_the_status(self):
        program = [sys.executable, "-B", ROOT / "scripts/acceptance/table.py", self.out]
        self.assertNotEqual(subprocess.run(program, capture_output=True, check=False).returncode, 0)  # no list of steps
        (self.out / "expected").write_text("\n".join(self.expected))
        for status, verdict in ((0, "passed"), (3, "incomplete"), (1, "failed")):
            if status == 3:
                (self.out / "idle/mesh1k.status").unlink()
            if status == 1:
                self.result("tests-np1/test_a", status=9)
            run = subprocess.run(program, capture_output=True, text=True, check=False)
            data = json.loads((self.out / "acceptance.json").read_text())
            self.assertEqual((run.returncode, data["verdict"]), (status, verdict))
            self.assertEqual(run.stdout.splitlines()[-1], "verdict: " + verdict)
            lines = (self.out / "table.txt").read_text().splitlines()
            self.assertEqual(len(lines), len(data["rows"]) + 1)
            self.assertIn(lines[-1], run.stdout)

    def test_every_bar_fails_beyond_its_limit(self):
        cases = (
            ("local convolution / cuDNN called directly", "convolution/float",
             benchmark(**{"limit/a/cudnn": 96, "local_conv/a/automatic": 100})),
            ("interior + border / unsplit", "interior/mesh_conv1_1_2048",
             benchmark(**{"interior/mesh_conv1_1_2048/h2w2/unsplit": 100,
                          "interior/mesh_conv1_1_2048/h2w2/interior_and_border": 109})),
            ("mesh 1K step, bfloat16 / PyTorch compiled", "steps/mesh1k-bfloat16", '{"step_seconds": 0.0115}'),
            ("ResNet-50 step, bfloat16 / PyTorch compiled", "steps/resnet50-bfloat16", '{"step_seconds": 0.0115}'),
            ("device idle, share of the step", "idle/mesh1k", '{"idle_share": 0.04}'),
            ("mesh 2K in 6 GB / without a limit", "memory/mesh2k-6G-offloaded", '{"step_seconds": 1.4}'))
        for check, step, text in cases:
            with self.subTest(check):
                before = (self.out / f"{step}.json").read_text()
                self.result(step, json=text)
                self.assert_fails(check, "")
                self.result(step, json=before)
        self.halo(width=150)
        self.assert_fails("halo of two ranks / copy bandwidth", "face-width-large 0.67")

    def test_a_failed_step_fails_with_its_last_line(self):
        self.result("tests-np2/test_b", status=1, log="first\nthe reason\n\n")
        self.assert_fails("unit tests, 2 ranks", "the reason")
        self.result("tests-np2/test_b", log="[  PASSED  ] 1 test.\n")
        self.result("memory/mesh2k-6G", status=1, log="out of memory\n")
        self.assert_fails("mesh 2K in 6 GB / without a limit", "out of memory")

    def test_a_program_that_ran_no_test_fails(self):
        self.result("tests-np1/test_a", log="[==========] Running 0 tests\n[  PASSED  ] 0 tests.\n")
        self.assert_fails("unit tests, 1 rank", "no line tells that tests passed")
        for log in ("[  PASSED  ] 0 tests.\n[  SKIPPED ] 2 tests, listed below:\n",
                    "\x1b[0;32m[  PASSED  ] \x1b[m12 tests.\n"):
            self.result("tests-np1/test_a", log=log)
            self.assertEqual(self.make()[0], 0)

    def test_programs_of_the_host_never_pass(self):
        for text in ('{"options": {"device": false}}', "{}"):
            self.result("device/info", json=text)
            self.assert_fails("device and build", "built without a device")

    def test_a_missing_result_is_incomplete_and_never_passed(self):
        (self.out / "idle/mesh1k.status").unlink()
        (self.out / "tests-np4/test_a.status").unlink()
        status, rows = self.make()
        self.assertEqual(status, 3)
        self.assertEqual(rows["device idle, share of the step"], ("missing", "idle/mesh1k has not run"))
        self.assertEqual(rows["unit tests, 4 ranks"], ("missing", "1 have not run"))

    def test_a_stage_without_any_step_is_missing(self):
        self.expected = [step for step in self.expected if not step.startswith("racecheck/")]
        status, rows = self.make()
        self.assertEqual((status, rows["compute-sanitizer racecheck"][0]), (3, "missing"))

    def test_what_is_not_available_says_why(self):
        self.result("steps/mesh1k-bfloat16", status=77, log="no bfloat16\n")
        self.result("synccheck/test_b", status=77, log="compute-sanitizer is not installed\n")
        status, rows = self.make()
        self.assertEqual(status, 3)
        self.assertEqual(rows["mesh 1K step, bfloat16 / PyTorch compiled"], ("not available", "no bfloat16"))
        self.assertEqual(rows["compute-sanitizer synccheck"], ("not available", "compute-sanitizer is not installed"))

    def test_figures_without_a_bar_may_be_absent_but_not_wrong(self):
        self.result("steps/mesh1k-float-pytorch", status=77, log="no PyTorch with CUDA\n")
        self.assertEqual(self.make()[0], 0)
        self.result("steps/mesh1k-float-pytorch", json='{"step_seconds": "fast"}')
        self.assert_fails("mesh 1K step, float / PyTorch compiled", "malformed")

    def test_malformed_results_fail(self):
        cases = (("convolution/float", "local convolution / cuDNN called directly", "{"),
                 ("convolution/float", "local convolution / cuDNN called directly", '{"benchmarks": []}'),
                 ("convolution/float", "local convolution / cuDNN called directly",
                  benchmark(**{"limit/a/cudnn": 0, "local_conv/a/automatic": 1})),
                 ("convolution/float", "local convolution / cuDNN called directly",
                  benchmark(**{"limit/a/cudnn": 1})),
                 ("convolution/float", "local convolution / cuDNN called directly",
                  benchmark(**{"local_conv/a/automatic": 1})),
                 ("interior/mesh_conv1_1_2048", "interior + border / unsplit", benchmark(other=1)),
                 ("halo/faces", "halo of two ranks / copy bandwidth", benchmark(**{"copy/face-depth-large": 1})),
                 ("idle/mesh1k", "device idle, share of the step", '{"idle_share": 3}'),
                 ("memory/mesh2k", "mesh 2K in 6 GB / without a limit", '{"step_seconds": true}'),
                 ("memory/mesh2k", "mesh 2K in 6 GB / without a limit", '{"step_seconds": NaN}'))
        for step, check, text in cases:
            with self.subTest(text=text):
                before = (self.out / f"{step}.json").read_text()
                self.result(step, json=text)
                self.assert_fails(check, "malformed")
                self.result(step, json=before)
        (self.out / "tests-np1/test_a.status").write_text("zero\n")
        self.assert_fails("unit tests, 1 rank", "malformed")

    def test_the_rows_are_the_steps_of_the_script(self):
        listed = subprocess.run([SCRIPT, "--dry-run", "--from", BUILD, "--out", self.out], capture_output=True,
                                text=True, check=True).stdout
        for step in re.findall(r'"((?:convolution|interior|halo|idle|memory)/[\w.-]+)"',
                               (ROOT / "scripts/acceptance/table.py").read_text()):
            self.assertIn(f"\n{step} (", listed)
        for step in ("mesh1k-float", "mesh1k-float-pytorch", "mesh1k-bfloat16", "resnet50-bfloat16",
                     "mesh1k-bfloat16-recorded", "resnet50-bfloat16-recorded"):
            self.assertIn(f"\nsteps/{step} (", listed)
        self.assertEqual({stage for stage, _ in table.STAGES} - set(re.findall(r"^(\S+)/", listed, re.M)), set())


class Idle(unittest.TestCase):
    def record(self, kernels, copies=(), more=""):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        path = pathlib.Path(scratch.name) / "record"
        lines = [f"{kind} {start} {end}\n" for kind, intervals in (("kernel", kernels), ("copy", copies))
                 for start, end in intervals]
        (path.parent / "record.123").write_text("".join(reversed(lines)) + more)
        return path

    def run_program(self, path):
        return subprocess.run([sys.executable, "-B", ROOT / "scripts/acceptance/device_idle.py", path, "--json",
                               path.parent / "share.json"], capture_output=True, text=True, check=False)

    def test_the_kernels_of_the_second_half_are_listed_by_their_time(self):
        kernels = [(i * 100, i * 100 + (10 if i % 2 else 30)) for i in range(200)]
        path = self.record(kernels)
        text = [f"kernel {start} {end} {'_Z5shortv' if end - start == 10 else 'long'}\n" for start, end in kernels]
        (path.parent / "record.123").write_text("".join(text))
        result = subprocess.run([sys.executable, "-B", ROOT / "scripts/acceptance/device_idle.py", path, "--kernels",
                                 "2"], capture_output=True, text=True, check=True)
        words = [line.split() for line in result.stdout.splitlines()[1:]]
        self.assertEqual([line[0:3] for line in words], [["0.002", "ms", "50"], ["0.001", "ms", "50"]])
        self.assertEqual((words[0][4], words[0][-1]), ("75.0", "long"))
        self.assertIn(words[1][-1], ("short()", "_Z5shortv"))

    def test_overlapping_work_counts_once_and_the_first_half_not_at_all(self):
        # 100 kernels of 60 ns every 100 ns, with a pause in the first half. A copy on another stream fills 20 ns more
        # of each 100; the last one ends after the last kernel, which ends the time that counts.
        kernels = [(i * 100 + (10**9 if i >= 30 else 0), i * 100 + 60 + (10**9 if i >= 30 else 0)) for i in range(100)]
        copies = [(start + 40, start + 80) for start, _ in kernels]
        path = self.record(kernels, copies)
        result = self.run_program(path)
        self.assertEqual(result.returncode, 0, result.stderr)
        share = json.loads((path.parent / "share.json").read_text())["idle_share"]
        self.assertAlmostEqual(share, 49 * 20 / (49 * 100 + 60))

    def test_records_that_say_nothing_are_refused(self):
        kernels = [(i * 100, i * 100 + 60) for i in range(100)]
        for path, words in ((self.record(kernels[:99]), "has 99 kernels"),
                            (self.record(kernels, more="dropped 3 0\n"), "records were dropped"),
                            (self.record(kernels, more="kernel 1\n"), "expected `kernel START END NAME`"),
                            (self.record(kernels).parent / "missing", "0 files with kernels, expected one")):
            result = self.run_program(path)
            self.assertEqual(result.returncode, 1)
            self.assertIn(words, result.stderr)
            self.assertFalse((path.parent / "share.json").exists())


if __name__ == "__main__":
    unittest.main()
