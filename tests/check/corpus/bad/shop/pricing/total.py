"""Reached from workflows only."""

import os
import random

import shop.tools


def total(cents: int) -> int:
    return cents + _discount()


def _discount() -> int:
    if os.getenv("SALE"):  # expect: D09
        return random.randint(1, 3)  # expect: D02
    return shop.tools.fee()


def rounded(cents: int) -> int:
    print(cents)  # expect: D14
    return cents


def untouched() -> None:
    print("nobody calls this")


class Total:
    def __init__(self, cents: int) -> None:
        self._cents = cents
        open("log")  # expect: D06

    @property
    def cents(self) -> int:
        return self._cents + random.randint(1, 2)  # expect: D02
