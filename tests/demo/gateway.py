"""Starts `knack dev` for the demo and stops it again."""

import os
import subprocess
import time

START_SECONDS = 120


class Gateway:
    """`knack dev` as a child process; its console goes to a file."""

    def __init__(self, knack, folder, paths, arguments, environment):
        self.log_path = os.path.join(folder, "console.txt")
        self.files = os.path.join(folder, "knack-files")
        port_file = os.path.join(folder, "port")
        command = [knack, "dev", *paths, "--listen", "127.0.0.1:0", "--files-dir", self.files,
                   "--print-port-file", port_file, *arguments]
        with open(self.log_path, "wb") as log:
            self.child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                                          env=environment)
        end = time.monotonic() + START_SECONDS
        while not (os.path.exists(port_file) and os.path.getsize(port_file)):
            if self.child.poll() is not None or time.monotonic() > end:
                self.stop()
                raise AssertionError("knack dev did not start:\n" + self.console())
            time.sleep(0.02)
        with open(port_file) as file:
            self.port = int(file.read())

    def console(self):
        with open(self.log_path, encoding="utf-8", errors="replace") as file:
            return file.read()

    def stop(self):
        if self.child.poll() is None:
            self.child.terminate()
            try:
                self.child.wait(10)
            except subprocess.TimeoutExpired:
                self.child.kill()
                self.child.wait()
