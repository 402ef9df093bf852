def main():
    import sys, os, traceback, linecache
    # Imported by most programs; the time is spent before the program arrives. No more than those: the kernel takes every
    # page down again before it tells that the process has ended (`random` alone: 0.15 ms of a run).
    import json, re, math, datetime, collections, pathlib, io, gc, atexit

    # The interpreter's own end takes down every module one by one: 2 ms, of which nobody sees anything but the files that
    # it closes and the __del__ methods that it calls. Where nothing but plain files is left to close, this does the
    # visible part and leaves. Returns if it is in doubt; the interpreter then ends as always.
    # Extension modules whose objects leave nothing behind; of others (sqlite3's journals) nobody knows.
    harmless = {"_csv", "_decimal", "_hashlib", "_json", "_contextvars", "_opcode", "_uuid", "_zoneinfo"}
    plain = (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom, io.BufferedReader, io.FileIO)

    def leave(code):
        threading = sys.modules.get("threading")
        if threading is not None:
            threading._shutdown()
            if threading.active_count() > 1:
                return
        atexit._run_exitfuncs()
        for name in sys.modules.keys() - known:
            file = getattr(sys.modules[name], "__file__", None) or ""
            if file.endswith(".so") and name not in harmless:
                return
        left = gc.get_objects()
        if len(left) > 20000:
            return
        files = []
        kinds = set()
        for item in left:
            kind = type(item)
            if kind in plain:
                files.append(item)
            else:
                kinds.add(kind)
                # Its instances are not among the objects (Py_TPFLAGS_HAVE_GC).
                if isinstance(item, type) and not item.__flags__ & 1 << 14:
                    kinds.add(item)
        if any(hasattr(kind, "__del__") for kind in kinds):
            return
        # From the outermost layer inwards.
        for layer in plain[:3]:
            for file in files:
                if type(file) is layer and not file.closed:
                    file.flush()
        for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
            stream.flush()
        os._exit(code)

    def end(code):
        try:
            leave(code)
        except BaseException:
            # It happens again at the interpreter's end, which tells it as it should.
            pass
        # Or the program's globals, which are among what was frozen, would not be looked at by the last collection.
        gc.unfreeze()

    # Once through what every program passes, so that its pages are there.
    sink = io.StringIO()
    exec(compile("import sys\ndef f(x):\n    return [y * 2 for y in x]\nprint(6 * 7, f([1]), file=sink)\n", "<warm>", "exec"), {"sink": sink})
    hasattr(gc.get_objects()[0], "__del__")
    sys.stdout.reconfigure(line_buffering=True)
    sys.stdout.flush()
    del sink
    known = frozenset(sys.modules)
    # What stands before the program arrives is not looked at again by the collections at the interpreter's end: they
    # were half of the time of a short run.
    gc.collect()
    gc.freeze()
    os.write(1, b"\0knack-ready\n")
    parts = []
    while True:
        part = os.read(0, 1 << 16)
        if not part:
            break
        parts.append(part)
    head, _, rest = b"".join(parts).partition(b"\n")
    if not head:
        os._exit(0)
    items = []
    at = 0
    for length in head.split():
        items.append(rest[at:at + int(length)])
        at += int(length)
    null = os.open("/dev/null", os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    count = int(items[1])
    os.chdir(items[0])
    sys.argv = ["-c"] + [os.fsdecode(item) for item in items[2:2 + count]]
    for pair in items[2 + count:-1]:
        name, _, value = pair.partition(b"=")
        os.environb[name] = value
    sys.dont_write_bytecode = True
    sys.path[:0] = [""] + [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    name = "<code>"

    def show(kind, value, trace):
        traceback.print_exception(kind, value, trace)

    sys.excepthook = show
    space = sys.modules["__main__"].__dict__
    space.pop("main", None)
    try:
        source = items[-1].decode("utf-8")
        linecache.cache[name] = (len(source), None, source.splitlines(True), name)
        code = compile(source, name, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        sys.excepthook(type(error), error, None)
        sys.exit(1)
    try:
        exec(code, space)
    except SystemExit as stop:
        code = 0 if stop.code is None else stop.code
        if type(code) is int:
            end(code)
        gc.unfreeze()
        raise
    except BaseException as error:
        # The first frame is the exec above.
        trace = error.__traceback__.tb_next if error.__traceback__ else None
        error.__traceback__ = trace
        try:
            sys.stdout.flush()
        except Exception:
            pass
        sys.excepthook(type(error), error, trace)
        del error, trace
        end(1)
        sys.exit(1)
    end(0)


# With globals of its own: whoever keeps a function of this text would keep the program's globals, and what they hold
# would be closed after the modules that it needs for that.
type(main)(main.__code__, {"__builtins__": __builtins__, "__name__": "bootstrap"})()
