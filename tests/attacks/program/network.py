"""Attacks by sockets: outbound, inbound, other families, raw access, foreign ABIs, local sockets."""

# Outbound.

def tcp(family, address, protocol=0):
    with socket.socket(family, socket.SOCK_STREAM, protocol) as s:
        s.settimeout(3)
        s.connect(address)
        need(s.recv(16) == b"hello")


@attack
def tcp_v4(): tcp(socket.AF_INET, (TARGETS["v4"], 80))
@attack
def tcp_v6(): tcp(socket.AF_INET6, (TARGETS["v6"], 80))
@attack
def metadata_address(): tcp(socket.AF_INET, ("169.254.169.254", 80))
@attack
def mptcp(): tcp(socket.AF_INET, (TARGETS["v4"], 80), 262)


@attack
def tcp_fast_open():
    with socket.socket() as s:
        # Without a cookie the call does a plain handshake; it must block for that.
        s.sendto(b"x", 0x20000000, (TARGETS["v4"], 80))
        need(s.recv(16) == b"hello")


@attack
def udp():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.settimeout(3)
        s.sendto(b"x", (TARGETS["v4"], 80))
        need(s.recv(16) == b"hello")


@attack
def dns_raw():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.settimeout(3)
        s.sendto(struct.pack(">6H", 7, 256, 1, 0, 0, 0) + b"\x01a\x04test\x00\x00\x01\x00\x01", (TARGETS["v4"], 53))
        need(s.recv(512)[:2] == b"\x00\x07")


@attack
def getaddrinfo():
    need(socket.getaddrinfo("secret.test", 80, socket.AF_INET)[0][4][0] == TARGETS["v4"])


# Inbound.

@attack
def tcp_bind_listen():
    with socket.socket() as s:
        s.bind(("0.0.0.0", 0)); s.listen(1)


@attack
def listen_without_bind():
    with socket.socket() as s:
        s.listen(1)


@attack
def udp_bind():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.bind(("0.0.0.0", 0))


# Other families, raw access, foreign ABIs.

@attack
def netlink_dump():
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as s:
        s.settimeout(3)
        s.send(struct.pack("IHHII", 17, 18, 0x301, 1, 0) + b"\x00")
        need(len(s.recv(65536)) > 16)


@attack
def every_address_family():
    opened, last = [], errno.EPERM
    for family in range(47):
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW, socket.SOCK_SEQPACKET):
            try:
                os.close(call("socket", family, kind, 0))
                opened.append(family)
                break
            except OSError as error:
                last = error.errno
    if not opened:
        raise OSError(last, "socket")
    return f"{len(opened)} families"


@attack
def icmp_raw():
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, 1): pass
@attack
def icmp_datagram():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM, 1): pass
@attack
def af_packet():
    with socket.socket(17, socket.SOCK_RAW, 0): pass
@attack
def vsock():
    with socket.socket(40, socket.SOCK_STREAM, 0): pass


def native(code):
    """Runs machine code from a mapping that is writable and executable."""
    memory = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    memory.write(code)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    return ctypes.CFUNCTYPE(ctypes.c_int)(address)()


def only_x86():
    if platform.machine() != "x86_64":
        raise Closed("ENOSYS")


@attack
def i386_socket():
    only_x86()
    # push rbx; mov eax,359; mov ebx,2; mov ecx,1; xor edx,edx; int 0x80; pop rbx; ret
    result = native(bytes.fromhex("53b867010000bb02000000b90100000031d2cd805bc3"))
    if result < 0:
        raise OSError(-result, "int 0x80")


@attack
def x32_socket():
    only_x86()
    os.close(call("socket", 2, 1, 0, offset=0x40000000))


# Local sockets, asynchronous I/O.

@attack
def unix_pathname():
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(TARGETS["unix_path"]); need(s.recv(16) == b"hello")


@attack
def unix_abstract_connect():
    with socket.socket(socket.AF_UNIX) as s:
        s.connect("\0" + TARGETS["unix_abstract"]); need(s.recv(16) == b"hello")


@attack
def unix_abstract_sendto():
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
        s.sendto(b"x", "\0" + TARGETS["unix_abstract"] + "-dgram")


@attack
def io_uring():
    os.close(call("io_uring_setup", 4, ctypes.create_string_buffer(512)))


@attack
def socketpair():
    a, b = socket.socketpair()
    a.send(b"x"); need(b.recv(1) == b"x")
