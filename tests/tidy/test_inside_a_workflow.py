"""What runs inside a Temporal workflow reaches no client of the cluster, through none of the modules it imports."""

from pathlib import Path

import pytest

from tests.tidy.house import SRC, imports, parse, short, sources

TEMPORAL = SRC / "engines" / "temporal"
CLIENTS = ("temporalio.client", "temporalio.api.workflowservice")


def file_of(module: str) -> Path | None:
    """The file of one of Temporal's modules of ours; None for any other module."""
    path = SRC.parent / Path(*module.split(".")).with_suffix(".py")
    return path if path.is_relative_to(TEMPORAL) and path.exists() else None


@pytest.mark.parametrize("path", sources(".py", under=TEMPORAL / "inside"), ids=short)
def test_it_reaches_no_client(path: Path) -> None:
    reached, to_read = {path}, [path]
    while to_read:
        for line, module in imports(parse(one := to_read.pop())):
            assert not module.startswith(CLIENTS), f"{short(one)}:{line} imports {module}"
            file = file_of(module)
            if file is not None and file not in reached:
                reached.add(file)
                to_read.append(file)
