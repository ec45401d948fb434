"""Filters over events, such as `data.cents > 0`: expressions of CEL, checked when declared, bounded in their cost.

A filter knows these variables, each also as `event.type` and so on:

    data                  the particulars, null if there are none or if they are not JSON
    type, source, id      texts; the id is the `event_id`
    subject               a text or null
    time                  a timestamp; without one the filter cannot be evaluated
    datacontenttype       a text
    dataschema            a text or null
    extensions            further attributes by their names

A filter that cannot be evaluated, since a field is missing or a value has another type, does not match, and says why.
"""

from __future__ import annotations

import functools
import importlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from semel.codec import MAX_DEPTH, MAX_PAYLOAD
from semel.errors import ConfigError, InvalidValue, phrase, phrase_with_type
from semel.triggers.filter_cost import PATTERN_LENGTH, SMALLEST, SyntaxTree
from semel.triggers.simple_filters import decide_simple, read_simple

if TYPE_CHECKING:
    from semel.triggers.envelope import EventEnvelope

WHERE_LENGTH: Final = 4000
"""Characters of a filter."""
PROBLEM_LENGTH: Final = 300
VARIABLES: Final = (
    "data",
    "type",
    "source",
    "id",
    "subject",
    "time",
    "datacontenttype",
    "dataschema",
    "extensions",
)

_PLACE: Final = re.compile(r"ERROR: <input>:(-?\d+):(-?\d+): (.*)")
_STATUS: Final = re.compile(r"^[A-Z_]+: ")
_MISSING_FIELD: Final = re.compile(r'NOT_FOUND: Key not found in map : "(.*)"', re.DOTALL)
_MISSING_VARIABLE: Final = re.compile(r'UNKNOWN: No value with name "event\.(\w+)" found')
_NO_OVERLOAD: Final = re.compile(r"UNKNOWN: No matching overloads found : (.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class FilterResult:
    """Whether an event matched; `problem` says why the filter could not be evaluated, which never matches."""

    matched: bool
    problem: str | None = None


MATCHED: Final = FilterResult(True)
NOT_MATCHED: Final = FilterResult(False)


class FilterInput:
    """An event as filters read it. Make one for an event that many filters decide about: it is converted only once.

    `encoded` is the JSON of the whole event, where it is known: of a small one it says enough.
    """

    __slots__ = ("_activations", "event", "problem", "size")

    def __init__(self, event: EventEnvelope, encoded: bytes | None = None) -> None:
        self.event = event
        self._activations: dict[tuple[str, ...], Any] = {}
        self.problem: str | None = None
        if encoded is not None and len(encoded) <= SMALLEST and _is_harmless(encoded):
            self.size = len(encoded)
        else:
            self.size, self.problem = _inspect(event)

    def convert(self, names: tuple[str, ...]) -> Any:
        """The values of these variables, as the library reads them."""
        found = self._activations.get(names)
        if found is None:
            found = self._activations[names] = _environment().Activation(_variables(self.event, names))
        return found


class Expression:
    """A compiled expression over an event. `text` is what was written.

    `largest_event` is how many bytes of data and extensions, as JSON, it reads at most: more might take too long.
    """

    __slots__ = ("_program", "_reads", "_simple", "largest_event", "returns", "text")

    def __init__(self, text: str, program: Any, largest_event: int) -> None:
        self.text = text
        self.largest_event = largest_event
        self.returns = program.return_type()
        self._program = program
        self._reads = tuple(name for name in VARIABLES if name in text)
        """The variables that it may read: it has to name them."""
        self._simple = read_simple(text)

    def evaluate(self, given: FilterInput) -> tuple[Any, str | None]:
        """The value, or None and the problem why there is none. Never raises."""
        if given.problem is not None:
            return None, given.problem
        if given.size > self.largest_event:
            return None, _too_large(given.size, self.largest_event)
        if self._simple is not None and (decided := decide_simple(self._simple, given.event.data)) is not None:
            return decided, None
        try:
            value = self._program.eval(given.convert(self._reads))
            # An error is a value here, and a text: taken for a truth value it would match.
            if value.type() == _error_type():
                return None, _explain(str(value.value()))
            return value.value(), None
        except Exception as error:  # whatever the library does, a filter fails closed
            return None, _explain(phrase_with_type(error))


class EventFilter:
    """A filter that is ready to decide about events. `where` is its text, `largest_event` what it reads at most."""

    __slots__ = ("_expression", "largest_event", "where")

    def __init__(self, expression: Expression) -> None:
        self.where = expression.text
        self.largest_event = expression.largest_event
        self._expression = expression

    def __repr__(self) -> str:
        return f"EventFilter({self.where!r})"

    def decide(self, event: EventEnvelope | FilterInput) -> FilterResult:
        """Does the event match? Never raises: what cannot be evaluated does not match, and has a problem."""
        try:
            given = event if isinstance(event, FilterInput) else FilterInput(event)
        except Exception as error:
            return FilterResult(False, _explain(phrase_with_type(error)))
        value, problem = self._expression.evaluate(given)
        if problem is not None:
            return FilterResult(False, problem)
        if value is True:
            return MATCHED
        if value is False:
            return NOT_MATCHED
        return FilterResult(False, f"the filter gives {_name_type(value)}, not true or false")


def compile_filter(where: str) -> EventFilter:
    """Check a filter and make it ready. Raises InvalidValue that names the expression, and where it is wrong."""
    expression = compile_expression(where, "where")
    if expression.returns not in (_cel().Type.BOOL, _cel().Type.DYN):
        raise InvalidValue(
            f"where={_shorten(where)!r} gives a value of the type {expression.returns.name().lower()}, not true or "
            "false: compare it with something, as in 'data.cents > 0'."
        )
    return EventFilter(expression)


def compile_expression(text: str, what: str) -> Expression:
    """Check an expression over an event and make it ready. Raises InvalidValue that begins with `what`."""
    if not isinstance(text, str):
        raise InvalidValue(f"{what}={text!r} is a {type(text).__name__}: give an expression, such as 'data.cents > 0'.")
    shown = f"{what}={_shorten(text)!r}"
    if len(text) > WHERE_LENGTH:
        raise InvalidValue(f"{shown} has {len(text):,} characters: use at most {WHERE_LENGTH:,}.")
    if not text.strip():
        raise InvalidValue(f"{shown} is blank: give an expression, such as 'data.cents > 0', or none.")
    try:
        text.encode()
        program = _environment().compile(text)
    except UnicodeEncodeError as error:
        raise InvalidValue(f"{shown} holds a lone surrogate at position {error.start}: it is not valid text.") from None
    except RuntimeError as error:
        raise InvalidValue(f"{shown}{_locate(str(error))}") from None
    try:
        tree = SyntaxTree(program.serialize())
        for pattern in tree.patterns():
            _check_pattern(pattern)
        return Expression(text, program, tree.largest_event())
    except InvalidValue as error:
        raise InvalidValue(f"{shown}: {phrase(error)}.") from None


def _shorten(text: str) -> str:
    return text if len(text) <= 100 else f"{text[:99]}…"


def _name_type(value: object) -> str:
    kinds = {str: "a text", int: "a number", float: "a number", list: "a list", dict: "a table", type(None): "null"}
    return kinds.get(type(value), "something else")


def _check_pattern(pattern: str) -> None:
    """Refuse a regular expression that is wrong, which would only show when an event comes."""
    if len(pattern) > PATTERN_LENGTH:
        raise InvalidValue(f"a pattern has {len(pattern):,} characters: use at most {PATTERN_LENGTH:,}.")
    tried = _pattern_check().eval(data={"text": "", "pattern": pattern})
    if tried.type() == _cel().Type.ERROR:
        raise InvalidValue(f"the pattern {pattern!r} is wrong: {_explain(str(tried.value()))}.")


@functools.cache
def _pattern_check() -> Any:
    kind = _cel().Type.STRING
    return _cel().NewEnv(variables={"text": kind, "pattern": kind}).compile("text.matches(pattern)")


@functools.cache
def _cel() -> Any:
    try:
        cel = importlib.import_module("cel_expr_python.cel")  # it has no types
    except ImportError:
        raise ConfigError("filters of events need the extra: pip install 'semel[cel]'.") from None
    return cel


@functools.cache
def _error_type() -> Any:
    return _cel().Type.ERROR


@functools.cache
def _environment() -> Any:
    types = _cel().Type
    kinds = {
        "data": types.DYN,
        "type": types.STRING,
        "source": types.STRING,
        "id": types.STRING,
        "subject": types.DYN,
        "time": types.TIMESTAMP,
        "datacontenttype": types.STRING,
        "dataschema": types.DYN,
        "extensions": types.Map(types.STRING, types.DYN),
    }
    # The name `type` alone would be CEL's own function. In a container `event` the variable `event.type` comes first.
    return _cel().NewEnv(container="event", variables={f"event.{name}": kind for name, kind in kinds.items()})


def _variables(event: EventEnvelope, names: tuple[str, ...]) -> dict[str, Any]:
    variables = {f"event.{name}": getattr(event, "event_id" if name == "id" else name) for name in names}
    if event.time is None:
        variables.pop("event.time", None)
    return variables


def _is_harmless(encoded: bytes) -> bool:
    """Is an event, by its JSON, surely free of what `_inspect` looks for?"""
    return encoded.count(b"[") + encoded.count(b"{") <= MAX_DEPTH and b"\\u0000" not in encoded


def _inspect(event: EventEnvelope) -> tuple[int, str | None]:
    """How many bytes filters would read, and why they cannot: the library would crash, or read something else.

    It reads a text up to its first NUL only, and runs out of stack where data is nested too deeply.
    """
    read = [event.data, event.extensions]
    try:
        encoded = msgspec.json.encode(read)
    except RecursionError:
        return 0, f"its data is nested deeper than {MAX_DEPTH} levels"
    except (UnicodeEncodeError, TypeError, ValueError, OverflowError, msgspec.MsgspecError) as error:
        return 0, f"its data is not JSON: {phrase_with_type(error)}"
    size = len(encoded)
    if size > MAX_PAYLOAD:
        return size, _too_large(size, MAX_PAYLOAD)
    if encoded.count(b"[") + encoded.count(b"{") > MAX_DEPTH and _depth(event.data) > MAX_DEPTH:
        return size, f"its data is nested deeper than {MAX_DEPTH} levels"
    if b"\\u0000" in encoded and _has_nul(read):
        return size, "it holds a NUL character"
    return size, None


def _too_large(size: int, most: int) -> str:
    return f"its data takes {size:,} bytes as JSON: this filter reads at most {most:,}"


def _depth(value: Any) -> int:
    """How deep data is nested. Whoever asks has encoded it, so it is not too deep to be walked."""
    if isinstance(value, dict):
        return 1 + max(map(_depth, value.values()), default=0)
    if isinstance(value, list | tuple):
        return 1 + max(map(_depth, value), default=0)
    return 0


def _has_nul(value: Any) -> bool:
    if isinstance(value, str):
        return "\0" in value
    if isinstance(value, dict):
        return any(map(_has_nul, value)) or any(map(_has_nul, value.values()))
    return isinstance(value, list | tuple) and any(map(_has_nul, value))


def _locate(message: str) -> str:
    """Where in an expression something is wrong, and what, from what the compiler says."""
    found = _PLACE.search(message)
    if "recursion" in message:
        return " is nested too deeply: write it with fewer parentheses, selections and calls inside each other."
    if found is None:
        return f": {_tidy(_STATUS.sub('', message))}."
    line, column, what = int(found[1]), int(found[2]), found[3].removesuffix(" [INVALID_ARGUMENT]")
    place = f", line {line}, column {column}" if line > 1 else f", column {column}" if column > 0 else ""
    undeclared = re.match(r"undeclared reference to '(.*?)'", what)
    if undeclared:
        known = ", ".join(VARIABLES)
        return f"{place}: there is no variable or function {undeclared[1]!r}. The variables are {known}."
    return f"{place}: {_tidy(what.replace(chr(39) + '<EOF>' + chr(39), 'the end of the expression'))}."


def _explain(message: str) -> str:
    """Why a filter could not be evaluated, from what the library says."""
    if missing := _MISSING_FIELD.match(message):
        return _tidy(f"there is no field {missing[1]!r}")
    if missing := _MISSING_VARIABLE.match(message):
        return f"the event has no {missing[1]}"
    if found := _NO_OVERLOAD.match(message):
        return _tidy(f"these types do not go together: {found[1]}")
    if "Applying SELECT" in message:
        return "it reads a field of a value that has no fields"
    if "Iteration budget exceeded" in message:
        return "it goes through more than 10,000 entries"
    return _tidy(_STATUS.sub("", message))


def _tidy(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= PROBLEM_LENGTH else f"{text[: PROBLEM_LENGTH - 1]}…"
