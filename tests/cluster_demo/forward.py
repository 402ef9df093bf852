"""`kubectl port-forward` as a context: a free loopback port while it lasts."""

import re
import subprocess

START_LINE = re.compile(r"Forwarding from 127\.0\.0\.1:(\d+)")


class Forward:
    def __init__(self, namespace, target, port):
        self.command = ["kubectl", "port-forward", "-n", namespace, "--address", "127.0.0.1", target, ":%d" % port]
        self.child = None

    def __enter__(self):
        self.child = subprocess.Popen(self.command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        line = self.child.stdout.readline()
        found = START_LINE.search(line)
        if not found:
            self.__exit__()
            raise AssertionError("port-forward: " + line)
        return int(found.group(1))

    def __exit__(self, *_):
        self.child.terminate()
        try:
            self.child.wait(10)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()
        self.child.stdout.close()
