"""The part of an app that is about transactions of the caller's: `connection=` and `app.bind`."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from semel.engine.protocol import Engine, EngineVerbs
from semel.transactional.bound import bound, bound_connection, warn_outside
from semel.transactional.recognise import recognise


class Transactions:
    """Verbs in a transaction of the caller's."""

    @property
    def engine(self) -> Engine:
        """The engine of the running event loop."""
        raise NotImplementedError

    def bind(self, connection: Any) -> AbstractContextManager[None]:
        """`with app.bind(session): …`: starts inside use this connection, as if each were given `connection=session`.

        `app.bind(None)` takes code out of it again: what is started inside is committed at once.
        """
        return bound(self, connection)

    def _connection(self, given: Any, verb: str) -> Any:
        """The connection that a verb uses: that which it was given, or the bound one; None: one of the engine's own."""
        if given is not None:
            return given
        found = bound_connection(self)
        if found is None:
            warn_outside(self, verb)
        return found

    async def _verbs(self, connection: Any) -> EngineVerbs:
        """The engine's verbs on a connection of the caller's, or on the engine's own."""
        if connection is None:
            return self.engine
        engine = self.engine
        return await engine.join(await recognise(connection))
