"""What the tests of environments need around them: an index with wheels made here, a registry, an image in it."""

import base64
import contextlib
import gzip
import hashlib
import http.client
import http.server
import importlib.util
import io
import json
import os
import socket
import ssl
import subprocess
import tarfile
import tempfile
import threading
import time
import urllib.error
import urllib.request
import zipfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def wheel(name, version, files, metadata="", modes=None):
    """A wheel's file name and bytes; `entry_points.txt` may be among the files, by its place in the dist-info folder. `modes`: of files that are no plain ones."""
    info = "%s-%s.dist-info" % (name, version)
    files = {path.replace("INFO/", info + "/"): text.encode() for path, text in files.items()}
    files[info + "/METADATA"] = ("Metadata-Version: 2.1\nName: %s\nVersion: %s\n%s" % (name, version, metadata)).encode()
    files[info + "/WHEEL"] = b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    record = "".join("%s,sha256=%s,%d\n" % (path, base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode(), len(data)) for path, data in files.items())
    files[info + "/RECORD"] = (record + info + "/RECORD,,\n").encode()
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for path, data in files.items():
            member = zipfile.ZipInfo(path, (2020, 1, 1, 0, 0, 0))
            member.create_system, member.external_attr = 3, (modes or {}).get(path, 0o100644) << 16
            archive.writestr(member, data)
    return "%s-%s-py3-none-any.whl" % (name, version), packed.getvalue()


def node_package(name, version, files):
    """A package of Node as npm packs it: name, version and bytes of its file. A value that is no text is the target of a link."""
    packed = io.BytesIO()
    files = {"package.json": json.dumps({"name": name, "version": version, "main": "index.cjs"}), **files}
    with gzip.GzipFile(fileobj=packed, mode="wb", mtime=0) as zipped, tarfile.open(fileobj=zipped, mode="w") as tar:
        for path, text in files.items():
            member = tarfile.TarInfo("package/" + path)
            if isinstance(text, str):
                member.size = len(text.encode())
                tar.addfile(member, io.BytesIO(text.encode()))
            else:
                member.type, member.linkname = tarfile.SYMTYPE, text.decode()
                tar.addfile(member)
    return name, version, packed.getvalue()


def node_lock(packages, data=None):
    """A package-lock.json of these, each at the top. `data`: bytes that the hashes are of instead."""
    entries = {"": {"dependencies": {name: version for name, version, _ in packages}}}
    for name, version, own in packages:
        entries["node_modules/" + name] = {"version": version, "integrity": "sha512-" + base64.b64encode(hashlib.sha512(data or own).digest()).decode()}
    return json.dumps({"lockfileVersion": 3, "packages": entries})


def wheels_in(folder):
    """Name and content of every wheel in a folder, by name."""
    found = []
    for name in sorted(os.listdir(folder)):
        if name.endswith(".whl"):
            with open(os.path.join(folder, name), "rb") as file:
                found.append((name, file.read()))
    return found


class Index:
    """PEP 503 pages of these wheels, and files of these packages of Node, with the requests that came."""

    def __init__(self, address, wheels, password=None, on_file=None, node=(), tls=None):
        """`on_file` is called with the name of a file before it is sent; False from it: the connection ends without an answer.
        `tls`: a server's certificate and key, in one file."""
        pages = {"/npm/%s/-/%s-%s.tgz" % (name, name.split("/")[-1], version): data for name, version, data in node}
        for name, data in wheels:
            project = "/simple/%s/" % name.split("-")[0].replace("_", "-").lower()
            pages[project] = pages.get(project, b"") + ("<a href='/files/%s#sha256=%s'>%s</a>\n" % (name, hashlib.sha256(data).hexdigest(), name)).encode()
            pages["/files/" + name] = data
        asked = self.asked = []
        wanted = password and "Basic " + base64.b64encode(password.encode()).decode()

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                asked.append(self.path)
                if on_file and self.path.startswith("/files/") and on_file(self.path[7:]) is False:
                    self.close_connection = True
                    return
                data = pages.get(self.path)
                code = 401 if wanted and self.headers.get("Authorization") != wanted else 404 if data is None else 200
                self.send_response(code)
                if code == 401:
                    self.send_header("WWW-Authenticate", "Basic realm=index")
                body = data if code == 200 else b""
                self.send_header("Content-Type", "text/html" if self.path.startswith("/simple") else "application/octet-stream")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                # A builder that fails for one file ends what it fetches beside it.
                with contextlib.suppress(OSError):
                    if self.command == "GET":
                        self.wfile.write(body)

            do_HEAD = do_GET

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer((address, 0), Handler)
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(tls)
            # In the thread of a connection: a client that does not trust the server holds up no other.
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True, do_handshake_on_connect=False)
            # That it ends the handshake is what a test wants.
            self.server.handle_error = lambda *_: None
        self.port = self.server.server_address[1]
        at = "%s://%s:%d" % ("https" if tls else "http", address, self.port)
        self.url, self.npm = at + "/simple", at + "/npm/"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()


def identity(folder, address):
    """An authority of the test's own, and a server's certificate that it has signed for an address: the authority's file (PEM), and that
    of the server, with its key."""
    def at(name):
        return os.path.join(folder, name)

    def openssl(*words):
        subprocess.run(["openssl", *words], check=True, capture_output=True, timeout=60)
    for name in ("authority", "server"):
        openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", at(name + ".key"))
    openssl("req", "-x509", "-new", "-key", at("authority.key"), "-days", "2", "-subj", "/CN=Authority of the tests", "-out", at("authority.crt"),
            "-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign")
    openssl("req", "-new", "-key", at("server.key"), "-subj", "/CN=server", "-out", at("server.csr"))
    with open(at("server.ext"), "w", encoding="utf-8") as file:
        file.write("basicConstraints=CA:FALSE\nextendedKeyUsage=serverAuth\nsubjectAltName=IP:%s\n" % address)
    openssl("x509", "-req", "-in", at("server.csr"), "-CA", at("authority.crt"), "-CAkey", at("authority.key"), "-CAcreateserial", "-days", "2",
            "-extfile", at("server.ext"), "-out", at("server.crt"))
    with open(at("server.pem"), "w", encoding="utf-8") as file:
        for name in ("server.crt", "server.key"):
            with open(at(name), encoding="utf-8") as part:
                file.write(part.read())
    return at("authority.crt"), at("server.pem")


@contextlib.contextmanager
def registry(address, tls=None, content=None):
    """A registry at host:port, gone at the end with its content, which is empty unless another one's folder is named. `tls`: a server's
    certificate and key, in one file."""
    with tempfile.TemporaryDirectory() as folder:
        config = os.path.join(folder, "config.yml")
        http_settings = {"addr": address, **({"tls": {"certificate": tls, "key": tls}} if tls else {})}
        storage = {"filesystem": {"rootdirectory": content or os.path.join(folder, "content")}}
        with open(config, "w", encoding="utf-8") as file:
            json.dump({"version": "0.1", "log": {"level": "warn", "accesslog": {"disabled": True}}, "storage": storage, "http": http_settings}, file)
        with open(os.path.join(folder, "log"), "w+", encoding="utf-8") as log:
            server = subprocess.Popen([os.environ["KNACK_REGISTRY"], "serve", config], stdout=log, stderr=log)
            try:
                for _ in range(600):
                    if server.poll() is not None:
                        log.seek(0)
                        raise AssertionError("the registry ended: " + log.read()[-2000:])
                    with contextlib.suppress(OSError):
                        host, _, port = address.partition(":")
                        socket.create_connection((host, int(port)), timeout=60).close()
                        break
                    time.sleep(0.1)
                server.content = storage["filesystem"]["rootdirectory"]
                yield server
            finally:
                server.kill()
                server.wait()


class Guard:
    """A door before a registry: it asks for a token, which it gives for user and password."""

    def __init__(self, registry, user):
        self.address = "127.0.0.1:0"
        guard, wanted, token = self, "Basic " + base64.b64encode(user.encode()).decode(), "Bearer " + "t" * 40
        self.tokens = []

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self, code, headers, body):
                self.send_response(code)
                for name, value in headers:
                    if name.lower() not in ("connection", "transfer-encoding", "content-length", "date", "server"):
                        self.send_header(name, value)
                length = next((value for name, value in headers if name.lower() == "content-length"), None) if self.command == "HEAD" else None
                self.send_header("Content-Length", length or str(len(body)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            def body(self):
                if "chunked" not in self.headers.get("Transfer-Encoding", ""):
                    return self.rfile.read(int(self.headers.get("Content-Length") or 0))
                whole = b""
                while size := int(self.rfile.readline(), 16):
                    whole += self.rfile.read(size)
                    self.rfile.readline()
                self.rfile.readline()
                return whole

            def do(self):
                sent, given = self.body(), self.headers.get("Authorization")
                if self.path.startswith("/token?"):
                    guard.tokens.append(self.path)
                    return self.answer(200, [], json.dumps({"token": token[7:]}).encode()) if given == wanted else self.answer(401, [], b"{}")
                if given != token:
                    return self.answer(401, [("WWW-Authenticate", 'Bearer realm="http://%s/token",service="test",scope="repository:team/environments:pull,push"' % guard.address)], b"{}")
                kept = {name: value for name, value in self.headers.items() if name.lower() not in ("authorization", "connection", "transfer-encoding", "content-length")}
                behind = http.client.HTTPConnection(registry, timeout=60)
                behind.request(self.command, self.path, body=sent, headers=kept)
                answer = behind.getresponse()
                return self.answer(answer.status, answer.getheaders(), answer.read())

            do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = "127.0.0.1:%d" % self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()


def fetch(url, accept="*/*"):
    request = urllib.request.Request(url, headers={"Accept": accept})
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60) as response:
        return response.read()


def push(address, repository, image, label="of the tests", labels=()):
    """An archive of images/build.sh into the registry, as an image of its own; the reference by digest.

    The label makes it another image: a kubelet that pulled the one that the bed was given as a file asks a registry for that too from then on."""
    os.environ["KNACK_PUSH_PLAIN"] = "1"
    spec = importlib.util.spec_from_file_location("push", os.path.join(ROOT, "tools", "dist", "push.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    to = module.Registry(address)
    with tarfile.open(os.path.join(os.environ["KNACK_IMAGES"], image + ".tar")) as tar:
        top = json.load(tar.extractfile("index.json"))["manifests"][0]
        manifest = json.loads(module.blob(tar, top["digest"]))
        config = json.loads(module.blob(tar, manifest["config"]["digest"]))
        config["config"].setdefault("Labels", {}).update({"org.example.test": label, **dict(labels)})
        for layer in manifest["layers"]:
            to.push_blob(repository, layer["digest"], module.blob(tar, layer["digest"]))
    manifest["config"].update(described(config))
    to.push_blob(repository, manifest["config"]["digest"], encoded(config))
    digest = described(manifest)["digest"]
    to.push_manifest(repository, digest, encoded(manifest), top["mediaType"])
    return "%s/%s@%s" % (address, repository, digest)


def encoded(value):
    return json.dumps(value).encode()


def described(value):
    data = encoded(value)
    return {"digest": "sha256:" + hashlib.sha256(data).hexdigest(), "size": len(data)}


def pulled(reference):
    """Manifest and config of an image of a registry, checked by their digests."""
    address, _, rest = reference.partition("/")
    repository, _, digest = rest.partition("@")
    found = []
    for kind in ("manifests", "blobs"):
        data = fetch("http://%s/v2/%s/%s/%s" % (address, repository, kind, digest), "application/vnd.oci.image.manifest.v1+json" if kind == "manifests" else "*/*")
        if "sha256:" + hashlib.sha256(data).hexdigest() != digest:
            raise AssertionError("%s has other content" % digest)
        found.append(json.loads(data))
        digest = found[0]["config"]["digest"]
    return found


def layer(reference, index):
    """A layer of an image, as a tar."""
    address, _, rest = reference.partition("/")
    repository = rest.partition("@")[0]
    digest = pulled(reference)[0]["layers"][index]["digest"]
    data = fetch("http://%s/v2/%s/blobs/%s" % (address, repository, digest))
    return tarfile.open(fileobj=io.BytesIO(data))
