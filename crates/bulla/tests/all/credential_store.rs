//! `bulla credential` against a fake store on a socket, on a machine without a server.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::world::{bulla, describe, run, stderr};

/// After this time an event counts as not happening.
const TIMEOUT: Duration = Duration::from_secs(60);

/// An age identity and its recipient, made by age-keygen.
const KEY: &str = "AGE-SECRET-KEY-19DAUCNLJ9VV98XPFGATP53AZ9U5JHAV5075PMSLMPPFJZZX5DPJQ83L689";
const RECIPIENT: &str = "age1yec9cznn3xkzjptex4xz3vfmfkuslk6kpxrjc8l2llue5se8q3zqjtc29j";

/// The id of every version and of every certificate.
const VERSION: &str = "01939e5c-0000-7000-8000-000000000001";
const CERTIFICATE: &str = "01939e5c-0000-7000-8000-000000000002";
const STORED_AT: &str = "2026-11-21T05:00:00Z";

#[derive(Clone, Debug)]
struct Request {
    /// `PUT /api/v1/data`
    line: String,
    head: String,
    body: Value,
}

/// A fake store, and the folder of a machine without a server.
struct FakeStore {
    folder: tempfile::TempDir,
    received: Arc<Mutex<Vec<Request>>>,
}

impl FakeStore {
    /// Answers each request with the status and JSON that `answers` returns.
    fn start(answers: impl Fn(&Request) -> (u16, Value) + Send + Sync + 'static) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join("socket")).unwrap();
        let received = Arc::<Mutex<Vec<Request>>>::default();
        let (received_log, answers) = (Arc::clone(&received), Arc::new(answers));
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (received_log, answers) = (Arc::clone(&received_log), Arc::clone(&answers));
                std::thread::spawn(move || {
                    let _ = answer(stream, &received_log, &*answers);
                });
            }
        });
        Self { folder, received }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns `bulla credential …` on a machine that has only the socket.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = bulla();
        command
            .env("BULLA_DATA", self.path("no-data"))
            .env("HOME", self.folder.path())
            .current_dir(self.folder.path())
            .arg("credential")
            .args(arguments)
            .args(["--credential-server", &format!("unix:{}", self.path("socket").display())]);
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        run(&mut self.command(arguments))
    }

    /// Returns the received requests whose first line begins with `line`.
    fn received(&self, line: &str) -> Vec<Request> {
        let all = self.received.lock().unwrap();
        all.iter().filter(|received| received.line.starts_with(line)).cloned().collect()
    }
}

fn answer(
    mut stream: UnixStream,
    received_log: &Mutex<Vec<Request>>,
    answers: &dyn Fn(&Request) -> (u16, Value),
) -> std::io::Result<()> {
    let mut bytes = Vec::new();
    let head = loop {
        if let Some(end) = bytes.windows(4).position(|part| part == b"\r\n\r\n") {
            break String::from_utf8_lossy(&bytes.drain(..end + 4).collect::<Vec<_>>()).to_lowercase();
        }
        let mut some = [0; 4_096];
        let length = stream.read(&mut some)?;
        if length == 0 {
            return Ok(());
        }
        bytes.extend_from_slice(&some[..length]);
    };
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
    let mut body = bytes;
    let rest = length.unwrap_or(0_usize).saturating_sub(body.len());
    (&mut stream).take(rest as u64).read_to_end(&mut body)?;
    let line: Vec<&str> = head.lines().next().unwrap_or_default().split(' ').take(2).collect();
    let line = format!("{} {}", line[0].to_uppercase(), line[1]);
    let received = Request { line, body: serde_json::from_slice(&body).unwrap_or_default(), head };
    received_log.lock().unwrap().push(received.clone());
    let (status, document) = answers(&received);
    let text = document.to_string();
    let head = format!(
        "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        text.len()
    );
    stream.write_all(format!("{head}{text}").as_bytes())
}

fn document(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", describe(output)))
}

/// Returns a list of credential names, for `find` and `export`.
fn names(all: &[&str]) -> Value {
    let one = |name: &&str| json!({ "name": name, "version_created_at": STORED_AT });
    let all: Vec<Value> = all.iter().map(one).collect();
    json!({ "credentials": all })
}

fn value(name: &str, text: &str) -> Value {
    json!({ "name": name, "type": "value", "id": VERSION, "value": text, "metadata": null, "version_created_at": STORED_AT })
}

#[test]
fn agent_socket_works_without_token_or_server_settings() {
    let store = FakeStore::start(|_| (200, json!({ "data": [value("/a", "canary")] })));
    // The agent logs in itself. Configured credentials are not even read.
    let output =
        store.run(&["get", "/a", "--value", "--token-file", "/nowhere/token", "--server-ca", "/nowhere/ca"]);
    assert_eq!(output.stdout, b"canary\n", "{}", describe(&output));
    assert!(!store.received("GET")[0].head.contains("authorization"), "{:?}", store.received(""));
    let alone = |arguments: &[&str]| {
        let mut command = bulla();
        command.env("BULLA_DATA", store.path("no-data")).env("HOME", store.folder.path()).args(arguments);
        run(&mut command)
    };
    // Nothing listens there. The missing settings of the other server do not matter.
    let output = alone(&["credential", "get", "/a", "--credential-server", "https://127.0.0.1:1"]);
    assert_eq!(output.status.code(), Some(7), "{}", describe(&output));
    let output = alone(&["credential", "get", "/a"]);
    assert_eq!(output.status.code(), Some(2), "{}", describe(&output));
    assert!(stderr(&output).contains("no credential store is configured"), "{}", describe(&output));
}

#[test]
fn export_reports_permissions_it_could_not_fetch() {
    let store = FakeStore::start(|received| match received.line.as_str() {
        line if line.starts_with("GET /api/v1/data?path") => (200, names(&["/t/a"])),
        line if line.starts_with("GET /api/v1/certificates") => (200, json!({ "certificates": [] })),
        "POST /api/v1/lookup" => (200, json!({ "results": [value("/t/a", "x")] })),
        "GET /api/v1/permissions?credential_name=%2f*" => (503, json!({ "error": "away" })),
        "GET /api/v1/permissions?credential_name=%2ft%2f*" => (404, json!({ "error": "nothing there" })),
        _ => {
            let one = json!({ "actor": "uaa-client:a", "operations": ["read"] });
            (200, json!({ "permissions": [one] }))
        }
    });
    let output =
        store.run(&["export", "--to", "out", "--recipient", RECIPIENT, "--permissions", "--output", "json"]);
    assert_eq!(output.status.code(), Some(3), "{}", describe(&output));
    let received_log = document(&output);
    assert_eq!(
        (&received_log["credentials"], &received_log["permissions"]),
        (&json!(1), &json!(1)),
        "{received_log}"
    );
    let failed = received_log["failed"].as_array().unwrap();
    assert_eq!(failed.len(), 1, "what is refused is none: {received_log}");
    assert_eq!(failed[0]["name"], "permissions for /*");
}

#[test]
fn import_keeps_expiry_and_skips_expired_values() {
    let in_seconds = |seconds: i64| {
        let at = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(seconds);
        at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    };
    let (soon, over) = (in_seconds(1_000), in_seconds(-10));
    let present = Arc::new(AtomicBool::new(true));
    let is_present = Arc::clone(&present);
    let store = FakeStore::start(move |received| match received.line.as_str() {
        line if line.starts_with("GET /api/v1/data?path") => (200, names(&["/always", "/over", "/soon"])),
        line if line.starts_with("GET /api/v1/certificates") => (200, json!({ "certificates": [] })),
        "POST /api/v1/lookup" if is_present.load(SeqCst) => {
            let (mut one, mut other) = (value("/over", "b"), value("/soon", "c"));
            (one["expires_at"], other["expires_at"]) = (over.as_str().into(), soon.as_str().into());
            (200, json!({ "results": [value("/always", "a"), one, other] }))
        }
        "POST /api/v1/lookup" => {
            let results = vec![Value::Null; received.body["lookups"].as_array().unwrap().len()];
            (200, json!({ "results": results }))
        }
        _ => (200, value("/set", "a")),
    });
    let output = store.run(&["export", "--to", "out", "--recipient", RECIPIENT]);
    assert!(output.status.success(), "{}", describe(&output));
    present.store(false, SeqCst);
    std::fs::write(store.path("key"), KEY).unwrap();
    let output = store.run(&["import", "out", "--identity-file", "key", "--output", "json"]);
    let received_log = document(&output);
    assert_eq!(
        (&received_log["created"], &received_log["ended"], &received_log["failed"]),
        (&json!(2), &json!(1), &json!([])),
        "{received_log}"
    );
    let mut put = store.received("PUT /api/v1/data");
    put.sort_by_key(|received| received.body["name"].to_string());
    let names: Vec<&Value> = put.iter().map(|received| &received.body["name"]).collect();
    assert_eq!(names, ["/always", "/soon"]);
    assert_eq!(put[0].body["ttl_seconds"], Value::Null);
    let left = put[1].body["ttl_seconds"].as_u64().unwrap();
    assert!((500..=1_000).contains(&left), "{left}");
}

#[test]
fn transitional_flag_lost_in_one_import_is_set_by_the_next() {
    let certificate = |marked: bool| {
        json!({ "name": "/ca", "type": "certificate", "id": VERSION, "transitional": marked, "expiry_date": null,
            "certificate_authority": true, "version_created_at": STORED_AT,
            "value": { "certificate": "PEM", "private_key": "PEM" } })
    };
    let mark_path = format!("PUT /api/v1/certificates/{CERTIFICATE}/update_transitional_version");
    let mark_line = mark_path.clone();
    let (unavailable, present, marked) =
        (AtomicBool::new(false), AtomicBool::new(true), AtomicBool::new(true));
    let state = Arc::new((unavailable, present, marked));
    let seen = Arc::clone(&state);
    let store = FakeStore::start(move |received| {
        let (unavailable, present, marked) = &*seen;
        let found = || json!({ "certificates": [{ "id": CERTIFICATE, "name": "/ca", "versions": [] }] });
        match received.line.as_str() {
            line if line.starts_with("GET /api/v1/data?path") => (200, names(&["/ca"])),
            line if line.starts_with("GET /api/v1/certificates") && unavailable.load(SeqCst) => {
                (503, json!({}))
            }
            line if line.starts_with("GET /api/v1/certificates") => (200, found()),
            "POST /api/v1/lookup" if present.load(SeqCst) => {
                (200, json!({ "results": [certificate(marked.load(SeqCst))] }))
            }
            "POST /api/v1/lookup" => (200, json!({ "results": [null] })),
            "PUT /api/v1/data" => {
                present.store(true, SeqCst);
                (200, certificate(false))
            }
            line if line == mark_line => {
                marked.store(true, SeqCst);
                (200, json!([]))
            }
            other => (404, json!({ "error": other })),
        }
    });
    let output = store.run(&["export", "--to", "out", "--recipient", RECIPIENT]);
    assert!(output.status.success(), "{}", describe(&output));
    std::fs::write(store.path("key"), KEY).unwrap();
    let (unavailable, present, marked) = &*state;
    for (flag, on) in [(unavailable, true), (present, false), (marked, false)] {
        flag.store(on, SeqCst);
    }
    let import = || store.run(&["import", "out", "--identity-file", "key", "--output", "json"]);
    let first = import();
    assert_eq!(first.status.code(), Some(3), "{}", describe(&first));
    assert!(present.load(SeqCst) && !marked.load(SeqCst), "written, and not marked");
    unavailable.store(false, SeqCst);
    let second = document(&import());
    assert!(marked.load(SeqCst), "{second}");
    assert_eq!((&second["updated"], &second["versions"]), (&json!(1), &json!(0)), "{second}");
    let mark = store.received(&mark_path);
    assert_eq!(mark[0].body, json!({ "version": VERSION }));
    assert_eq!(document(&import())["unchanged"], 1);
    assert_eq!(store.received("PUT /api/v1/data").len(), 1);
}

#[test]
fn interrupted_export_leaves_no_file() {
    let store = FakeStore::start(|received| match received.line.as_str() {
        line if line.starts_with("GET /api/v1/data?path") => (200, names(&["/a"])),
        line if line.starts_with("GET /api/v1/certificates") => (200, json!({ "certificates": [] })),
        // Blocks as long as the test runs.
        _ => loop {
            std::thread::park();
        },
    });
    let folder = store.path("exports");
    std::fs::create_dir(&folder).unwrap();
    let files = || std::fs::read_dir(&folder).unwrap().count();
    let mut command = store.command(&["export", "--to", "exports/out", "--plain"]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let began = Instant::now();
    while files() == 0 || store.received("POST /api/v1/lookup").is_empty() {
        assert!(began.elapsed() < TIMEOUT, "the export does not begin");
        std::thread::sleep(Duration::from_millis(10));
    }
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(files(), 0, "the draft is gone");
}

#[test]
fn template_to_stdout_rejects_watch_and_run() {
    let store = FakeStore::start(|_| (404, json!({})));
    std::fs::write(store.path("t"), "((/a))").unwrap();
    for more in [&["--watch"][..], &["--run", "true"]] {
        let output = store.run(&[&["template", "t", "--to", "-"], more].concat());
        assert_eq!(output.status.code(), Some(2), "{}", describe(&output));
        assert!(stderr(&output).contains("hint: give --to FILE"), "{}", describe(&output));
    }
}
