"""Helpers with a circle of imports."""

import contextlib
import functools
import time
import uuid

from shop.pricing.total import total


def fee() -> int:
    if time.time() > 3:  # expect: D01
        return total(3)
    return 0


class Above:
    def tock(self) -> float:
        return time.monotonic()  # expect: D01


class Clock(Above):
    def read(self) -> float:
        return self._read()

    def _read(self) -> float:
        return time.time()  # expect: D01

    @classmethod
    def made(cls) -> "Clock":
        cls._count()
        return cls()

    @staticmethod
    def _count() -> None:
        print(1)  # expect: D14

    def tick(self) -> float:
        return super().tock() + time.time()  # expect: D01


def stamp(function):
    print("at import: not workflow code")

    @functools.wraps(function)
    def wrapper(*args):
        print(uuid.uuid4())  # expect: D14 D03
        return function(*args)

    return wrapper


def timing(name):
    def decorate(function):
        def wrapper(*args):
            began = time.perf_counter()  # expect: D01
            return function(*args), began

        return wrapper

    return decorate


@stamp
def stamped() -> None:
    with Guard() as guard:
        guard.check()


@timing("x")
def timed(count: int) -> int:
    def inner() -> float:
        return time.time()  # expect: D01

    return inner()


def each(numbers, key=None):
    return sorted(numbers, key=key)


def twice(function):
    function()
    return function()


class Guard:
    def __enter__(self):
        print("in")  # expect: D14
        return self

    def __exit__(self, *details):
        print("out")  # expect: D14

    def check(self):
        print("check")  # expect: D14
