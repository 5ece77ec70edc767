"""``make bench``: run the benchmarks, print their tables and keep them with a picture and all raw figures."""

import sys

import msgspec

from ops.bench.admission import AdmissionResult, measure_admission
from ops.bench.bench_model import default_model
from ops.bench.local_stack import local_stack
from ops.bench.machine import describe_machine
from ops.bench.measurement import figures
from ops.bench.options import ADMISSION, Options, read_options
from ops.bench.own_server import HEADRACE
from ops.bench.picture import svg
from ops.bench.rounds import Results, run
from ops.bench.table import markdown


def main() -> None:
    options = read_options()
    options.out.mkdir(parents=True, exist_ok=True)
    results = run(options, lambda so_far: _write(options, so_far))
    is_asked = ADMISSION in options.workloads and HEADRACE in options.servers
    print(_write(options, results, _admission(_measure_admission()) if is_asked else ""))


def _measure_admission() -> AdmissionResult:
    model = default_model()
    with local_stack() as stack:
        return measure_admission(stack, model.name)


def _admission(result: AdmissionResult) -> str:
    return f"""
| full queue: {result.num_admitted + result.num_refused} requests at once, room for {result.num_admitted} | ms |
|---|---|
| refused with 429, p50 | {result.refusal_p50_ms:.0f} |
| refused with 429, p99 | {result.refusal_p99_ms:.0f} |
| slowest /livez meanwhile | {result.probe_max_ms:.0f} |
"""


def _write(options: Options, results: Results, more: str = "") -> str:
    """Keeps everything in the folder of results; the text of the tables."""
    text = markdown(results, describe_machine(), _command()) + more
    (options.out / "results.md").write_text(text)
    (options.out / "results.svg").write_text(svg(figures(results.measurements), HEADRACE, describe_machine()))
    (options.out / "measurements.json").write_bytes(msgspec.json.encode(results.measurements))
    return text


def _command() -> str:
    arguments = " ".join(sys.argv[1:])
    return f'make bench ARGS="{arguments}"' if arguments else "make bench"


if __name__ == "__main__":
    main()
