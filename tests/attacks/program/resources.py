"""Attacks that take memory, disk, processes, descriptors and time. Each is bounded: it stops by itself once it has shown that nothing stops it."""


def stay(seconds=4):
    """Until somebody has looked, which one that gets little of the processor does late."""
    time.sleep(seconds)


@bomb
def fork_bomb():
    children = []
    try:
        for _ in range(400):
            pid = os.fork()
            if pid == 0:
                signal.pause(); os._exit(0)
            children.append(pid)
        stay()
    finally:
        for pid in children:
            os.kill(pid, signal.SIGKILL); os.waitpid(pid, 0)


@bomb
def thread_bomb():
    threading.stack_size(64 << 10)
    done = threading.Event()
    try:
        for _ in range(400):
            threading.Thread(target=done.wait, daemon=True).start()
        stay()
    except RuntimeError:
        raise Closed("EAGAIN")
    finally:
        done.set()


@bomb
def memory_bomb():
    blocks = []
    for _ in range(80):
        blocks.append(b"\xff" * (16 << 20))
    # Nobody else has it meanwhile.
    stay(2)
    need(len(blocks) == 80)


# Reads one byte in each 2 MiB of what it never writes, and says so.
PAGE_TABLES = """
import mmap, time
pages = mmap.mmap(-1, 7 << 29, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=mmap.PROT_READ)
for at in range(0, len(pages), 2 << 20): pages[at]
print("there", flush=True)
time.sleep(20)
"""


@bomb
def page_tables_448_mib():
    reader, writer = os.pipe()
    words = [sys.executable, "-I", "-S", "-c", PAGE_TABLES]
    children = []
    try:
        for _ in range(64):
            children.append(subprocess.Popen(words, stdout=writer))
        os.close(writer)
        with open(reader) as lines:
            there = sum(1 for _, _ in zip(range(64), lines))
        time.sleep(0.5)
        need(there == 64)
    finally:
        for child in children:
            child.kill(); child.wait()


@bomb
def one_big_file():
    with open("big", "wb") as file:
        for _ in range(320):
            file.write(b"x" * (1 << 20))


@bomb
def many_files_384_mib():
    os.mkdir("many")
    for index in range(384):
        with open(f"many/{index}", "wb") as file:
            file.write(b"x" * (1 << 20))


def fill(mib, name="{}"):
    for index in range(mib):
        with open(name.format(index), "wb") as file:
            file.write(b"x" * (1 << 20))


@bomb
def disk_below_40_directories():
    for _ in range(40):
        os.mkdir("deep"); os.chdir("deep")
    fill(384); stay()


@bomb
def disk_in_deleted_files():
    kept = []
    for index in range(200):
        file = open(str(index), "wb", buffering=0)
        os.unlink(str(index))
        for _ in range(2):
            file.write(b"x" * (1 << 20))
        kept.append(file)
    stay()


@bomb
def disk_in_deleted_mappings():
    kept = []
    for index in range(192):
        with open(str(index), "w+b") as file:
            file.truncate(2 << 20)
            memory = mmap.mmap(file.fileno(), 2 << 20)
            os.unlink(str(index))
        for at in range(0, 2 << 20, 4096):
            memory[at] = 1
        kept.append(memory)
    stay()


@bomb
def disk_in_a_directory_without_a_list():
    os.mkdir("hidden"); os.chmod("hidden", 0o300)
    fill(384, "hidden/{}"); stay()


def directories(count):
    """So many, a thousand to a parent."""
    for index in range(count):
        if index % 1000 == 0:
            parent = f"d{index // 1000}"
            os.mkdir(parent)
        os.mkdir(f"{parent}/{index % 1000}")


@bomb
def disk_behind_250001_directories():
    directories(250001)
    fill(384, "z{}"); stay()


@bomb
def directories_20000():
    directories(20000); stay()


@bomb
def inodes_20000():
    os.mkdir("inodes")
    for index in range(20000):
        os.close(os.open(f"inodes/{index}", os.O_CREAT | os.O_WRONLY))


@bomb
def descriptor_exhaustion():
    for _ in range(1000):
        os.dup(0)


@bomb
def cpu_burn():
    until = time.monotonic() + 10
    while time.monotonic() < until:
        pass
