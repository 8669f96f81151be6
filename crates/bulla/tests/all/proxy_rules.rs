//! Rules of `bulla proxy` with Bulla's credential store, OpenSSL as the server and curl as the client.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::control::House;
use crate::world::{bulla, describe, run};

const FIRST: &str = "canary-first-5d1c";
const SECOND: &str = "canary-second-77e0";
/// Maximum wait, also on a loaded machine.
const TIMEOUT: Duration = Duration::from_secs(120);

/// A background program and its output.
struct BackgroundProcess {
    child: Child,
    input: Option<ChildStdin>,
    printed: Arc<Mutex<String>>,
}

impl BackgroundProcess {
    fn start(command: &mut Command) -> Self {
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let printed = Arc::<Mutex<String>>::default();
        let (out, errors) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        for stream in [Box::new(out) as Box<dyn Read + Send>, Box::new(errors)] {
            let printed = Arc::clone(&printed);
            std::thread::spawn(move || {
                for line in BufReader::new(stream).lines().map_while(Result::ok) {
                    *printed.lock().unwrap() += &format!("{line}\n");
                }
            });
        }
        Self { input: child.stdin.take(), child, printed }
    }

    fn printed(&self) -> String {
        self.printed.lock().unwrap().clone()
    }

    /// Returns the output after `after` bytes, once `done` accepts it.
    fn wait_for(&self, after: usize, done: impl Fn(&str) -> bool) -> String {
        let began = Instant::now();
        loop {
            let printed = self.printed().split_off(after);
            if done(&printed) {
                return printed;
            }
            assert!(
                began.elapsed() < TIMEOUT,
                "it said only: {}",
                printed.chars().take(4_000).collect::<String>()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for BackgroundProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct World {
    house: House,
    upstream: BackgroundProcess,
    port: u16,
    proxy: BackgroundProcess,
    address: String,
    /// Bytes of the upstream's output that belong to answered requests.
    consumed: usize,
}

fn rules(port: u16, more: &str) -> String {
    format!(
        "[proxy]\nlisten = \"127.0.0.1:0\"\nmetrics_listen = \"127.0.0.1:0\"\nupstream_ca_files = [\"ca.pem\"]\n\
         [proxy.requests]\naccess_log_file = \"access.log\"\nrecord_folder = \"har\"\n\
         [[proxy.rules]]\nname = \"the api\"\nhost = [\"localhost\"]\npath = [\"/api/*\"]\nrecord = true\n\
         inject = {{ credential = \"/team/api\", port = [{port}] }}\n{more}"
    )
}

impl World {
    fn new() -> Self {
        let mut house = House::up();
        set(&house, "/team/api", FIRST);
        let key = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
        let ca = format!("{key} -keyout ca.key -out ca.pem -subj /CN=ca");
        let up = format!(
            "{key} -keyout up.key -out up.pem -subj /CN=up -CA ca.pem -CAkey ca.key -addext subjectAltName=DNS:localhost \
             -addext basicConstraints=critical,CA:FALSE"
        );
        for command in [ca, up] {
            house.openssl(&command.split_whitespace().collect::<Vec<_>>());
        }
        let mut server = Command::new("openssl");
        server.current_dir(house.path(""));
        let upstream = BackgroundProcess::start(server.args([
            "s_server",
            "-accept",
            "127.0.0.1:0",
            "-cert",
            "up.pem",
            "-key",
            "up.key",
        ]));
        let printed = upstream.wait_for(0, |printed| printed.lines().any(|line| line.starts_with("ACCEPT ")));
        let line = printed.lines().find(|line| line.starts_with("ACCEPT ")).unwrap();
        let port = line.trim().rsplit(':').next().unwrap().parse().unwrap();
        house.configure(&rules(port, ""));
        let proxy = BackgroundProcess::start(&mut house.bulla(&["proxy", "--log", "trace"]));
        let printed = proxy.wait_for(0, |printed| printed.contains("try: curl"));
        let address =
            printed.split("the proxy listens on ").nth(1).unwrap().lines().next().unwrap().to_owned();
        Self { house, upstream, port, proxy, address, consumed: 0 }
    }

    fn curl(&self, path: &str) -> Command {
        let mut command = Command::new("curl");
        command
            .args([
                "-sS",
                "-i",
                "-v",
                "--http1.1",
                "--max-time",
                "100",
                "--noproxy",
                "",
                "--proxy",
                &self.address,
            ])
            .args(["-H", "Authorization: Bearer of-the-client", "--cacert"])
            .arg(self.house.path("data/proxy-ca.pem"))
            .arg(format!("https://localhost:{}{path}", self.port))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Sends a request with curl, and answers as the server with an echo. Returns the received authorization, and curl's output.
    fn request(&mut self, path: &str, status: impl Fn(&str) -> &'static str) -> (String, Output) {
        let client =
            self.curl(path).spawn().unwrap_or_else(|error| panic!("apt-get install -y curl ({error})"));
        let line = format!("GET {path} HTTP/1.1");
        let received = self.upstream.wait_for(self.consumed, |printed| {
            printed.split_once(&line).is_some_and(|(_, after)| after.contains("\n\n"))
        });
        self.consumed += received.len();
        let shown = received
            .lines()
            .find_map(|line| line.strip_prefix("authorization: "))
            .unwrap_or_default()
            .to_owned();
        let status = status(&shown);
        let answer = format!("HTTP/1.1 {status}\r\nX-Echo: you sent {shown}\r\nContent-Length: 2\r\n\r\nok");
        // Written in one piece: openssl treats single letters as commands.
        let input = self.upstream.input.as_mut().unwrap();
        input.write_all(answer.as_bytes()).and_then(|()| input.flush()).unwrap();
        (shown, client.wait_with_output().unwrap())
    }

    fn until(&self, what: &str, mut done: impl FnMut() -> bool) {
        self.house.until(what, &mut done);
    }
}

fn set(house: &House, name: &str, value: &str) {
    std::fs::write(house.path("value"), value).unwrap();
    house.does(&["credential", "set", name, "--type", "password", "--file", "value"]);
    std::fs::remove_file(house.path("value")).unwrap();
}

#[test]
fn injected_credential_is_visible_only_to_the_server() {
    let mut world = World::new();
    let (shown, output) = world.request("/api/1", |_| "200 OK");
    assert_eq!(shown, format!("Bearer {FIRST}"));
    let printed = describe(&output);
    assert!(
        printed.contains("200 OK") && printed.to_lowercase().contains("x-echo: you sent bearer [redacted]"),
        "{printed}"
    );
    assert!(!printed.contains("canary"), "{printed}");
    // The credential changes. The change event may already have arrived. Otherwise the 401 triggers a new read.
    set(&world.house, "/team/api", SECOND);
    let only_new = |shown: &str| if shown.ends_with(SECOND) { "200 OK" } else { "401 Unauthorized" };
    let (mut shown, mut output) = world.request("/api/2", only_new);
    if shown != format!("Bearer {SECOND}") {
        assert!(describe(&output).contains("401"), "{}", describe(&output));
        (shown, output) = world.request("/api/3", only_new);
    }
    assert_eq!(shown, format!("Bearer {SECOND}"), "{}", describe(&output));
    assert!(!describe(&output).contains("canary"), "{}", describe(&output));
    // Checks everything that was logged or recorded.
    let read = |name: &str| std::fs::read_to_string(world.house.path(name)).unwrap_or_default();
    world.until("the access log", || read("access.log").lines().count() >= 2);
    let har = || {
        let files = std::fs::read_dir(world.house.path("har")).into_iter().flatten();
        files.map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap()).collect::<String>()
    };
    world.until("the recording", || har().contains("/api/2"));
    assert!(har().contains("\"status\":200") && har().contains("\"version\":\"1.2\""), "{}", har());
    let log = world.proxy.printed();
    assert!(log.contains("TRACE"), "the log says everything");
    let output = describe(&output);
    let all =
        [("log", &log), ("access log", &read("access.log")), ("recording", &har()), ("client", &output)];
    for (what, text) in all {
        for secret in [FIRST, SECOND, "of-the-client"] {
            // curl's verbose output shows the client's own header.
            assert!(
                !text.contains(secret) || (what == "client" && secret == "of-the-client"),
                "{secret} in the {what}"
            );
        }
    }
}

#[test]
fn rules_are_reloaded_and_an_unavailable_store_blocks_requests() {
    let mut world = World::new();
    let more = format!(
        "[[proxy.rules]]\nhost = [\"localhost\"]\npath = [\"/blocked\"]\nblock = 418\n\
         [[proxy.rules]]\nhost = [\"localhost\"]\npath = [\"/other\"]\n\
         inject = {{ credential = \"/team/other\", port = [{}] }}\n",
        world.port
    );
    let changed = rules(world.port, &more);
    let before = world.proxy.printed().len();
    world.house.configure(&changed);
    world.proxy.wait_for(before, |printed| printed.contains("were reloaded"));
    let output = run(&mut world.curl("/blocked"));
    assert!(describe(&output).contains("418"), "{}", describe(&output));
    // Invalid rules change nothing, and are reported in the log.
    let before = world.proxy.printed().len();
    world.house.configure(&rules(world.port, "[[proxy.rules]]\nblock = 200\n"));
    let printed = world.proxy.wait_for(before, |printed| printed.contains("are unchanged"));
    assert!(printed.contains("rule 2: block: 200 is not an error status"), "{printed}");
    let output = run(&mut world.curl("/blocked"));
    assert!(describe(&output).contains("418"), "{}", describe(&output));
    // HUP triggers an immediate reload.
    let before = world.proxy.printed().len();
    world.house.configure(&changed);
    assert!(
        Command::new("kill").args(["-HUP", &world.proxy.child.id().to_string()]).status().unwrap().success()
    );
    world.proxy.wait_for(before, |printed| printed.contains("were reloaded"));
    // The store is down: a credential that was never fetched is unavailable, and the request is not forwarded.
    world.house.kill();
    let output = run(&mut world.curl("/other"));
    let printed = describe(&output);
    assert!(
        printed.contains("503") && printed.to_lowercase().contains("proxy-status: bulla; error="),
        "{printed}"
    );
    assert!(!world.upstream.printed().contains("/other"), "{}", world.upstream.printed());
}

#[test]
fn invalid_rule_is_rejected_with_its_number_and_a_hint() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bulla.toml");
    for (rule, wanted) in [
        (
            "set_request_headers = { X-A = \"a\\r\\nHost: evil\" }",
            "proxy.rules: rule 1: set_request_headers: ",
        ),
        ("inject = { credential = \"/a\" }", "rule 1: inject: without `host`"),
        ("blocked = 403", "unknown field `blocked`"),
    ] {
        std::fs::write(&file, format!("[[proxy.rules]]\n{rule}\n")).unwrap();
        let output = run(bulla().args(["proxy", "--config"]).arg(&file).env("HOME", folder.path()));
        let printed = describe(&output);
        assert!(
            output.status.code() == Some(2) && printed.contains(wanted) && printed.contains("hint:"),
            "{printed}"
        );
    }
}
