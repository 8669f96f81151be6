"""Certificates, CRLs and OCSP responses of every kind that a server issues, as zlint and pkilint judge them.

`PYTHON .ci/lint_issued.py BULLA`, with the Python that has pkilint, and zlint and openssl in PATH. Any finding fails, a notice of zlint's
and pkilint's too; pkilint's severity INFO is left out, which names what it recognised (the method of a key identifier).

The lints that apply:

- RFCs (zlint's sources RFC* and Community; lint_pkix_cert, lint_pkix_signer_signee_cert_chain, lint_crl -p PKIX,
  lint_ocsp_response): everything that is issued.
- The CA/Browser Forum's requirements for TLS servers (zlint's CABF_BR and Mozilla; lint_cabf_serverauth_cert, lint_crl -p BR): leaves of a profile
  with `preset = "baseline-tls"` only, and the CRL of their CA. Other profiles are for a private PKI, whose names (`db.internal`, 10.0.0.1) and lives the
  requirements forbid.
- The Forum's requirements for S/MIME (lint_cabf_smime_cert): the leaves for mailboxes.
- Never: CABF_EV (no profile issues extended validation), CABF_CS_BR (nor publicly trusted code signing), ETSI_ESI (nor qualified
  certificates), RFC6962, Apple and Chrome (logged certificates: nothing here is sent to a CT log).

What is left out by name is in ALLOWED, with the reason.
"""

import base64
import contextlib
import importlib
import io
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

BULLA = os.path.abspath(sys.argv[1])
PUBLIC = "http://pki.example.com"
# Seconds. Beyond it something hangs.
PATIENCE = 60

RFC_SOURCES = "RFC3279,RFC5280,RFC5480,RFC5891,RFC8813,Community"

# (file name pattern, finding pattern, reason).
ALLOWED = [
    ("", r'lint_pkix_cert pkix.invalid_domain_name_syntax: .*"\*\.', "wildcards are RFC 9525's; RFC 5280 leaves them open"),
    ("-browsers-", r"w_ext_subject_key_identifier_missing_sub_cert",
     "RFC 5280 recommends a subject key identifier in leaves, and BR section 7.1.2.7.6 advises against it"),
    ("spiffe|agent", r"lint_pkix_cert pkix.invalid_uri_syntax: .*spiffe://", "pkilint knows no schemes but those of the web and of LDAP"),
    ("agent", r"e_ext_san_uri_host_not_fqdn_or_ip", "the trust domain of a SPIFFE ID need not be a host name (SPIFFE-ID section 2.1)"),
    ("server", r"localhost", "where this server is"),
    ("-browsers-(p256|rsa)", r"w_subject_common_name_included|common_name_attribute_present",
     "a profile's choice, for clients that read nothing else; `common_name = \"none\"` is linted as browsers-bare"),
]


class Server:
    """A server of its own, on free ports, and requests to its API."""

    def __init__(self, folder):
        self.folder = folder
        sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
        self.port, self.public, credentials = (one.getsockname()[1] for one in sockets)
        for one in sockets:
            one.close()
        config = os.path.join(folder, "bulla.toml")
        with open(config, "w", encoding="utf-8") as file:
            file.write(f'[server]\npublic_url = "{PUBLIC}"\n[est]\nprofiles = ["default"]\ndefault_profile = "default"\n')
        self.log = open(os.path.join(folder, "log"), "w+", encoding="utf-8")
        self.process = subprocess.Popen(
            [BULLA, "--config", config, "up", "--listen", f"127.0.0.1:{self.port}", "--public-listen",
             f"127.0.0.1:{self.public}", "--credential-listen", f"127.0.0.1:{credentials}"],
            stderr=self.log, env={**os.environ, "BULLA_DATA": os.path.join(folder, "data")})
        began = time.monotonic()
        while "bulla is up" not in open(self.log.name, encoding="utf-8").read():
            if self.process.poll() is not None or time.monotonic() - began > PATIENCE:
                sys.exit("the server does not start:\n" + open(self.log.name, encoding="utf-8").read())
            time.sleep(0.1)
        self.tls = ssl.create_default_context(cafile=os.path.join(folder, "data/root.pem"))
        self.token = open(os.path.join(folder, "data/admin.token"), encoding="utf-8").read().strip()

    def api(self, method, path, body=None):
        request = urllib.request.Request(
            f"https://localhost:{self.port}/api/v1{path}", method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, context=self.tls, timeout=PATIENCE) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            sys.exit(f"{method} {path} {body}: {error.code} {error.read().decode()}")

    def public_url(self, url):
        return url.replace(PUBLIC, f"http://127.0.0.1:{self.public}")

    def get(self, url):
        with urllib.request.urlopen(self.public_url(url), timeout=PATIENCE) as answer:
            return answer.read()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE)


def openssl(*arguments):
    done = subprocess.run(["openssl", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"openssl {' '.join(arguments)}: {done.stderr}")
    return done.stdout


KEYS = {
    "p256": ["EC", "-pkeyopt", "ec_paramgen_curve:P-256"],
    "p384": ["EC", "-pkeyopt", "ec_paramgen_curve:P-384"],
    "rsa2048": ["RSA", "-pkeyopt", "rsa_keygen_bits:2048"],
    "ed25519": ["ED25519"],
}


def profile(name, names=None, **members):
    everything = {"dns_allowed": [{"suffix": "", "itself": True, "wildcards": True, "depth_max": 255,
                                   "wildcard_depth_min": 2, "wildcard_depth_max": 255}],
                  "ip_allowed": ["0.0.0.0/0", "::/0"]}
    return {"name": name, "names": names or everything, **members}


# Life: seconds.
DAY = 86_400
MAIL = {"email_allowed": ["example.com"], "required": False}
PROFILES = [
    profile("mutual", extended_key_usage=["serverAuth", "clientAuth"]),
    profile("clients", extended_key_usage=["clientAuth"], names=MAIL, subject={"requested": True,
            "common_name": "any"}),
    profile("mail", extended_key_usage=["emailProtection"], names=MAIL,
            subject={"common_name": "none"}, policies=["2.23.140.1.5.1.3"], validity={"default_seconds": 365 * DAY}),
    profile("code", extended_key_usage=["codeSigning"], names={"required": False},
            subject={"common_name": "any", "fixed": "O=Bücher und mehr, C=DE"}),
    profile("time", extended_key_usage=["timeStamping"], names={"required": False}, subject={"common_name": "any"}),
    profile("spiffe", extended_key_usage=["clientAuth"], names={"uri_allowed": ["spiffe://example.com/"]},
            subject={"common_name": "none"}, validity={"default_seconds": 3_600}),
    profile("anonymous", subject={"common_name": "none"}),
    profile("short", urls={"crl": False, "ocsp": False, "issuer": False}, validity={"default_seconds": 6 * DAY}),
    profile("staple", must_staple="always", policies=["1.3.6.1.4.1.99999.1.2"], subject={"fixed": "O=Example, C=DE, L=Köln"}),
    profile("documents", extended_key_usage=["1.3.6.1.5.5.7.3.36"], key_usage=["digitalSignature", "contentCommitment"],
            names={"required": False}, subject={"common_name": "any"}),
    profile("browsers", ca="rsa", preset="baseline-tls", key_types=["p256", "p384", "rsa2048"]),
    profile("browsers-bare", ca="rsa", preset="baseline-tls", key_types=["p256", "rsa2048"], subject={"common_name": "none"}),
]

# (profile, kind of key, subject, names, lints)
LEAVES = [
    ("default", "p256", "/CN=www.example.com", "DNS:www.example.com,DNS:example.com", ""),
    ("default", "rsa2048", "/CN=WWW.Example.COM", "DNS:www.example.com,DNS:Example.COM", ""),
    ("default", "p384", "/", "DNS:xn--bcher-kva.example.com,DNS:*.example.com", ""),
    ("default", "ed25519", "/", "DNS:db.internal,IP:10.0.0.1,IP:2001:db8::1", ""),
    ("default", "p256", "/", "IP:192.0.2.7", ""),
    ("default", "p256", "/CN=2001:DB8:0:0::1", "IP:2001:db8::1", ""),
    ("default", "p256", "/", f"DNS:{'a' * 60}.{'b' * 60}.example.com", ""),
    ("mutual", "p256", "/", "DNS:www.example.com", ""),
    ("mutual", "rsa2048", "/", "DNS:www.example.com", ""),
    ("clients", "p256", "/C=DE/O=Bücher/CN=Jürgen Groß/emailAddress=j@example.com", "email:j@example.com", ""),
    ("client", "p256", "/", "DNS:agent.example.com", ""),
    ("clients", "rsa2048", "/DC=com/DC=example/CN=printer 7/serialNumber=4711", "", ""),
    ("mail", "p256", "/", "email:jane@example.com", "smime"),
    ("mail", "rsa2048", "/", "email:jane@example.com", "smime"),
    ("code", "p384", "/CN=releases", "", ""),
    ("time", "p256", "/CN=clock", "", ""),
    ("spiffe", "p256", "/", "URI:spiffe://example.com/db", ""),
    ("anonymous", "p256", "/", "DNS:www.example.com", ""),
    ("short", "p256", "/", "DNS:www.example.com", ""),
    ("staple", "rsa2048", "/", "DNS:www.example.com", ""),
    ("documents", "p256", "/CN=signer", "", ""),
    ("browsers", "p256", "/", "DNS:www.example.com,DNS:*.example.com", "dv"),
    ("browsers", "rsa2048", "/", "DNS:www.example.com", "dv"),
    ("browsers-bare", "p256", "/", "DNS:www.example.com", "dv"),
    ("browsers-bare", "rsa2048", "/", "DNS:www.example.com", "dv"),
]

CAS = [
    {"name": "rsa root", "subject": "CN=RSA Root, O=Bücher und mehr, C=DE", "key_type": "rsa4096"},
    {"name": "rsa", "subject": "CN=RSA Issuing, O=Bücher und mehr, C=DE", "key_type": "rsa2048", "parent": "rsa root",
     "policies": ["2.23.140.1.2.1"], "extended_key_usage": ["1.3.6.1.5.5.7.3.1"]},
    {"name": "limited", "subject": "CN=Limited, C=DE", "parent": "rsa root", "key_type": "p384",
     "name_limits": {"permitted": ["dns:example.com", "email:example.com"]}},
    {"name": "edwards", "subject": "CN=Edwards Root", "key_type": "ed25519"},
]


class Work:
    """Files that were issued, and what is to be run over each."""

    def __init__(self, server):
        self.server = server
        # Names and paths by the sources of lints.
        self.zlint = {RFC_SOURCES: [], "CABF_BR,Mozilla": [], "CABF_SMIME_BR": []}
        # Program, arguments, name, paths.
        self.pkilint = []
        os.makedirs(os.path.join(server.folder, "c"))

    def path(self, name):
        return os.path.join(self.server.folder, "c", name)

    def keep(self, name, data):
        path = self.path(name)
        with open(path, "wb") as file:
            file.write(data if isinstance(data, bytes) else data.encode())
        return path

    def certificate(self, name, pem, issuer=None, lints=""):
        path = self.keep(name + ".pem", pem)
        self.zlint[RFC_SOURCES].append((name, path))
        # The linter of the Forum's requirements for servers has those of RFC 5280 that they do not override.
        if lints != "dv":
            self.pkilint.append(("lint_pkix_cert", [], name, [path]))
        if issuer:
            self.pkilint.append(("lint_pkix_signer_signee_cert_chain", [], name, [issuer, path]))
        if lints == "dv":
            self.zlint["CABF_BR,Mozilla"].append((name, path))
            self.pkilint.append(("lint_cabf_serverauth_cert", ["-t", "DV-FINAL-CERTIFICATE"], name, [path]))
        elif lints == "smime":
            self.zlint["CABF_SMIME_BR"].append((name, path))
            self.pkilint.append(("lint_cabf_smime_cert", ["-t", "MAILBOX-STRICT"], name, [path]))
        return path

    def crl(self, name, der, kind, browsers):
        text = base64.encodebytes(der).decode()
        pem = self.keep(name + ".crl.pem", f"-----BEGIN X509 CRL-----\n{text}-----END X509 CRL-----\n")
        path = self.keep(name + ".crl", der)
        self.zlint[RFC_SOURCES].append((name + ".crl", pem))
        for standard in ("PKIX", "BR") if browsers else ("PKIX",):
            self.pkilint.append(("lint_crl", ["-t", kind, "-p", standard], name + ".crl", [path]))

    def ocsp(self, name, der):
        path = self.keep(name + ".ocsp", der)
        self.pkilint.append(("lint_ocsp_response", [], name + ".ocsp", [path]))


def issue(work, number, leaf, keys):
    name, kind, subject, names, lints = leaf
    stem = f"leaf-{number:02}-{name}-{kind}"
    csr = work.path(stem + ".csr")
    openssl("req", "-new", "-utf8", "-key", keys[kind], "-subj", subject, "-out", csr,
            *(["-addext", f"subjectAltName={names}"] if names else []))
    answer = work.server.api("POST", f"/profiles/{name}/certificates", {"csr": open(csr, encoding="utf-8").read()})
    pem = answer["chain"].split("-----END")[0] + "-----END CERTIFICATE-----\n"
    work.certificate(stem, pem, work.path("ca-rsa.pem" if name.startswith("browsers") else "ca-issuing.pem"), lints)
    check_common_name(stem, work.path(stem + ".pem"))
    return answer, stem


def check_common_name(stem, path):
    """A common name that is a DNS name or an address is one of the names to the letter (BR section 7.1.4.3)."""
    text = openssl("x509", "-in", path, "-noout", "-subject", "-nameopt", "multiline,utf8", "-ext", "subjectAltName")
    names = re.findall(r"(?:DNS|IP Address):([^,\s]+)", text)
    common = re.findall(r"commonName\s*= (.*)", text)
    if names and common and common[0] not in names and ":" not in common[0]:
        sys.exit(f"{stem}: the common name {common[0]} is none of {names}")


def ocsp(work, name, issuer, certificate, url, *more):
    request, answer = work.path(name + ".req"), work.path(name + ".der")
    openssl("ocsp", "-issuer", issuer, *more, *(["-cert", certificate] if certificate else []), "-reqout", request)
    body = open(request, "rb").read()
    got = urllib.request.Request(work.server.public_url(url), data=body, headers={"Content-Type": "application/ocsp-request"})
    with urllib.request.urlopen(got, timeout=PATIENCE) as response:
        der = response.read()
    work.ocsp(name, der)
    with open(answer, "wb") as file:
        file.write(der)
    text = openssl("ocsp", "-respin", answer, "-resp_text", "-noverify")
    responder = text[text.find("-----BEGIN CERTIFICATE"):]
    if responder.startswith("-----BEGIN") and not os.path.exists(work.path(f"responder-{os.path.basename(issuer)}")):
        work.certificate(f"responder-{os.path.basename(issuer)[:-4]}", responder, issuer)
    check_times(name, text)


def seconds(text):
    return time.mktime(time.strptime(text.strip(), "%b %d %H:%M:%S %Y GMT"))


def check_times(name, text):
    """Nothing is revoked after the time as of which a response or a CRL speaks."""
    this = re.search(r"(?:This|Last) Update: (.*)", text)
    for revoked in re.findall(r"Revocation (?:Time|Date): (.*)", text):
        if seconds(revoked) > seconds(this.group(1)):
            sys.exit(f"{name}: revoked at {revoked}, which is after thisUpdate, {this.group(1)}")


def crls(work, cas, wanted):
    """CRLs of every CA, once the one of the issuing CA lists everything that was revoked."""
    began = time.monotonic()
    issuing = next(ca for ca in cas if ca["name"] == "issuing")
    while True:
        path = work.keep("wait.crl", work.server.get(issuing["urls"]["crl"]))
        if openssl("crl", "-inform", "DER", "-in", path, "-noout", "-text").count("Serial Number:") == wanted:
            break
        if time.monotonic() - began > PATIENCE:
            sys.exit(f"the CRL has not {wanted} entries after {PATIENCE} s")
        time.sleep(0.1)
    for ca in cas:
        stem = "ca-" + ca["name"].replace(" ", "-")
        for part in ("crl", "delta_crl"):
            der = work.server.get(ca["urls"][part])
            work.crl(f"{stem}-{part}", der, "ARL" if ca.get("root") else "CRL", ca["name"] == "rsa")
            path = work.path(f"{stem}-{part}.crl")
            check_times(stem, openssl("crl", "-inform", "DER", "-in", path, "-noout", "-text"))


def own_certificates(work):
    """That of the server, and that of an agent."""
    server = work.server
    issuer = work.path("ca-issuing.pem")
    work.certificate("server", ssl.get_server_certificate(("127.0.0.1", server.port)), issuer)
    state = work.path("agent")
    subprocess.run([BULLA, "agent", "enroll", "--server", f"https://localhost:{server.port}", "--name", "web-1", "--state", state, "--ca",
                    os.path.join(server.folder, "data/root.pem"), "--token", server.api("POST", "/agent-tokens", {})["token"]],
                   check=True, capture_output=True)
    with open(os.path.join(state, "identity.pem"), encoding="utf-8") as file:
        work.certificate("agent", file.read().split("-----END")[0] + "-----END CERTIFICATE-----\n", issuer)


REASONS = ["keyCompromise", "superseded", "cessationOfOperation", "certificateHold", "affiliationChanged", "privilegeWithdrawn",
           "unspecified"]


def everything(work):
    keys = {}
    for kind, arguments in KEYS.items():
        keys[kind] = work.path(kind + ".key")
        openssl("genpkey", "-algorithm", *arguments, "-out", keys[kind])
    for ca in CAS:
        work.server.api("POST", "/authorities", ca)
    cas = []
    for ca in work.server.api("GET", "/authorities")["items"]:
        cas.append(work.server.api("GET", f"/authorities/{ca['id']}"))
    names = {ca["id"]: "ca-" + ca["name"].replace(" ", "-") for ca in cas}
    for ca in sorted(cas, key=lambda ca: not ca["root"]):
        work.certificate(names[ca["id"]], ca["certificate"],
                         work.path(names[ca["parent"]] + ".pem") if ca.get("parent") else None)
    for one in PROFILES:
        work.server.api("POST", "/profiles", one)
    own_certificates(work)
    issued = [issue(work, number, leaf, keys) for number, leaf in enumerate(LEAVES)]
    issuing = next(ca for ca in cas if ca["name"] == "issuing")
    issuer, url = work.path("ca-issuing.pem"), issuing["urls"]["ocsp"]
    ocsp(work, "good", issuer, work.path(issued[0][1] + ".pem"), url)
    ocsp(work, "good-without-nonce", issuer, work.path(issued[0][1] + ".pem"), url, "-no_nonce")
    ocsp(work, "good-sha256", issuer, work.path(issued[0][1] + ".pem"), url, "-sha256")
    ocsp(work, "unknown", issuer, None, url, "-serial", "0x4711")
    for reason, (answer, stem) in zip(REASONS, issued[1:]):
        work.server.api("POST", "/revocations", {"certificates": [answer["id"]], "reason": reason})
        ocsp(work, f"revoked-{reason}", issuer, work.path(stem + ".pem"), url, "-no_nonce")
    crls(work, cas, len(REASONS))
    for ca in cas:
        if ca.get("parent"):
            parent = next(one for one in cas if one["id"] == ca["parent"])
            ocsp(work, f"of-{names[ca['id']]}", work.path(names[parent["id"]] + ".pem"), work.path(names[ca["id"]] + ".pem"),
                 parent["urls"]["ocsp"])


def zlint(sources, runs):
    """What zlint has to say about files, by one process for all of them."""
    names = {path: name for name, path in runs}
    done = subprocess.run(["zlint", "-includeSources", sources, *names], capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    if done.returncode or len(lines) != len(runs):
        sys.exit(f"zlint: {done.stdout[:2000]}{done.stderr}")
    for (name, _), line in zip(runs, lines):
        for lint, what in json.loads(line).items():
            if what["result"] not in ("pass", "NA", "NE"):
                yield name, f"zlint {lint}: {what.get('details', '')}"


def pkilint(program, arguments, name, paths):
    """What a program of pkilint's has to say about a file. In this process: starting Python with it takes most of its time."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        importlib.import_module(f"pkilint.bin.{program}").main(["lint", "-s", "NOTICE", "-f", "JSON", *arguments, *paths])
    for node in json.loads(out.getvalue())["results"]:
        for one in node["finding_descriptions"]:
            yield name, f"{program} {one['code']}: {one.get('message') or ''} @ {node['node_path']}"


def main():
    with tempfile.TemporaryDirectory() as folder:
        server = Server(folder)
        work = Work(server)
        try:
            everything(work)
        finally:
            server.stop()
        found = [one for sources, runs in work.zlint.items() for one in zlint(sources, runs)]
        found += [one for run in work.pkilint for one in pkilint(*run)]
        if os.environ.get("KEEP"):
            subprocess.run(["cp", "-r", folder, os.environ["KEEP"]], check=False)
    used, left = set(), []
    for name, line in found:
        reasons = [rule for rule in ALLOWED if re.search(rule[0], name) and re.search(rule[1], line)]
        used.update(reasons)
        if not reasons:
            left.append(f"{name}: {line}")
    left += [f"no finding needs the exception {rule}" for rule in ALLOWED if rule not in used]
    print("\n".join(left))
    linted = sum(map(len, work.zlint.values())) + len(work.pkilint)
    print(f"{linted} runs of linters, {len(left)} findings")
    return bool(left)


sys.exit(main())
