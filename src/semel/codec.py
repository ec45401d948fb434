"""Values to canonical JSON and back, by annotation. Never pickle.

Dataclasses, enums, datetime, Decimal, UUID, bytes, sets, tuples and (where pydantic is installed)
pydantic models make the round trip when the parameter or return type says so. What has no
annotation must be plain JSON, so that nothing comes back as something else.
"""

from __future__ import annotations

import inspect
import math
import re
import sys
import threading
import typing
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, combinations, islice
from types import SimpleNamespace
from typing import Any, Final, TypeVar, overload

import msgspec

from semel.contract.fingerprint import fingerprint
from semel.errors import DefinitionError, NotDecodable, NotEncodable, PayloadTooLarge, phrase

T = TypeVar("T")

MAX_PAYLOAD: Final = 1 << 20
MAX_DEPTH: Final = 64
MOST_GUESSES: Final = 1000
_SUSPECT: Final = 19
"""Digits of an integer that may be beyond 64 bits; what is shorter cannot be too deep either."""
_LONG_NUMBER: Final = re.compile(rb"\d{%d}" % _SUSPECT)
_STRIDE: Final = 9
_TWO_DIGITS: Final = re.compile(rb"\d\d")
"""So many digits in a row leave two beside each other where only every ninth byte is looked at."""
_HARMLESS: Final = (str, int, bool)
_VARIADIC: Final = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def _to_json(value: Any) -> Any:
    """What msgspec does not know: pydantic models, recognised without importing pydantic."""
    dump = getattr(type(value), "model_dump", None)
    if dump is not None:
        return _sort_sets(value, value.model_dump(mode="json"))
    raise TypeError(f"a {type(value).__name__} cannot be stored as JSON")


def _sort_sets(value: Any, dumped: Any) -> Any:
    """Sets in one order: theirs differs between processes, and would make the same input look like another."""
    if isinstance(dumped, dict):
        if isinstance(value, dict):
            return {key: _sort_sets(v, d) for v, (key, d) in zip(value.values(), dumped.items(), strict=False)}
        return {name: _sort_sets(getattr(value, name, None), d) for name, d in dumped.items()}
    if isinstance(dumped, list) and isinstance(value, list | tuple | set | frozenset):
        items = [_sort_sets(v, d) for v, d in zip(value, dumped, strict=False)]
        return items if isinstance(value, list | tuple) else sorted(items, key=_encoder.encode)
    return dumped


def _from_json(kind: type, value: Any) -> Any:
    if kind is object:
        return value
    validate = getattr(kind, "model_validate", None)
    if validate is not None:
        return validate(value)
    raise TypeError(f"a {kind.__name__} cannot be read from JSON")


_encoder: Final = msgspec.json.Encoder(enc_hook=_to_json, order="sorted")


_ANNOTATE: Final = "annotate the parameter (or return type) with its type, or pass plain JSON values."
SEND_DATA: Final = (
    "a signal carries plain JSON values. Send dataclasses.asdict(…) or model_dump(mode='json'), and read it with "
    "ctx.wait_signal(…, type=…)."
)
PUBLISH_DATA: Final = (
    "what is published are plain JSON values. Publish dataclasses.asdict(…) or model_dump(mode='json')."
)


def encode(value: Any, what: str, *, plain: bool = False, advice: str = _ANNOTATE, limit: int = MAX_PAYLOAD) -> bytes:
    """Canonical JSON: sorted keys, no white space. Raises NotEncodable with the path of what it cannot carry.

    `plain` refuses typed values too, with some advice.
    """
    try:
        data = _encoder.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        _check_encodable(value, what, plain=plain, advice=advice)
        data = _encode_with_keys(value, what, error)
    # NaN and Infinity come out as null: where there is a null, look for them; the same for what may be too deep
    # and for integers that other readers of JSON would round.
    if plain or b"null" in data or (len(data) >= _SUSPECT and _deep_or_long(data)):
        _check_encodable(value, what, plain=plain, advice=advice)
    if len(data) > limit:
        raise PayloadTooLarge(
            f"{what} takes {len(data):,} bytes as JSON; at most {limit:,} are stored. Keep the data elsewhere "
            "and pass a reference to it, or raise max_payload."
        )
    return data


def _deep_or_long(data: bytes) -> bool:
    if data.count(b"[") + data.count(b"{") > MAX_DEPTH:
        return True
    return _TWO_DIGITS.search(data[::_STRIDE]) is not None and _LONG_NUMBER.search(data) is not None


def _encode_with_keys(value: Any, what: str, error: Exception) -> bytes:
    """The encoder sorts keys only if all are str: `dict[int, …]` goes this slower way."""
    try:
        return _encoder.encode(msgspec.to_builtins(value, enc_hook=_to_json, str_keys=True))
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError):
        raise NotEncodable(f"{what} cannot be stored as JSON: {phrase(error)}.") from error


def _check_encodable(value: Any, path: str, *, plain: bool, advice: str = _ANNOTATE, depth: int = 0) -> None:
    """Raise NotEncodable that names the first value JSON cannot carry; `plain` also refuses typed values."""
    if depth > MAX_DEPTH:
        raise NotEncodable(f"{path} is nested deeper than {MAX_DEPTH} levels, or holds itself.")
    match value:
        case bool() | None:
            return
        case float() if not math.isfinite(value):
            raise NotEncodable(f"{path} is {value}: JSON has no such number. Use None or a string.")
        case int() if not -(1 << 63) <= value < (1 << 64):
            raise NotEncodable(f"{path} is an integer beyond 64 bits: pass it as a str or a Decimal.")
        case str():
            try:
                value.encode()
            except UnicodeEncodeError as error:
                raise NotEncodable(
                    f"{path} holds a lone surrogate at position {error.start}: it is not valid Unicode text. "
                    "Decode the original bytes properly, or pass bytes."
                ) from None
        case dict():
            for key, item in value.items():
                if plain and not isinstance(key, str):
                    raise NotEncodable(f"{path} has the key {key!r}: JSON keys are str; {advice}")
                if isinstance(key, str):
                    _check_encodable(key, f"a key of {path}", plain=plain, advice=advice, depth=depth)
                _check_encodable(item, f"{path}[{key!r}]", plain=plain, advice=advice, depth=depth + 1)
        case list() | tuple():
            for index, item in enumerate(value):
                _check_encodable(item, f"{path}[{index}]", plain=plain, advice=advice, depth=depth + 1)
        case int() | float():
            return
        case set() | frozenset() if not plain:
            for item in value:
                _check_encodable(item, f"a member of {path}", plain=plain, advice=advice, depth=depth + 1)
        case _:
            if plain:
                raise NotEncodable(f"{path} is a {type(value).__name__}: {advice}")
            _point_into(value, path, depth)


def _point_into(value: Any, path: str, depth: int) -> None:
    """The fields of a dataclass, a struct or a pydantic model."""
    kind = type(value)
    fields: tuple[str, ...] = tuple(
        getattr(kind, "__dataclass_fields__", ())
        or getattr(kind, "model_fields", ())
        or getattr(kind, "__struct_fields__", ())
    )
    for name in fields:
        _check_encodable(getattr(value, name), f"{path}.{name}", plain=False, depth=depth + 1)
    if not fields:
        try:
            _encoder.encode(value)
        except (TypeError, ValueError, msgspec.MsgspecError):
            raise NotEncodable(
                f"{path} is a {type(value).__name__}, which cannot be stored as JSON. "
                "Pass an id or plain data instead of the object."
            ) from None


def is_plain(annotation: Any) -> bool:
    """Does the annotation say nothing, so that only plain JSON comes back as it went?"""
    return annotation is Any or annotation is inspect.Parameter.empty or annotation is object


_building: Final = threading.RLock()
"""Held while msgspec works out what a type is made of. It does so on first use and keeps the unfinished result on the
class, where a second thread finds it: the process dies of SIGSEGV. A decoder that is finished is safe in any thread."""


@overload
def decoder_of(kind: type[T]) -> msgspec.json.Decoder[T]: ...
@overload
def decoder_of(kind: Any) -> msgspec.json.Decoder[Any]: ...
def decoder_of(kind: Any) -> msgspec.json.Decoder[Any]:
    """Make a JSON decoder of a type. Modules do it when they are imported, never on first use in some thread."""
    with _building:
        return msgspec.json.Decoder(kind)


@overload
def converter_of(kind: type[T]) -> Callable[[Any], T]: ...
@overload
def converter_of(kind: Any) -> Callable[[Any], Any]: ...
def converter_of(kind: Any) -> Callable[[Any], Any]:
    """Make a function that converts plain JSON values to a type; like `decoder_of`, when a module is imported."""
    decoder_of(kind)  # what msgspec works out for it is what a conversion uses, too

    def convert(value: Any) -> Any:
        return msgspec.convert(value, kind)

    return convert


def object_reader(name: str, fields: list[tuple[str, Any, Any]]) -> msgspec.json.Decoder[Any]:
    """Reads one JSON object of (name, annotation, default) fields; unknown ones are an error. TypeError: it cannot."""
    kind = msgspec.defstruct(name, fields, forbid_unknown_fields=True, kw_only=True)
    with _building:
        return msgspec.json.Decoder(kind, dec_hook=_from_json)


def reader_of(kind: Any) -> msgspec.json.Decoder[Any]:
    """Reads one JSON value as a type. TypeError: it is none that can be read."""
    with _building:
        return msgspec.json.Decoder(Any if is_plain(kind) else kind, dec_hook=_from_json)


def unreadable(reader: msgspec.json.Decoder[Any]) -> str | None:
    """The name of the first type, at any depth, that no JSON can be read into."""
    import msgspec.inspect as looking  # only where somebody asks: it takes a while to import

    todo: list[Any] = [looking.type_info(reader.type)]
    seen: set[int] = set()
    while todo:
        node = todo.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, looking.CustomType) and node.cls is not object and not hasattr(node.cls, "model_validate"):
            return str(getattr(node.cls, "__name__", node.cls))
        for name in ("item_type", "key_type", "value_type", "type", "types", "item_types", "fields"):
            inner = getattr(node, name, ())
            todo += inner if isinstance(inner, tuple) else (inner,)
    return None


class Returns:
    """What one function gives: its return annotation, made into a JSON reader."""

    def __init__(self, annotation: Any, who: str) -> None:
        self._plain_result = is_plain(annotation)
        try:
            self._result = reader_of(annotation)
        except TypeError as error:
            raise DefinitionError(f"{who}: its return annotation cannot be read from JSON: {error}") from error

    @classmethod
    def of(cls, fn: Callable[..., Any], name: str) -> Returns:
        """Of a function whose arguments are never stored; an annotation that cannot be looked up counts for none."""
        try:
            annotation = _hints(fn, {"return"}).get("return", Any)
        except NameError:
            annotation = Any
        return Returns(annotation, name)

    def encode_result(self, value: Any, limit: int) -> bytes | None:
        """None is stored as nothing at all."""
        if value is None:
            return None
        data = encode(value, "result", plain=self._plain_result and type(value) not in _HARMLESS, limit=limit)
        if not self._plain_result:
            try:
                self._result.decode(data)
            except (msgspec.MsgspecError, TypeError, ValueError) as error:
                raise NotEncodable(
                    f"the result does not fit the return annotation: {phrase(error)}. Nobody could read it back: "
                    "mend the annotation."
                ) from error
        return data

    def decode_result(self, data: bytes | None) -> Any:
        """The result as the return annotation says."""
        if data is None:
            return None
        try:
            return self._result.decode(data)
        except (msgspec.MsgspecError, TypeError, ValueError) as error:
            raise NotDecodable(f"the stored result does not fit the return annotation: {phrase(error)}.") from error


class Shape(Returns):
    """What one function takes and gives: its signature, made into JSON readers.

    `skip` leading parameters (`self`, `ctx`) are given by who runs the function: they are no part of the shape, and
    their annotations need not be known at run time. `kind` is what messages call the function.
    """

    def __init__(self, fn: Callable[..., Any], name: str, *, skip: int = 0, kind: str = "task") -> None:
        self.signature = _without_leading(inspect.signature(fn), skip, f"{kind} {name!r}")
        parameters = list(self.signature.parameters.values())
        try:
            hints = _hints(fn, {p.name for p in parameters} | {"return"})
        except NameError as error:
            raise DefinitionError(
                f"{kind} {name!r}: the annotation {error.name!r} is not known at run time. Import it outside "
                "of `if TYPE_CHECKING:`, since it is needed to read stored arguments."
            ) from error
        self._who = f"{kind} {name!r}"
        self._names = tuple(p.name for p in parameters)
        self._simple = all(p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY) for p in parameters)
        self._most = sum(p.kind is p.POSITIONAL_OR_KEYWORD for p in parameters)
        self._required = frozenset(p.name for p in parameters if p.default is p.empty and p.kind not in _VARIADIC)
        self._defaults = dict(_defaults(parameters))
        self._plain = frozenset(p.name for p in parameters if is_plain(hints.get(p.name, Any)))
        fields = [(p.name, _field_type(p, hints.get(p.name, Any)), _default(p)) for p in parameters]
        super().__init__(hints.get("return", Any), f"{kind} {name!r}")
        try:
            self._reader = object_reader("Arguments", fields)
        except TypeError as error:
            raise DefinitionError(f"{kind} {name!r}: its annotations cannot be read from JSON: {error}") from error

    def unreadable(self) -> str | None:
        """The name of a parameter's type that no JSON can be read into, if there is one."""
        return unreadable(self._reader)

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The arguments that were given, by parameter name. TypeError as a plain call would raise it.

        Those that were left out are not there: whoever runs the function uses its own defaults, so that code from
        before a parameter was added can still run what does not use it.
        """
        if self._simple and not kwargs and len(args) == len(self._names) == self._most:
            return dict(zip(self._names, args, strict=True))
        if self._simple and len(args) <= self._most:
            bound = {**dict(zip(self._names, args, strict=False)), **kwargs}
            if self._required <= bound.keys() and not (
                kwargs and (kwargs.keys() - self._names or kwargs.keys() & set(self._names[: len(args)]))
            ):
                return bound
        try:
            return dict(self.signature.bind(*args, **kwargs).arguments)
        except TypeError as error:
            raise TypeError(f"{self._who}: {error}. Its parameters are {self.signature}.") from None

    def with_defaults(self, bound: dict[str, Any]) -> dict[str, Any]:
        """Bound arguments with the defaults of those that were left out, in the order of the signature."""
        arguments = self.signature.bind_partial()
        arguments.arguments.update(bound)
        arguments.apply_defaults()
        return dict(arguments.arguments)

    def encode_input(self, bound: dict[str, Any], limit: int) -> bytes:
        """Canonical JSON of bound arguments, proved to be readable again."""
        if not bound:
            return b"{}"
        for name in self._plain & bound.keys():
            if type(bound[name]) not in _HARMLESS:
                _check_encodable(bound[name], name, plain=True)
        data = encode(bound, "arguments", limit=limit)
        try:
            self._reader.decode(data)
        except (msgspec.MsgspecError, TypeError, ValueError) as error:
            raise NotEncodable(
                f"an argument does not fit its annotation: {phrase(error)}. The worker could not read it back."
            ) from error
        return data

    def fingerprint(self, name: str, bound: dict[str, Any], payload: bytes) -> bytes:
        """What stands for bound arguments, encoded as `payload`, in comparisons: those equal to their default do not
        count, as if they had been left out."""
        if not self._defaults or bound.keys().isdisjoint(self._defaults):
            return fingerprint(name, payload)
        idle = {n for n in bound.keys() & self._defaults.keys() if _json_of(bound[n]) == self._defaults[n]}
        if not idle:
            return fingerprint(name, payload)
        counting = {n: value for n, value in bound.items() if n not in idle}
        return fingerprint(name, encode(counting, "arguments", limit=len(payload)))

    def older_fingerprints(self, name: str, payload: bytes) -> Iterator[bytes]:
        """Other fingerprints that the same request may have got: with some of the arguments that equal their default.

        Older rows count every argument that the function had when they were written, and journals those that were
        given.
        """
        given = msgspec.json.decode(payload)
        counting = {n: v for n, v in given.items() if n not in self._defaults or _json_of(v) != self._defaults[n]}
        idle = [n for n, default in self._defaults.items() if n not in counting and default is not None]
        some = chain.from_iterable(combinations(reversed(idle), count) for count in range(len(idle)))
        for gone in chain([tuple(idle)], islice(some, MOST_GUESSES)):
            there = {n: msgspec.Raw(self._defaults[n] or b"") for n in idle if n not in gone}
            yield fingerprint(name, _encoder.encode({**counting, **there}))

    def show_defaults(self, payload: bytes) -> bytes:
        """Stored arguments as people compare them: with the defaults of those that were left out."""
        there = {n: msgspec.Raw(json) for n, json in self._defaults.items() if json is not None}
        return _encoder.encode({**there, **msgspec.json.decode(payload)})

    def decode_input(self, data: bytes) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Arguments for the call."""
        if data == b"{}" and not self._names:
            return (), {}
        try:
            values = self._reader.decode(data)
        except (msgspec.MsgspecError, TypeError, ValueError) as error:
            raise NotDecodable(
                f"the stored arguments do not fit the function's signature: {phrase(error)}. Was the function changed "
                "while tasks were waiting? Keep old parameters, or give new ones a default."
            ) from error
        if self._simple:
            return (), {name: getattr(values, name) for name in self._names}
        arguments = self.signature.bind_partial()
        arguments.arguments.update({name: getattr(values, name) for name in self._names})
        return arguments.args, arguments.kwargs


def _json_of(value: Any) -> bytes | None:
    """The canonical JSON of an argument or a default; None: it cannot be stored."""
    try:
        return encode(value, "default", limit=sys.maxsize)
    except NotEncodable:
        return None


def _defaults(parameters: Iterable[inspect.Parameter]) -> Iterator[tuple[str, bytes | None]]:
    """Parameters that may be left out, with the JSON of what they then are."""
    for parameter in parameters:
        if parameter.kind is parameter.VAR_POSITIONAL:
            yield parameter.name, b"[]"
        elif parameter.kind is parameter.VAR_KEYWORD:
            yield parameter.name, b"{}"
        elif parameter.default is not parameter.empty:
            yield parameter.name, _json_of(parameter.default)


def _without_leading(signature: inspect.Signature, skip: int, who: str) -> inspect.Signature:
    parameters = list(signature.parameters.values())
    leading = parameters[:skip]
    if len(leading) < skip or any(p.kind not in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in leading):
        raise DefinitionError(
            f"{who} is handed {skip} positional argument{'s' if skip > 1 else ''} by Semel before its own, "
            f"and its parameters are {signature}: put {'them' if skip > 1 else 'it'} first."
        )
    return signature.replace(parameters=parameters[skip:])


def _hints(fn: Callable[..., Any], names: set[str]) -> dict[str, Any]:
    """Only these annotations are looked up, so that others may be imported for type checkers alone."""
    home: Any = inspect.unwrap(fn)
    wanted = SimpleNamespace(
        __annotations__={name: hint for name, hint in fn.__annotations__.items() if name in names},
        __globals__=home.__globals__,
        __type_params__=getattr(home, "__type_params__", ()),
    )
    return typing.get_type_hints(wanted, include_extras=True)


def _field_type(parameter: inspect.Parameter, annotation: Any) -> Any:
    kind: Any = Any if is_plain(annotation) else annotation
    if parameter.kind is parameter.VAR_POSITIONAL:
        return tuple[kind, ...]
    if parameter.kind is parameter.VAR_KEYWORD:
        return dict[str, kind]
    return kind


def _default(parameter: inspect.Parameter) -> Any:
    """Arguments that were stored before a parameter was added are read with its default."""
    if parameter.kind is parameter.VAR_POSITIONAL:
        return ()
    if parameter.kind is parameter.VAR_KEYWORD:
        return msgspec.field(default_factory=dict)
    if parameter.default is parameter.empty:
        return msgspec.NODEFAULT
    return msgspec.field(default_factory=lambda: parameter.default)


def decode_plain(data: bytes | None) -> Any:
    """Stored JSON without a type to read it by."""
    return None if data is None else msgspec.json.decode(data)
