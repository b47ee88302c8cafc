"""flowspace in Python: results as tables with units, mappings and studies in process, figures in notebooks.

Every function carries out the command of the same name (``flowspace map``, ``flowspace study run``, ...) in this process, so that Python and the command
line give the same answers. Options are those of the command with ``_`` for ``-``: ``tp=8``, ``split_dimensions=True``, ``batch="1..256"``.
"""

from __future__ import annotations

import html as _html
import io as _io
import json as _json
import os as _os
import shutil as _shutil
import sys as _sys
import tempfile as _tempfile
import warnings as _warnings
from pathlib import Path as _Path
from typing import Any, Mapping, Optional, Sequence, Union

from . import flowspace_native as _native

__version__: str = _native.__version__
__all__ = [
    "Error", "Figure", "InputError", "Mapped", "Note", "columns", "compare", "explain", "figure", "front", "map", "read", "run", "show", "study", "units",
    "where",
]

PathLike = Union[str, "_os.PathLike[str]"]


class Error(Exception):
    """A command that could not be carried out. ``code`` is its exit code."""

    def __init__(self, message: str, code: int):
        super().__init__(message)
        self.code = code


class Note(UserWarning):
    """What the program says beside its answer: a table that was altered, points that were solved anew, figures that were not drawn."""


class InputError(Error, ValueError):
    """Wrong input, or no feasible mapping: the message names file, line, field, what was found and what would fit."""


def run(*words: Any) -> str:
    """Carries out a command line of flowspace and returns what it prints: ``run("list", "chips")``.

    Raises :class:`InputError` or :class:`Error` where the program would end with a code other than 0, or 2 (some points of a study have no plan).
    """
    code, out, err = _native.run([_os.fspath(word) if isinstance(word, _os.PathLike) else str(word) for word in words])
    if code not in (0, 2):
        lines = [line[len("error: "):] if line.startswith("error: ") else line for line in err.strip().splitlines()]
        raise (InputError if code == 1 else Error)("\n".join(lines) or out.strip() or "exit code {}".format(code), code)
    for line in err.splitlines():
        for start in ("note: ", "warning: "):
            if line.startswith(start):
                _warnings.warn(line[len(start):], Note, stacklevel=_depth())
    return out


def _depth() -> int:
    """How far up the caller of this package is."""
    frame, depth = _sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__") == __name__:
        frame, depth = frame.f_back, depth + 1
    return depth


def _options(options: Mapping[str, Any]) -> "list[str]":
    words = []
    for name, value in options.items():
        option = "--" + name.replace("_", "-")
        if value is None or value is False:
            continue
        if value is True:
            words.append(option)
        elif isinstance(value, Mapping):
            words += ["{}={}={}".format(option, key, of) for key, of in value.items()]
        elif isinstance(value, (list, tuple)):
            words += ["{}={}".format(option, one) for one in value]
        else:
            words.append("{}={}".format(option, _os.fspath(value) if isinstance(value, _os.PathLike) else value))
    return words


def columns() -> "dict[str, dict[str, Any]]":
    """The columns that results may have: for each its unit (or None), whether it holds numbers, and what it means."""
    return {name: {"unit": unit, "number": number, "meaning": meaning} for name, number, unit, meaning in _native.columns()}


def units() -> "dict[str, str]":
    """The units of the columns that have one: ``{"iteration_s": "s", ...}``."""
    return {name: unit for name, _, unit, _ in _native.columns() if unit}


class Mapped(dict):
    """The answer of :func:`map`: what ``flowspace map --format json`` prints, as a dictionary."""

    def _repr_html_(self) -> str:
        rows = [(key, value) for key, value in self.items() if not isinstance(value, (dict, list))]
        cells = "".join(
            "<tr><th style='text-align:left'>{}</th><td style='text-align:left'>{}</td></tr>".format(
                _html.escape(str(key)), _html.escape("{:.6g}".format(value) if isinstance(value, float) else str(value))
            )
            for key, value in rows
        )
        return "<table>{}</table>".format(cells)


def map(workload: PathLike, system: PathLike, **options: Any) -> Mapped:
    """The best mapping of a workload onto a system, with its proof."""
    return Mapped(_json.loads(run("map", "--workload", workload, "--system", system, "--format", "json", *_options(options))))


def explain(workload: PathLike, system: PathLike, **options: Any) -> str:
    """What binds a mapping, and what more of each resource would bring."""
    return run("explain", "--workload", workload, "--system", system, *_options(options))


def _table(path: PathLike) -> _Path:
    path = _Path(path)
    return path / "results.csv" if path.is_dir() else path


def read(path: PathLike, engine: str = "pandas") -> Any:
    """Results as a table of pandas, or of polars with ``engine="polars"``.

    ``path`` is the folder of a study or a table in it (``results.csv``, ``front.csv``). Columns of numbers are floating point with NaN (polars: null) where
    they are empty, all others are texts. Of pandas ``attrs`` has ``units`` (of every column with one), ``manifest`` (what the study was run with, or
    None) and ``path``. The same table in Parquet beside it (``parquet=True`` of :func:`study`) is read instead where its manifest vouches for both, as that
    is quicker; pandas needs pyarrow for it.
    """
    table = _table(path)
    typed = table.with_suffix(".parquet")
    if table.suffix == ".csv" and typed.exists() and _can_read_parquet(engine) and _native.vouched([table, typed]):
        return _typed_frame(typed, table, engine)
    try:
        data = table.read_bytes()
    except OSError as error:
        raise InputError("{}: {}".format(table, error.strerror or error), 1) from None
    return _frame(data, table, engine)


def _can_read_parquet(engine: str) -> bool:
    from importlib.util import find_spec

    return engine == "polars" or (engine == "pandas" and find_spec("pyarrow") is not None)


def _typed_frame(typed: _Path, table: _Path, engine: str) -> Any:
    if engine == "polars":
        import polars

        return polars.read_parquet(typed)
    import pandas

    frame = pandas.read_parquet(typed)
    # As the CSV reads: texts that are empty are texts.
    texts = [name for name in frame.columns if frame[name].dtype.kind not in "if"]
    frame[texts] = frame[texts].astype("str").where(frame[texts].notna(), "")
    _describe(frame, list(frame.columns), table)
    return frame


def _frame(data: bytes, table: _Path, engine: str) -> Any:
    if engine not in ("pandas", "polars"):
        raise ValueError("expected engine pandas or polars, found {!r}".format(engine))
    header = data.split(b"\n", 1)[0].decode().strip().split(",")
    if header[0] != "point" or "status" not in header:
        raise InputError("{}: expected the results of a study (columns point, ..., status, ...)".format(table), 1)
    numbers = set(_numbers(header))
    if engine == "polars":
        import polars

        schema = {name: (polars.Int64 if name == "point" else polars.Float64 if name in numbers else polars.String) for name in header}
        return polars.read_csv(_io.BytesIO(data), schema=schema)
    import pandas

    types = {name: ("int64" if name == "point" else "float64" if name in numbers else "str") for name in header}
    frame = pandas.read_csv(_io.BytesIO(data), dtype=types, keep_default_na=False, na_values={name: [""] for name in numbers})
    _describe(frame, header, table)
    return frame


def _numbers(header: "list[str]") -> "dict[str, Optional[str]]":
    """The columns of numbers, each with its unit where it has one."""
    known, known_units = columns(), units()
    suffixes = ("bytes_per_s", "flop_per_s", "j_per_byte", "j_per_flop", "bytes", "flop", "s", "hz", "w", "usd")
    axes = header[1:min(header.index(name) for name in header if name in known and name != "point")]

    def of_axis(name: str) -> Optional[str]:
        # Numbers of an axis stand in a column of its name and the base unit.
        for axis in axes:
            for start in (axis + "_", "axis_" + axis + "_"):
                if name not in known and name.startswith(start) and name[len(start):] in suffixes:
                    return name[len(start):].replace("_per_", "/")
        return None

    found = {}
    for name in header:
        unit = of_axis(name)
        if unit or (name in known and known[name]["number"]):
            found[name] = known_units.get(name) or unit
    return found


def _describe(frame: Any, header: "list[str]", table: _Path) -> None:
    """What a table of pandas says beside its rows."""
    beside = table.parent / "manifest.json"
    frame.attrs["units"] = {name: unit for name, unit in _numbers(header).items() if unit}
    frame.attrs["manifest"] = _json.loads(beside.read_text()) if beside.exists() else None
    frame.attrs["path"] = str(table)


def study(file: PathLike, out: Optional[PathLike] = None, engine: str = "pandas", plots: bool = False, **options: Any) -> Any:
    """Runs a study and returns its results as :func:`read` does; ``out`` is the folder for them, a new temporary one if left out.

    Points without a plan are rows with a status, not errors. ``plots=True`` draws the figures and writes ``report.html`` too.
    """
    folder = _Path(out) if out is not None else _Path(_tempfile.mkdtemp(prefix="flowspace-"))
    run("study", "run", file, "--out", folder, *_options({"no_plots": not plots, **options}))
    return read(folder, engine)


def front(path: PathLike, engine: str = "pandas") -> Any:
    """The front that a study with ``search:`` proved, as :func:`read` does."""
    return read(_Path(path) / "front.csv" if _Path(path).is_dir() else path, engine)


def show(results: Any, point: int, **options: Any) -> str:
    """One point of results: its labels, its plan, what binds it, its system."""
    return run("study", "show", _path_of(results), "--point", point, *_options(options))


def where(results: Any, condition: str, engine: str = "pandas") -> Any:
    """Rows of results for which a condition holds, as :func:`read` does: ``where(frame, "status == optimal and cost_usd < $10M")``."""
    path = _path_of(results)
    return _frame(run("study", "where", path, condition, "--format", "csv").encode(), _Path(path), engine)


def compare(a: Any, b: Any, **options: Any) -> Any:
    """What changed between two tables of results, and by how much."""
    return _json.loads(run("study", "compare", _path_of(a), _path_of(b), "--format", "json", *_options(options)))


def _path_of(results: Any) -> str:
    attrs = getattr(results, "attrs", None)
    if isinstance(attrs, dict) and "path" in attrs:
        return attrs["path"]
    if isinstance(results, (str, _os.PathLike)):
        return str(_table(results))
    raise TypeError("expected the folder or file of results, or a table of read() (pandas), found {}".format(type(results).__name__))


class Figure:
    """A figure as flowspace draws it: shown by notebooks, saved as SVG, PNG or PDF."""

    def __init__(self, svg: str, png: bytes, pdf: bytes):
        self.svg, self.png, self.pdf = svg, png, pdf

    def _repr_svg_(self) -> str:
        return self.svg

    def save(self, path: PathLike) -> None:
        """Writes it; the ending of the name says how."""
        path = _Path(path)
        kinds = {".svg": self.svg.encode(), ".png": self.png, ".pdf": self.pdf}
        if path.suffix not in kinds:
            raise ValueError("expected a name that ends in .svg, .png or .pdf, found {!r}".format(path.name))
        path.write_bytes(kinds[path.suffix])


def figure(results: Any, kind: str, **options: Any) -> Figure:
    """One figure of results (several are drawn over each other): ``figure(frame, "pareto", x="cost_usd", y="samples_per_s", log_x=True)``."""
    tables: Sequence[Any] = results if isinstance(results, (list, tuple)) else [results]
    folder = _Path(_tempfile.mkdtemp(prefix="flowspace-"))
    try:
        run("plot", *[_path_of(table) for table in tables], "--kind", kind, "--out", folder / "figure", *_options(options))
        drawn = {ending: (folder / ("figure." + ending)).read_bytes() for ending in ("svg", "png", "pdf")}
    finally:
        _shutil.rmtree(folder, ignore_errors=True)
    return Figure(drawn["svg"].decode(), drawn["png"], drawn["pdf"])
