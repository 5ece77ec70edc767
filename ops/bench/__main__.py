"""``make bench``: run the benchmarks and print their table."""

from ops.bench.admission import measure_admission
from ops.bench.local_stack import local_stack
from worker.protocol.model_identity import resolve_model


def main() -> None:
    _, model = resolve_model("")
    with local_stack() as stack:
        result = measure_admission(stack, model)
    print(f"""
| full queue: {result.num_admitted + result.num_refused} requests at once, room for {result.num_admitted} | ms |
|---|---|
| refused with 429, p50 | {result.refusal_p50_ms:.0f} |
| refused with 429, p99 | {result.refusal_p99_ms:.0f} |
| slowest /livez meanwhile | {result.probe_max_ms:.0f} |
""")


if __name__ == "__main__":
    main()
