import os, time
while not os.path.exists('.tmp/go'):
    time.sleep(0.01)
end = time.monotonic() + 30
gate, opener = os.pipe()
def fork():
    while time.monotonic() < end:
        try:
            return os.fork()
        except OSError:
            pass
    os._exit(0)
for head in range(300):
    if fork() == 0:
        os.setsid()
        os.close(opener)
        os.read(gate, 1)
        while True:
            if fork():
                os._exit(0)
print('heads', flush=True)
os.close(opener)
time.sleep(60)
