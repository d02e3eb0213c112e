"""Clients of TLS that ask for a file and take none of it.

    crowd.py PORT PATH COUNT

Prints how many have a connection, and holds these until standard input ends.
"""

import socket
import ssl
import sys

PATIENCE = 2

context = ssl.create_default_context()
context.check_hostname = False
context.verify_mode = ssl.CERT_NONE
crowd = []
for _ in range(int(sys.argv[3])):
    plain = socket.socket()
    # Little room for what is not taken.
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    plain.settimeout(PATIENCE)
    try:
        plain.connect(("127.0.0.1", int(sys.argv[1])))
        client = context.wrap_socket(plain)
        client.sendall(f"GET {sys.argv[2]} HTTP/1.1\r\nHost: h\r\n\r\n".encode())
    except OSError:
        break
    crowd.append(client)
print(len(crowd), flush=True)
sys.stdin.read()
