"""Files and ranges of them over HTTP/3, as aioquic requests them.

    h3.py PORT check ROOT      exits with a traceback at the first wrong answer
    h3.py PORT get PATH...     prints the status of each, requested on one connection
    h3.py PORT ask             reads lines of JSON, each a list of pairs with the headers of a request, and answers with
                               such lines; all on one connection
"""

import asyncio
import base64
import json
import pathlib
import ssl
import sys

from aioquic.asyncio.client import connect
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.h3.connection import H3_ALPN, H3Connection
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration

PATIENCE = 30


class Client(QuicConnectionProtocol):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.h3 = H3Connection(self._quic)
        self.waiting = {}

    def quic_event_received(self, event):
        for received in self.h3.handle_event(event):
            fields, body, done = self.waiting[received.stream_id]
            if isinstance(received, HeadersReceived):
                for name, value in received.headers:
                    before = fields.get(name.decode())
                    fields[name.decode()] = (before + ", " if before else "") + value.decode()
            elif isinstance(received, DataReceived):
                body.extend(received.data)
            if received.stream_ended and not done.done():
                done.set_result(None)

    async def get(self, path, **fields):
        stream = self._quic.get_next_available_stream_id()
        found, body, done = {}, bytearray(), asyncio.get_running_loop().create_future()
        self.waiting[stream] = found, body, done
        request = {":method": "GET", ":scheme": "https", ":authority": "localhost", ":path": path, **fields}
        self.h3.send_headers(stream, [(n.encode(), v.encode()) for n, v in request.items()], end_stream=True)
        self.transmit()
        await asyncio.wait_for(done, PATIENCE)
        return int(found[":status"]), found, bytes(body)


def connection(port):
    configuration = QuicConfiguration(is_client=True, alpn_protocols=H3_ALPN, verify_mode=ssl.CERT_NONE)
    return connect("127.0.0.1", port, configuration=configuration, create_protocol=Client)


async def get(port, *paths):
    async with connection(port) as client:
        for path in paths:
            print((await client.get(path))[0])


async def ask(port):
    async with connection(port) as client:
        while line := await asyncio.to_thread(sys.stdin.readline):
            status, fields, body = await client.get("", **dict(json.loads(line)))
            print(json.dumps({"fields": fields, "body": base64.b64encode(body).decode()}), flush=True)


async def check(port, root):
    root = pathlib.Path(root)
    async with connection(port) as client:
        for file in sorted(root.glob("f*")):
            status, fields, body = await client.get("/" + file.name)
            assert (status, body) == (200, file.read_bytes()), (file, status, len(body))
            assert fields["content-length"] == str(len(body)), fields
            assert fields["accept-ranges"] == "bytes", fields
        whole = (root / "f3000001").read_bytes()
        for value, first, end in (("0-0", 0, 1), ("1000000-2000000", 1000000, 2000001), ("-7", 2999994, 3000001)):
            status, fields, body = await client.get("/f3000001", range="bytes=" + value)
            assert (status, body) == (206, whole[first:end]), (value, status, len(body))
            assert fields["content-range"] == f"bytes {first}-{end - 1}/3000001", fields
        status, fields, _ = await client.get("/f3000001", range="bytes=3000001-")
        assert (status, fields["content-range"]) == (416, "bytes */3000001"), fields
        status, fields, body = await client.get("/f3000001", range="bytes=0-1,9-10")
        assert status == 206 and fields["content-type"].startswith("multipart/byteranges"), fields
        assert whole[9:11] in body
        etag = (await client.get("/a.js"))[1]["etag"]
        status, _, body = await client.get("/a.js", **{"if-none-match": etag})
        assert (status, body) == (304, b""), status
        answers = await asyncio.gather(*(client.get("/f65537") for _ in range(20)))
        assert all((status, len(body)) == (200, 65537) for status, _, body in answers)
        assert (await client.get("/missing"))[0] == 404


asyncio.run({"check": check, "get": get, "ask": ask}[sys.argv[2]](int(sys.argv[1]), *sys.argv[3:]))
