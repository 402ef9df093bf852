import errno, socket


def tried(word, act):
    try:
        act()
        print(word, "OPEN")
    except OSError as error:
        print(word, errno.errorcode[error.errno])


made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
print("made")
tried("bind", lambda: made.bind("/tmp/own.sock"))
tried("connect", lambda: made.connect("/tmp/own.sock"))
tried("abstract", lambda: made.bind("\0own"))
tried("inet", lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM))
