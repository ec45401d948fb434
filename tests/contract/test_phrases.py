"""What an error says inside of another sentence: no name twice, no full stop twice."""

import pytest

import semel
from semel.contract.records import ErrorInfo
from semel.errors import phrase, phrase_with_type


@pytest.mark.parametrize(
    ("what", "said"),
    [
        (ValueError("no funds."), "no funds"),
        (ValueError("no funds"), "no funds"),
        (ValueError("tell me more..."), "tell me more..."),
        ("no funds. \n", "no funds"),
        (semel.EngineUnavailable("the ledger is away."), "the ledger is away"),
        (ErrorInfo("shop.Declined", "no funds."), "shop.Declined: no funds"),
        (ErrorInfo("semel.errors.NotFound", "NotFound [SEMEL-X01]: no such key."), "NotFound [SEMEL-X01]: no such key"),
        (ErrorInfo("TimeoutError", ""), "TimeoutError"),
        (ErrorInfo("", "no error was recorded"), "no error was recorded"),
    ],
)
def test_a_phrase_has_no_full_stop_and_no_name_twice(what: object, said: str) -> None:
    assert phrase(what) == said


def test_an_error_that_says_nothing_has_at_least_a_type() -> None:
    assert phrase_with_type(TimeoutError()) == "TimeoutError"
    assert phrase_with_type(OSError("gone.")) == "OSError: gone"
