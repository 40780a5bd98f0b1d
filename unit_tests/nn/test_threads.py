"""Results with 1, 2 and 3 threads have the same bits where nn/network.hpp promises it: forward, without BLAS.

Two runs with the same number of threads have the same bits everywhere.
"""
import os
import subprocess
import sys

program = os.environ["ALONI_PROGRAM"]


def digests(threads):
    """{(backend, type, name): digest}"""
    environment = os.environ | {"OMP_NUM_THREADS": str(threads), "OMP_PROC_BIND": "false"}
    text = subprocess.run([program], env=environment, check=True, stdout=subprocess.PIPE, text=True, timeout=120).stdout
    return {tuple(line.split()[:-1]): line.split()[-1] for line in text.splitlines()}


one, two, three, again = digests(1), digests(2), digests(3), digests(3)
failures = [f"{' '.join(key)}: two runs with 3 threads differ" for key in three if three[key] != again[key]]
for key in one:
    promised = key[0] in ("reference", "direct", "onednn") and key[2] in ("input", "evaluation", "training")
    if promised and not one[key] == two[key] == three[key]:
        failures.append(f"{' '.join(key)}: {one[key]}, {two[key]}, {three[key]} with 1, 2, 3 threads")
backends = {key[0] for key in one}
if not {"automatic", "reference", "direct"} <= backends:
    failures.append(f"only these backends ran: {sorted(backends)}")
print(f"{len(one)} digests of {sorted(backends)}; equal with 1, 2, 3 threads:",
      sum(one[key] == two[key] == three[key] for key in one))
if failures:
    sys.exit("\n".join(failures))
