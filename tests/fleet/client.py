#!/usr/bin/env python3
"""client.py ADDRESS FILE: requests a short link again and again, each time on a new connection, until its standard
input ends. Then it prints the results of the requests, as JSON.

A GET whose connection ends without an answer is sent once more on another one, as browsers do (RFC 9110, section
9.2.2). FILE exists once the first answer has arrived.
"""

import json
import socket
import sys
import threading
import time
from pathlib import Path

CLIENTS = 4
# How long an answer may take; the network in between has no delay.
PATIENCE_SECONDS = 0.2
# Between two requests of a client.
PAUSE_SECONDS = 0.002


def answered(address: str) -> bool:
    try:
        with socket.create_connection((address, 80), timeout=PATIENCE_SECONDS) as connection:
            connection.sendall(b"GET /hello HTTP/1.1\r\nhost: go.example\r\nconnection: close\r\n\r\n")
            said = connection.recv(4096)
    except OSError:
        return False
    if said and not said.startswith(b"HTTP/1.1 307 "):
        sys.exit(f"error: {said!r}")
    return bool(said)


def main() -> None:
    address, begun = sys.argv[1], Path(sys.argv[2])
    done = threading.Event()
    lock = threading.Lock()
    requests, again, lost = 0, 0, 0
    # When attempts without an answer were given up (CLOCK_MONOTONIC, which the test shares).
    failed: list[float] = []

    def client() -> None:
        nonlocal requests, again, lost
        while not done.is_set():
            tries = []
            for _ in range(2):
                if answered(address):
                    break
                tries.append(time.monotonic())
            with lock:
                requests += 1
                again += len(tries) == 1
                lost += len(tries) == 2
                failed.extend(tries)
            if not tries:
                begun.touch()
            time.sleep(PAUSE_SECONDS)

    threads = [threading.Thread(target=client) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    sys.stdin.read()
    done.set()
    for thread in threads:
        thread.join()
    print(json.dumps({"requests": requests, "again": again, "lost": lost, "failed": sorted(failed)}))


main()
