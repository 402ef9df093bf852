"""What scripts of public skills ask of their machine."""
import os, pathlib, socket, subprocess, tempfile
socket.socket(socket.AF_UNIX, socket.SOCK_STREAM).close()
pathlib.Path("a.md").write_text("# Title\n")
subprocess.run(["pandoc", "a.md", "-o", "a.docx"], check=True)
profile = "-env:UserInstallation=file:///tmp/libreoffice_docx_profile"
subprocess.run(["soffice", "--headless", profile, "--convert-to", "pdf", "a.docx"], check=True, timeout=60)
print(pathlib.Path("a.pdf").stat().st_size > 1000, pathlib.Path("/tmp/libreoffice_docx_profile").is_dir())
print(os.path.samefile("/tmp", tempfile.gettempdir()))
for name in ("python", "python3"):
    print(subprocess.run([name, "-c", "print(6 * 7)"], check=True, capture_output=True, text=True).stdout.strip())
print(subprocess.run("echo $((6 * 7)) | bash -c cat", shell=True, check=True, capture_output=True, text=True).stdout.strip())
print(subprocess.run(["node", "-p", "6 * 7"], check=True, capture_output=True, text=True).stdout.strip())
