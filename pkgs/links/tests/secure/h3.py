"""Requests over HTTP/3, as aioquic makes them.

    h3.py PORT ask      reads requests as JSON, prints their answers as JSON; all on one connection
    h3.py PORT visit    reads a path, requests it until the server says goodbye; prints how many redirects arrived
    h3.py PORT stall    reads a path, requests it and reads nothing, again and again; prints how many streams were
                        reset, and with which code the connection is closed
    h3.py PORT begin    sends half a head; prints with which code its stream is reset
    h3.py PORT move     reads a path, requests it from one port after the other, on one connection; prints how many
                        redirects arrived
    h3.py PORT names    reads a name, and prints the names in the certificate that is presented for it
"""

import asyncio
import json
import socket
import ssl
import sys

from aioquic.asyncio.client import connect
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.h3.connection import H3_ALPN, H3Connection
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import ConnectionTerminated, StreamReset
from cryptography import x509

PATIENCE = 60


class Refused(Exception):
    """The server didn't accept a request, which has to be sent elsewhere. Has the code of a stream that was reset."""


class Client(QuicConnectionProtocol):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.h3 = H3Connection(self._quic)
        self.waiting = {}
        self.closed = None
        # aioquic forgets which method it sent, and expects the body of a HEAD.
        self.h3._check_content_length = lambda stream: None

    def quic_event_received(self, event):
        if isinstance(event, ConnectionTerminated):
            self.closed = event.error_code
            for _, _, done in self.waiting.values():
                if not done.done():
                    done.set_exception(Refused())
        if isinstance(event, StreamReset) and event.stream_id in self.waiting:
            done = self.waiting[event.stream_id][2]
            if not done.done():
                done.set_exception(Refused(event.error_code))
        for received in self.h3.handle_event(event):
            if received.stream_id not in self.waiting:
                continue
            fields, body, done = self.waiting[received.stream_id]
            if isinstance(received, HeadersReceived):
                fields.extend((name.decode(), value.decode()) for name, value in received.headers)
            elif isinstance(received, DataReceived):
                body.extend(received.data)
            if received.stream_ended and not done.done():
                done.set_result(None)

    async def ask(self, method, path, fields=(), body=""):
        stream = self._quic.get_next_available_stream_id()
        found, received, done = [], bytearray(), asyncio.get_running_loop().create_future()
        self.waiting[stream] = found, received, done
        head = [(":method", method), (":scheme", "https"), (":authority", "localhost"), (":path", path)]
        head += [tuple(part.strip() for part in field.split(":", 1)) for field in fields]
        if body:
            head.append(("content-length", str(len(body))))
        self.h3.send_headers(stream, [(n.encode(), v.encode()) for n, v in head], end_stream=not body)
        if body:
            self.h3.send_data(stream, body.encode(), end_stream=True)
        self.transmit()
        await asyncio.wait_for(done, PATIENCE)
        status = next(int(value) for name, value in found if name == ":status")
        fields = sorted(field for field in found if field[0] != ":status")
        length = dict(fields).get("content-length")
        assert method == "HEAD" or length == str(len(received)), (method, path, length, len(received))
        return {"status": status, "fields": fields, "body": received.decode()}


def connection(port, name=None):
    configuration = QuicConfiguration(
        is_client=True, alpn_protocols=H3_ALPN, verify_mode=ssl.CERT_NONE, server_name=name
    )
    return connect("127.0.0.1", port, configuration=configuration, create_protocol=Client)


async def ask(port):
    async with connection(port) as client:
        answers = [await client.ask(**request) for request in json.load(sys.stdin)]
    print(json.dumps(answers))


async def visit(port):
    path, count = sys.stdin.read(), 0
    async with connection(port) as client:
        while True:
            try:
                answer = await client.ask("GET", path)
            except (Refused, ConnectionError):
                break
            assert answer["status"] == 307, answer
            count += 1
    print(count)


async def stall(port):
    path, resets = sys.stdin.read(), 0
    async with connection(port) as client:
        # No more room than at the start, as for somebody who doesn't read.
        client._quic._write_stream_limits = lambda *args, **kwargs: None
        client._quic._write_connection_limits = lambda *args, **kwargs: None
        while client.closed is None:
            try:
                await client.ask("GET", path)
            except Refused:
                resets += client.closed is None
    print(resets, hex(client.closed))


async def begin(port):
    async with connection(port) as client:
        stream, done = client._quic.get_next_available_stream_id(), asyncio.get_running_loop().create_future()
        client.waiting[stream] = [], bytearray(), done
        # A HEADERS frame of 32 bytes, of which one is here.
        client._quic.send_stream_data(stream, b"\x01\x20\x00")
        client.transmit()
        try:
            await asyncio.wait_for(done, PATIENCE)
        except Refused as refused:
            print(*map(hex, refused.args))


async def stay_heard(client):
    """Pings the server while waiting for an answer, as browsers do (RFC 9000, section 10.1.2): a client that only waits
    isn't found again if the server checked a new port too late."""
    while True:
        await asyncio.sleep(0.5)
        client._quic.send_ping(0)
        client.transmit()


async def move(port):
    path, count = sys.stdin.read(), 0
    async with connection(port) as client:
        pings = asyncio.ensure_future(stay_heard(client))
        for _ in range(24):
            before, sock = client._transport, socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            sock.bind(("::", 0, 0, 0))
            await asyncio.get_running_loop().create_datagram_endpoint(lambda: client, sock=sock)
            before.close()
            answer = await client.ask("GET", path)
            assert answer["status"] == 307, answer
            count += 1
        pings.cancel()
    print(count)


async def names(port):
    async with connection(port, sys.stdin.read()) as client:
        shown = client._quic.tls._peer_certificate.extensions
    names = shown.get_extension_for_class(x509.SubjectAlternativeName).value
    print(",".join(names.get_values_for_type(x509.DNSName)))


modes = {"ask": ask, "visit": visit, "stall": stall, "begin": begin, "move": move, "names": names}
asyncio.run(modes[sys.argv[2]](int(sys.argv[1])))
