"""Names of its own."""


class _Random:
    def random(self) -> float:
        return 0.5


class time:
    @staticmethod
    def time() -> float:
        return 1.0


random = _Random()
