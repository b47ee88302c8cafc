"""The package against the program: the same answers, the same bytes, its errors as exceptions. FLOWSPACE names the program."""

import csv
import json
import math
import os
import signal
import subprocess
import threading
import time
from pathlib import Path

import pandas
import polars
import pytest

import flowspace

PROGRAM = os.environ["FLOWSPACE"]
ROOT = Path(os.environ.get("FLOWSPACE_ROOT", Path(__file__).resolve().parents[2]))
WORKLOAD, SYSTEM = ROOT / "workloads/language/llama3-8b.yaml", ROOT / "systems/h100-dgx-8.yaml"
STUDY = """
name: small
workload: {root}/workloads/language/llama3-8b.yaml
system: {root}/systems/h100-dgx-8.yaml
axes:
  - {{name: memory, field: system.memory.bandwidth, values: [1 TB/s, 2 TB/s, 4 TB/s]}}
  - {{name: capacity, field: system.memory.capacity, values: [1 GB, 80 GB, 160 GB]}}
"""


def program(*words):
    return subprocess.run([PROGRAM, *map(str, words)], capture_output=True, text=True)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    folder = tmp_path_factory.mktemp("small")
    (folder / "study.yaml").write_text(STUDY.format(root=ROOT))
    done = program("study", "run", folder / "study.yaml", "--out", folder / "out")
    # Memory of 1 GB holds no model.
    assert done.returncode == 2, done.stderr
    return folder


def test_a_mapping_is_that_of_the_program():
    found = flowspace.map(WORKLOAD, SYSTEM, tp=8)
    printed = json.loads(program("map", "--workload", WORKLOAD, "--system", SYSTEM, "--tp", 8, "--format", "json").stdout)
    assert found["execution"]["tp"] == 8
    for answer in (found, printed):
        del answer["solve_s"]
    assert dict(found) == printed
    assert "iteration_s" in found._repr_html_() and "<table>" in found._repr_html_()


def test_names_of_the_catalogue_and_what_is_printed():
    assert flowspace.run("list", "chips") == program("list", "chips").stdout
    names = ("gpt3-1t-training", "sn30-1024-torus-2d")
    assert flowspace.explain(*names) == program("explain", "--workload", names[0], "--system", names[1]).stdout


def test_a_study_in_process_writes_the_same_bytes(small, tmp_path):
    frame = flowspace.study(small / "study.yaml", out=tmp_path / "out")
    for name in ("results.csv",):
        assert (tmp_path / "out" / name).read_bytes() == (small / "out" / name).read_bytes()
    assert len(frame) == 9 and (frame.status == "infeasible").sum() == 3
    assert not (tmp_path / "out/report.html").exists()


def test_what_is_read_is_what_is_written(small):
    frame, other = flowspace.read(small / "out"), flowspace.read(small / "out/results.csv", engine="polars")
    assert isinstance(frame, pandas.DataFrame) and isinstance(other, polars.DataFrame)
    with open(small / "out/results.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(frame.columns) == list(other.columns) == list(rows[0])
    numbers = 0
    for name in frame.columns:
        for at, row in enumerate(rows):
            mine, theirs, text = frame[name].iloc[at], other[name][at], row[name]
            if isinstance(mine, str):
                assert mine == text and (theirs or "") == text
            elif text == "":
                assert math.isnan(mine) and theirs is None
            else:
                assert float(mine) == float(theirs) == float(text)
                numbers += 1
    assert numbers > 100
    assert frame["point"].dtype.kind == "i"


def test_parquet_is_the_csv(small, tmp_path):
    out = tmp_path / "out"
    table = flowspace.study(small / "study.yaml", out=out, engine="polars", parquet=True)
    assert (out / "results.csv").read_bytes() == (small / "out/results.csv").read_bytes()
    typed = polars.read_parquet(out / "results.parquet")
    plain = flowspace.read(small / "out", engine="polars")
    assert typed.equals(table) and typed.equals(plain) and typed.schema == plain.schema
    assert typed["iteration_s"].null_count() == 3 and typed.schema["iteration_s"] == polars.Float64
    # By pyarrow where it is there.
    pandas.testing.assert_frame_equal(flowspace.read(out), flowspace.read(small / "out"))
    # A table that was changed afterwards is read as it is, not as its Parquet was.
    text = (out / "results.csv").read_text()
    (out / "results.csv").write_text("\n".join(text.splitlines()[:4]) + "\n")
    assert len(flowspace.read(out, engine="polars")) == 3


def test_units_and_where_it_comes_from(small):
    frame = flowspace.read(small / "out")
    units = frame.attrs["units"]
    assert units["iteration_s"] == "s" and units["samples_per_s"] == "samples/s" and units["cost_usd"] == "usd"
    # Of the study's own axes, whose labels are amounts.
    assert units["memory_bytes_per_s"] == "bytes/s" and units["capacity_bytes"] == "bytes", units
    assert set(units) <= set(frame.columns)
    assert "status" not in units and "tp" not in units
    manifest = frame.attrs["manifest"]
    assert manifest["study"] == "small" and manifest["version"] == flowspace.__version__
    assert flowspace.columns()["iteration_s"]["meaning"]


def test_figures_are_those_of_the_program(small, tmp_path):
    frame = flowspace.read(small / "out")
    figure = flowspace.figure(frame, "pareto", x="cost_usd", y="samples_per_s", log_x=True)
    done = program("plot", small / "out/results.csv", "--kind", "pareto", "--x", "cost_usd", "--y", "samples_per_s", "--log-x", "--out", tmp_path / "a")
    assert done.returncode == 0, done.stderr
    assert figure._repr_svg_() == (tmp_path / "a.svg").read_text() and figure.svg.startswith("<svg")
    for name, start in (("f.svg", b"<svg"), ("f.png", b"\x89PNG"), ("f.pdf", b"%PDF")):
        figure.save(tmp_path / name)
        assert (tmp_path / name).read_bytes().startswith(start)
    with pytest.raises(ValueError, match="f.jpg"):
        figure.save(tmp_path / "f.jpg")
    both = flowspace.figure([frame, small / "out"], "scatter", x="cost_usd", y="samples_per_s")
    assert both.svg.startswith("<svg")


def test_points_rows_and_differences(small):
    frame = flowspace.read(small / "out")
    assert flowspace.show(frame, 4) == program("study", "show", small / "out/results.csv", "--point", 4).stdout
    none = flowspace.where(small / "out", "status == infeasible")
    assert list(none.point) == list(frame.point[frame.status == "infeasible"]) and len(none) == 3
    with pytest.raises(flowspace.InputError, match="statuz"):
        flowspace.where(frame, "statuz == optimal")
    assert isinstance(flowspace.compare(frame, small / "out"), (dict, list))


def test_what_the_program_notes_is_a_warning(small, tmp_path):
    flowspace.study(small / "study.yaml", out=tmp_path / "out")
    table = tmp_path / "out/results.csv"
    table.write_text(table.read_text().replace(",infeasible,", ",failed,"))
    with pytest.warns(flowspace.Note, match="was altered since") as caught:
        flowspace.where(table, "status == failed")
    # It points at who called.
    assert caught[0].filename == __file__


def test_the_front_of_a_search(tmp_path):
    text = STUDY.format(root=ROOT) + "search: {front: [max samples_per_s, min cost_usd]}\n"
    (tmp_path / "study.yaml").write_text(text)
    results = flowspace.study(tmp_path / "study.yaml", out=tmp_path / "out")
    front = flowspace.front(tmp_path / "out")
    assert set(front.point) <= set(results.point) and len(front) > 0


def test_errors_say_what_the_program_says(tmp_path):
    with pytest.raises(flowspace.InputError) as caught:
        flowspace.map("nothing.yaml", SYSTEM)
    said = program("map", "--workload", "nothing.yaml", "--system", SYSTEM).stderr
    assert caught.value.code == 1 and "error: " + str(caught.value) == said.strip()
    (tmp_path / "study.yaml").write_text("name: s\naxes: []\nworkload: 3\nfield: x\n")
    with pytest.raises(flowspace.InputError, match="study.yaml:"):
        flowspace.study(tmp_path / "study.yaml")
    with pytest.raises(flowspace.InputError, match="tp"):
        flowspace.map(WORKLOAD, SYSTEM, tp="many")
    with pytest.raises(flowspace.InputError):
        flowspace.map(WORKLOAD, SYSTEM, no_such_option=1)
    with pytest.raises(flowspace.InputError, match="nothing.csv"):
        flowspace.read("nothing.csv")
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    with pytest.raises(flowspace.InputError, match="other.csv"):
        flowspace.read(tmp_path / "other.csv")
    with pytest.raises(ValueError, match="arrow"):
        flowspace.read(tmp_path / "other.csv", engine="arrow")
    with pytest.raises(TypeError):
        flowspace.show(3, 1)


def test_nothing_is_written_to_standard_output(capfd):
    flowspace.map(WORKLOAD, SYSTEM)
    with pytest.raises(flowspace.InputError):
        flowspace.run("mapp")
    assert capfd.readouterr().out == ""


def test_other_threads_go_on_and_an_interruption_ends_a_study(tmp_path):
    axis = "  - {name: links, field: system.network.dimensions.0.link.bandwidth, values: [50..900 GB/s linear 3000]}\n"
    (tmp_path / "study.yaml").write_text(STUDY.format(root=ROOT) + axis)
    ticks = []
    done = threading.Event()

    def tick():
        while not done.wait(0.01):
            ticks.append(time.monotonic())

    # A shell's background jobs are started with SIGINT ignored, and then Python does not set its own handler.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    ticking = threading.Thread(target=tick)
    timer = threading.Timer(1.0, lambda: os.kill(os.getpid(), signal.SIGINT))
    ticking.start()
    timer.start()
    begun = time.monotonic()
    try:
        with pytest.raises(KeyboardInterrupt):
            flowspace.study(tmp_path / "study.yaml", out=tmp_path / "out")
    finally:
        done.set()
        ticking.join()
        timer.cancel()
        signal.signal(signal.SIGINT, before)
    assert len(ticks) > 10, "the lock of Python was held"
    # What was finished is kept, and the next command runs as if nothing had been.
    assert (tmp_path / "out/journal.jsonl").stat().st_size > 0
    assert time.monotonic() - begun < 60
    assert flowspace.map(WORKLOAD, SYSTEM)["status"] == "optimal"
