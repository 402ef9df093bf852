import asyncio
import os
import subprocess
import sys


def every_shape(path):
    subprocess.run(["sh", "-c", "true"], check=True)
    subprocess.run([sys.executable, path])
    subprocess.check_output("absent-as-text --version", shell=True)
    os.system("absent-by-system")
    cmd = ["absent-in-a-list", path]
    subprocess.Popen(cmd)
    asyncio.run(asyncio.create_subprocess_exec("absent-by-asyncio", path))
    subprocess.run(["./own-file", path])
