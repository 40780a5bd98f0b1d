"""Files that aloni may leave behind after a failure."""
import glob
import os


def own_files():
    """Files of aloni in places of shared memory. Files of MPI and of other tests do not count."""
    files = glob.glob("/dev/shm/*") + glob.glob("/tmp/*")
    return {f for f in files if "aloni" in os.path.basename(f) and not os.path.basename(f).startswith("aloni-test-")}
