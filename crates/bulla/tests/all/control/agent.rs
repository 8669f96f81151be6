//! A managed certificate on a running nginx, from creation through every step of its life.

use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use fleet::free_port;
use serde_json::{Value, json};

use super::House;

/// A process that ends with the test.
struct Running(Child);

impl Drop for Running {
    /// Sends TERM, so that nginx stops its workers. KILL would leave them running.
    fn drop(&mut self) {
        let _ = Command::new("kill").arg(self.0.id().to_string()).status();
        let _ = self.0.wait();
    }
}

pub(super) struct Nginx {
    pub(super) port: u16,
    configuration: String,
    _running: Running,
}

impl Nginx {
    /// Starts nginx with a self-signed certificate.
    fn start(house: &House) -> Self {
        let folder = house.path("nginx/tls");
        std::fs::create_dir_all(&folder).unwrap();
        let at = |name: &str| folder.join(name).display().to_string();
        let (key, certificate) = (at("key.pem"), at("full.pem"));
        house.openssl(&[
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-keyout",
            &key,
            "-out",
            &certificate,
            "-subj",
            "/CN=before",
            "-days",
            "1",
        ]);
        Self::presenting(house)
    }

    /// Starts nginx with the certificate and key that are already in its folder: `nginx/tls/full.pem` and `key.pem`.
    pub(super) fn presenting(house: &House) -> Self {
        let port = free_port();
        let folder = house.path("nginx");
        let at = |name: &str| folder.join(name).display().to_string();
        let (key, certificate) = (at("tls/key.pem"), at("tls/full.pem"));
        let temp_paths: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .iter()
            .map(|kind| format!("{kind}_temp_path {};\n", at(kind)))
            .collect();
        let text = format!(
            "daemon off;\npid {};\nerror_log {};\nevents {{}}\nhttp {{\naccess_log off;\n{temp_paths}\
             server {{ listen 127.0.0.1:{port} ssl; ssl_certificate {certificate}; ssl_certificate_key {key};\n\
             location / {{ return 200 here; }} }} }}\n",
            at("pid"),
            at("error.log")
        );
        let configuration = at("nginx.conf");
        std::fs::write(&configuration, text).unwrap();
        let running = Command::new("nginx")
            .args(["-p", &at(""), "-c", &configuration])
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| {
                panic!("this test needs nginx: apt-get install -y nginx-light ({error})")
            });
        let nginx = Self { port, configuration, _running: Running(running) };
        house.until("nginx", || nginx.presents(house).is_some());
        nginx
    }

    /// Returns the SHA-256 fingerprint of the certificate that nginx presents.
    pub(super) fn presents(&self, house: &House) -> Option<String> {
        let address = format!("127.0.0.1:{}", self.port);
        let output = house.program(
            "sh",
            "apt-get install -y openssl",
            &["-c", &format!("echo | openssl s_client -connect {address} -servername shop.example 2>/dev/null | openssl x509 -noout -fingerprint -sha256")],
        );
        let text = String::from_utf8_lossy(&output.stdout);
        Some(text.trim().split_once('=')?.1.replace(':', "").to_lowercase())
    }
}

/// A client that repeats a request on new connections until it is stopped. It counts answers and failures.
struct Visitor {
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicU64>,
    failed: Arc<AtomicU64>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Visitor {
    fn start(port: u16) -> Self {
        let (stop, answered, failed) =
            (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let (ends, good, bad) = (Arc::clone(&stop), Arc::clone(&answered), Arc::clone(&failed));
        let url = format!("https://127.0.0.1:{port}/");
        let thread = std::thread::spawn(move || {
            while !ends.load(Ordering::SeqCst) {
                let output = Command::new("curl").args(["-ks", "--max-time", "60", &url]).output().unwrap();
                let into = if output.stdout == b"here" { &good } else { &bad };
                into.fetch_add(1, Ordering::SeqCst);
            }
        });
        Self { stop, answered, failed, thread: Some(thread) }
    }

    /// Stops the client. Returns the number of answers and failures.
    fn end(mut self) -> (u64, u64) {
        self.stop.store(true, Ordering::SeqCst);
        self.thread.take().unwrap().join().unwrap();
        (self.answered.load(Ordering::SeqCst), self.failed.load(Ordering::SeqCst))
    }
}

fn agent(house: &House) -> (Running, String) {
    let made = house.json(&["agent", "token"]);
    let (state, root) = (house.path("agent").display().to_string(), house.root().display().to_string());
    let token = made["token"].as_str().unwrap();
    let enrolled = ["agent", "enroll", "--server", &house.url(), "--token", token, "--ca", &root];
    let enrolled = house.json(&[&enrolled[..], &["--state", &state, "--name", "web-1"]].concat());
    let id = enrolled["agent"].as_str().unwrap().to_owned();
    let policy = house.path("agent.toml").display().to_string();
    let run = ["agent", "run", "--state", &state, "--policy", &policy];
    let running = house.bulla(&run).stderr(Stdio::null()).spawn().unwrap();
    (Running(running), id)
}

pub(super) fn target(house: &House, nginx: &Nginx, agent: &str) -> String {
    let at = |name: &str| house.path("nginx/tls").join(name).display().to_string();
    let document = json!({
        "name": "shop", "agent": agent,
        "target": {
            "type": "nginx",
            "fullchain": { "path": at("full.pem") },
            "key": { "path": at("key.pem") },
            "validate": ["nginx", "-t", "-c", nginx.configuration],
            "reload": ["nginx", "-s", "reload", "-c", nginx.configuration],
            "verify": { "port": nginx.port, "server_name": "shop.example" },
        }
    });
    std::fs::write(house.path("target.json"), document.to_string()).unwrap();
    let made = house.json(&["target", "create", "--file", "target.json"]);
    made["id"].as_str().unwrap().to_owned()
}

/// Writes a policy that allows nothing, `agent.toml`.
pub(super) fn forbid(house: &House) {
    let policy = house.path("agent.toml").display().to_string();
    house.does(&["agent", "policy", "init", "--policy", &policy]);
}

/// Adds the rules that `bulla agent policy check` asks for to the policy. `state` is the agent's folder.
pub(super) fn allow(house: &House, state: &str) {
    let (state, policy) = (house.path(state), house.path("agent.toml"));
    let (state, policy) = (state.display().to_string(), policy.display().to_string());
    let policy_check = |more: &[&str]| {
        let mut command = house.bulla(&["agent", "policy", "check", "--policy", &policy]);
        crate::world::run(command.args(["--state", &state]).args(more))
    };
    let refused = policy_check(&[]);
    assert_eq!(refused.status.code(), Some(6), "{}", crate::world::describe(&refused));
    let lines = policy_check(&["--lines"]);
    assert!(lines.status.success(), "{}", crate::world::describe(&lines));
    let mut text = std::fs::read_to_string(&policy).unwrap();
    text += &String::from_utf8(lines.stdout).unwrap();
    std::fs::write(&policy, text).unwrap();
    let checked = policy_check(&[]);
    assert!(checked.status.success(), "{}", crate::world::describe(&checked));
    assert_eq!(String::from_utf8_lossy(&checked.stdout), "shop: allowed\n");
}

fn shown(house: &House) -> Value {
    house.json(&["cert", "show", "shop.example"])
}

fn fingerprint(house: &House) -> String {
    shown(house)["current"]["fingerprint"].as_str().unwrap().to_owned()
}

#[test]
fn agent_renews_nginx_certificate_without_failed_requests() {
    let house = House::up();
    let nginx = Nginx::start(&house);
    let before = nginx.presents(&house).unwrap();
    let (_agent, id) = agent(&house);
    let target = target(&house, &nginx, &id);
    // The agent's policy allows nothing yet: the server gets the error, and nginx is not changed.
    house.does(&["cert", "create", "shop.example", "--key-on-agent", "--target", &target]);
    house.until("the refusal", || {
        let error = shown(&house)["last_error"].as_str().unwrap_or_default().to_owned();
        error.contains("does not allow the file") && error.contains("[commands.nginx-")
    });
    assert_eq!(nginx.presents(&house).unwrap(), before);
    forbid(&house);
    allow(&house, "agent");
    let jobs = house.json(&["job", "list", "--all"]);
    house.does(&["job", "retry", jobs["rows"][0]["id"].as_str().unwrap()]);
    house.until("the first version", || shown(&house)["status"] == "active");
    let first = fingerprint(&house);
    assert_eq!(nginx.presents(&house).unwrap(), first);
    assert_ne!(first, before);
    // The key was generated on the agent's host. The server has no key to export.
    let refused = crate::world::run(&mut house.bulla(&["cert", "export", "shop.example", "--key"]));
    assert_eq!(refused.status.code(), Some(6), "{}", crate::world::describe(&refused));
    let visitor = Visitor::start(nginx.port);
    house.does(&["cert", "renew", "shop.example"]);
    house.until("the second version", || {
        let now = shown(&house);
        now["status"] == "active" && now["current"]["fingerprint"] != first.as_str()
    });
    house.until("nginx to present it", || {
        nginx.presents(&house).is_some_and(|now| now == fingerprint(&house))
    });
    let (answered, failed) = visitor.end();
    assert!(answered > 0 && failed == 0, "{answered} answered, {failed} failed");
}

/// Starts a deployment to an nginx target whose reload command is `touch` of this file. Returns the certificate when it ended.
fn deploy_with_touch(
    house: &House,
    agent: &str,
    name: &str,
    folder: &std::path::Path,
    touched: &std::path::Path,
) -> Value {
    let at = |end: &str| folder.join(format!("{name}.{end}")).display().to_string();
    let document = json!({
        "name": name, "agent": agent,
        "target": {
            "type": "nginx", "fullchain": { "path": at("pem") }, "key": { "path": at("key") },
            "validate": ["/usr/bin/true"], "reload": ["/usr/bin/touch", touched],
        }
    });
    std::fs::write(house.path("target.json"), document.to_string()).unwrap();
    let target =
        house.json(&["target", "create", "--file", "target.json"])["id"].as_str().unwrap().to_owned();
    house.does(&["cert", "create", name, "--target", &target]);
    let show = || house.json(&["cert", "show", name]);
    house.until("the end of the deployment", || {
        let now = show();
        now["status"] == "active" || now["last_error"].is_string()
    });
    show()
}

#[test]
fn agent_and_its_commands_write_only_in_the_folders_of_the_policy() {
    let files = sandbox::Files::ReadOnly { writable: Vec::new() };
    let plan = sandbox::Plan {
        mode: sandbox::Mode::BestEffort,
        programs: sandbox::Programs::Started,
        capabilities: sandbox::Capabilities::NONE,
        files,
    };
    let report = std::thread::spawn(move || sandbox::restrict_thread(&plan).unwrap()).join().unwrap();
    if matches!(report.files, sandbox::State::Missing(_)) {
        // This kernel cannot restrict files, and the log of the agent says so.
        return;
    }
    let house = House::up();
    // Not in shared memory, which every sandboxed program may use.
    let home = tempfile::tempdir_in("/var/tmp").unwrap();
    let [certificates, reloads, other] =
        ["certificates", "reloads", "other"].map(|name| home.path().join(name));
    for folder in [&certificates, &reloads, &other] {
        std::fs::create_dir(folder).unwrap();
    }
    let user = house.program("id", "apt-get install -y coreutils", &["-un"]);
    let user = String::from_utf8(user.stdout).unwrap();
    let (good, bad) = (reloads.join("good"), other.join("bad"));
    let command =
        |name: &str, argv: Value| format!("[commands.{name}]\nargv = {argv}\nuser = {:?}\n", user.trim());
    let policy = format!(
        "writable_folders = [{reloads:?}]\n[[files]]\npath = \"{}/*\"\n{}{}{}",
        certificates.display(),
        command("check", json!(["/usr/bin/true"])),
        command("good", json!(["/usr/bin/touch", good])),
        command("bad", json!(["/usr/bin/touch", bad])),
    );
    std::fs::write(house.path("agent.toml"), policy).unwrap();
    let (_agent, id) = agent(&house);

    let shown = deploy_with_touch(&house, &id, "good.example", &certificates, &good);
    assert_eq!(shown["status"], "active", "{shown}");
    assert!(good.exists() && certificates.join("good.example.key").exists());
    // The policy allows the command, and the kernel does not allow its write.
    let shown = deploy_with_touch(&house, &id, "bad.example", &certificates, &bad);
    assert!(shown["last_error"].as_str().unwrap().contains("Permission denied"), "{shown}");
    assert!(!bad.exists() && !certificates.join("bad.example.key").exists());
}

#[test]
fn blocked_key_causes_reissue_and_revocation() {
    let house = House::up();
    house.does(&["cert", "create", "shop.example"]);
    house.until("the first version", || shown(&house)["status"] == "active");
    let first = fingerprint(&house);
    house.does(&["cert", "block-key", &first, "--of-certificate"]);
    house.until("another version", || {
        let now = shown(&house);
        now["status"] == "active" && now["current"]["fingerprint"] != first.as_str()
    });
    let versions = house.json(&["cert", "versions", "shop.example"]);
    let revoked: Vec<bool> =
        versions["rows"].as_array().unwrap().iter().map(|row| row["revoked_at"].is_string()).collect();
    assert_eq!(revoked, [false, true], "{versions}");
}

#[test]
fn acknowledged_certificates_survive_kills_and_are_issued_once() {
    let mut house = House::up();
    let mut names = Vec::new();
    for number in 0..20 {
        let name = format!("c{number}.example");
        house.does(&["cert", "create", &name]);
        names.push(name);
        if number % 5 == 4 {
            house.kill();
            house.start();
        }
    }
    house.until("every certificate", || {
        let all = house.json(&["cert", "list", "--all"]);
        all["rows"].as_array().unwrap().iter().filter(|row| row["status"] == "active").count() == names.len()
    });
    let issued = house.json(&["cert", "issued", "--source", "lifecycle", "--all"]);
    let mut issued: Vec<String> = issued["rows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["names"][0].as_str().unwrap().to_owned())
        .collect();
    issued.sort();
    names.sort();
    assert_eq!(issued, names, "each once");
    assert_eq!(house.json(&["audit", "verify"])["good"], true);
}
