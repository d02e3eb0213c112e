"""HTTP/3 as aioquic speaks it, against a running server.

    h3.py PORT CASE...

Each case is a function below, named after what the server has to do. Prints a line for each that fails, and
exits 1 if any did.
"""

import asyncio
import json
import os
import random
import signal
import socket
import ssl
import sys
import traceback

import pylsqpack
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.buffer import Buffer, encode_uint_var
from aioquic.h3.connection import H3Connection
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic import events
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnection
from cryptography import x509

HOST = "127.0.0.1"
# Where the server says hello, and where it reads a body to its end before it answers.
HELLO, READ = os.environ.get("HELLO", "/"), os.environ.get("READ", "/read")
PORT = 0
# Long enough for a busy machine; nothing here waits for it to pass.
PATIENCE = 60

NO_ERROR, STREAM_CREATION, CLOSED_CRITICAL = 0x100, 0x103, 0x104
FRAME_UNEXPECTED, FRAME_ERROR, EXCESSIVE_LOAD, ID_ERROR = 0x105, 0x106, 0x107, 0x108
SETTINGS_ERROR, MISSING_SETTINGS, REQUEST_REJECTED = 0x109, 0x10A, 0x10B
REQUEST_CANCELLED, REQUEST_INCOMPLETE, MESSAGE_ERROR = 0x10C, 0x10D, 0x10E
QPACK_FAILED, QPACK_ENCODER, QPACK_DECODER = 0x200, 0x201, 0x202

DATA, HEADERS, CANCEL_PUSH, SETTINGS, GOAWAY, MAX_PUSH_ID = 0, 1, 3, 4, 7, 13


class Response:
    """What has arrived on a request's stream."""

    def __init__(self):
        self.status, self.fields, self.trailers = None, {}, None
        self.body, self.ended = bytearray(), False

    def __repr__(self):
        return f"<{self.status} {self.fields} {len(self.body)} bytes, ended: {self.ended}>"


class Client(QuicConnectionProtocol):
    """A connection. Without `h3`, nothing is sent but what a case writes."""

    h3 = None

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.responses, self.received = {}, {}
        self.resets, self.stops = {}, {}
        self.terminated, self.reason, self.resumed = None, "", False
        self.changed = asyncio.Event()

    def quic_event_received(self, event):
        if isinstance(event, events.StreamDataReceived):
            self.received.setdefault(event.stream_id, bytearray()).extend(event.data)
        elif isinstance(event, events.StreamReset):
            self.resets[event.stream_id] = event.error_code
        elif isinstance(event, events.StopSendingReceived):
            self.stops[event.stream_id] = event.error_code
        elif isinstance(event, events.HandshakeCompleted):
            self.resumed = event.session_resumed
        elif isinstance(event, events.ConnectionTerminated):
            self.terminated, self.reason = event.error_code, event.reason_phrase
        for received in self.h3.handle_event(event) if self.h3 else []:
            response = self.responses.setdefault(received.stream_id, Response())
            if isinstance(received, HeadersReceived):
                fields = dict(received.headers)
                if response.status is None:
                    response.status = int(fields.pop(b":status"))
                    response.fields = fields
                else:
                    response.trailers = fields
            elif isinstance(received, DataReceived):
                response.body += received.data
            response.ended = response.ended or received.stream_ended
        self.changed.set()

    async def until(self, condition):
        """Waits for a condition on what was received."""
        async with asyncio.timeout(PATIENCE):
            while not condition():
                if self.terminated is not None:
                    raise AssertionError(f"the connection was closed with {self.terminated:#x}: {self.reason}")
                self.changed.clear()
                await self.changed.wait()

    async def gone(self):
        """Returns the code with which the server closes the connection."""
        async with asyncio.timeout(PATIENCE):
            while self.terminated is None:
                self.changed.clear()
                await self.changed.wait()
        return self.terminated

    def open(self, unidirectional=False):
        return self._quic.get_next_available_stream_id(is_unidirectional=unidirectional)

    def send(self, stream, data, end=False):
        # The first use takes the number.
        self._quic.send_stream_data(stream, data, end)
        self.transmit()

    def control(self, *frames):
        """A control stream with these frames."""
        stream = self.open(unidirectional=True)
        self.send(stream, encode_uint_var(0) + b"".join(frames))
        return stream

    def begin(self, method="GET", path=HELLO, body=None, fields=(), trailers=None, whole=True):
        """Sends a request; if it shouldn't be complete, all but its end."""
        stream = self.open()
        head = [(b":method", method.encode()), (b":scheme", b"https"), (b":authority", b"localhost")]
        head += [(b":path", path.encode()), *fields]
        self.h3.send_headers(stream, head, end_stream=body is None and trailers is None)
        if body is not None:
            self.h3.send_data(stream, body, end_stream=whole and trailers is None)
        if trailers is not None:
            self.h3.send_headers(stream, trailers, end_stream=True)
        self.transmit()
        return stream

    async def end(self, stream):
        await self.until(lambda: self.responses.get(stream, Response()).ended or stream in self.resets)
        assert stream not in self.resets, f"the stream was reset with {self.resets[stream]:#x}"
        return self.responses[stream]

    async def fetch(self, *args, **kwargs):
        return await self.end(self.begin(*args, **kwargs))


def bind():
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind((HOST, 0))
    return sock


class Connected:
    """`async with` a connection, well-behaved unless raw."""

    def __init__(self, raw=False, ticket=None, on_ticket=None, name="localhost", credit=1 << 20):
        self.raw, self.ticket, self.on_ticket, self.name, self.credit = raw, ticket, on_ticket, name, credit

    async def __aenter__(self):
        configuration = QuicConfiguration(
            is_client=True,
            alpn_protocols=["h3"],
            server_name=self.name,
            verify_mode=ssl.CERT_NONE,
            max_data=self.credit,
        )
        configuration.session_ticket = self.ticket
        quic = QuicConnection(configuration=configuration, session_ticket_handler=self.on_ticket)
        loop = asyncio.get_running_loop()
        _, client = await loop.create_datagram_endpoint(lambda: Client(quic), sock=bind())
        if not self.raw:
            client.h3 = H3Connection(quic)
        client.connect((HOST, PORT))
        async with asyncio.timeout(PATIENCE):
            await client.wait_connected()
        self.client = client
        return client

    async def __aexit__(self, *_):
        self.client.close(NO_ERROR)
        self.client._transport.close()


def equal(found, expected, what=""):
    assert found == expected, f"{what} is {found!r}, not {expected!r}"


def frame(kind, payload=b"", length=None):
    return encode_uint_var(kind) + encode_uint_var(len(payload) if length is None else length) + payload


def head(*fields):
    """Returns a HEADERS frame with exactly these fields, whatever they are."""
    _, block = pylsqpack.Encoder().encode(0, list(fields))
    return frame(HEADERS, block)


METHOD, SCHEME, PATH = (b":method", b"GET"), (b":scheme", b"https"), (b":path", HELLO.encode())
AUTHORITY = (b":authority", b"localhost")
PSEUDO = (METHOD, SCHEME, AUTHORITY, PATH)
POST = ((b":method", b"POST"), SCHEME, AUTHORITY, (b":path", READ.encode()))


async def still_serves():
    async with Connected() as client:
        equal((await client.fetch()).body, b"Hello, World!", "the body")


# --- requests -------------------------------------------------------------------------------------------


async def answers_get_and_head():
    async with Connected() as client:
        got = await client.fetch()
        equal((got.status, bytes(got.body)), (200, b"Hello, World!"))
        equal(got.fields[b"content-length"], b"13", "the length")
        assert got.fields[b"date"].endswith(b"GMT"), got.fields
        # aioquic forgets which method it sent, and expects the body.
        client.h3._check_content_length = lambda stream: None
        told = await client.fetch("HEAD")
        equal((told.status, bytes(told.body), told.fields[b"content-length"]), (200, b"", b"13"))
        equal((await client.fetch(path="/nowhere")).status, 404, "the status")
        protocol, _, remote = (await client.fetch(path="/peer")).body.decode().partition(" ")
        equal(protocol, "http3", "the protocol")
        assert remote.startswith("127.0.0.1:"), remote


async def answers_plain_requests_at_once():
    async with Connected() as client:
        fast = lambda response: b"fast" in response.fields
        # The first one tells h3 where numbers start.
        assert not fast(await client.fetch())
        # Huffman's longest codes too.
        for agent in (b"Mozilla/5.0 (X11; Linux x86_64)", b"Mozilla/5.0 (X11; Linux x86_64) \\ caf\xc3\xa9") * 3:
            got = await client.fetch(fields=[(b"user-agent", agent), (b"x-y", b"")])
            equal((got.status, bytes(got.body), fast(got)), (200, b"Hello, World!", True))
            equal(got.fields[b"content-length"], b"13", "the length")
            assert got.fields[b"date"].endswith(b"GMT"), got.fields
            assert b"connection" not in got.fields, got.fields
        streams = [client.begin(path=f"/bytes/{n}") for n in (0, 1, 100, 3 << 20, 20, 300)]
        for stream, length in zip(streams, (0, 1, 100, 3 << 20, 20, 300)):
            got = await client.end(stream)
            equal((len(got.body), fast(got)), (length, True), "the length")
        # Anything but a plain head goes to the service, and so does what isn't for the fast path.
        for method, path, body, fields in [
            ("POST", "/echo", b"abc", ()),
            ("GET", "/", b"abc", ()),
            ("GET", "/", b"", ()),
            ("GET", "/", None, [(b"te", b"trailers")]),
            ("GET", "/", None, [(b"content-length", b"0")]),
            ("GET", "/peer", None, ()),
            ("GET", "/a%20b", None, ()),
        ]:
            assert not fast(await client.fetch(method, path, body, fields)), (method, path, body, fields)
        got = await client.fetch(path="/panic/at-once")
        equal((got.status, got.fields[b"content-type"]), (500, b"application/problem+json"))
        equal(got.fields[b"x-request-id"], json.loads(got.body)["request_id"].encode())
        client.h3._check_content_length = lambda stream: None
        told = await client.fetch("HEAD")
        equal((told.status, bytes(told.body), told.fields[b"content-length"], fast(told)), (200, b"", b"13", True))
        # A head that arrives in pieces.
        for end in (1, 2, 3, 10):
            stream, request = client.open(), head(*PSEUDO)
            client.send(stream, request[:end])
            await client.fetch(path="/peer")
            client.send(stream, request[end:], end=True)
            equal(bytes((await client.end(stream)).body), b"Hello, World!", "the body")


async def names_what_it_has_answered():
    """The last notice covers the requests that h3 has never seen."""
    async with Connected() as client:
        for _ in range(5):
            await client.fetch()
        os.kill(int(os.environ["SERVER"]), signal.SIGTERM)
        await client.until(lambda: len(goaways(client)) == 2)
        equal(goaways(client), [(1 << 62) - 4, 5 * 4], "the notices")
        equal(await client.gone(), NO_ERROR, "the code")


async def answers_who_sends_a_goaway():
    """It is about pushes. What the client has asked for is answered, and so is what it asks for after that."""
    async with Connected() as client:
        await client.fetch()
        streams = [client.begin(path=f"/bytes/{4 << 20}") for _ in range(3)]
        client.send(client.h3._local_control_stream_id, frame(GOAWAY, encode_uint_var(0)))
        for stream in streams:
            equal(len((await client.end(stream)).body), 4 << 20, "the length")
        equal((await client.fetch()).status, 200, "the status")
        equal(goaways(client), [], "the notices")


async def takes_what_qpack_allows_without_a_table():
    """The client may set a capacity of nothing, and cancel streams, one of which has a large number."""
    async with Connected(raw=True) as client:
        client.control(frame(SETTINGS))
        for kind, pieces in [(2, [b"\x20", b"\x20\x20"]), (3, [b"\x40", b"\x7f", b"\x80\x01\x44"])]:
            stream = client.open(unidirectional=True)
            for piece in [encode_uint_var(kind), *pieces]:
                client.send(stream, piece)
        for _ in range(3):
            stream = client.open()
            client.send(stream, head(*PSEUDO), end=True)
            await client.until(lambda: b"Hello, World!" in client.received.get(stream, b""))


async def echoes_megabytes_and_trailers():
    body = random.Random(1).randbytes(5 << 20)
    async with Connected() as client:
        echo = await client.fetch("POST", "/echo", body, trailers=[(b"checked", b"yes")])
        equal(echo.status, 200, "the status")
        assert echo.body == body, f"{len(echo.body)} bytes came back of {len(body)}, or others"
        equal(echo.trailers, {b"checked": b"yes"}, "the trailers")
        sized = [(b"content-length", str(len(body)).encode())]
        equal((await client.fetch("POST", "/read", body, sized)).body, str(len(body)).encode(), "the length")
        equal((await client.fetch(path="/drip/3/1")).trailers, {b"dripped": b"all"}, "the trailers")


async def reads_on_after_empty_frames():
    async with Connected() as client:
        stream = client.begin("POST", "/echo", b"", whole=False)
        for piece, end in [(b"be", False), (b"", False), (b"", False), (b"gun", False), (b"", True)]:
            client.h3.send_data(stream, piece, end_stream=end)
        client.transmit()
        equal(bytes((await client.end(stream)).body), b"begun", "the body")


async def serves_many_streams_at_once():
    async with Connected() as client:
        streams = [client.begin("POST", "/echo", f"stream {n}".encode()) for n in range(600)]
        for n, stream in enumerate(streams):
            equal((await client.end(stream)).body, f"stream {n}".encode(), "the body")


async def sends_large_responses():
    async with Connected() as client:
        streams = [client.begin(path=f"/bytes/{8 << 20}") for _ in range(2)]
        for stream in streams:
            equal(len((await client.end(stream)).body), 8 << 20, "the length")


async def resumes_sessions_without_early_data():
    tickets = []
    async with Connected(on_ticket=tickets.append) as client:
        await client.fetch()
        await client.until(lambda: tickets)
        assert not client.resumed
    assert not tickets[0].max_early_data_size, "0-RTT is not offered"
    async with Connected(ticket=tickets[0]) as client:
        await client.fetch()
        assert client.resumed


async def shows_certificates_by_name():
    for name, expected in [
        ("localhost", "localhost"),
        ("a.example", "a.example"),
        ("x.b.example", "*.b.example"),
        ("y.x.b.example", "localhost"),
        ("other.example", "localhost"),
    ]:
        async with Connected(name=name) as client:
            shown = client._quic.tls._peer_certificate.extensions
            names = shown.get_extension_for_class(x509.SubjectAlternativeName).value
            assert expected in names.get_values_for_type(x509.DNSName), f"{name}: {names}"


# --- limits ---------------------------------------------------------------------------------------------


async def refuses_what_is_too_large():
    async with Connected() as client:
        large = [(b"x-large", b"y" * 1000)] * 20
        equal((await client.fetch(fields=large)).status, 431, "the status of 20 KB of fields")
        many = [(f"x-{n}".encode(), b"") for n in range(101)]
        equal((await client.fetch(fields=many)).status, 431, "the status of 101 fields")
        equal((await client.fetch("POST", "/read", bytes(9 << 20))).status, 413, "the status")
        equal((await client.fetch()).status, 200, "the status after that")


async def refuses_bodies_beyond_what_there_is_room_for():
    """There is room for two of the largest bodies, and so not for a third while those are in progress, whoever sends
    it."""
    most = 64 << 10
    length = (b"content-length", str(most).encode())

    async def until(status):
        """Waits for an answer with this status to a body of one byte."""
        async with asyncio.timeout(PATIENCE), Connected() as client:
            while (answer := await client.fetch("POST", "/read", b"x")).status != status:
                equal(answer.status, 503 if status == 200 else 200, "the status")
            return answer

    async with Connected() as first, Connected() as second:
        # A body of unannounced length may be as long as any, and what hasn't arrived yet counts.
        told = first.begin("POST", "/read", b"begun", [length], whole=False)
        untold = second.begin("POST", "/read", b"begun", whole=False)
        refused = await until(503)
        assert refused.fields[b"retry-after"].isdigit(), refused.fields
        equal(refused.fields[b"content-type"], b"application/problem+json", "the type")
        equal(json.loads(refused.body)["status"], 503, "the status in the problem")
        equal((await first.fetch()).status, 200, "the status of a request without a body")
        first.h3.send_data(told, bytes(most - len(b"begun")), end_stream=True)
        first.transmit()
        equal((await first.end(told)).body, str(most).encode(), "the length")
        await until(200)
        first.begin("POST", "/read", b"begun", [length], whole=False)
        await until(503)
        second._quic.reset_stream(untold, REQUEST_CANCELLED)
        second.transmit()
        await until(200)
        second.begin("POST", "/read", b"begun", whole=False)
        await until(503)
    # Nor do those that have gone take any.
    await until(200)


async def refuses_other_expectations():
    async with Connected() as client:
        for method, body in [("GET", None), ("POST", b"body")]:
            for expectation in [b"200-ok", b"100-continue, more", b""]:
                answer = await client.fetch(method, "/read", body, [(b"expect", expectation)])
                equal(answer.status, 417, f"the status of {method} that expects {expectation}")
                equal(answer.fields[b"content-type"], b"application/problem+json", "the type")
        # aioquic forgets which method it sent, and expects the body.
        check, client.h3._check_content_length = client.h3._check_content_length, lambda stream: None
        answer = await client.fetch("HEAD", fields=[(b"expect", b"more")])
        equal((answer.status, bytes(answer.body)), (417, b""), "the answer to HEAD")
        assert int(answer.fields[b"content-length"]) > 0, answer.fields
        client.h3._check_content_length = check
        taken = await client.fetch("POST", "/read", b"body", [(b"expect", b"100-continue")])
        equal((taken.status, bytes(taken.body)), (200, b"4"))


def frames(received):
    """Returns the types and payloads of the frames that have arrived whole."""
    found, data = [], Buffer(data=bytes(received))
    try:
        while not data.eof():
            kind, length = data.pull_uint_var(), data.pull_uint_var()
            found.append((kind, data.pull_bytes(length)))
    except Exception as error:
        if not isinstance(error, EOFError) and "Read out of bounds" not in str(error):
            raise
    return found


def statuses(client, stream):
    """Returns the statuses on a request's stream so far, also those of interim responses, which aioquic refuses."""
    heads = [payload for kind, payload in frames(client.received.get(stream, b"")) if kind == HEADERS]
    return [dict(pylsqpack.Decoder(0, 0).feed_header(stream, head)[1])[b":status"] for head in heads]


async def tells_who_waits_to_continue():
    expecting = ((b"expect", b"100-continue"),)
    async with Connected(raw=True) as client:
        client.control(frame(SETTINGS))
        # It waits until the service reads the body.
        stream = client.open()
        client.send(stream, head(*POST, *expecting))
        await client.until(lambda: statuses(client, stream) == [b"100"])
        client.send(stream, frame(DATA, b"body"), end=True)
        await client.until(lambda: statuses(client, stream) == [b"100", b"200"])
        # Here the service never does, and the server wants nothing more of the stream.
        stream = client.open()
        client.send(stream, head(*PSEUDO, *expecting))
        await client.until(lambda: statuses(client, stream) == [b"200"])
        # It does not wait.
        stream = client.open()
        client.send(stream, head(*POST, *expecting) + frame(DATA, b"body"), end=True)
        await client.until(lambda: statuses(client, stream) == [b"200"])


async def refuses_connections_beyond_the_limit():
    """Two may be open at once; a third is told so, and served once there is room."""
    async with Connected() as first:
        async with Connected() as second:
            equal(((await first.fetch()).status, (await second.fetch()).status), (200, 200))
            third = Connected()
            try:
                await third.__aenter__()
            except ConnectionError:
                pass
            else:
                raise AssertionError("a third connection was made")
        async with asyncio.timeout(PATIENCE):
            while True:
                try:
                    async with Connected() as other:
                        equal((await other.fetch()).status, 200, "the status")
                        break
                except ConnectionError:
                    await asyncio.sleep(0.05)
        equal((await first.fetch()).status, 200, "the status of who was there before")


def initial():
    """Returns the first datagrams of a handshake."""
    now = asyncio.get_running_loop().time()
    configuration = QuicConfiguration(is_client=True, alpn_protocols=["h3"], server_name="localhost")
    quic = QuicConnection(configuration=configuration)
    quic.connect((HOST, PORT), now=now)
    return [data for data, _ in quic.datagrams_to_send(now=now)]


async def counts_connections_for_proven_addresses_only():
    """Anybody can send the beginnings of handshakes with somebody else's address."""
    async with Connected() as before:
        equal((await before.fetch()).status, 200, "the status")
        silent = bind()
        for _ in range(5):
            for datagram in initial():
                silent.sendto(datagram, (HOST, PORT))
        await still_serves()
        silent.close()


async def has_clients_prove_their_addresses_under_load():
    """Many start a handshake and say nothing more; others get in nevertheless, after a Retry."""
    async with Connected() as before:
        equal(before._quic._retry_count, 0, "the retries without load")
    silent = bind()
    async with asyncio.timeout(PATIENCE):
        retries = 0
        while not retries:
            # More handshakes in progress than are accepted without proof.
            for _ in range(80):
                for datagram in initial():
                    silent.sendto(datagram, (HOST, PORT))
            async with Connected() as client:
                equal((await client.fetch()).status, 200, "the status")
                retries = client._quic._retry_count
    equal(retries, 1, "the retries under load")
    silent.close()


# --- migration ------------------------------------------------------------------------------------------


def counted(text, name):
    return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(name))


async def stay_heard(client):
    """Pings the server while waiting for an answer, as browsers do (RFC 9000, section 10.1.2).

    If a server's check of a new port gets no answer within three probe timeouts, it returns to the previous port, as it
    has to (section 9.3.2). On a busy machine that happens; a client that only waits would not be found again.
    """
    while True:
        await asyncio.sleep(0.5)
        client._quic.send_ping(0)
        client.transmit()


async def follows_a_client_to_other_ports():
    """Each new port may belong to another worker's socket; with two workers, half of them do."""
    async with Connected() as client, asyncio.TaskGroup() as group:
        pings = group.create_task(stay_heard(client))
        slow = client.begin(path="/drip/40/50")
        for turn in range(24):
            before = client._transport
            await asyncio.get_running_loop().create_datagram_endpoint(lambda: client, sock=bind())
            before.close()
            echo = await client.fetch("POST", "/echo", f"turn {turn}".encode() * 1000)
            equal(echo.body, f"turn {turn}".encode() * 1000, "the body")
        equal((await client.end(slow)).body, b"drop\n" * 40, "what began before")
        metrics = (await client.fetch(path="/metrics")).body.decode()
        pings.cancel()
    assert counted(metrics, "interop_listener_quic_forwarded_total") > 0, metrics
    equal(counted(metrics, "interop_listener_quic_dropped_total"), 0, "what was dropped")


# --- what is malformed ----------------------------------------------------------------------------------


async def resets_malformed_requests():
    long, short = (b"content-length", b"9"), (b"content-length", b"3")
    for what, fields, body in [
        ("no method", (SCHEME, AUTHORITY, PATH), b""),
        ("no scheme", (METHOD, AUTHORITY, PATH), b""),
        ("no path", (METHOD, SCHEME, AUTHORITY), b""),
        ("an empty path", (METHOD, SCHEME, AUTHORITY, (b":path", b"")), b""),
        ("no authority", (METHOD, SCHEME, PATH), b""),
        ("another host", (*PSEUDO, (b"host", b"elsewhere")), b""),
        ("a pseudo-header nobody knows", (*PSEUDO, (b":color", b"red")), b""),
        ("upper case", (*PSEUDO, (b"Accept", b"*/*")), b""),
        ("a name with a space", (*PSEUDO, (b"ac cept", b"*/*")), b""),
        ("a value with a line feed", (*PSEUDO, (b"accept", b"a\nb")), b""),
        ("connection", (*PSEUDO, (b"connection", b"close")), b""),
        ("transfer-encoding", (*PSEUDO, (b"transfer-encoding", b"chunked")), b""),
        ("te", (*PSEUDO, (b"te", b"gzip")), b""),
        ("two lengths", (*POST, long, short), b""),
        ("a length that is none", (*POST, (b"content-length", b"-1")), b""),
        ("a body too short", (*POST, long), frame(DATA, b"abcd")),
        ("no body", (*POST, long), b""),
        ("a body too long", (*POST, short), frame(DATA, b"abcd")),
    ]:
        async with Connected(raw=True) as client:
            client.control(frame(SETTINGS))
            # The second, since the first never reaches a fast path.
            first = client.open()
            client.send(first, head(*PSEUDO), end=True)
            await client.until(lambda: b"Hello, World!" in client.received.get(first, b""))
            stream = client.open()
            client.send(stream, head(*fields) + body, end=True)
            await client.until(lambda: stream in client.resets)
            equal(client.resets[stream], MESSAGE_ERROR, f"the code for {what}")
            # The connection isn't affected.
            other = client.open()
            client.send(other, head(*PSEUDO), end=True)
            await client.until(lambda: b"Hello, World!" in client.received.get(other, b""))


async def resets_requests_that_end_early():
    async with Connected(raw=True) as client:
        client.control(frame(SETTINGS))
        stream = client.open()
        client.send(stream, b"", end=True)
        await client.until(lambda: stream in client.resets)
        equal(client.resets[stream], REQUEST_INCOMPLETE, "the code")


async def closes_connections_that_break_the_protocol():
    settings, goaway = frame(SETTINGS), lambda number: frame(GOAWAY, encode_uint_var(number))
    request = head(*PSEUDO)

    def on_control(*frames):
        return lambda client: client.control(*frames)

    def on_request(data, end=True):
        def act(client):
            client.control(settings)
            client.send(client.open(), data, end)

        return act

    def unidirectional(kind, data=b"", end=False, times=1):
        def act(client):
            client.control(settings)
            for _ in range(times):
                client.send(client.open(unidirectional=True), encode_uint_var(kind) + data, end)

        return act

    def ended_control(client):
        client.send(client.control(settings), b"", end=True)

    dynamic = frame(HEADERS, bytes.fromhex("0200 80"))
    for what, act, code in [
        ("no settings first", on_control(goaway(0)), MISSING_SETTINGS),
        ("settings twice", on_control(settings, settings), FRAME_UNEXPECTED),
        ("a setting of HTTP/2", on_control(frame(SETTINGS, b"\x02\x01")), SETTINGS_ERROR),
        ("data on the control stream", on_control(settings, frame(DATA, b"x")), FRAME_UNEXPECTED),
        ("a head on the control stream", on_control(settings, request), FRAME_UNEXPECTED),
        ("a control stream that ends", ended_control, CLOSED_CRITICAL),
        ("a second control stream", unidirectional(0, settings), STREAM_CREATION),
        ("a push", unidirectional(1), STREAM_CREATION),
        ("a growing goaway", on_control(settings, goaway(4), goaway(8)), ID_ERROR),
        ("a goaway of two numbers", on_control(settings, frame(GOAWAY, b"\x00\x00")), FRAME_ERROR),
        ("no number of pushes", on_control(settings, frame(MAX_PUSH_ID)), FRAME_ERROR),
        ("two cancelled pushes in one", on_control(settings, frame(CANCEL_PUSH, b"\x00\x00")), FRAME_ERROR),
        ("a control frame too long", on_control(settings, frame(0x21, length=1 << 40)), EXCESSIVE_LOAD),
        ("data before the head", on_request(frame(DATA, b"x") + request), FRAME_UNEXPECTED),
        ("settings within a request", on_request(request + settings), FRAME_UNEXPECTED),
        ("a frame of HTTP/2", on_request(frame(0x8, bytes(4)) + request), FRAME_UNEXPECTED),
        ("a push promise", on_request(request + frame(5, b"\x00\x00\x00")), FRAME_UNEXPECTED),
        ("a head cut short", on_request(request[:-3]), FRAME_ERROR),
        # The service has to read it: otherwise the server stops the stream.
        ("data cut short", on_request(head(*POST) + frame(DATA, b"abc", length=9)), FRAME_ERROR),
        ("a head of a terabyte", on_request(frame(HEADERS, length=1 << 40), end=False), EXCESSIVE_LOAD),
        ("a dynamic table nobody has", on_request(dynamic), QPACK_FAILED),
        ("a dynamic table nobody permits", unidirectional(2, b"\x20\x3f\xe1\x1f"), QPACK_ENCODER),
        ("an entry for it", unidirectional(2, b"\xc0\x01x"), QPACK_ENCODER),
        ("an acknowledgement of no entry", unidirectional(3, b"\x40\x7f\x01\x80"), QPACK_DECODER),
        ("an increment of nothing", unidirectional(3, b"\x00"), QPACK_DECODER),
        ("two encoder streams", unidirectional(2, times=2), STREAM_CREATION),
        ("two decoder streams", unidirectional(3, times=2), STREAM_CREATION),
        # More than a client may send before it is read.
        ("an encoder stream that ends", unidirectional(2, b"\x20" * (6 << 20), end=True), CLOSED_CRITICAL),
        ("a decoder stream that ends", unidirectional(3, b"\x40" * (6 << 20), end=True), CLOSED_CRITICAL),
    ]:
        async with Connected(raw=True) as client:
            act(client)
            equal(f"{await client.gone():#x}", f"{code:#x}", f"the code for {what}")
    await still_serves()


async def closes_connections_that_end_within_data():
    """A frame has started, is received as far as it arrived, and then ends."""
    async with Connected(raw=True) as client:
        client.control(frame(SETTINGS))
        stream = client.open()
        echo = head((b":method", b"POST"), SCHEME, AUTHORITY, (b":path", b"/echo"))
        client.send(stream, echo + frame(DATA, b"begun", length=100))
        await client.until(lambda: b"begun" in client.received.get(stream, b""))
        client.send(stream, b"", end=True)
        equal(f"{await client.gone():#x}", f"{FRAME_ERROR:#x}", "the code")
    await still_serves()


async def survives_noise():
    """Streams of random bytes, and of well-formed frames in random order."""
    chance = random.Random(7)
    kinds = [DATA, HEADERS, CANCEL_PUSH, SETTINGS, 5, GOAWAY, MAX_PUSH_ID, 0x21, 0x41, 0x40, 2, 6, 8, 9]

    def noise():
        if chance.random() < 0.4:
            return chance.randbytes(chance.randrange(200))
        frames = []
        for _ in range(chance.randrange(1, 6)):
            payload = chance.choice([b"", chance.randbytes(chance.randrange(40)), head(*POST)[2:]])
            length = chance.choice([None, None, None, chance.randrange(100)])
            frames.append(frame(chance.choice(kinds), payload, length))
        return b"".join(frames)

    for _ in range(60):
        async with Connected(raw=True) as client:
            for _ in range(12):
                unidirectional = chance.random() < 0.3
                stream = client.open(unidirectional)
                data, end = noise(), chance.random() < 0.5
                for piece, last in [(data[: len(data) // 2], False), (data[len(data) // 2 :], end)]:
                    if client.terminated is None:
                        client.send(stream, piece, last)
                if chance.random() < 0.3 and client.terminated is None:
                    client._quic.reset_stream(stream, NO_ERROR)
                    client.transmit()
            # What was sent has been received once this comes back, or the connection is gone.
            acknowledged = asyncio.ensure_future(client.ping())
            gone = asyncio.ensure_future(client.gone())
            await asyncio.wait([acknowledged, gone], return_when=asyncio.FIRST_COMPLETED)
            acknowledged.cancel()
            gone.cancel()
    await still_serves()


# --- slow clients, with a server of little patience ---------------------------------------------------


async def cuts_slow_clients():
    async with Connected(raw=True) as client:
        client.control(frame(SETTINGS))
        stream = client.open()
        client.send(stream, head(*PSEUDO)[:3])
        await client.until(lambda: stream in client.resets)
        equal(client.resets[stream], REQUEST_INCOMPLETE, "the code for half a head")
    async with Connected() as client:
        stream = client.open()
        begun = [(b":method", b"POST"), (b":scheme", b"https"), (b":authority", b"x"), (b":path", b"/read")]
        client.h3.send_headers(stream, begun, end_stream=False)
        client.transmit()
        equal((await client.end(stream)).status, 408, "the status for half a body")
    async with Connected() as client:
        await client.fetch()
        equal(await client.gone(), NO_ERROR, "the code for a connection without requests")


async def cuts_bodies_that_drip():
    """There is never a pause, and no end either."""
    async with Connected() as client, asyncio.timeout(PATIENCE):
        stream = client.begin("POST", "/read", b"x", whole=False)
        while not client.responses.get(stream, Response()).ended:
            assert stream not in client.resets, f"the stream was reset with {client.resets[stream]:#x}"
            if stream not in client.stops:
                client.h3.send_data(stream, b"x", end_stream=False)
                client.transmit()
            await asyncio.sleep(0.02)
        equal(client.responses[stream].status, 408, "the status")
        equal((await client.fetch()).status, 200, "the status after that")


async def cuts_clients_that_take_nothing():
    async with Connected() as client:
        # No more credit than at the start, as for somebody who doesn't read.
        client._quic._write_stream_limits = lambda *args, **kwargs: None
        client._quic._write_connection_limits = lambda *args, **kwargs: None
        stream = client.begin(path=f"/bytes/{64 << 20}")
        await client.until(lambda: stream in client.resets)


async def closes_connections_that_take_nothing_again_and_again():
    async with Connected() as client:
        client._quic._write_stream_limits = lambda *args, **kwargs: None
        client._quic._write_connection_limits = lambda *args, **kwargs: None
        async with asyncio.timeout(PATIENCE):
            while client.terminated is None:
                stream = client.begin(path=f"/bytes/{64 << 20}")
                while client.terminated is None and stream not in client.resets:
                    client.changed.clear()
                    await client.changed.wait()
        equal(client.terminated, EXCESSIVE_LOAD, "the code")


async def goes_on_after_answers_were_cancelled():
    """A client leaves a page whose images have not arrived yet, and then downloads a file."""
    # On a machine that stands still for a second, the server takes the client for one that is gone.
    for left in (2, 1, 0):
        try:
            return await cancels_answers_and_goes_on()
        except (AssertionError, ConnectionError, TimeoutError):
            if not left:
                raise


async def cancels_answers_and_goes_on():
    async with Connected(credit=64 << 10) as client:
        limits = client._quic._write_connection_limits
        client._quic._write_connection_limits = lambda *args, **kwargs: None
        images = [client.begin(path="/bytes/16384") for _ in range(30)]
        # By then it has taken as much as it may.
        await client.until(lambda: sum(len(client.responses[s].body) for s in images if s in client.responses) > 40_000)
        for stream in images:
            # aioquic has forgotten those that have arrived.
            if not client.responses.get(stream, Response()).ended:
                client._quic.stop_stream(stream, REQUEST_CANCELLED)
        client._quic._write_connection_limits = limits
        client.transmit()
        # Meanwhile the server looks at it.
        await asyncio.sleep(1)
        # By the service, whose answers have a deadline for each piece.
        got = await client.fetch(path=f"/bytes/{16 << 20}", fields=[(b"te", b"trailers")])
        equal(len(got.body), 16 << 20, "the length")


async def closes_connections_whose_requests_never_begin():
    """A request that ends before its head costs the server some memory."""
    async with Connected(raw=True) as client:
        client.control(frame(SETTINGS))
        async with asyncio.timeout(PATIENCE):
            stream = 0
            while client.terminated is None:
                while stream // 4 < client._quic._remote_max_streams_bidi:
                    client._quic.send_stream_data(stream, b"")
                    client._quic.reset_stream(stream, REQUEST_CANCELLED)
                    stream += 4
                client.transmit()
                await asyncio.sleep(0.001)
        equal(client.terminated, EXCESSIVE_LOAD, "the code")


# --- the end --------------------------------------------------------------------------------------------


def goaways(client):
    """Returns the numbers in the GOAWAY frames received so far; the server's control stream is its first."""
    received = client.received.get(3, b"")
    assert not received or received[0] == 0, "the type of the server's first stream"
    notices = [payload for kind, payload in frames(received[1:]) if kind == GOAWAY]
    return [Buffer(data=payload).pull_uint_var() for payload in notices]


async def says_goodbye():
    """When told to stop, the server finishes what is in flight, rejects what comes after, and closes."""
    server = int(os.environ["SERVER"])
    async with Connected() as client, Connected() as idle:
        await client.fetch()
        streams = [client.begin(path="/drip/10/100") for _ in range(5)]
        await client.until(lambda: len(client.responses) > 5 and all(s in client.responses for s in streams))
        os.kill(server, signal.SIGTERM)
        equal(await idle.gone(), NO_ERROR, "the code for a connection without requests")
        await client.until(lambda: len(goaways(client)) == 2)
        first, last = goaways(client)
        equal(first, (1 << 62) - 4, "the first notice")
        equal(last, streams[-1] + 4, "the last notice")
        late = client.begin()
        equal(late, last, "the first number that is not served")
        for stream in streams:
            equal(bytes((await client.end(stream)).body), b"drop\n" * 10, "the body")
        # Rejected, or the connection has ended before it arrived.
        async with asyncio.timeout(PATIENCE):
            while client.terminated is None and late not in client.resets:
                client.changed.clear()
                await client.changed.wait()
        equal(client.resets.get(late, REQUEST_REJECTED), REQUEST_REJECTED, "the code for what came too late")
        equal(await client.gone(), NO_ERROR, "the code")


async def serves_a_first_request_while_draining():
    """It was on its way when the server was told to stop, as far as the server can know."""
    async with Connected() as client:
        os.kill(int(os.environ["SERVER"]), signal.SIGTERM)
        await client.until(lambda: goaways(client))
        equal(goaways(client), [(1 << 62) - 4], "the first notice")
        equal(bytes((await client.fetch()).body), b"Hello, World!", "the body")


async def main():
    global PORT
    PORT = int(sys.argv[1])
    failed = False
    for name in sys.argv[2:]:
        try:
            await globals()[name]()
        except Exception:
            failed = True
            print(f"{name}:\n{traceback.format_exc()}")
    sys.exit(failed)


asyncio.run(main())
