"""Names say the thing, not the pattern."""

from tests.tidy.house import short, sources

SAYS_NOTHING = {"base", "common", "core", "helper", "helpers", "manager", "misc", "util", "utils"}


def test_files_and_folders_are_named_after_the_thing() -> None:
    vague = [
        short(path)
        for path in sources(".py", ".sql")
        if SAYS_NOTHING & {part.removesuffix(path.suffix) for part in path.parts[path.parts.index("semel") :]}
    ]
    assert vague == []
