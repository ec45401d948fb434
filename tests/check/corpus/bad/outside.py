"""Network, files, processes, threads, environment, databases, console."""

import asyncio
import concurrent.futures
import multiprocessing
import os
import pathlib
import shutil
import smtplib
import socket
import sqlite3
import subprocess
import sys
import threading
import urllib.request
from os import environ, getenv
from pathlib import Path

import aiohttp
import asyncpg
import boto3
import httpx
import litellm
import psycopg
import redis
import requests
import semel
from langchain.chat_models import init_chat_model
from langchain_openai import ChatOpenAI
from sqlalchemy import create_engine
from sqlalchemy.orm import Session, sessionmaker

app = semel.App()
engine = create_engine("sqlite://")
Sessions = sessionmaker(engine)
client = httpx.AsyncClient()


@app.workflow
async def network(ctx: semel.Context, url: str) -> None:
    requests.get(url).json()  # expect: D05
    urllib.request.urlopen(url)  # expect: D05
    socket.create_connection(("localhost", 80))  # expect: D05
    smtplib.SMTP("localhost")  # expect: D05
    boto3.client("s3").list_buckets()  # expect: D05
    await client.get(url)  # expect: D05
    async with aiohttp.ClientSession() as session:  # expect: D05
        await session.get(url)
    async with httpx.AsyncClient() as mine:  # expect: D05
        await mine.get(url)
    reader, writer = await asyncio.open_connection("localhost", 80)  # expect: D05


@app.workflow
async def files(ctx: semel.Context, name: str, place: Path, other) -> None:
    with open(name) as file:  # expect: D06
        file.read()
    Path(name).read_text()  # expect: D06
    (pathlib.Path(name) / "sub").mkdir()  # expect: D06
    place.write_text("x")  # expect: D06
    place.parent.joinpath("a").unlink()  # expect: D06
    folder = Path(name)
    if folder.exists():  # expect: D06
        shutil.rmtree(folder)  # expect: D06
    os.remove(name)  # expect: D06
    os.path.isfile(name)  # expect: D06
    other.write_bytes(b"")  # expect: D06


@app.workflow
async def processes(ctx: semel.Context) -> None:
    subprocess.run(["ls"])  # expect: D07
    os.system("ls")  # expect: D07
    await asyncio.create_subprocess_exec("ls")  # expect: D07


@app.workflow
async def threads(ctx: semel.Context) -> None:
    threading.Thread(target=print).start()  # expect: D08
    await asyncio.to_thread(sum, [1])  # expect: D08
    loop = asyncio.get_running_loop()
    await loop.run_in_executor(None, sum, [1])  # expect: D08
    with concurrent.futures.ThreadPoolExecutor() as pool:  # expect: D08
        pool.submit(sum, [1])
    multiprocessing.Process(target=sum)  # expect: D08


@app.workflow
async def models(ctx: semel.Context) -> None:
    litellm.completion(model="m", messages=[])  # expect: D05
    await litellm.acompletion(model="m", messages=[])  # expect: D05
    model = ChatOpenAI()  # expect: D05
    model.invoke("x")
    init_chat_model("m")  # expect: D05


@app.workflow
async def environment(ctx: semel.Context) -> list[object]:
    a = os.environ["HOME"]  # expect: D09
    b = os.environ.get("HOME")  # expect: D09
    c = environ.get("HOME")  # expect: D09
    d = getenv("HOME")  # expect: D09
    e = os.getpid()  # expect: D09
    if "DEBUG" in os.environ:  # expect: D09
        return []
    return [a, b, c, d, e, sys.argv]  # expect: D09


@app.workflow
async def databases(ctx: semel.Context, held: Session) -> None:
    sqlite3.connect("a.db").execute("select 1")  # expect: D10
    psycopg.connect("")  # expect: D10
    await asyncpg.connect()  # expect: D10
    redis.Redis().get("a")  # expect: D10
    held.execute("select 1")  # expect: D10
    with Sessions() as session:  # expect: D10
        session.commit()
    engine.connect()  # expect: D10
    await app.enqueue(network, "x")  # expect: D10
    getattr(sqlite3, "connect")("a.db")  # expect: D10


@app.workflow
async def console(ctx: semel.Context) -> None:
    print("hello")  # expect: D14
    sys.stdout.write("hello")  # expect: D14
    input()  # expect: D14
