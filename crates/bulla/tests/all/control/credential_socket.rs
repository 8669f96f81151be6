//! Clients of the credential store on the same host: curl on the agent's socket, files from templates, and programs that are
//! restarted.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use super::House;
use crate::world::{describe, run};

const CANARY: &str = "canary-77aa01";

/// A background command that is killed at the end of the test.
pub(super) struct BackgroundProcess {
    child: Child,
    printed: std::sync::Arc<std::sync::Mutex<String>>,
}

impl BackgroundProcess {
    pub(super) fn start(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let printed = std::sync::Arc::<std::sync::Mutex<String>>::default();
        let (out, errors) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        for stream in [Box::new(out) as Box<dyn std::io::Read + Send>, Box::new(errors)] {
            let printed = std::sync::Arc::clone(&printed);
            std::thread::spawn(move || {
                for line in BufReader::new(stream).lines().map_while(Result::ok) {
                    *printed.lock().unwrap() += &format!("{line}\n");
                }
            });
        }
        Self { child, printed }
    }

    pub(super) fn printed(&self) -> String {
        self.printed.lock().unwrap().clone()
    }

    /// Waits until the command ends by itself. Returns its exit code.
    pub(super) fn ended(&mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }

    fn stop(&mut self) -> Option<i32> {
        assert!(Command::new("kill").arg(self.child.id().to_string()).status().unwrap().success());
        self.child.wait().unwrap().code()
    }
}

impl Drop for BackgroundProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn set(house: &House, name: &str, kind: &str, value: &str) {
    std::fs::write(house.path("value"), value).unwrap();
    house.does(&["credential", "set", name, "--type", kind, "--file", "value"]);
}

/// Sends a request to the agent with curl.
fn send_request(house: &House, method: &str, path: &str, body: Option<&str>) -> (u16, Value) {
    let url = format!("http://localhost{path}");
    let mut arguments =
        vec!["-s", "-S", "-g", "--unix-socket", "agent.sock", "-X", method, "-w", "\n%{http_code}"];
    if let Some(body) = body {
        arguments.extend(["-H", "content-type: application/json", "-d", body]);
    }
    arguments.push(&url);
    let output = house.program("curl", "apt-get install -y curl", &arguments);
    assert!(output.status.success(), "curl {path}: {}", describe(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    let (body, status) = text.rsplit_once('\n').unwrap();
    (status.parse().unwrap(), serde_json::from_str(body).unwrap_or_default())
}

fn value(house: &House, name: &str) -> Value {
    send_request(house, "GET", &format!("/api/v1/data?name={name}&current=true"), None).1["data"][0]["value"]
        .clone()
}

fn agent(house: &House, more: &[&str]) -> BackgroundProcess {
    let arguments = ["credential", "agent", "--socket", "agent.sock", "--log", "trace"];
    let agent = BackgroundProcess::start(house.bulla(&[&arguments[..], more].concat()));
    house.until("the agent", || agent.printed().contains("the agent listens at"));
    agent
}

#[test]
fn credential_agent_serves_its_socket_and_survives_store_outages() {
    let mut house = House::up();
    set(&house, "/a/password", "password", CANARY);
    set(&house, "/a/json", "json", r#"{"uri":"postgres://canary-77aa01"}"#);
    let mut agent = agent(&house, &[]);
    let mode = std::fs::metadata(house.path("agent.sock")).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o600);
    // As CredHub clients send it.
    assert_eq!(value(&house, "/A/Password"), CANARY);
    let (status, none) = send_request(&house, "GET", "/api/v1/data?name=/none&current=true", None);
    assert_eq!(status, 404);
    assert!(none["error"].as_str().unwrap().contains("does not exist"), "{none}");
    let (_, found) =
        send_request(&house, "POST", "/api/v1/lookup", Some(r#"{"lookups":[["/none","/a/json"],"/none"]}"#));
    assert_eq!((&found["results"][0]["name"], &found["results"][1]), (&json!("/a/json"), &Value::Null));
    let services = r#"{"p":[{"credentials":{"credhub-ref":"((/a/json))"}},{"credentials":{"plain":1}}]}"#;
    let (status, replaced) = send_request(&house, "POST", "/api/v1/interpolate", Some(services));
    assert_eq!((status, &replaced["p"][0]["credentials"]["uri"]), (200, &json!("postgres://canary-77aa01")));
    assert_eq!(replaced["p"][1]["credentials"]["plain"], 1);
    let wrong = r#"{"p":[{"credentials":{"credhub-ref":"/a/password"}}]}"#;
    assert_eq!(send_request(&house, "POST", "/api/v1/interpolate", Some(wrong)).0, 400);
    // Other requests are forwarded to the store with the agent's identity.
    let (_, found) = send_request(&house, "GET", "/api/v1/data?path=/a", None);
    assert_eq!(found["credentials"].as_array().unwrap().len(), 2, "{found}");
    let stat = |name: &str| send_request(&house, "GET", "/agent/stats", None).1[name].as_u64().unwrap();
    house.until("the stream of changes", || stat("gaps") > 0);
    let put = r#"{"name":"/a/password","type":"password","value":"second"}"#;
    assert_eq!(send_request(&house, "PUT", "/api/v1/data", Some(put)).0, 200);
    assert_eq!(value(&house, "/a/password"), "second", "what was written over it is known at once");
    for (method, path) in [("POST", "/oauth/token"), ("POST", "/management"), ("GET", "/metrics")] {
        assert_eq!(send_request(&house, method, path, Some("{}")).0, 404, "{path} stays where it is");
    }
    let too_large = format!(r#"{{"lookups":["{}"]}}"#, "x".repeat(2 << 20));
    std::fs::write(house.path("large"), too_large).unwrap();
    assert_eq!(send_request(&house, "POST", "/api/v1/lookup", Some("@large")).0, 413);
    // Written directly to the store: the agent gets the change event and fetches the value again.
    set(&house, "/a/password", "password", CANARY);
    house.until("the change", || stat("changes") >= 2 && value(&house, "/a/password") == CANARY);
    // Bulla's own commands over the socket.
    let over = ["--credential-server", "unix:agent.sock"];
    let shown = house.does(&[&["credential", "get", "/a/password", "--value"][..], &over].concat());
    assert_eq!(shown.stdout, format!("{CANARY}\n").as_bytes());
    let exec = [&["credential", "exec"][..], &over, &["--env", "A=/a/json#uri", "--", "sh", "-c", "echo $A"]];
    assert_eq!(house.does(&exec.concat()).stdout, b"postgres://canary-77aa01\n");
    let second = run(&mut house.bulla(&["credential", "agent", "--socket", "agent.sock"]));
    assert_eq!(second.status.code(), Some(5), "{}", describe(&second));
    // The store is killed.
    house.kill();
    assert_eq!(value(&house, "/a/password"), CANARY);
    let over_stale = house.does(&[&["credential", "get", "/a/password", "--value"][..], &over].concat());
    assert_eq!(over_stale.stdout, format!("{CANARY}\n").as_bytes());
    let (status, unknown) = send_request(&house, "GET", "/api/v1/data?name=/a/unknown&current=true", None);
    assert_eq!(status, 503);
    assert!(unknown["error"].as_str().unwrap().contains("cannot be reached"), "{unknown}");
    assert_eq!(send_request(&house, "GET", "/api/v1/data?path=/a", None).0, 503);
    assert_eq!(send_request(&house, "GET", "/health", None).0, 200);
    house.start();
    house.until("the agent finds it again", || {
        send_request(&house, "GET", "/api/v1/data?name=/a/unknown&current=true", None).0 == 404
    });
    let (_, stats) = send_request(&house, "GET", "/agent/stats", None);
    assert!(stats["hits"].as_u64().unwrap() >= 4 && stats["connections"].as_u64().unwrap() >= 2, "{stats}");
    assert_eq!(agent.stop(), Some(0), "{}", agent.printed());
    assert!(!house.path("agent.sock").exists());
    // The trace log has entries, and none contains a secret.
    let (printed, admin) =
        (agent.printed(), std::fs::read_to_string(house.path("data/admin.token")).unwrap());
    assert!(printed.len() > 10_000, "{} octets", printed.len());
    assert!(!printed.contains(CANARY) && !printed.contains(admin.trim()), "a secret was shown");
}

#[test]
fn agent_socket_is_private_and_unsafe_paths_are_rejected() {
    let house = House::up();
    let refused = |arguments: &[&str], why: &str| {
        let all = [&["credential", "agent", "--socket"], arguments].concat();
        let output = run(&mut house.bulla(&all));
        assert!(!output.status.success() && describe(&output).contains(why), "{}", describe(&output));
    };
    std::fs::write(house.path("file"), "kept").unwrap();
    refused(&["file"], "not a socket");
    assert_eq!(std::fs::read_to_string(house.path("file")).unwrap(), "kept");
    let open = house.path("open");
    std::fs::create_dir(&open).unwrap();
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o777)).unwrap();
    refused(&["open/agent.sock"], "every user may write to it");
    refused(&["none/agent.sock"], "No such file");
    // The socket of a killed agent is replaced. With `--access group` the group gets access.
    let mut first = agent(&house, &[]);
    first.child.kill().unwrap();
    first.child.wait().unwrap();
    assert!(house.path("agent.sock").exists());
    let mut second = agent(&house, &["--access", "group"]);
    let mode = std::fs::metadata(house.path("agent.sock")).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o660);
    assert_eq!(send_request(&house, "GET", "/health", None).0, 200);
    assert_eq!(second.stop(), Some(0));
}

#[test]
fn template_is_rendered_and_rewritten_when_a_credential_changes() {
    let mut house = House::up();
    set(&house, "/t/password", "password", "one");
    set(&house, "/t/json", "json", r#"{"host":"db.example","deep":{"port":5432}}"#);
    let template = "host: ((/t/json.host)):((/t/json.deep.port))\npassword: ((/t/password))\nkept: ((x))\n";
    std::fs::write(house.path("template"), template).unwrap();
    let out = house.path("out");
    let text = || std::fs::read_to_string(&out).unwrap_or_default();
    let command = ["credential", "template", "template", "--to", "out"];
    house.does(&command);
    assert_eq!(text(), "host: db.example:5432\npassword: one\nkept: ((x))\n");
    let mode = || std::fs::metadata(&out).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(), 0o600);
    std::fs::write(house.path("missing"), "((/t/none)) ((/t/json.none))").unwrap();
    let missing = run(&mut house.bulla(&["credential", "template", "missing", "--to", "-"]));
    assert_eq!(missing.status.code(), Some(6), "{}", describe(&missing));
    assert!(describe(&missing).contains("/t/none, /t/json.none"), "{}", describe(&missing));
    std::fs::write(house.path("short"), "((password)) ((json.host))").unwrap();
    let short = house.does(&["credential", "template", "short", "--to", "-", "--prefix", "/t"]);
    assert_eq!(short.stdout, b"one db.example");
    // With `--watch` the file is rewritten and the command run only when a value changes.
    let watch = ["--mode", "0640", "--watch", "--run", "echo ran >>runs"];
    let mut watching = BackgroundProcess::start(house.bulla(&[&command[..], &watch].concat()));
    let ran = house.path("runs");
    let runs = || std::fs::read_to_string(&ran).unwrap_or_default().lines().count();
    house.until("the mode", || mode() == 0o640 && runs() == 1);
    set(&house, "/t/other", "password", "x");
    set(&house, "/t/password", "password", "two");
    house.until("the change", || text().contains("password: two") && runs() == 2);
    assert_eq!(mode(), 0o640);
    // While the store is down the file stays. Later changes are written when the store is up.
    house.kill();
    house.start();
    set(&house, "/t/password", "password", "three");
    house.until("the change after the fall", || text().contains("password: three"));
    assert_eq!(watching.stop(), Some(0), "{}", watching.printed());
    house.until("the last run", || runs() == 3);
    // A failed command is run again, though the file is up to date.
    let owing = [
        "credential",
        "template",
        "template",
        "--to",
        "out2",
        "--watch",
        "--run",
        "echo ran >>tries; test -e ok",
    ];
    let mut watching = BackgroundProcess::start(house.bulla(&owing));
    let tries = house.path("tries");
    let tries = || std::fs::read_to_string(&tries).unwrap_or_default().lines().count();
    house.until("the try", || tries() >= 1);
    std::fs::write(house.path("ok"), "").unwrap();
    set(&house, "/t/password", "password", "three");
    house.until("the next try", || tries() >= 2);
    assert_eq!(watching.stop(), Some(0), "{}", watching.printed());
}

#[test]
fn program_is_restarted_or_signaled_when_its_credential_changes() {
    let house = House::up();
    set(&house, "/e/a", "password", "one");
    // The trap is set before the line that the test waits for, because an earlier signal would end the shell. The signal is not
    // HUP: under nohup, HUP is ignored by all child processes.
    let program = "trap 'echo told >>starts' USR1; echo started $A >>starts; while :; do sleep 0.1; done";
    let exec = |more: &[&str]| {
        let begin = ["credential", "exec", "--env", "A=/e/a", "--watch"];
        BackgroundProcess::start(house.bulla(&[&begin[..], more, &["--", "sh", "-c", program]].concat()))
    };
    let starts = || std::fs::read_to_string(house.path("starts")).unwrap_or_default();
    let mut running = exec(&[]);
    house.until("the start", || starts() == "started one\n");
    set(&house, "/e/a", "password", "two");
    house.until("the second start", || starts() == "started one\nstarted two\n");
    assert_eq!(running.stop(), Some(130), "{}", running.printed());
    std::fs::remove_file(house.path("starts")).unwrap();
    let mut running = exec(&["--signal", "usr1"]);
    house.until("the start", || starts() == "started two\n");
    set(&house, "/e/a", "password", "three");
    house.until("the signal", || starts() == "started two\ntold\n");
    running.stop();
    // A script without `#!` runs in a shell, with and without --watch, by its path and by its name in PATH.
    let script = house.path("script");
    std::fs::write(&script, "echo $A $1\n").unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    for more in [&["--watch"][..], &[]] {
        for name in [script.to_str().unwrap(), "script"] {
            let line = ["credential", "exec", "--env", "A=/e/a"];
            let mut command = house.bulla(&[&line[..], more, &["--", name, "given"]].concat());
            let ended = run(command.env("PATH", house.path("")));
            assert_eq!(ended.stdout, b"three given\n", "{more:?} {name}: {}", describe(&ended));
        }
    }
    // The command returns the program's exit code.
    let ended = run(&mut house.bulla(&[
        "credential",
        "exec",
        "--env",
        "A=/e/a",
        "--watch",
        "--",
        "sh",
        "-c",
        "exit 7",
    ]));
    assert_eq!(ended.status.code(), Some(7), "{}", describe(&ended));
}
