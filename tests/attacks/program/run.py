"""What the program does with its arguments."""


def main(name):
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        detail = ATTACKS[name]()
        print("RESULT OPEN", detail or "", flush=True)
    except socket.gaierror:
        print("RESULT gaierror", flush=True)
    except OSError as error:
        print("RESULT", errno.errorcode.get(error.errno, str(error) or type(error).__name__), flush=True)
    except MemoryError:
        print("RESULT ENOMEM", flush=True)
    except Closed as closed:
        print("RESULT", closed, flush=True)
    except subprocess.TimeoutExpired:
        print("RESULT timeout", flush=True)
    os._exit(0)


def each(names):
    """Prints EACH, the name and the outcome of each attack; a child that hangs is killed after 10 s."""
    for name in names:
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.dup2(writer, 1)
            signal.alarm(10)
            main(name)
        os.close(writer)
        with open(reader) as lines:
            text = [line.split(" ", 1)[1].strip() for line in lines if line.startswith("RESULT ")]
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        print("EACH", name, text[-1] if text else f"signal {-code}" if code < 0 else f"exit {code}", flush=True)


def refuse_checkouts():
    """What an attack leaves behind must not be taken for a part of somebody's work."""
    here = os.getcwd()
    while True:
        if os.path.lexists(os.path.join(here, ".git")):
            sys.exit(f"attacks.py: {os.getcwd()} is in a git tree; change to an empty directory")
        if here == "/":
            return
        here = os.path.dirname(here)


if __name__ == "__main__":
    if sys.argv[1] in ("--list", "--bombs"):
        print("\n".join(ATTACKS if sys.argv[1] == "--list" else BOMBS))
        sys.exit()
    refuse_checkouts()
    if sys.argv[1] == "--each":
        each(sys.argv[2:])
    elif sys.argv[1] == "--control":
        # The attack's parent stands for the runner: same uid, alive, dumpable.
        child = os.fork()
        if child == 0:
            RUNNER = os.getppid()
            for name in ("proc_environ_runner", "proc_mem_runner", "proc_root_runner"):
                kind = {"environ": environ_of, "mem": mem_of, "root": root_of}[name.split("_")[1]]
                ATTACKS[name] = lambda kind=kind: kind(RUNNER)
            main(sys.argv[2])
        status = os.waitpid(child, 0)[1]
        code = os.waitstatus_to_exitcode(status)
        if code < 0:
            print("RESULT", signal.Signals(-code).name, flush=True)
    else:
        main(sys.argv[1])
