"""Runs the program of an unpacked image as the image's user, with the image's files alone: `image.py ROOT`."""

import os
import shutil
import ssl
import subprocess
import sys
import time
import urllib.request

USER = 65532
DATA = "/var/lib/bulla"
PORT = 19443


def main(root):
    serve(root, DATA)
    # Kubernetes mounts volumes so, with `fsGroup`; the chart has the data folder below.
    os.chown(root + DATA, 0, USER)
    os.chmod(root + DATA, 0o2775)
    serve(root, DATA + "/data")


def serve(root, data):
    """Starts the server and stops it again, once it is ready."""
    environment = {"PATH": "/usr/bin", "BULLA_DATA": data, "SSL_CERT_FILE": "/etc/ssl/certs/ca-certificates.crt"}
    arguments = [shutil.which("chroot"), f"--userspec={USER}:{USER}", root, "/usr/bin/bulla", "serve"]
    for flag, address in (("listen", f"127.0.0.1:{PORT}"), ("public-listen", "127.0.0.1:19080"), ("credential-listen", "")):
        arguments += [f"--{flag}", address]
    server = subprocess.Popen(arguments, env=environment, stderr=subprocess.PIPE, text=True)
    try:
        answer = ready(server, root + data + "/root.pem")
        assert '"status":"ok"' in answer, answer
        print(answer)
    finally:
        server.terminate()
        _, log = server.communicate(timeout=60)
    assert server.returncode in (0, 130), log
    assert os.stat(root + data + "/master.key").st_uid == USER


def ready(server, trust):
    """The answer of /readyz, once there is one."""
    while True:
        assert server.poll() is None, server.stderr.read()
        try:
            context = ssl.create_default_context(cafile=trust)
            with urllib.request.urlopen(f"https://localhost:{PORT}/readyz", context=context, timeout=10) as answer:
                return answer.read().decode()
        except OSError:
            time.sleep(0.2)


main(*sys.argv[1:])
