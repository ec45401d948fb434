"""What the outside world is called: dotted names of libraries, and the rule each breaks.

A name is written as it would be after `import`, with `()` after what was called or made on the way, so that a
method of an object (`pathlib.Path().read_text`) is told from a function of a module.
"""

from __future__ import annotations

import ast

from semel.check.rules import (
    BLOCKING_SLEEP,
    CONSOLE,
    DATABASE,
    ENVIRONMENT,
    FILES,
    NETWORK,
    OBJECT_IDENTITY,
    RANDOMNESS,
    SUBPROCESS,
    THREADS,
    UNIQUE_ID,
    WALL_CLOCK,
    Rule,
)
from semel.check.words import words

_CALLS: dict[Rule, str] = {
    WALL_CLOCK: """
        datetime.datetime.now datetime.datetime.utcnow datetime.datetime.today datetime.date.today
        time.time time.time_ns time.monotonic time.monotonic_ns time.perf_counter time.perf_counter_ns
        time.process_time time.process_time_ns time.thread_time time.thread_time_ns time.clock_gettime
        time.clock_gettime_ns pandas.Timestamp.now pandas.Timestamp.utcnow pandas.Timestamp.today
        arrow.now arrow.utcnow pendulum.now pendulum.today pendulum.tomorrow pendulum.yesterday
        django.utils.timezone.now whenever.Instant.now timeit.default_timer email.utils.localtime
    """,
    RANDOMNESS: "os.urandom os.getrandom ssl.RAND_bytes Crypto.Random.get_random_bytes",
    UNIQUE_ID: """
        uuid.uuid1 uuid.uuid4 uuid.uuid6 uuid.uuid7 uuid.getnode ulid.new ulid.ULID bson.ObjectId nanoid.generate
        shortuuid.uuid shortuuid.random uuid6.uuid6 uuid6.uuid7 uuid6.uuid8 uuid_utils.uuid1 uuid_utils.uuid4
        uuid_utils.uuid6 uuid_utils.uuid7 uuid_utils.uuid8 email.utils.make_msgid
    """,
    BLOCKING_SLEEP: "time.sleep gevent.sleep eventlet.sleep",
    NETWORK: """
        asyncio.open_connection asyncio.start_server asyncio.open_unix_connection asyncio.start_unix_server
        openai.OpenAI openai.AsyncOpenAI anthropic.Anthropic anthropic.AsyncAnthropic
        litellm.completion litellm.acompletion litellm.text_completion litellm.atext_completion litellm.embedding
        litellm.aembedding litellm.responses litellm.aresponses litellm.image_generation litellm.aimage_generation
        litellm.transcription litellm.atranscription litellm.speech litellm.aspeech litellm.moderation
        litellm.amoderation litellm.rerank litellm.arerank litellm.Router langchain.chat_models.init_chat_model
        temporalio.client.Client.connect google.cloud.storage.Client google.cloud.bigquery.Client
        google.cloud.pubsub_v1.PublisherClient google.cloud.pubsub_v1.SubscriberClient
        azure.storage.blob.BlobServiceClient
    """,
    FILES: """
        builtins.open io.open io.FileIO os.open os.fdopen os.read os.write os.close os.remove os.unlink os.rename
        os.renames os.replace os.mkdir os.makedirs os.rmdir os.removedirs os.listdir os.scandir os.walk os.fwalk
        os.stat os.lstat os.fstat os.chmod os.chown os.truncate os.link os.symlink os.readlink os.access os.utime
        os.mkfifo os.sendfile os.path.exists os.path.lexists os.path.isfile os.path.isdir os.path.islink
        os.path.ismount os.path.getsize os.path.getmtime os.path.getctime os.path.getatime os.path.realpath
        os.path.samefile codecs.open gzip.open gzip.GzipFile bz2.open bz2.BZ2File lzma.open lzma.LZMAFile
        zipfile.ZipFile tarfile.open tarfile.TarFile shelve.open dbm.open linecache.getline fileinput.input
        mmap.mmap pandas.read_csv pandas.read_parquet pandas.read_excel pandas.read_json numpy.load numpy.save
        numpy.loadtxt numpy.savetxt
    """,
    SUBPROCESS: """
        os.system os.popen os.fork os.forkpty os.kill os.killpg os.abort os._exit os.wait os.waitpid os.execl os.execle
        os.execlp os.execv os.execve os.execvp os.execvpe os.spawnl os.spawnle os.spawnlp os.spawnv os.spawnve
        os.spawnvp os.spawnvpe os.posix_spawn os.posix_spawnp os.startfile pty.spawn
        asyncio.create_subprocess_exec asyncio.create_subprocess_shell
    """,
    THREADS: """
        asyncio.to_thread anyio.to_thread.run_sync asyncio.run_coroutine_threadsafe trio.to_thread.run_sync
        starlette.concurrency.run_in_threadpool fastapi.concurrency.run_in_threadpool asgiref.sync.sync_to_async
        asyncio.run asyncio.new_event_loop asyncio.Runner
    """,
    ENVIRONMENT: """
        os.getenv os.getenvb os.putenv os.unsetenv os.getcwd os.chdir os.getpid os.getppid os.getlogin os.getuid
        os.cpu_count os.getloadavg os.uname os.path.expandvars os.path.expanduser getpass.getuser platform.node
        platform.platform platform.uname platform.system socket.gethostname socket.getfqdn dotenv.load_dotenv
        dotenv.dotenv_values multiprocessing.cpu_count sys.getrefcount
    """,
    DATABASE: """
        sqlalchemy.create_engine sqlalchemy.engine.create_engine sqlalchemy.ext.asyncio.create_async_engine
        django.db.connection.cursor django.db.transaction.atomic
    """,
    CONSOLE: """
        builtins.print builtins.input builtins.breakpoint pprint.pprint pprint.pp getpass.getpass rich.print
        click.echo typer.echo sys.stdout.write sys.stderr.write sys.stdout.flush sys.stderr.flush sys.stdin.read
        sys.stdin.readline
    """,
    OBJECT_IDENTITY: "builtins.id builtins.hash",
}

_ROOMS: dict[Rule, str] = {
    RANDOMNESS: "random secrets numpy.random",
    NETWORK: """
        socket socketserver urllib.request http.client http.server smtplib ftplib imaplib poplib telnetlib nntplib
        xmlrpc.client requests httpx aiohttp urllib3 httplib2 pycurl boto3 aioboto3 botocore aiobotocore paramiko
        asyncssh websockets websocket grpc pika aio_pika kafka aiokafka confluent_kafka nats stripe twilio.rest
        aiosmtplib slack_sdk sendgrid zmq ldap3
        prometheus_client prometheus_api_client statsd datadog datadog_api_client influxdb_client influxdb graphyte
        opentelemetry.metrics mcp.client mcp.server mcp.ClientSession mcp.stdio_client fastmcp
        langchain_openai langchain_anthropic langchain_google_genai langchain_google_vertexai langchain_aws
        langchain_mistralai langchain_ollama langchain_groq langchain_cohere langchain_huggingface
        langchain_community.chat_models langchain_community.llms langchain_community.embeddings
    """,
    FILES: "shutil tempfile glob aiofiles",
    SUBPROCESS: "subprocess asyncio.subprocess pexpect sh",
    THREADS: "threading _thread multiprocessing concurrent.futures joblib",
    DATABASE: """
        semel.App sqlite3 psycopg psycopg2 psycopg_pool asyncpg apsw aiosqlite pymongo motor redis aioredis valkey
        mysql.connector pymysql aiomysql MySQLdb oracledb cx_Oracle pyodbc duckdb cassandra.cluster elasticsearch
        pg8000 aiopg
        sqlalchemy.orm.Session sqlalchemy.orm.sessionmaker sqlalchemy.orm.scoped_session sqlalchemy.engine.Engine
        sqlalchemy.engine.Connection sqlalchemy.Engine sqlalchemy.Connection sqlalchemy.create_engine
        sqlalchemy.ext.asyncio sqlalchemy.orm.session.Session sqlmodel.Session
    """,
}
"""Modules and classes of which every call breaks the rule, unless it is pure."""

_PATHS = ("pathlib.Path()", "pathlib.PosixPath()", "pathlib.WindowsPath()")
_ON_PATHS: dict[Rule, str] = {
    FILES: """
        read_text write_text read_bytes write_bytes open exists is_file is_dir is_symlink is_mount stat lstat mkdir
        rmdir unlink rename replace touch iterdir glob rglob walk symlink_to hardlink_to readlink chmod resolve samefile
        owner group
    """,
    ENVIRONMENT: "expanduser absolute cwd home",
}
PATH_STAYS_PATH = words(
    "parent joinpath with_name with_stem with_suffix relative_to resolve absolute expanduser rename replace"
)

CALLS: dict[str, Rule] = {name: rule for rule, names in _CALLS.items() for name in names.split()}
CALLS |= {f"{path}.{m}": rule for rule, names in _ON_PATHS.items() for m in names.split() for path in _PATHS}
CALLS |= {f"pathlib.Path.{name}": ENVIRONMENT for name in ("cwd", "home")}

ROOMS: dict[str, Rule] = {name: rule for rule, names in _ROOMS.items() for name in names.split()}

LOADS: dict[str, Rule] = dict.fromkeys(("os.environ", "os.environb", "sys.argv"), ENVIRONMENT)
"""What need not be called: to look at it is enough."""

NOW_UNLESS_TOLD = {"time.localtime": 1, "time.gmtime": 1, "time.ctime": 1, "time.asctime": 1, "time.strftime": 2}
"""Functions that take the moment as their last argument, and read the clock without it."""

SEEDED = words(
    """
    random.Random numpy.random.default_rng numpy.random.RandomState numpy.random.SeedSequence numpy.random.Generator
    numpy.random.PCG64 numpy.random.PCG64DXSM numpy.random.MT19937 numpy.random.Philox numpy.random.SFC64
    """
)
"""Generators: fine with a seed, dice without."""

BY_METHOD: dict[str, Rule] = {
    "run_in_executor": THREADS,
    "read_text": FILES,
    "write_text": FILES,
    "read_bytes": FILES,
    "write_bytes": FILES,
    "create_connection": NETWORK,
    "create_datagram_endpoint": NETWORK,
    "subprocess_exec": SUBPROCESS,
    "subprocess_shell": SUBPROCESS,
    "call_soon_threadsafe": THREADS,
}
"""Methods whose name says enough when nothing is known of their object."""

_PURE = words(
    """
    httpx.Timeout httpx.Limits httpx.URL httpx.Headers httpx.QueryParams httpx.Request httpx.Response httpx.Cookies
    aiohttp.ClientTimeout aiohttp.FormData requests.Request requests.Response urllib.request.Request
    urllib.request.quote urllib.request.unquote urllib.request.pathname2url urllib.request.url2pathname
    socket.inet_aton socket.inet_ntoa socket.inet_pton socket.inet_ntop socket.htons socket.htonl socket.ntohs
    socket.ntohl secrets.compare_digest subprocess.list2cmdline subprocess.CompletedProcess glob.escape
    glob.has_magic shutil.ignore_patterns sqlite3.Row sqlite3.Binary sqlite3.complete_statement
    sqlite3.register_adapter concurrent.futures.Future botocore.config.Config boto3.dynamodb
    asyncpg.Record psycopg.sql psycopg.rows psycopg.types psycopg2.sql psycopg2.extras.Json sqlalchemy.orm.mapped_column
    sqlalchemy.ext.asyncio.AsyncAttrs grpc.StatusCode pymongo.UpdateOne pymongo.InsertOne pymongo.DeleteOne
    numpy.random.BitGenerator
    """
)
_METERS = words("opentelemetry.metrics.get_meter opentelemetry.metrics.get_meter_provider")
"""Whatever is made of these counts for others to see."""
_PURE_ENDINGS = ("Error", "Exception", "Warning", "Expired", "Timeout")
_PURE_ROOMS = frozenset({"exceptions", "errors", "error", "types"})


def effect_of(name: str, call: ast.Call | None, made_here: bool) -> Rule | None:
    """The rule that calling this breaks. `made_here`: the object was made in the workflow, so it was told there."""
    made, parens, rest = name.partition("()")
    if parens:
        if rule := CALLS.get(name):
            return rule
        if made_here or ("()" in rest and made not in _METERS) or made in SEEDED:
            return None
        return _room_of(made)
    if made in SEEDED:
        return None if _seeded(call) else RANDOMNESS
    if made in NOW_UNLESS_TOLD:
        told = call is None or len(call.args) >= NOW_UNLESS_TOLD[made] or any(k.arg is None for k in call.keywords)
        return None if told else WALL_CLOCK
    return CALLS.get(made) or _room_of(made)


def load_of(name: str) -> Rule | None:
    """The rule that looking at this breaks. What a call of it gave may be looked at."""
    if "()" in name:
        return None
    return next((rule for known, rule in LOADS.items() if name == known or name.startswith(f"{known}.")), None)


def spoken(name: str) -> str:
    """A dotted name as people say it."""
    return name.removeprefix("builtins.").replace("()", "")


def _room_of(name: str) -> Rule | None:
    parts = name.split(".")
    if parts[-1].endswith(_PURE_ENDINGS) or not _PURE_ROOMS.isdisjoint(parts[1:]):
        return None
    prefixes = [".".join(parts[:end]) for end in range(1, len(parts) + 1)]
    if any(prefix in _PURE for prefix in prefixes):
        return None
    return next((ROOMS[prefix] for prefix in prefixes if prefix in ROOMS), None)


def _seeded(call: ast.Call | None) -> bool:
    if call is None:
        return True  # handed on as a class: whoever makes one may give a seed
    given = [*call.args, *(keyword.value for keyword in call.keywords)]
    return bool(given) and not (isinstance(given[0], ast.Constant) and given[0].value is None)
