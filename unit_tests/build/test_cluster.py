#!/usr/bin/env python3
"""Tests of scripts/cluster/ and of the commands in docs/clusters.md: test_cluster.py ROOT BUILD

The nodes are made up: a folder that stands for /sys, and programs that stand for nvidia-smi and taskset.
"""
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
SCRIPTS = sorted((ROOT / "scripts/cluster").iterdir())
BIND = ROOT / "scripts/cluster/bind"


class Syntax(unittest.TestCase):
    def test_bash_and_shellcheck_accept_the_scripts(self):
        self.assertEqual(len(SCRIPTS), 3)
        for script in [*SCRIPTS, ROOT / "scripts/gpu_acceptance.sh", ROOT / "scripts/acceptance/unavailable"]:
            checks = [["bash", "-n", script]]
            if shutil.which("shellcheck"):
                checks.append(["shellcheck", script])
            for check in checks:
                result = subprocess.run(check, capture_output=True, text=True, check=False)
                self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
            self.assertTrue(os.access(script, os.X_OK), script)


class Commands(unittest.TestCase):
    """Options of aloni in the document and in the scripts exist."""

    def test_each_option_of_aloni_exists(self):
        found = 0
        for file in [*SCRIPTS, ROOT / "docs/clusters.md"]:
            text = file.read_text().replace("\\\n", " ")
            if file.suffix == ".md":  # code blocks, and commands in code
                text = "\n".join(re.findall(r"^ *```sh\n(.*?)^ *```", text, re.M | re.S))
            for line in text.splitlines():
                match = re.search(r'(?:\baloni|"\$aloni") (train|info|plan|simulate|calibrate)\b(.*)', line)
                if not match or line.lstrip().startswith("#"):
                    continue
                found += 1
                words = shlex.split(match[2].split("||")[0])
                options = {word for word in words if word.startswith("--")}
                self.assertEqual(options - self.options_of(match[1]), set(), line)
        self.assertGreater(found, 6)

    def options_of(self, command):
        result = subprocess.run([BUILD / "bin/aloni", command, "--help"], capture_output=True, text=True, check=True,
                                env={**os.environ, "OMP_NUM_THREADS": "1"})
        return set(re.findall(r"--[a-z][\w-]*", result.stdout))

    def test_strategies_and_machines_are_accepted(self):
        text = (ROOT / "docs/clusters.md").read_text().replace("\\\n", " ")
        commands = re.findall(r"^ *(aloni plan .*h100_cluster.*)$", text, re.M)
        self.assertEqual(len(commands), 1)
        subprocess.run([BUILD / "bin/aloni", *shlex.split(commands[0])[1:]], capture_output=True, check=True)

    def test_stages_of_the_acceptance_exist(self):
        stages = re.search(r"^stages=\(([^)]*)\)", (ROOT / "scripts/gpu_acceptance.sh").read_text(), re.M)[1].split()
        named = re.findall(r"--stage ([\w-]+)", (ROOT / "docs/clusters.md").read_text())
        self.assertTrue(named)
        self.assertEqual(set(named) - set(stages), set())


class Binding(unittest.TestCase):
    """A node of two sockets with 16 cores each, two devices on each, and three interfaces."""

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        self.devices = ["0000:1a:00.0", "0000:3b:00.0", "0000:9a:00.0", "0000:ba:00.0"]
        for i, device in enumerate(self.devices):
            self.write(f"sys/bus/pci/devices/{device}/numa_node", str(i // 2))
            self.write(f"sys/bus/pci/devices/{device}/local_cpulist", "0-7,32-39" if i < 2 else "8-15,40-47")
        for name, node in (("mlx5_0", 0), ("mlx5_1", 0), ("mlx5_2", 1)):
            self.write(f"sys/class/infiniband/{name}/device/numa_node", str(node))
        self.program("nvidia-smi", "printf '%s\\n' " + " ".join(f"0000{device.upper()}" for device in self.devices))
        self.program("taskset", 'echo "cores=$2 threads=$OMP_NUM_THREADS net=$UCX_NET_DEVICES order=$CUDA_DEVICE_ORDER '
                     'bind=$OMP_PROC_BIND"; shift 2; exec "$@"')

    def write(self, name, text):
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n")

    def program(self, name, text):
        self.write(f"bin/{name}", "#!/bin/sh\n" + text)
        (self.folder / "bin" / name).chmod(0o755)

    def run_bind(self, *arguments, **environment):
        return subprocess.run([BIND, *arguments], capture_output=True, text=True, check=False, env={
            "PATH": f"{self.folder}/bin:/usr/bin:/bin", "BIND_SYSFS": str(self.folder / "sys"), **environment})

    def bound(self, rank, ranks, **environment):
        result = self.run_bind("echo", "ran", OMPI_COMM_WORLD_LOCAL_RANK=str(rank),
                               OMPI_COMM_WORLD_LOCAL_SIZE=str(ranks), **environment)
        self.assertEqual(result.returncode, 0, result.stderr)
        first, second = result.stdout.splitlines()
        self.assertEqual(second, "ran")
        return dict(word.split("=") for word in first.split())

    def test_ranks_of_one_socket_share_its_cores_and_interfaces(self):
        self.assertEqual(self.bound(0, 4), {"cores": "0,1,2,3,4,5,6,7", "threads": "8", "net": "mlx5_0:1",
                                            "order": "PCI_BUS_ID", "bind": "false"})
        self.assertEqual(self.bound(1, 4)["cores"], "32,33,34,35,36,37,38,39")
        self.assertEqual(self.bound(1, 4)["net"], "mlx5_1:1")
        self.assertEqual(self.bound(2, 4)["cores"], "8,9,10,11,12,13,14,15")
        self.assertEqual([self.bound(rank, 4)["net"] for rank in (2, 3)], ["mlx5_2:1"] * 2)

    def test_no_core_serves_two_ranks_and_none_is_idle(self):
        for ranks in (1, 3, 4, 5, 8):
            cores = [core for rank in range(ranks) for core in self.bound(rank, ranks)["cores"].split(",")]
            self.assertEqual(len(cores), len(set(cores)), ranks)
            if ranks >= 3:
                self.assertEqual(len(cores), 32, ranks)

    def test_settings_of_the_user_stay(self):
        found = self.bound(0, 4, OMP_NUM_THREADS="2", UCX_NET_DEVICES="eth0", OMP_PROC_BIND="close")
        self.assertEqual((found["threads"], found["net"], found["bind"]), ("2", "eth0", "close"))

    def test_each_launcher_is_known(self):
        for rank, size in (("SLURM_LOCALID", ("SLURM_STEP_TASKS_PER_NODE", "4(x2)")), ("FLUX_TASK_LOCAL_ID", None),
                           ("PALS_LOCAL_RANKID", ("PALS_LOCAL_SIZE", "4")),
                           ("MPI_LOCALRANKID", ("MPI_LOCALNRANKS", "4"))):
            environment = {rank: "3"} | (dict([size]) if size else {})
            result = self.run_bind("true", **environment)
            self.assertIn("cores=40,41,42,43,44,45,46,47 ", result.stdout, rank)

    def test_show_lists_the_devices(self):
        lines = self.run_bind("--show").stdout.splitlines()
        self.assertEqual(len(lines), 4)
        self.assertIn("rank 2: device 0000:9a:00.0, cores 8,9,10,11,12,13,14,15, interface mlx5_2:1", lines)

    def test_errors_say_what_is_missing(self):
        self.assertIn("no launcher has set a local rank", self.run_bind("true").stderr)
        self.assertIn("no program", self.run_bind().stderr)
        too_many = self.run_bind("true", OMPI_COMM_WORLD_LOCAL_RANK="0", OMPI_COMM_WORLD_LOCAL_SIZE="70")
        self.assertIn("start fewer ranks per node", too_many.stderr)
        self.assertNotEqual(too_many.returncode, 0)
        (self.folder / "sys/bus/pci/devices/0000:ba:00.0/local_cpulist").unlink()
        self.assertIn("local_cpulist does not exist", self.run_bind("--show").stderr)


if __name__ == "__main__":
    unittest.main()
