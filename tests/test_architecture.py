"""The arrows between the rooms: who may import whom."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ops.cli import ROOT

FORBIDDEN_TO_API = ("torch", "worker.engine", "worker.models", "worker.kernels")
PROTOCOL_MAY_IMPORT = {*sys.stdlib_module_names, "msgspec", "redis"}
CELERY = "celery"


def modules(folder: str) -> Iterator[Path]:
    return (ROOT / folder).rglob("*.py")


def imported(module: Path) -> set[str]:
    """Dotted names that a module imports anywhere in it, each with its parents."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: relative import"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {".".join(name.split(".")[: depth + 1]) for name in names for depth in range(name.count(".") + 1)}


def offenders(folder: str, *forbidden: str) -> list[str]:
    return [
        f"{module.relative_to(ROOT)} imports {name}"
        for module in modules(folder)
        for name in sorted(imported(module) & set(forbidden))
    ]


def test_the_api_imports_neither_torch_nor_the_engine() -> None:
    assert offenders("api", *FORBIDDEN_TO_API) == []


def test_only_the_app_and_the_routes_know_the_routes() -> None:
    everywhere = offenders("api", "api.routes")

    assert [line for line in everywhere if not line.startswith(("api/routes/", "api/app.py"))] == []


def test_the_worker_never_imports_the_api_nor_the_house() -> None:
    assert offenders("worker", "api", "ops") == []


def test_the_protocol_imports_the_standard_library_msgspec_and_redis_alone() -> None:
    foreign = {
        f"{module.relative_to(ROOT)} imports {name}"
        for module in modules("worker/protocol")
        for name in imported(module)
        if name.partition(".")[0] not in PROTOCOL_MAY_IMPORT
        and name != "worker"
        and not name.startswith("worker.protocol")
    }

    assert foreign == set()


def test_celery_is_used_for_the_batch_life_cycle_alone() -> None:
    everywhere = [line for folder in ("api", "worker", "ops") for line in offenders(folder, CELERY)]

    assert [line for line in everywhere if not line.startswith("api/batch/")] == []


def test_the_worker_package_is_empty_so_that_importing_the_protocol_runs_nothing_else() -> None:
    assert (ROOT / "worker/__init__.py").read_text() == ""


@pytest.mark.parametrize("program", ["api", "worker.protocol"])
def test_given_every_module_of_the_api_or_protocol_then_torch_is_not_loaded(program: str) -> None:
    names = [
        ".".join(module.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for module in sorted(modules(program.replace(".", "/")))
    ]
    code = (
        "import importlib, sys\n"
        f"for name in {names!r}: importlib.import_module(name)\n"
        f"print(sorted(set({FORBIDDEN_TO_API!r}) & set(sys.modules)))"
    )
    command = [sys.executable, "-c", code]

    assert subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout == "[]\n"
