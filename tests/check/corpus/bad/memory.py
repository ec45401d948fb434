"""State that outlives a run."""

import itertools
from collections import defaultdict

import semel
from shop import cache
from shop.cache import SEEN

app = semel.App()
count = 0
CACHE: dict[str, int] = {}
NAMES = []
NUMBERS = itertools.count()
BY_NAME = defaultdict(list)


class Registry:
    size = 0
    names: list[str] = []


class Shops(Registry): ...


@app.workflow
async def remember(ctx: semel.Context, name: str) -> int:
    global count  # expect: D13
    count += 1
    CACHE[name] = 1  # expect: D13
    CACHE.update(a=1)  # expect: D13
    NAMES.append(name)  # expect: D13
    del CACHE[name]  # expect: D13
    BY_NAME[name] += [1]  # expect: D13
    SEEN.add(name)  # expect: D13
    cache.SEEN.discard(name)  # expect: D13
    Registry.size += 1  # expect: D13
    Registry.names.append(name)  # expect: D13
    Shops.names.clear()  # expect: D13
    cache.limit = 3  # expect: D13
    return next(NUMBERS)  # expect: D13
