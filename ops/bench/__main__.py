"""``make bench``: run the benchmarks, print their tables and keep them with a picture and all raw figures."""

import shlex
import sys
import time

from ops.bench.admission import AdmissionResult, measure_admission
from ops.bench.bench_model import default_model
from ops.bench.local_stack import local_stack
from ops.bench.machine import describe_machine
from ops.bench.measurement import figures
from ops.bench.options import ADMISSION, Options, read_options
from ops.bench.own_server import HEADRACE
from ops.bench.picture import svg
from ops.bench.results import Results, save
from ops.bench.rounds import run
from ops.bench.server import end_in_order_when_told
from ops.bench.table import markdown


def main() -> None:
    end_in_order_when_told()
    options = read_options()
    options.out.mkdir(parents=True, exist_ok=True)
    began_s = time.monotonic()
    results = run(options, lambda so_far: _keep(options, so_far, began_s))
    if ADMISSION in options.workloads and HEADRACE in options.servers:
        results.admission = _measure_admission()
    print(_keep(options, results, began_s))


def _measure_admission() -> AdmissionResult:
    model = default_model()
    with local_stack() as stack:
        return measure_admission(stack, model.name)


def _keep(options: Options, results: Results, began_s: float) -> str:
    """Writes everything into the folder of results; the text of the tables."""
    results.machine = describe_machine()
    results.date = time.strftime("%Y-%m-%d", time.gmtime())
    results.command = _command()
    results.took_s = time.monotonic() - began_s
    text = markdown(results)
    save(results, options.out)
    (options.out / "results.md").write_text(text)
    (options.out / "results.svg").write_text(svg(figures(results.measurements), HEADRACE, results.machine))
    return text


def _command() -> str:
    arguments = shlex.join(sys.argv[1:])
    return f'make bench ARGS="{arguments}"' if arguments else "make bench"


if __name__ == "__main__":
    main()
