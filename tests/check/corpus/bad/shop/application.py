"""Where the App is."""

import semel


def make() -> semel.App:
    return semel.App()


api = make()
