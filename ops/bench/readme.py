"""``python -m ops.bench.readme RESULTS.json ...``: the figures of runs and their picture, put into the README."""

import argparse
import re
from collections.abc import Sequence
from pathlib import Path

from ops.bench.measurement import Figures, figures
from ops.bench.own_server import HEADRACE
from ops.bench.picture import svg
from ops.bench.results import Results, load
from ops.bench.table import limits, number, table, target_table
from ops.bench.targets import verdicts

BEGIN = "<!-- speed: written by python -m ops.bench.readme -->"
END = "<!-- end of speed -->"
PICTURE = Path("ops/bench/speed.svg")  # from the README's folder


def speed_section(runs: Sequence[Results]) -> str:
    """Of each run machine, date, versions, the repeating command, and for each model its figures and targets."""
    parts = [f"![Headrace and its peers]({PICTURE})"]
    for results in runs:
        rows = figures(results.measurements)
        parts.append(
            f"Measured on {results.date}: {results.machine}. {limits(results)}\n\nAgain with `{results.command}` "
            f"({results.took_s / 60:.0f} minutes); servers and load share the machine, and take turns."
        )
        for name in results.models:
            own = [row for row in rows if row.model == name]
            measured = [verdict for verdict in verdicts(results, name) if verdict.is_met is not None]
            parts += [f"### {name}", _figures_table(own), target_table(measured)]
    return "\n\n".join(part for part in parts if part)


def put(text: str, section: str) -> str:
    """`text` with the section between its marks. Raises ValueError where they are missing."""
    pattern = re.compile(f"{re.escape(BEGIN)}\n.*?{re.escape(END)}", re.DOTALL)
    if not pattern.search(text):
        raise ValueError(f"no {BEGIN} ... {END} in it")
    return pattern.sub(lambda _: f"{BEGIN}\n{section}\n{END}", text)


def _figures_table(rows: list[Figures]) -> str:
    """A row for each server, a column for each workload."""
    workloads = list(dict.fromkeys(row.workload for row in rows))
    by_place = {(row.server, row.workload): row for row in rows}
    return table(
        ("output tok/s (TTFT p50, ms)", *workloads),
        (
            (server, *(_cell(by_place.get((server, workload))) for workload in workloads))
            for server in dict.fromkeys(row.server for row in rows)
        ),
    )


def _cell(row: Figures | None) -> str:
    return f"{number(row.output_tokens_per_s)} ({number(row.ttft_p50)})" if row else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path, nargs="+", help="results.json of a run")
    parser.add_argument("--readme", type=Path, default=Path("README.md"), help="(%(default)s)")
    given = parser.parse_args()
    runs = [load(file) for file in given.results]
    given.readme.write_text(put(given.readme.read_text(), speed_section(runs)))
    measurements = [one for results in runs for one in results.measurements]
    (given.readme.parent / PICTURE).write_text(svg(figures(measurements), HEADRACE, runs[0].machine))


if __name__ == "__main__":
    main()
