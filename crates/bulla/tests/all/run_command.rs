//! `bulla run`: clients in the sandbox reach an outside origin through the proxy, and nothing else.

use std::io::{BufRead, BufReader, Read};
use std::net::{TcpListener, UdpSocket};
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::process::{Child, Command, Output, Stdio};

use testbed::until_blocking;

use crate::key_service::Fixture;
use crate::world::{bulla, describe, run, stderr, stdout};

const NGINX: &str = "
daemon off;
master_process off;
pid nginx.pid;
error_log stderr;
events {}
http {
    access_log off;
    client_body_temp_path tmp;
    proxy_temp_path tmp;
    fastcgi_temp_path tmp;
    uwsgi_temp_path tmp;
    scgi_temp_path tmp;
    server {
        listen 127.0.0.1:PORT ssl;
        ssl_certificate up.pem;
        ssl_certificate_key up.key;
        root www;
        default_type text/html;
    }
}
";

/// An origin on loopback that the configuration allows as https://origin.example.
struct World {
    fixture: Fixture,
    origin: Child,
    port: u16,
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = self.origin.kill();
        let _ = self.origin.wait();
    }
}

impl World {
    fn new() -> Self {
        let fixture = Fixture::on_disk();
        fixture.certified("DNS:localhost");
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        for folder in ["www", "tmp", "scratch"] {
            std::fs::create_dir(fixture.path(folder)).unwrap();
        }
        std::fs::write(fixture.path("www/index.html"), "the origin").unwrap();
        std::fs::write(fixture.path("nginx.conf"), NGINX.replace("PORT", &port.to_string())).unwrap();
        let folder = fixture.folder.path();
        let mut origin = Command::new("nginx");
        origin.arg("-p").arg(folder).args(["-c", "nginx.conf"]).stderr(Stdio::null());
        let origin =
            origin.spawn().unwrap_or_else(|error| panic!("apt-get install -y nginx-light ({error})"));
        let world = Self { fixture, origin, port };
        world.configure("");
        until_blocking("nginx listens", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
        world
    }

    fn configure(&self, more: &str) {
        let text = format!(
            "[proxy]\nupstream_ca_files = [{:?}]\n{more}\n[[proxy.rules]]\nhost = [\"origin.example\"]\n\
             rewrite = {{ host = \"localhost:{}\" }}\n",
            self.fixture.path("ca.pem"),
            self.port
        );
        std::fs::write(self.fixture.path("bulla.toml"), text).unwrap();
    }

    /// Returns `bulla` with this test's configuration.
    fn bulla(&self, arguments: &[&str]) -> Command {
        let mut command = bulla();
        command
            .current_dir(self.fixture.folder.path())
            .env("HOME", self.fixture.folder.path())
            .env("TMPDIR", self.fixture.path("scratch"))
            .env("BULLA_DATA", self.fixture.path("data"))
            .env("BULLA_TOKEN", "of-the-caller")
            .arg("--config")
            .arg(self.fixture.path("bulla.toml"))
            .args(arguments);
        command
    }

    /// Runs `bulla run -- COMMAND`.
    fn inside(&self, command: &[&str]) -> Output {
        run(self.bulla(&["run", "--as", "ci", "--"]).args(command))
    }

    /// Like [`Self::inside`], and the command must succeed.
    fn succeeds(&self, command: &[&str]) -> String {
        let output = self.inside(command);
        assert!(output.status.success(), "{command:?}: {}", describe(&output));
        stdout(&output)
    }

    fn shell(&self, script: &str) -> Output {
        let output =
            Command::new("sh").args(["-e", "-c", script]).current_dir(self.fixture.folder.path()).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{script}: {}", describe(&output));
        output
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.fixture.path(name), text).unwrap();
    }

    fn has(program: &str) -> bool {
        let is_installed = Command::new("sh").args(["-c", &format!("command -v {program}")]).output();
        let is_installed = is_installed.unwrap().status.success();
        if !is_installed {
            eprintln!("{program} is not installed: not tested");
        }
        is_installed
    }
}

const ORIGIN: &str = "https://origin.example/";

#[test]
fn curl_and_git_in_the_sandbox_reach_the_origin_and_leave_no_files() {
    let world = World::new();
    assert_eq!(world.succeeds(&["curl", "-sS", ORIGIN]), "the origin");
    world.shell(
        "git init -q source && cd source && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m first \
         && git clone -q --bare . ../www/repository.git && git -C ../www/repository.git update-server-info",
    );
    world.succeeds(&["git", "clone", "-q", "https://origin.example/repository.git", "cloned"]);
    assert!(stdout(&world.shell("git -C cloned log --format=%s")).contains("first"));
    assert_eq!(std::fs::read_dir(world.fixture.path("scratch")).unwrap().count(), 0);
    // The proxy rejects destinations that are not allowed: by default the servers of this machine.
    let refused = world.inside(&["curl", "-sS", &format!("https://localhost:{}/", world.port)]);
    assert!(
        stdout(&refused).contains("the address is local to the proxy's machine,"),
        "{}",
        describe(&refused)
    );
    world.configure("others = \"reject\"");
    let refused = world.inside(&["curl", "-sS", ORIGIN]);
    assert!(!refused.status.success() && stderr(&refused).contains("403"), "{}", describe(&refused));
}

#[test]
fn python_clients_in_the_sandbox_reach_the_origin() {
    let world = World::new();
    if !World::has("python3") {
        return;
    }
    world.write(
        "get.py",
        "import urllib.request, sys\nprint(urllib.request.urlopen(sys.argv[1]).read().decode())",
    );
    assert!(world.succeeds(&["python3", "get.py", ORIGIN]).contains("the origin"));
    if run(Command::new("python3").args(["-c", "import requests"])).status.success() {
        world.write("by_requests.py", "import requests, sys\nprint(requests.get(sys.argv[1]).text)");
        assert!(world.succeeds(&["python3", "by_requests.py", ORIGIN]).contains("the origin"));
    }
    if !run(Command::new("python3").args(["-m", "pip", "--version"])).status.success() {
        return;
    }
    world.write(
        "wheel.py",
        "import zipfile, os\nos.makedirs('www/simple/tiny')\nname = 'tiny-1.0-py3-none-any.whl'\n\
         with zipfile.ZipFile('www/simple/tiny/' + name, 'w') as wheel:\n\
         \x20   wheel.writestr('tiny.py', 'VALUE = 7\\n')\n\
         \x20   wheel.writestr('tiny-1.0.dist-info/METADATA', 'Metadata-Version: 2.1\\nName: tiny\\nVersion: 1.0\\n')\n\
         \x20   wheel.writestr('tiny-1.0.dist-info/WHEEL', 'Wheel-Version: 1.0\\nGenerator: a\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')\n\
         \x20   wheel.writestr('tiny-1.0.dist-info/RECORD', '')\n\
         open('www/simple/tiny/index.html', 'w').write(f'<a href=\"{name}\">{name}</a>')\n",
    );
    world.shell("python3 wheel.py");
    world.succeeds(&[
        "python3",
        "-m",
        "pip",
        "install",
        "-q",
        "--no-cache-dir",
        "--disable-pip-version-check",
        "--target",
        "installed",
        "--index-url",
        "https://origin.example/simple/",
        "tiny",
    ]);
    assert!(world.fixture.path("installed/tiny.py").exists());
}

#[test]
fn node_and_npm_in_the_sandbox_reach_the_origin() {
    let world = World::new();
    if !World::has("node") {
        return;
    }
    world.write(
        "get.js",
        "const url = process.argv[2];\n\
         fetch(url).then((answer) => answer.text()).then((text) => console.log('fetch', text));\n\
         require('https').get(url, (answer) => answer.on('data', (text) => console.log('https', String(text))));\n",
    );
    let read = world.succeeds(&["node", "get.js", ORIGIN]);
    assert!(read.contains("fetch the origin") && read.contains("https the origin"), "{read}");
    if !World::has("npm") {
        return;
    }
    world.shell(
        "mkdir -p package www/npm project && echo '{\"name\":\"tiny\",\"version\":\"1.0.0\"}' > package/package.json \
         && tar czf www/npm/tiny-1.0.0.tgz package && echo '{}' > project/package.json",
    );
    world.write(
        "www/npm/tiny",
        r#"{"name":"tiny","dist-tags":{"latest":"1.0.0"},"versions":{"1.0.0":{"name":"tiny","version":"1.0.0","dist":{"tarball":"https://origin.example/npm/tiny-1.0.0.tgz"}}}}"#,
    );
    world.succeeds(&[
        "npm",
        "install",
        "--prefix",
        "project",
        "--no-audit",
        "--no-fund",
        "--no-update-notifier",
        "--registry",
        "https://origin.example/npm/",
        "tiny",
    ]);
    assert!(world.fixture.path("project/node_modules/tiny/package.json").exists());
}

#[test]
fn java_and_go_in_the_sandbox_reach_the_origin() {
    let world = World::new();
    if World::has("java") && World::has("javac") {
        world.write(
            "Get.java",
            "import java.net.*; import java.net.http.*;\n\
             public class Get { public static void main(String[] a) throws Exception {\n\
             System.out.println(\"connection \" + new String(new URL(a[0]).openStream().readAllBytes()));\n\
             var client = HttpClient.newBuilder().proxy(ProxySelector.getDefault()).build();\n\
             var request = HttpRequest.newBuilder(URI.create(a[0])).build();\n\
             System.out.println(\"client \" + client.send(request, HttpResponse.BodyHandlers.ofString()).body()); } }\n",
        );
        let read = world.succeeds(&["java", "Get.java", ORIGIN]);
        assert!(read.contains("connection the origin") && read.contains("client the origin"), "{read}");
    }
    if World::has("go") {
        world.write(
            "get.go",
            "package main\nimport (\"fmt\"; \"io\"; \"net/http\"; \"os\")\nfunc main() {\n\
             answer, err := http.Get(os.Args[1])\nif err != nil { panic(err) }\n\
             text, _ := io.ReadAll(answer.Body)\nfmt.Println(string(text)) }\n",
        );
        world.shell("go build -o get get.go");
        assert!(world.succeeds(&["./get", ORIGIN]).contains("the origin"));
    }
}

/// Tries one escape per line, and prints `NAME open` or `NAME ERROR`.
const ESCAPES: &str = r#"
import ctypes, fcntl, os, signal, socket, sys
port, udp_port, path, abstract, outer = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4], int(sys.argv[5])
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    if libc.syscall(ctypes.c_long(number), *[ctypes.c_long(a) for a in arguments]) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
def unix(kind, name):
    socket.socket(socket.AF_UNIX, kind).connect(name)
def rebound():
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    one.connect(path + '.datagram')
    one.send(b'out')
def udp(to):
    out = socket.socket(socket.AF_INET6 if ':' in to[0] else socket.AF_INET, socket.SOCK_DGRAM)
    out.settimeout(2)
    out.connect(to)
    out.send(b'out')
    out.recv(1)
def tcp(to):
    socket.create_connection(to, 2)
ways = {
    'tcp': lambda: tcp(('127.0.0.1', port)),
    'tcp-any': lambda: tcp(('0.0.0.0', port)),
    'tcp6': lambda: tcp(('::ffff:127.0.0.1', port)),
    'udp': lambda: udp(('127.0.0.1', udp_port)),
    'unix-path': lambda: unix(socket.SOCK_STREAM, path),
    'unix-abstract': lambda: unix(socket.SOCK_STREAM, '\0' + abstract),
    'unix-pair': rebound,
    'environment': lambda: open(f'/proc/{outer}/environ', 'rb').read(),
    'signal': lambda: os.kill(outer, 0),
    'elsewhere': lambda: tcp(('192.0.2.1', 80)),
    'elsewhere6': lambda: tcp(('2001:db8::1', 80)),
    'loopback6': lambda: tcp(('::1', port)),
    'metadata': lambda: tcp(('169.254.169.254', 80)),
    'metadata6': lambda: tcp(('fd00:ec2::254', 80)),
    'dns': lambda: udp(('8.8.8.8', 53)),
    'name': lambda: socket.getaddrinfo('example.com', 443),
    'quic': lambda: udp(('192.0.2.1', 443)),
    'quic6': lambda: udp(('2001:db8::1', 443)),
    'icmp': lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP),
    'ping': lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP).sendto(b'\x08\0\0\0\0\0\0\0', ('192.0.2.1', 1)),
    'packet': lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW),
    'vsock': lambda: socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM),
    'namespace': lambda: call(272, 0x40000000),
    'enter': lambda: call(308, os.open('/proc/1/ns/net', os.O_RDONLY), 0),
    'ptrace': lambda: call(101, 2, os.getppid(), 0, 0),
    'mount': lambda: call(165, 0, 0, 0, 0, 0),
    'ring': lambda: call(425, 1, 0),
    'second-numbers': lambda: call(0x40000000 + 41, 1, 1, 0),
    'typed': lambda: fcntl.ioctl(0, 0x5412, b'x'),
    'kernel': lambda: open('/proc/sys/kernel/core_pattern', 'w'),
}
for name, way in ways.items():
    if sys.argv[6:] and name not in sys.argv[6:]:
        continue
    try:
        way()
        print(name, 'open')
    except Exception as error:
        print(name, getattr(error, 'errno', None), error)
"#;

/// The system call numbers are specific to this processor.
#[cfg(target_arch = "x86_64")]
#[test]
fn sandbox_blocks_direct_network_ipc_and_process_access() {
    let world = World::new();
    if !World::has("python3") {
        return;
    }
    world.write("escapes.py", ESCAPES);
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    let path = world.fixture.path("host.sock");
    let _unix = UnixListener::bind(&path).unwrap();
    let datagrams = UnixDatagram::bind(world.fixture.path("host.sock.datagram")).unwrap();
    datagrams.set_nonblocking(true).unwrap();
    let name = format!("bulla-{}", uuid::Uuid::new_v4());
    let address =
        <std::os::unix::net::SocketAddr as std::os::linux::net::SocketAddrExt>::from_abstract_name(&name);
    let _abstract = UnixListener::bind_addr(&address.unwrap()).unwrap();
    let answering = udp.try_clone().unwrap();
    std::thread::spawn(move || {
        let mut word = [0; 8];
        while let Ok((_, from)) = answering.recv_from(&mut word) {
            let _ = answering.send_to(b"in", from);
        }
    });
    let arguments = [
        "python3".to_owned(),
        "escapes.py".to_owned(),
        tcp.local_addr().unwrap().port().to_string(),
        udp.local_addr().unwrap().port().to_string(),
        path.display().to_string(),
        name,
        std::process::id().to_string(),
    ];
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let open = |text: &str| -> Vec<String> {
        text.lines().filter_map(|line| line.strip_suffix(" open")).map(str::to_owned).collect()
    };
    // Outside the sandbox these escapes work, so only the sandbox blocks them.
    let escapes =
        ["tcp", "tcp-any", "tcp6", "udp", "unix-path", "unix-abstract", "unix-pair", "environment", "signal"];
    let mut outside = Command::new("python3");
    outside.args(&arguments[1..]).args(escapes).current_dir(world.fixture.folder.path());
    let outside = run(&mut outside);
    assert_eq!(open(&stdout(&outside)), escapes, "{}", describe(&outside));
    let mut word = [0; 8];
    assert!(datagrams.recv(&mut word).is_ok());
    let inside = world.succeeds(&arguments);
    assert_eq!(open(&inside), Vec::<String>::new(), "{inside}");
    assert_eq!(inside.lines().count(), ESCAPES.matches("lambda: ").count() + 1, "{inside}");
    assert!(datagrams.recv(&mut word).is_err(), "a datagram came out");
    let of = |escape: &str| {
        inside.lines().find(|line| line.starts_with(&format!("{escape} "))).unwrap().to_owned()
    };
    for (escape, error) in [
        ("unix-path", 1),
        ("unix-pair", 1),
        ("signal", 3),
        ("metadata", 101),
        ("vsock", 1),
        ("ptrace", 1),
        ("ring", 1),
        ("second-numbers", 1),
        ("typed", 1),
    ] {
        assert!(of(escape).starts_with(&format!("{escape} {error} ")), "{}", of(escape));
    }
    // With Unix sockets allowed, sockets with a path are reachable. Abstract sockets belong to the host's network namespace.
    let output = run(world.bulla(&["run", "--allow-unix-sockets", "--"]).args(&arguments));
    let found = open(&stdout(&output));
    assert_eq!(found, ["unix-path", "unix-pair"], "{}", describe(&output));
    assert!(stderr(&output).contains("Unix sockets are reachable"), "{}", describe(&output));
}

#[test]
fn bypassing_the_proxy_variables_reaches_nothing() {
    let world = World::new();
    let url = format!("https://localhost:{}/", world.port);
    for script in [
        format!("NO_PROXY='*' no_proxy='*' curl -sS {url}"),
        format!("env -i curl -sS {url}"),
        format!("curl -sS --noproxy '*' {url}"),
        "env -i curl -sS https://origin.example/".to_owned(),
        "curl -sS --proxy http://192.0.2.1:3128 https://origin.example/".to_owned(),
        "curl -sS --unix-socket /run/docker.sock http://localhost/info".to_owned(),
    ] {
        let output = world.inside(&["sh", "-c", &script]);
        // The name is not resolved, or the connection fails.
        assert!(matches!(output.status.code(), Some(5..=7)), "{script}: {}", describe(&output));
        assert_eq!(stdout(&output), "", "{script}");
    }
}

#[test]
fn proxy_secrets_are_hidden_and_the_identity_is_logged() {
    let world = World::new();
    std::fs::write(world.fixture.path("token"), "s3cret-of-the-proxy").unwrap();
    world.shell("chmod 600 token");
    world.configure("[proxy.requests]\naccess_log_file = \"access.log\"\n");
    let mut text = std::fs::read_to_string(world.fixture.path("bulla.toml")).unwrap();
    let token = world.fixture.path("token");
    text += &format!("inject = {{ file = \"{}\", port = [443, {}] }}\n", token.display(), world.port);
    world.write("bulla.toml", &text);
    let seen = world.succeeds(&[
        "sh",
        "-c",
        "curl -sS https://origin.example/; cat token access.log; ls -A data; env | grep -c ^BULLA_ || true",
    ]);
    assert_eq!(seen.trim(), "the origin0", "{seen}");
    let log = std::fs::read_to_string(world.fixture.path("access.log")).unwrap();
    assert!(log.contains("\"user\":\"ci\""), "{log}");
    assert!(world.fixture.path("data/proxy-ca.key").exists());
}

#[test]
fn policy_of_the_proxy_applies_to_the_name_of_the_run() {
    let world = World::new();
    world.configure(&format!(
        "[proxy.access]\ntokens = [{{ name = \"ci\", sha256 = \"{}\" }}]\n[proxy.policy]\nallow_networks = [\"127.0.0.0/8\"]\n\
         [[proxy.policy.identities]]\nname = \"ci\"\nusers = [\"ci\"]\n\
         [[proxy.policy.rules]]\nidentities = [\"ci\"]\nhost = [\"origin.example\"]\n",
        "0".repeat(64)
    ));
    let status = |name: &str| {
        let arguments = ["run", "--as", name, "--", "curl", "-s", "-o", "body", "-w", "%{http_code}", ORIGIN];
        let output = run(&mut world.bulla(&arguments));
        assert!(output.status.code() != Some(2), "{}", describe(&output));
        stdout(&output)
    };
    assert_eq!(status("ci"), "200");
    // CONNECT is refused, so there is no response of the origin.
    assert_eq!(status("other"), "000");
}

#[test]
fn run_exits_with_the_status_of_the_command() {
    let world = World::new();
    for (command, status) in [
        (&["true"][..], 0),
        (&["sh", "-c", "exit 7"], 7),
        (&["sh", "-c", "kill -9 $$"], 137),
        (&["no-such-program"], 127),
        (&["/etc/passwd"], 126),
    ] {
        for sandbox in [&["run"][..], &["run", "--no-sandbox"]] {
            let output = run(world.bulla(sandbox).arg("--").args(command));
            assert_eq!(output.status.code(), Some(status), "{sandbox:?} {command:?}: {}", describe(&output));
        }
    }
    // Background processes of the command end with it. Otherwise they would keep the output open.
    assert_eq!(world.succeeds(&["sh", "-c", "setsid sleep 1000 & echo started"]).trim(), "started");
}

/// Starts a command, and waits until it prints `ready`.
fn ready(world: &World, arguments: &[&str], script: &str) -> (Child, BufReader<std::process::ChildStdout>) {
    let mut command = world.bulla(arguments);
    command.args(["--", "sh", "-c", script]).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    (child, out)
}

#[test]
fn signals_are_forwarded_and_a_killed_run_ends_the_command() {
    let world = World::new();
    let script = "trap 'echo hangup' HUP; trap 'exit 42' TERM; echo ready; while :; do sleep 0.05; done";
    for arguments in [&["run"][..], &["run", "--no-sandbox"]] {
        let (mut child, mut out) = ready(&world, arguments, script);
        let send = |signal: &str| {
            let sent = Command::new("kill").args([signal, &child.id().to_string()]).status();
            assert!(sent.unwrap().success());
        };
        send("-HUP");
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        assert_eq!(line, "hangup\n");
        send("-TERM");
        assert_eq!(child.wait().unwrap().code(), Some(42), "{arguments:?}");
        // A killed bulla cannot signal the command: the kernel ends it.
        let (mut child, mut out) = ready(&world, arguments, "echo ready; exec sleep 1000");
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(out.read_to_string(&mut String::new()).unwrap(), 0, "{arguments:?}");
        // The folder of the killed run stays until the next run. The next run does not touch the folder of a third one.
        let folders = || std::fs::read_dir(world.fixture.path("scratch")).unwrap().count();
        assert_eq!(folders(), 1, "{arguments:?}");
        let (mut third, _out) = ready(&world, arguments, "echo ready; exec sleep 1000");
        assert_eq!(folders(), 1, "{arguments:?}");
        world.succeeds(&["sh", "-c", "test -s $SSL_CERT_FILE"]);
        assert_eq!(folders(), 1, "{arguments:?}");
        third.kill().unwrap();
        third.wait().unwrap();
        world.succeeds(&["true"]);
        assert_eq!(folders(), 0, "{arguments:?}");
    }
}

/// The id of a user who owns nothing else on this machine.
const ORDINARY: u32 = 61_234;

/// If the tests run as root, files and commands of this test belong to an unprivileged user.
#[test]
fn unprivileged_user_gets_the_same_sandbox() {
    let world = World::new();
    let ordinary = |command: &mut Command| {
        if rustix::process::geteuid().is_root() {
            use std::os::unix::process::CommandExt;
            command.uid(ORDINARY).gid(ORDINARY);
        }
    };
    let mut program = bulla().get_program().to_owned();
    if rustix::process::geteuid().is_root() {
        world.shell(&format!("chown -R {ORDINARY}:{ORDINARY} \"$PWD\""));
        // The build folder may not be readable by that user.
        let copy = world.fixture.path("bulla");
        std::fs::hard_link(&program, &copy).or_else(|_| std::fs::copy(&program, &copy).map(drop)).unwrap();
        program = copy.into_os_string();
    }
    let inside = |arguments: &[&str]| {
        let usual = world.bulla(&["run"]);
        let mut command = Command::new(&program);
        command.args(usual.get_args()).args(arguments);
        command.envs(usual.get_envs().filter_map(|(name, value)| Some((name, value?))));
        ordinary(&mut command);
        run(command.current_dir(world.fixture.folder.path()))
    };
    let script = "id -u; grep CapEff /proc/self/status; curl -sS https://origin.example/; echo; ls -A data; echo own > file; \
                  curl -sS --noproxy '*' --max-time 5 https://localhost:PORT/ || echo closed";
    let script = script.replace("PORT", &world.port.to_string());
    let output = inside(&["--as", "ci", "--", "sh", "-c", &script]);
    let (printed, warnings) = (stdout(&output), stderr(&output));
    let user =
        world.fixture.folder.path().metadata().map(|found| std::os::unix::fs::MetadataExt::uid(&found));
    let wanted = format!("{}\nCapEff:\t0000000000000000\nthe origin\nclosed\n", user.unwrap());
    assert_eq!(printed, wanted, "{}", describe(&output));
    assert!(!warnings.contains("warning: "), "{warnings}");
    assert!(world.fixture.path("data/proxy-ca.key").exists() && world.fixture.path("file").exists());
    let output = inside(&[
        "--read-only",
        "--",
        "sh",
        "-c",
        "echo own > other; id > $TMPDIR/id; echo x > $HOME/../x || echo kept",
    ]);
    assert!(output.status.success() && stdout(&output) == "kept\n", "{}", describe(&output));
}

/// Tries one write per line, and prints `NAME open` or `NAME ERROR`.
const WRITES: &str = r#"
import os, sys
home, mine = sys.argv[1], sys.argv[2]
file, folder = home + '/file', home + '/folder'
def write(path, flags):
    os.close(os.open(path, flags, 0o600))
ways = {
    'write': lambda: write(file, os.O_WRONLY),
    'append': lambda: write(file, os.O_WRONLY | os.O_APPEND),
    'truncate': lambda: os.truncate(file, 0),
    'create': lambda: write(home + '/new', os.O_WRONLY | os.O_CREAT),
    'folder': lambda: os.mkdir(home + '/new-folder'),
    'remove': lambda: os.remove(file),
    'rename': lambda: os.rename(file, home + '/renamed'),
    'into': lambda: os.rename(mine + '/moved', home + '/moved'),
    'out': lambda: os.rename(file, mine + '/taken'),
    'hard-link': lambda: os.link(file, mine + '/linked'),
    'mode': lambda: os.chmod(file, 0o777),
    'folder-mode': lambda: os.chmod(folder, 0o777),
    'owner': lambda: os.chown(file, os.getuid(), os.getgid()),
    'times': lambda: os.utime(file, (1, 1)),
    'attribute': lambda: os.setxattr(file, 'user.a', b'b'),
    'by-link': lambda: write(mine + '/link', os.O_WRONLY),
    'by-process': lambda: write('/proc/self/root' + file, os.O_WRONLY),
    'by-fd': lambda: write('/proc/self/fd/%d' % os.open(file, os.O_RDONLY), os.O_WRONLY),
    'fifo': lambda: os.mkfifo(home + '/fifo'),
    'etc': lambda: write('/etc/bulla-was-here', os.O_WRONLY | os.O_CREAT),
}
open(mine + '/moved', 'w').close()
os.symlink(file, mine + '/link')
for name, way in ways.items():
    try:
        way()
        print(name, 'open')
    except OSError as error:
        print(name, error.errno, error)
open(mine + '/ours', 'w').write('ours')
os.chmod(mine + '/ours', 0o700)
os.rename(mine + '/ours', mine + '/renamed')
open(os.environ['TMPDIR'] + '/ours', 'w').write('ours')
open('/dev/null', 'w').write('x')
open(home + '/allowed/by-option', 'w').write('x')
open('/dev/shm/' + os.path.basename(os.path.dirname(home)), 'w').write('x')
print('read', open(file).read())
"#;

#[test]
fn read_only_option_blocks_writes_outside_allowed_folders() {
    let world = World::new();
    if !World::has("python3") {
        return;
    }
    world.shell("mkdir -p home/folder home/allowed mine && echo before > home/file");
    world.write("mine/writes.py", WRITES);
    let (home, mine) = (world.fixture.path("home"), world.fixture.path("mine"));
    let of = |text: &str| -> Vec<String> {
        text.lines().filter_map(|line| line.strip_suffix(" open")).map(str::to_owned).collect()
    };
    let allowed = home.join("allowed");
    let mut command = world.bulla(&["run", "--read-only", "--write"]);
    command.arg(&allowed).args(["--", "python3", "writes.py"]).args([&home, &mine]);
    let output = run(command.current_dir(&mine));
    let printed = stdout(&output);
    assert!(output.status.success(), "{}", describe(&output));
    assert_eq!(of(&printed), Vec::<String>::new(), "{printed}");
    assert_eq!(printed.lines().count(), WRITES.matches("lambda: ").count() + 2, "{printed}");
    assert!(printed.contains("read before"), "{printed}");
    let shared = std::path::Path::new("/dev/shm").join(world.fixture.folder.path().file_name().unwrap());
    assert!(!shared.exists());
    assert!(world.fixture.path("scratch/ours").exists() && allowed.join("by-option").exists());
    // Without the option these writes succeed, so only the option blocks them.
    let open =
        of(&world.succeeds(&["sh", "-c", "cd mine && rm -f link && python3 writes.py ../home . || true"]));
    assert!(open.len() >= 8, "{open:?}");
}

#[test]
fn run_is_rejected_in_a_hidden_folder_or_with_an_open_folder() {
    let world = World::new();
    world.succeeds(&["true"]);
    // The working directory is the data folder, or a folder is already open.
    for (script, wanted) in [
        ("cd data; exec \"$@\"", "the working directory is in"),
        ("exec 7<.; exec \"$@\"", "descriptor 7 is an open folder"),
        ("exec \"$@\" <.", "descriptor 0 is an open folder"),
    ] {
        let usual = world.bulla(&["run", "--", "cat", "proxy-ca.key", "/proc/self/fd/7/data/proxy-ca.key"]);
        let mut command = Command::new("bash");
        command.args(["-c", script, "bash"]).arg(usual.get_program()).args(usual.get_args());
        command.envs(usual.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let output = run(command.current_dir(world.fixture.folder.path()));
        assert_eq!(output.status.code(), Some(2), "{script}: {}", describe(&output));
        assert!(stderr(&output).contains(wanted), "{script}: {}", describe(&output));
        assert_eq!(stdout(&output), "");
    }
}

#[test]
fn running_proxy_serves_clients_with_its_password() {
    let world = World::new();
    world.write("password", "pass:w@rd/1\n");
    world.shell("printf 'ci:%s\\n' \"$(openssl passwd -6 'pass:w@rd/1')\" > users");
    world.configure("[proxy.access]\nusers_file = \"users\"\n");
    let mut command = world.bulla(&["proxy", "--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0"]);
    let proxy = crate::proxy::World::start(&mut command);
    let run_with = |more: &[&str]| {
        let mut command = world.bulla(&["run", "--proxy", &proxy.address]);
        run(command.args(more).args(["--", "curl", "-sS", ORIGIN]))
    };
    for sandbox in [&[][..], &["--no-sandbox"]] {
        let good = run_with(&[&["--as", "ci", "--password-file", "password"], sandbox].concat());
        assert_eq!(stdout(&good), "the origin", "{}", describe(&good));
    }
    let nobody = run_with(&["--as", "ci"]);
    assert!(stderr(&nobody).contains("407"), "{}", describe(&nobody));
    let another = run_with(&["--as", "other", "--password-file", "password"]);
    assert!(stderr(&another).contains("407"), "{}", describe(&another));
}

#[test]
fn tls_certificate_of_the_proxy_is_verified() {
    let world = World::new();
    world
        .configure("[proxy.access]\ncertificate_file = \"up.pem\"\nkey_file = \"up.key\"\ntls_only = true\n");
    let mut command = world.bulla(&["proxy", "--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0"]);
    let proxy = crate::proxy::World::start(&mut command);
    let url = format!("https://localhost:{}", proxy.address.rsplit(':').next().unwrap());
    let run_with = |more: &[&str]| {
        let mut command = world.bulla(&["run", "--proxy", &url]);
        run(command.args(more).args(["--", "curl", "-sS", ORIGIN]))
    };
    for sandbox in [&[][..], &["--no-sandbox"]] {
        let good = run_with(&[&["--proxy-ca", "ca.pem"], sandbox].concat());
        assert_eq!(stdout(&good), "the origin", "{}", describe(&good));
    }
    let untrusted = run_with(&[]);
    assert!(!untrusted.status.success(), "{}", describe(&untrusted));
    assert!(
        stderr(&untrusted).contains("cannot connect to the proxy at localhost:"),
        "{}",
        describe(&untrusted)
    );
}

#[test]
fn proxy_without_a_sandbox_requires_credentials() {
    let world = World::new();
    let script = "curl -sS https://origin.example/; echo; env -u https_proxy -u HTTPS_PROXY curl -sS --proxy ${HTTPS_PROXY##*@} https://origin.example/";
    let output = run(&mut world.bulla(&["run", "--no-sandbox", "--", "sh", "-c", script]));
    assert!(stdout(&output).starts_with("the origin\n"), "{}", describe(&output));
    assert!(stderr(&output).contains("407"), "{}", describe(&output));
    assert!(stderr(&output).contains("warning: without a sandbox"), "{}", describe(&output));
}

#[test]
fn invalid_arguments_and_environments_are_rejected_with_a_hint() {
    let world = World::new();
    for (arguments, wanted) in [
        (&["--as", "a:b"][..], "is not a valid name of an identity"),
        (&["--proxy", "127.0.0.1:1"], "it is not http://HOST:PORT or https://HOST:PORT"),
        (&["--proxy", "socks5://127.0.0.1:1"], "it is not http://HOST:PORT or https://HOST:PORT"),
        (&["--read-only", "--write", "none"], "--write none: No such file"),
        (&["--read-only", "--write", "data"], "which must be hidden from the command"),
        (&["--proxy", "http://a:b@127.0.0.1:1"], "visible to other users"),
        (&["--proxy", "http://127.0.0.1:1", "--password-file", "none"], "--password-file none"),
        (&["--proxy", "http://127.0.0.1:1"], "the CA of the proxy at --proxy is unknown"),
    ] {
        let output = run(world.bulla(&["run"]).args(arguments).args(["--", "true"]));
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", describe(&output));
        let warnings = stderr(&output);
        assert!(warnings.contains(wanted) && warnings.contains("hint: "), "{arguments:?}: {warnings}");
    }
    // A socket inherited from the caller would be an escape.
    let script = "exec 7<>/dev/tcp/127.0.0.1/PORT; exec \"$@\"".replace("PORT", &world.port.to_string());
    let inherited = world.bulla(&["run", "--", "true"]);
    let mut command = Command::new("bash");
    command.args(["-c", &script, "bash"]).arg(inherited.get_program()).args(inherited.get_args());
    command.envs(inherited.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let output = run(command.current_dir(world.fixture.folder.path()));
    assert_eq!(output.status.code(), Some(2), "{}", describe(&output));
    assert!(stderr(&output).contains("descriptor 7 is an open socket"), "{}", describe(&output));
    // A host that does not allow namespaces.
    let script = "echo 0 > /proc/sys/user/max_user_namespaces; exec \"$@\"";
    let mut command = Command::new("unshare");
    command
        .args(["--map-root-user", "sh", "-c", script, "sh"])
        .arg(inherited.get_program())
        .args(inherited.get_args());
    command.envs(inherited.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let output = run(command.current_dir(world.fixture.folder.path()));
    assert_eq!(output.status.code(), Some(5), "{}", describe(&output));
    let warnings = stderr(&output);
    assert!(
        warnings.contains("does not allow this user to create namespaces")
            && warnings.contains("user.max_user_namespaces is 0")
            && warnings.contains("sysctl -w user.max_user_namespaces=")
            && warnings.contains("--no-sandbox"),
        "{warnings}"
    );
}
