"""The app that is measured. `SEMEL_URL` says where it lives."""

import semel

app = semel.App(auto_migrate=True)


@app.task
async def noop() -> int:
    return 1


@app.task
def noop_sync() -> int:
    return 1
