"""Finishes the parts of a planned study on a Dask cluster: python dask_parts.py tcp://SCHEDULER:8786 RUN [JOBS]

Every worker must see RUN and have flowspace on its PATH. Dask decides where a part runs and runs it again when its worker is lost; which parts are
finished the files of RUN say. A search of the front takes one call a round, until `flowspace study merge RUN` returns 0.
"""

import subprocess
import sys

from distributed import Client, as_completed


def work(run, part, jobs):
    command = ["flowspace", "study", "work", run, "--part", str(part), "--jobs", str(jobs)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    return done.stdout.strip()


if __name__ == "__main__":
    scheduler, run = sys.argv[1:3]
    jobs = sys.argv[3] if len(sys.argv) > 3 else "1"
    missing = subprocess.run(
        ["flowspace", "study", "missing", run, "--format", "lines"], check=True, capture_output=True, text=True
    ).stdout.split()
    client = Client(scheduler)
    # Not pure, and under names of their own: a result of an earlier call is none of this one.
    parts = [client.submit(work, run, part, jobs, key=f"{run}-{part}", pure=False, retries=3) for part in missing]
    for part in as_completed(parts):
        print(part.result())
    sys.exit(subprocess.run(["flowspace", "study", "merge", run]).returncode)
