//! `bulla key top` and `bulla key trace` on a service that signs.

use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Instant;

use keyless::native::proto::{Scheme, SignRequest, sign_request::Key};
use keyless::native::{CallOptions, Client};
use keyless::wire::tag;
use serde_json::Value;
use tokio::runtime::Runtime;

use crate::key_service::{Fixture, TIMEOUT};
use crate::world::{bulla, describe, run, stderr, stdout};

/// An address without a listener: only root could open this port.
const NOBODY: &str = "http://127.0.0.1:1";
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

/// A service with one key, and a client.
struct World {
    fixture: Fixture,
    url: String,
    ski: [u8; 20],
    runtime: Runtime,
    client: Client,
}

impl World {
    fn new() -> Self {
        let mut fixture = Fixture::new();
        let ski = fixture.key("p256", "-algorithm EC -pkeyopt ec_paramgen_curve:P-256");
        let printed = fixture.serve(&["--dir", "keys", "--native-socket", "native.sock"]);
        let url = printed.split("metrics at ").nth(1).unwrap().split("/metrics").next().unwrap().to_owned();
        let runtime = Runtime::new().unwrap();
        let socket = fixture.path("native.sock");
        let client = runtime.block_on(async { Client::socket(socket) });
        Self { fixture, url, ski, runtime, client }
    }

    fn sign(&self, ski: [u8; 20], traceparent: &str) -> Result<Vec<u8>, String> {
        let mut request = SignRequest { key: Some(Key::Ski(ski.to_vec())), ..SignRequest::default() };
        (request.input, request.traceparent) = (vec![7; 32], traceparent.to_owned());
        request.set_scheme(Scheme::EcdsaSha256);
        let signed = self.runtime.block_on(self.client.sign(request, CallOptions::within(TIMEOUT)));
        signed.map_err(|status| status.to_string())
    }

    /// Returns `bulla keys …`.
    fn keys(&self, arguments: &[&str]) -> Command {
        let mut command = bulla();
        command.env("HOME", self.fixture.path("")).arg("keys").args(arguments);
        command
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let output = run(&mut self.keys(arguments));
        assert!(output.status.success(), "{}", describe(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Runs `work` while signatures are requested.
    fn meanwhile<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let working = scope.spawn(|| {
                // Stops also when `work` panics.
                let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
                is_over.store(true, Relaxed);
                done
            });
            while !is_over.load(Relaxed) {
                self.sign(self.ski, "").unwrap();
            }
            working.join().unwrap().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}

/// Calls `fetch` until `so` accepts the result, or until a timeout.
fn first<T>(mut fetch: impl FnMut() -> T, so: impl Fn(&T) -> bool) -> T {
    let began = Instant::now();
    loop {
        let shown = fetch();
        if so(&shown) || began.elapsed() > TIMEOUT {
            return shown;
        }
    }
}

#[test]
fn top_shows_the_activity_of_a_service() {
    let world = World::new();
    let shown = world.meanwhile(|| {
        let fetch = || world.json(&["top", "--json", "--interval", "500ms", "--url", &world.url]);
        first(fetch, |shown| shown["opcodes"][0]["opcode"] == "ecdsa-sha256")
    });
    assert_eq!((&shown["services"], &shown["keys"]), (&1.into(), &1.0.into()), "{shown}");
    let opcode = &shown["opcodes"][0];
    assert!(opcode["requests_per_s"].as_f64().unwrap() > 0.0, "{shown}");
    assert!(opcode["p50_ms"].as_f64().unwrap() <= opcode["p99_ms"].as_f64().unwrap(), "{shown}");
    let light = &shown["classes"][0];
    assert!(light["done_per_s"].as_f64().unwrap() > 0.0 && light["sign_ms"].is_number(), "{shown}");
    assert!(light["running_max"].as_f64().unwrap() >= 1.0, "{shown}");
    let tenant = &shown["tenants"][0];
    assert_eq!((&tenant["tenant"], &tenant["in_flight_max"]), (&"default".into(), &8192.0.into()), "{shown}");
    assert!(tenant["requests_per_s"].as_f64().unwrap() > 0.0 && tenant["mean_ms"].is_number(), "{shown}");
    assert!(shown["connections_max"].as_f64().unwrap() > 0.0, "{shown}");

    // Without a terminal it prints one table.
    let table = world.meanwhile(|| {
        let fetch = || run(&mut world.keys(&["top", "--interval", "500ms", "--url", &world.url]));
        first(fetch, |table| !table.status.success() || stdout(table).contains("ecdsa-sha256"))
    });
    assert!(table.status.success(), "{}", describe(&table));
    for part in ["requests/s", "OPERATION", "ecdsa-sha256", "TENANT", "default", "CLASS", "light"] {
        assert!(stdout(&table).contains(part), "no {part}: {}", describe(&table));
    }
    assert!(!stdout(&table).contains('\x1b'), "{}", describe(&table));
}

#[test]
fn unreachable_service_is_reported_with_a_hint() {
    let world = World::new();
    let nobody = run(&mut world.keys(&["top", "--once", "--url", NOBODY]));
    assert_eq!(nobody.status.code(), Some(7), "{}", describe(&nobody));
    assert!(
        stderr(&nobody).contains("metrics_listen") && stderr(&nobody).contains(NOBODY),
        "{}",
        describe(&nobody)
    );
    let some =
        run(&mut world.keys(&["top", "--json", "--interval", "100ms", "--url", &world.url, "--url", NOBODY]));
    assert_eq!(some.status.code(), Some(3), "{}", describe(&some));
    let shown: Value = serde_json::from_slice(&some.stdout).unwrap();
    assert_eq!((&shown["services"], &shown["away"][0]["url"]), (&1.into(), &NOBODY.into()));
    let wrong = run(&mut world.keys(&["top", "--interval", "1ms", "--url", &world.url]));
    assert_eq!(wrong.status.code(), Some(2), "{}", describe(&wrong));
    let nowhere = run(world.keys(&["top"]).env("BULLA_KEYS_METRICS_LISTEN", ""));
    assert_eq!(nowhere.status.code(), Some(2), "{}", describe(&nowhere));
}

/// On a terminal it runs until Ctrl-C, also with unreachable services, and then restores the terminal.
#[test]
fn top_runs_until_ctrl_c_and_restores_the_terminal() {
    let world = World::new();
    let binary = env!("CARGO_BIN_EXE_bulla");
    // `exec` replaces the shell that `script` starts, which may be any shell. A shell that stays would itself end by Ctrl-C (dash:
    // 130).
    let command = format!("exec {binary} keys top --interval 100ms --url {} --url {NOBODY}", world.url);
    let mut script = Command::new("script");
    script.args(["-q", "-e", "-c", &command, "/dev/null"]).env("TERM", "xterm");
    let spawned = script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut child = spawned.unwrap_or_else(|error| panic!("apt-get install -y bsdutils ({error})"));
    let (mut input, mut output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut part = [0; 4_096];
        while let Ok(count @ 1..) = output.read(&mut part) {
            let _ = sender.send(part[..count].to_vec());
        }
    });
    let (mut shown, mut is_interrupted, began) = (String::new(), false, Instant::now());
    loop {
        match receiver.recv_timeout(TIMEOUT.saturating_sub(began.elapsed())) {
            Ok(part) => shown += &String::from_utf8_lossy(&part),
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                child.kill().unwrap();
                child.wait().unwrap();
                panic!("it never ended: {shown:?}");
            }
        }
        // The second frame is shown: it keeps running.
        if !is_interrupted && shown.matches("requests/s").count() >= 4 {
            input.write_all(b"\x03").unwrap();
            is_interrupted = true;
        }
    }
    assert_eq!(child.wait().unwrap().code(), Some(0), "{shown:?}");
    assert!(shown.contains("\x1b[?1049h") && shown.contains("is unreachable"), "{shown:?}");
    let end = shown.rsplit("\x1b[?1049h").next().unwrap();
    assert!(
        end.contains("\x1b[?25h") && end.contains("\x1b[?1049l"),
        "the screen is not given back: {shown:?}"
    );
}

#[test]
fn trace_command_finds_a_request_by_trace_id() {
    let world = World::new();
    world.sign(world.ski, &format!("00-{TRACE}-00f067aa0ba902b7-01")).unwrap();
    let shown = world.json(&["trace", TRACE, "--json", "--url", &world.url]);
    let [request] = shown["requests"].as_array().unwrap().as_slice() else { panic!("{shown}") };
    assert_eq!((&request["trace_id"], &request["parent_id"]), (&TRACE.into(), &"00f067aa0ba902b7".into()));
    assert_eq!((&request["outcome"], &request["opcode"]), (&"done".into(), &"ecdsa-sha256".into()));
    assert_eq!(request["tenant"], "default");
    let ski = data_encoding::HEXLOWER.encode(&world.ski);
    assert_eq!(request["key"], ski);
    let of = |stage: &str| request["stages"][stage].as_u64();
    let (stages, took) =
        (of("queue_us").unwrap() + of("sign_us").unwrap(), request["took_us"].as_u64().unwrap());
    // Each value is truncated to whole microseconds.
    assert!((took.saturating_sub(2)..=took).contains(&stages), "{shown}");
    assert_eq!(of("wire_us"), None, "it went nowhere");
    let table = run(&mut world.keys(&["trace", TRACE, "--url", &world.url]));
    assert!(
        stdout(&table).contains("ecdsa-sha256 by ") && stdout(&table).contains(TRACE),
        "{}",
        describe(&table)
    );

    // A failed request is always kept, and is listed among the latest requests.
    assert!(world.sign([9; 20], "").is_err());
    let failed = world.json(&["trace", "--json", "--url", &world.url]);
    // Slow requests may be listed too.
    let is_failed = |request: &&Value| request["outcome"] != "done";
    let request = failed["requests"].as_array().unwrap().iter().find(is_failed).unwrap();
    assert_eq!(request["key"], "09".repeat(20));
    assert!(request["failure"].as_str().unwrap().contains("unknown key"), "{failed}");
    let by_id = world.json(&["trace", request["trace_id"].as_str().unwrap(), "--json", "--url", &world.url]);
    assert_eq!(by_id["requests"][0]["span_id"], request["span_id"]);

    let unknown = run(&mut world.keys(&["trace", &"ab".repeat(16), "--url", &world.url]));
    assert_eq!(unknown.status.code(), Some(6), "{}", describe(&unknown));
    assert!(stderr(&unknown).contains("hint:"), "{}", describe(&unknown));
    // An unreachable service may have the trace.
    let perhaps = run(&mut world.keys(&["trace", &"ab".repeat(16), "--url", &world.url, "--url", NOBODY]));
    assert_eq!(perhaps.status.code(), Some(3), "{}", describe(&perhaps));
    assert!(stderr(&perhaps).contains("1 of 2 are unreachable"), "{}", describe(&perhaps));
    // Fast, successful requests without a trace id are not kept.
    world.sign(world.ski, "").unwrap();
    let recorded = world.json(&["trace", "--json", "--url", &world.url]);
    let is_worth =
        |request: &Value| request["outcome"] != "done" || request["took_us"].as_u64() >= Some(500_000);
    assert!(recorded["requests"].as_array().unwrap().iter().all(is_worth), "{recorded}");
}

#[test]
fn trace_command_finds_a_request_by_client_request_id() {
    let world = World::new();
    let mut socket = std::os::unix::net::UnixStream::connect(world.fixture.path("data/keys.sock")).unwrap();
    socket.set_read_timeout(Some(TIMEOUT)).unwrap();
    let context = br#"{"request_id":"visit 7/a"}"#;
    let items = [(0x11, &[0x15][..]), (0x04, &world.ski), (0x12, &[7; 32]), (tag::CONTEXT, context)];
    let mut body = Vec::new();
    for (tag, data) in items {
        body.extend([tag, 0, u8::try_from(data.len()).unwrap()]);
        body.extend(data);
    }
    let mut message = vec![1, 0, 0, u8::try_from(body.len()).unwrap(), 0, 0, 0, 9];
    message.extend(body);
    socket.write_all(&message).unwrap();
    socket.read_exact(&mut [0; 1_024]).unwrap();
    let shown = world.json(&["trace", "visit 7/a", "--json", "--url", &world.url]);
    assert_eq!(shown["requests"][0]["request_id"], "visit 7/a", "{shown}");
    assert_eq!(shown["requests"][0]["outcome"], "done", "{shown}");
}
