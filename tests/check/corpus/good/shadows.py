"""Names that mean something else here."""

import semel
from shop.application import app
from shop.names import random, time as clock


class Book:
    def open(self) -> str:
        return "page one"

    def get(self, key: str) -> str:
        return key

    def read_text(self) -> str:
        return "text"

    def run_in_executor(self) -> None: ...


def print(text: str) -> str:
    return text


@app.workflow
async def shadows(ctx: semel.Context, open, time, requests, os, id, hash, input) -> list[object]:
    a = open("x")
    b = time.time()
    c = requests.get("x")
    d = os.environ["x"]
    e = id(3) + hash(4) + input()
    f = random.random()
    g = clock.time()
    h = print("mine")
    subprocess = Book()
    i = subprocess.get("x")
    book = Book()
    j = book.open() + book.read_text()
    book.run_in_executor()
    socket = open("y")
    k = socket.create()
    m = [datetime.now() for datetime in a]
    for uuid in a:
        uuid.uuid4()
    with ctx.something() as secrets:
        secrets.token_hex()
    try:
        n = [time for time in b]
    except ValueError as shutil:
        shutil.rmtree()
    match a:
        case {"x": pathlib}:
            pathlib.Path("x").read()
    if (smtplib := book.get("x")):
        smtplib.upper()
    total = lambda random: random.random()
    return [a, b, c, d, e, f, g, h, i, j, k, m, n, total(book)]
