"""How workflow code says that it is over in another way than by returning."""

from __future__ import annotations


class ContinueAsNew(BaseException):
    """Begin again with this input and an empty journal. No Exception, so that `except Exception` lets it through."""

    def __init__(self, payload: bytes) -> None:
        super().__init__("continue as new")
        self.payload = payload
