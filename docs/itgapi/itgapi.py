#!/usr/bin/env python3
"""Asks senders that wait as daemons (`ITGSend -Q`) for flows: D-ITG's ITGapi, in Python.

    itgapi.py HOST OPTIONS OF ITGSend...

prints what the daemon answers and ends with the flow; exit code 1 when the request was refused.
The functions below are for scripts: send_request and catch_message are ITGapi's DITGsend and
catchManagerMsg.
"""

import socket
import struct
import sys

PORT = 8998
STARTED, ENDED, REFUSED = 1, 2, 3


def send_request(sock, sender, message):
    """Sends the options of a flow, at most 1457 bytes, to the daemon on the host `sender`."""
    data = message.encode()
    if len(data) > 1457:
        raise ValueError(f"the request has {len(data)} bytes, more than 1457")
    sock.sendto(data, (sender, PORT))


def catch_message(sock, timeout_s):
    """The next answer as (kind, host, text), or None when none comes in time.

    The kind is the first byte, the text begins at byte 8. With the first answer, STARTED, the
    text lacks its last five characters; ENDED comes with all of it. REFUSED, from our daemon
    alone, comes with the reason.
    """
    sock.settimeout(timeout_s)
    try:
        data, (host, _port) = sock.recvfrom(2048)
    except TimeoutError:
        return None
    if len(data) < 8:
        return None
    (kind,) = struct.unpack_from("<B", data)
    return kind, host, data[8:].decode(errors="replace").strip("\0\n ")


def main(arguments):
    if len(arguments) < 2:
        sys.exit(__doc__)
    host, *options = arguments
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        send_request(sock, host, " ".join(options))
        answer = catch_message(sock, 5)
        if answer is None:
            sys.exit(f"no answer from {host}: is `ITGSend -Q` running there?")
        while answer is not None:
            kind, sender, text = answer
            print(kind, sender, text, flush=True)
            if kind != STARTED:
                sys.exit(0 if kind == ENDED else 1)
            # A flow may take as long as it likes.
            answer = catch_message(sock, None)


if __name__ == "__main__":
    main(sys.argv[1:])
