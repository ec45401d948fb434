"""Every way to read the clock, by every name."""

import datetime
import datetime as dt
import time
from datetime import date
from datetime import datetime as moment
from time import monotonic as ticks

import semel

app = semel.App()
now = time.time


@app.workflow
async def clocks(ctx: semel.Context, order_id: str) -> list[object]:
    a = datetime.datetime.now()  # expect: D01
    b = dt.datetime.utcnow()  # expect: D01
    c = moment.now(datetime.UTC)  # expect: D01
    d = date.today()  # expect: D01
    e = time.time_ns()  # expect: D01
    f = ticks()  # expect: D01
    g = now()  # expect: D01
    h = time.strftime("%Y")  # expect: D01
    i = time.localtime()  # expect: D01
    later = time.perf_counter
    j = later()  # expect: D01
    k = [time.monotonic() for _ in range(3)]  # expect: D01
    text = f"{moment.now():%Y}"  # expect: D01
    return [a, b, c, d, e, f, g, h, i, j, k, text]


@app.workflow(name="naps")
async def naps(ctx: semel.Context) -> None:
    time.sleep(1)  # expect: D04
    from time import sleep as doze

    doze(2)  # expect: D04
