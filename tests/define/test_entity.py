"""An entity is a class: its annotated attributes are stored, its decorated methods answer."""

from __future__ import annotations

import enum
import functools
import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, ClassVar
from uuid import UUID

import pytest

import semel
from semel.define.entity import Entity

if TYPE_CHECKING:
    from somewhere import Context

LIMIT = 100_000


class Tier(enum.Enum):
    BRONZE = "bronze"
    GOLD = "gold"


@dataclass
class Grant:
    at: datetime
    points: int
    by: UUID | None = None


class Rewards:
    """Points of one customer."""

    LEVELS: ClassVar[int] = 2
    BONUS = 10
    points: int = 0
    tier: Tier = Tier.BRONZE
    balance: Decimal = Decimal("0.00")
    grants: list[Grant] = field(default_factory=list)
    tags: set[str] = field(default_factory=set)
    anything: Any = None

    @semel.handler("add-points")
    async def add(self, ctx: Context, points: int, *, at: datetime | None = None) -> int:
        """Add some."""
        self.points += points
        if at is not None:
            self.grants.append(Grant(at, points))
        return self.points

    @semel.handler
    async def set_tier(self, ctx: Context, tier: Tier = Tier.GOLD) -> None:
        self.tier = tier

    @semel.query
    def status(self) -> dict[str, Any]:
        return {"points": self.points, "tier": self.tier.value}

    @semel.query("points-in")
    def worth(self, rate: Decimal) -> Decimal:
        return self.points * rate

    @semel.idle("365d")
    async def lapse(self, ctx: Context) -> None:
        self.points = 0

    @functools.cached_property
    def level(self) -> int:
        return self.points // 100

    @property
    def rich(self) -> bool:
        return self.points > 1000


REWARDS = Entity(Rewards)


def test_what_it_is_made_of() -> None:
    assert REWARDS.name == "Rewards"
    assert list(REWARDS.handlers) == ["add-points", "set-tier"]
    assert list(REWARDS.queries) == ["status", "points-in"]
    assert REWARDS.idle == (timedelta(days=365), Rewards.lapse)
    assert (REWARDS.window, REWARDS.max_keys, REWARDS.queue, REWARDS.retention) == (
        timedelta(days=3), 10_000, "default", None,
    )  # fmt: skip
    assert repr(REWARDS) == "<entity 'Rewards' on queue 'default': add-points, set-tier>"
    window = Entity(Rewards, window="7d", max_keys=5).fresh_window()
    assert (window.window, window.max_keys) == (timedelta(days=7), 5)


async def test_the_methods_stay_methods() -> None:
    rewards = Rewards()
    assert await rewards.add(None, 5) == 5
    assert await Rewards.add(rewards, None, points=2) == 7
    assert rewards.status() == {"points": 7, "tier": "bronze"}
    assert rewards.worth(Decimal("0.5")) == Decimal("3.5")
    assert (Rewards.add.__name__, Rewards.add.__doc__) == ("add", "Add some.")
    assert Rewards(points=5, tier=Tier.GOLD) == Rewards(5, Tier.GOLD)  # type: ignore[call-arg]


async def test_a_handler_is_called_with_stored_arguments() -> None:
    handler = REWARDS.handlers["add-points"]
    when = datetime(2026, 11, 15, tzinfo=UTC)
    data = handler.shape.encode_input(handler.shape.bind((5,), {"at": when}), LIMIT)
    assert json.loads(data) == {"points": 5, "at": "2026-11-15T00:00:00Z"}
    state = REWARDS.fresh()
    args, kwargs = handler.shape.decode_input(data)
    result = await handler.fn(state, None, *args, **kwargs)
    assert handler.shape.encode_result(result, LIMIT) == b"5"
    assert state.grants == [Grant(when, 5)]
    query = REWARDS.queries["points-in"]
    args, kwargs = query.shape.decode_input(query.shape.encode_input(query.shape.bind(("0.5",), {}), LIMIT))
    assert query.fn(state, *args, **kwargs) == Decimal("2.5")


def test_state_makes_the_round_trip() -> None:
    state = REWARDS.fresh()
    assert (state.points, state.grants) == (0, [])
    assert state.grants is not REWARDS.fresh().grants
    state.tier, state.balance, state.tags = Tier.GOLD, Decimal("1.10"), {"b", "a"}
    state.grants.append(Grant(datetime(2026, 11, 15, 12, tzinfo=UTC), 3, UUID(int=7)))
    state.anything = {"a": [1, None]}
    data = REWARDS.encode_state(state, LIMIT)
    again = REWARDS.decode_state(data)
    assert again == state
    assert type(again) is Rewards
    assert REWARDS.encode_state(again, LIMIT) == data
    assert json.loads(data)["tags"] == ["a", "b"]


def test_older_state_is_read_with_defaults() -> None:
    assert REWARDS.decode_state(b'{"points":7}') == Rewards(points=7)  # type: ignore[call-arg]
    nested = b'{"grants":[{"at":"2026-11-15T00:00:00Z","points":1}]}'
    assert REWARDS.decode_state(nested).grants[0].by is None


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b'{"points":7,"streak":2}', "unknown field `streak`"),
        (b'{"grants":[{"at":"2026-11-15T00:00:00Z","points":1,"why":"x"}]}', r"has state.grants\[0\].why, which"),
        (b'{"points":"many"}', r"Expected `int`, got `str` - at `\$.points`"),
        (b'{"tier":"silver"}', "silver"),
        (b"[]", "Expected `object`"),
        (b"{", "truncated"),
    ],
)
def test_state_that_does_not_fit_is_refused_rather_than_lost(data: bytes, words: str) -> None:
    with pytest.raises(semel.NotDecodable, match=f"entity 'Rewards': the stored state .*{words}.*deploy readers"):
        REWARDS.decode_state(data)


def test_state_that_could_not_be_read_back_is_refused() -> None:
    state = REWARDS.fresh()
    state.points = "many"  # type: ignore[assignment]
    with pytest.raises(semel.NotEncodable, match="does not fit its annotation"):
        REWARDS.encode_state(state, LIMIT)
    state = REWARDS.fresh()
    state.anything = Decimal(1)
    with pytest.raises(semel.NotEncodable, match=r"state\.anything is a Decimal: annotate"):
        REWARDS.encode_state(state, LIMIT)
    state = REWARDS.fresh()
    state.pionts = 5  # type: ignore[attr-defined]
    with pytest.raises(semel.NotEncodable, match="the attribute 'pionts' was set and is not declared"):
        REWARDS.encode_state(state, LIMIT)
    state = REWARDS.fresh()
    del state.grants
    with pytest.raises(semel.NotEncodable, match="'grants' was deleted"):
        REWARDS.encode_state(state, LIMIT)
    state = REWARDS.fresh()
    state.anything = "x" * 200
    with pytest.raises(semel.PayloadTooLarge):
        REWARDS.encode_state(state, 100)


def test_what_may_be_lost_is_not_stored() -> None:
    state = REWARDS.fresh()
    state._cache = object()  # type: ignore[attr-defined]
    assert state.level == 0
    assert REWARDS.decode_state(REWARDS.encode_state(state, LIMIT)) == state


def test_a_dataclass_stays_the_dataclass_it_is() -> None:
    @dataclass(slots=True)
    class Counter:
        count: int = 0
        double: int = field(default=0, init=False)

        def __post_init__(self) -> None:
            self.double = 2 * self.count

        @semel.handler
        async def bump(self, ctx: Any) -> None:
            self.count += 1

    counter = Entity(Counter, name="counts", queue="slow", retention="30d")
    assert (counter.name, counter.queue, counter.retention) == ("counts", "slow", timedelta(days=30))
    state = counter.decode_state(b'{"count":4,"double":9}')
    assert (type(state), state.count, state.double) == (Counter, 4, 9)


def test_handlers_and_state_are_inherited() -> None:
    @dataclass
    class Account:
        balance: int = 0

        @semel.handler
        async def deposit(self, ctx: Any, cents: int) -> None: ...

        @semel.handler
        async def close(self, ctx: Any) -> None: ...

    class Savings(Account):
        rate: float = 0.01

        @semel.handler("shut")
        async def close(self, ctx: Any) -> None: ...

    savings = Entity(Savings)
    assert list(savings.handlers) == ["deposit", "shut"]
    assert savings.decode_state(b'{"balance":5}').balance == 5
    assert list(Entity(Account).handlers) == ["deposit", "close"]

    class Careless(Account):
        async def deposit(self, ctx: Any, cents: int) -> None: ...

    with pytest.raises(semel.DefinitionError, match=r"'deposit' replaces an inherited handler .* put @semel.handler"):
        Entity(Careless)
