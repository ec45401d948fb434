"""Randomness and ids, also from a star import."""

import os
import random
import secrets
import uuid
from dataclasses import dataclass, field
from random import *
from uuid import uuid4

import numpy as np
from semel import App, Context

service = App()


@dataclass
class Ticket:
    price: int
    id: uuid.UUID = field(default_factory=uuid4)  # expect: D03
    luck: float = field(default_factory=lambda: random.random())  # expect: D02


@service.workflow
async def dice(ctx: "Context", names: list[str]) -> list[object]:
    a = random.random()  # expect: D02
    b = randint(1, 6)  # expect: D02
    c = secrets.token_hex()  # expect: D02
    d = os.urandom(8)  # expect: D02
    e = np.random.rand(3)  # expect: D02
    f = random.Random().random()  # expect: D02
    g = random.Random(None)  # expect: D02
    h = np.random.default_rng()  # expect: D02
    i = uuid.uuid4()  # expect: D03
    j = str(uuid4())  # expect: D03
    k = uuid.uuid1().hex  # expect: D03
    ticket = Ticket(3)
    shuffle(names)  # expect: D02
    names.sort(key=lambda name: random.random())  # expect: D02
    other = sorted(names, key=hash)  # expect: D15
    text = f"{id(ticket)}" + str(id(ticket))  # expect: D15 D15
    if id(a) < id(b):  # expect: D15 D15
        names.append(text)
    number = id(ticket) + hash(names[0])  # expect: D15 D15
    return [a, b, c, d, e, f, g, h, i, j, k, other, number]
