"""The rooms of the project and the doors between them, enforced on the source text.

The rules are those of README, "How it is built": imports point one way, heavy libraries stay in
their rooms, the clock is read where a clock belongs, and `--help` loads nothing heavy.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("engines", "harness", "analysis", "reference_engine")
MAY_IMPORT = {
    "engines": {"engines"},
    "harness": {"engines", "harness"},
    "analysis": {"engines", "harness", "analysis"},
    "reference_engine": {"reference_engine"},
}
EMBEDDED = "engines/embedded"
COMPOSITION_ROOT = "harness/cli"
TORCH_FREE = (
    "reference_engine/scheduler",
    "reference_engine/sequence.py",
    "reference_engine/messages.py",
)
TORCH_ALLOWED = ("reference_engine/", "analysis/speech/")
CLOCK_ALLOWED = (
    "harness/clock.py",
    "harness/wire/",
    "harness/truth/",
    "engines/embedded/",
    "reference_engine/clock.py",
)
CLOCK_CALLS = {
    "time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns",
    "clock_gettime", "clock_gettime_ns",
}  # fmt: skip
MAX_MODULE_LINES = 500
MAX_FUNCTION_LINES = 60
TOP_LEVEL = {
    "pyproject.toml", "README.md", "harness", "engines", "reference_engine", "analysis",
    "scenarios", "tests", "results", "Makefile", "LICENSE", "CHANGELOG.md", ".gitignore", ".ci",
    ".github",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Module:
    """One source file: its path from the root, and its syntax tree."""

    path: str
    tree: ast.Module
    num_lines: int

    @property
    def room(self) -> str:
        return self.path.split("/", 1)[0]

    def imports(self) -> Iterator[str]:
        """Every absolute module name it imports, wherever in the file."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
                yield node.module


def _modules() -> list[Module]:
    found = []
    for room in ROOMS:
        for file in sorted((ROOT / room).rglob("*.py")):
            text = file.read_text(encoding="utf-8")
            path = file.relative_to(ROOT).as_posix()
            found.append(Module(path, ast.parse(text, path), text.count("\n")))
    return found


MODULES = _modules()


def test_imports_point_one_way():
    """engines <- harness <- analysis; reference_engine stands alone; only the CLI sees all."""
    wrong = [
        f"{module.path} imports {name}"
        for module in MODULES
        if not module.path.startswith(COMPOSITION_ROOT)
        for name in module.imports()
        if name.split(".")[0] in ROOMS and name.split(".")[0] not in MAY_IMPORT[module.room]
    ]

    assert [] == wrong


def test_nothing_imports_the_command_line():
    """The composition root is used by nobody."""
    wrong = [
        module.path
        for module in MODULES
        if not module.path.startswith(COMPOSITION_ROOT)
        for name in module.imports()
        if name == "harness.cli" or name.startswith("harness.cli.")
    ]

    assert [] == wrong


def test_nothing_imports_the_gpl_folder():
    """The embedded voice is reached as a process, never as a module."""
    wrong = [
        module.path
        for module in MODULES
        if not module.path.startswith(EMBEDDED)
        for name in module.imports()
        if name == "engines.embedded" or name.startswith("engines.embedded.")
    ]

    assert [] == wrong


def test_gpl_packages_are_imported_in_the_gpl_folder_alone():
    """piper is named nowhere else in the packages."""
    wrong = [
        module.path
        for module in MODULES
        if not module.path.startswith(EMBEDDED)
        for name in module.imports()
        if name.split(".")[0] == "piper"
    ]

    assert [] == wrong


def test_torch_stays_in_its_rooms():
    """torch is imported by the reference engine and the local transcribers, and nowhere else."""
    wrong = [
        module.path
        for module in MODULES
        for name in module.imports()
        if name.split(".")[0] == "torch"
        and (not module.path.startswith(TORCH_ALLOWED) or module.path.startswith(TORCH_FREE))
    ]

    assert [] == wrong


def test_cuda_graphs_are_named_in_graphs_alone():
    """Only reference_engine/graphs.py captures or replays."""
    wrong = [
        module.path
        for module in MODULES
        if module.path != "reference_engine/graphs.py"
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Attribute) and node.attr in {"CUDAGraph", "graph_pool_handle"}
    ]

    assert [] == wrong


def _clock_reads(module: Module) -> Iterator[int]:
    """Lines that read a clock through `time.<name>` or a name imported from `time`."""
    imported = {
        alias.asname or alias.name
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ImportFrom) and node.module == "time"
        for alias in node.names
        if alias.name in CLOCK_CALLS
    }
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Attribute) and node.attr in CLOCK_CALLS:
            if isinstance(node.value, ast.Name) and node.value.id == "time":
                yield node.lineno
        elif isinstance(node, ast.Name) and node.id in imported:
            yield node.lineno


def test_clocks_are_read_where_a_clock_belongs():
    """Elsewhere time comes in as an argument, so that it can be faked."""
    wrong = [
        f"{module.path}:{line}"
        for module in MODULES
        if not module.path.startswith(CLOCK_ALLOWED)
        for line in _clock_reads(module)
    ]

    assert [] == wrong


def test_gate_alone_says_pass_or_fail():
    """No other module of analysis builds a verdict."""
    wrong = [
        module.path
        for module in MODULES
        if module.room == "analysis" and module.path != "analysis/gate.py"
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ClassDef) and node.name == "GateVerdict"
    ]

    assert [] == wrong


def _published(tree: ast.Module) -> set[str] | None:
    """What `__all__` names; None where there is none."""
    for node in tree.body:
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Name)
            and node.targets[0].id == "__all__"
        ):
            return set(ast.literal_eval(node.value))
    return None


def test_what_another_module_takes_is_public_where_it_comes_from():
    """Names in `__all__` are the promise; everything else may change without a search."""
    published = {
        module.path.removesuffix(".py").replace("/", ".").removesuffix(".__init__"): names
        for module in MODULES
        if (names := _published(module.tree)) is not None
    }
    wrong = [
        f"{module.path}: {alias.name} of {node.module}"
        for module in MODULES
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ImportFrom) and node.module in published
        for alias in node.names
        if alias.name not in published[node.module]
        and not (ROOT / node.module.replace(".", "/") / f"{alias.name}.py").is_file()
    ]

    assert [] == [each for each in wrong if not each.startswith("reference_engine/")]


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.path)
def test_modules_and_functions_stay_short(module: Module):
    """500 lines a module, 60 a function: past that a reader loses the thread."""
    long_functions = [
        f"{module.path}:{node.lineno} {node.name}"
        for node in ast.walk(module.tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or node.lineno) - node.lineno + 1 > MAX_FUNCTION_LINES
    ]

    assert [] == long_functions
    assert module.num_lines <= MAX_MODULE_LINES


def test_top_level_holds_what_it_is_meant_to_hold():
    """A newcomer finds the rooms and nothing else."""
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode != 0:
        pytest.skip("not a git checkout")

    assert set() == {line.split("/", 1)[0] for line in listed.stdout.split()} - TOP_LEVEL


def test_command_line_loads_nothing_heavy():
    """`earwitness --help` imports none of torch, pandas, scipy and matplotlib."""
    script = (
        "import sys, harness.cli.main as m\n"
        "try:\n m.app(['--help'], standalone_mode=False)\nexcept SystemExit: pass\n"
        "heavy = {'torch', 'pandas', 'scipy', 'matplotlib', 'numpy', 'aiohttp', 'pyarrow'}\n"
        "sys.stderr.write(' '.join(sorted(heavy & set(sys.modules))))"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert ran.stderr == ""
