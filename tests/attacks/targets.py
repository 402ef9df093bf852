"""The peer and the victim of the attack suite; started inside the test's own namespaces.

targets.py peer: waits for its addresses, then answers as internet, metadata address and DNS.
targets.py victim SOCKET ABSTRACT: a process with dummy secrets and local sockets, which writes a byte to SOCKET.signals for
each signal that it gets; prints where its secret lies.
"""
import ctypes, os, selectors, signal, socket, struct, sys, threading, time

HELLO = b"hello"


def serve_stream(listener):
    while True:
        connection, _ = listener.accept()
        try:
            connection.sendall(HELLO)
        except OSError:
            pass
        connection.close()


def answer(query):
    header = struct.pack(">2s5H", query[:2], 0x8180, 1, 1, 0, 0)
    end = query.index(b"\0", 12) + 5
    address = socket.inet_aton(os.environ["KNACK_V4"])
    return header + query[12:end] + b"\xc0\x0c" + struct.pack(">HHIH", 1, 1, 60, 4) + address


def peer():
    sys.stdin.readline()  # The addresses are there.
    listener = socket.socket(socket.AF_INET6)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    listener.bind(("::", 80)); listener.listen(64)
    threading.Thread(target=serve_stream, args=(listener,), daemon=True).start()
    ports = {}
    selector = selectors.DefaultSelector()
    for port in (80, 53):
        datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        # Answers come from the address that was asked, whatever other addresses there are.
        datagrams.bind((os.environ["KNACK_V4"], port))
        ports[datagrams] = port
        selector.register(datagrams, selectors.EVENT_READ)
    print("ready", flush=True)
    while True:
        for key, _ in selector.select():
            data, sender = key.fileobj.recvfrom(4096)
            try:
                key.fileobj.sendto(HELLO if ports[key.fileobj] == 80 else answer(data), sender)
            except (OSError, ValueError):
                pass


def victim(path, abstract):
    secret = ctypes.create_string_buffer(b"dummy-secret-in-memory")
    listeners = []
    for address in (path, "\0" + abstract):
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(address); listener.listen(16)
        listeners.append(listener)
        threading.Thread(target=serve_stream, args=(listener,), daemon=True).start()
    datagram = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    datagram.bind("\0" + abstract + "-dgram")
    os.chmod(path, 0o777)
    seen = os.open(path + ".signals", os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o644)
    for number in (signal.SIGUSR1, signal.SIGIO):
        signal.signal(number, lambda *_: os.write(seen, b"x"))
    print(os.getpid(), ctypes.addressof(secret), flush=True)
    while True:
        time.sleep(60)


if sys.argv[1] == "peer":
    peer()
else:
    victim(sys.argv[2], sys.argv[3])
