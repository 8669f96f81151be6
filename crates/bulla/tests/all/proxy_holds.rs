//! Held requests of `bulla proxy`, and the commands that approve and reject them.

use std::process::{Child, Output, Stdio};

use serde_json::Value;
use testbed::until_blocking;

use crate::proxy::{Proxy, curl};
use crate::proxy_gateway::World;
use crate::world::{bulla, describe, run, stderr, stdout};

/// Returns the configuration of the gateway's tests with an audit log, a webhook, and a rule that holds `POST`.
fn configuration(world: &World) -> String {
    let port = world.port;
    let more = format!(
        "[[proxy.policy.rules]]\nname = \"write\"\nidentities = [\"ci\"]\nhost = [\"localhost\"]\nport = [{port}]\n\
         method = [\"POST\"]\npath = [\"/repos/**\"]\naction = \"hold\"\nhold_for_s = 600\n"
    );
    std::fs::write(world.fixture.path("hook-secret"), "0123456789abcdef0123456789abcdef").unwrap();
    let webhook = format!(
        "[proxy.policy]\nhold_webhook_url = \"https://localhost:{port}/hook\"\n\
         hold_webhook_secret_file = \"hook-secret\"\nhold_webhook_ca_file = \"ca.pem\"\n"
    );
    world
        .configuration("\"127.0.0.0/8\", \"::1/128\"", &more)
        .replacen("[proxy.requests]\n", "[proxy.requests]\naudit_file = \"audit.jsonl\"\n", 1)
        .replacen("[proxy.policy]\n", &webhook, 1)
}

/// Runs `bulla proxy COMMAND` with the configuration of `world`.
fn command(world: &World, arguments: &[&str]) -> Output {
    with_file(world, "bulla.toml", arguments)
}

fn with_file(world: &World, file: &str, arguments: &[&str]) -> Output {
    let mut command = bulla();
    command
        .current_dir(world.fixture.folder.path())
        .env("HOME", world.fixture.folder.path())
        .env("BULLA_DATA", world.fixture.path("data"))
        .arg("proxy")
        .args(arguments);
    run(command.args(["--config", file]))
}

/// Starts a `POST` of the agent `ci`. Its output ends with the status.
fn post(world: &World, proxy: &Proxy, path: &str) -> Child {
    let address = proxy.address.replace("http://", "http://ci:token-of-ci@");
    let mut command = curl(&address, &world.authority());
    command.args(["-w", "\n%{http_code}", "-X", "POST", "--data", "body-of-the-agent", &world.url(path)]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Waits for the end of a request, and returns its body and status.
fn ended(request: Child) -> (String, String) {
    let output = request.wait_with_output().unwrap();
    let printed = stdout(&output);
    let (body, status) = printed.rsplit_once('\n').unwrap_or_else(|| panic!("{}", describe(&output)));
    (body.to_owned(), status.to_owned())
}

/// Waits until a request is held, and returns it.
fn held_request(world: &World) -> Value {
    let mut found = Value::Null;
    until_blocking("a request is held", || {
        let output = command(world, &["held", "--output", "json"]);
        let listed: Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}", describe(&output)));
        found = listed["rows"][0].clone();
        !found.is_null()
    });
    found
}

/// Returns the number of requests that the server has received for `path`.
fn seen(world: &World, path: &str) -> usize {
    world.seen.lock().unwrap().iter().filter(|head| head.contains(path)).count()
}

#[test]
fn held_requests_are_approved_once_or_for_a_time_and_rejected_by_commands() {
    let world = World::new();
    let text = configuration(&world);
    let proxy = world.start(&text);
    let request = post(&world, &proxy, "/repos/o/r?token=in-the-query");
    let first = held_request(&world);
    assert_eq!(
        (&first["client"], &first["rule"], &first["method"]),
        (&"identity:ci".into(), &"write".into(), &"POST".into())
    );
    assert_eq!(first["url"], world.url("/repos/o/r"));
    assert_eq!(seen(&world, "/repos/"), 0, "nothing is sent");
    let id = first["id"].as_str().unwrap();
    let table = stdout(&command(&world, &["held"]));
    assert!(table.contains("Client") && table.contains(id) && table.contains(" min"), "{table}");
    assert!(!table.contains("in-the-query"), "{table}");
    // The webhook tells about the request, without query and body.
    until_blocking("the webhook was called", || seen(&world, "POST /hook ") > 0);
    let hook = world.seen.lock().unwrap().iter().find(|head| head.contains("/hook")).unwrap().to_lowercase();
    assert!(hook.contains("x-bulla-signature: v1=") && hook.contains("x-bulla-timestamp: "), "{hook}");
    let approved = command(&world, &["approve", id, "--print-rule"]);
    assert!(
        approved.status.success() && stderr(&approved).contains("approved: POST "),
        "{}",
        describe(&approved)
    );
    let (body, status) = ended(request);
    assert!(status == "200" && body.starts_with("POST /repos/o/r?token=in-the-query"), "{body} {status}");
    // The printed rule, before the one that holds, allows the request.
    let rule = stdout(&approved);
    assert!(rule.starts_with("# Put this rule before the rule \"write\""), "{rule}");
    let changed = text.replacen(
        "[[proxy.policy.rules]]\nname = \"write\"",
        &format!("{rule}\n[[proxy.policy.rules]]\nname = \"write\""),
        1,
    );
    std::fs::write(world.fixture.path("with-rule.toml"), changed).unwrap();
    let explain = |file: &str, path: &str| {
        stdout(&with_file(&world, file, &["explain", "--as", "ci", "-X", "POST", &world.url(path)]))
    };
    let explained = explain("with-rule.toml", "/repos/o/r");
    assert!(explained.starts_with(&format!("decision    allow\nrule        approved-{id}\n")), "{explained}");
    let explained = explain("with-rule.toml", "/repos/o/other");
    assert!(explained.starts_with("decision    hold\ndeadline    600 s"), "{explained}");
    assert!(
        explained.contains(&format!("credential  {}", world.fixture.path("secret").display())),
        "{explained}"
    );
    // The approval was for one request. The next one is for an hour.
    let request = post(&world, &proxy, "/repos/o/r");
    let second = held_request(&world);
    let approved = command(&world, &["approve", second["id"].as_str().unwrap(), "--for", "1h"]);
    assert!(approved.status.success(), "{}", describe(&approved));
    assert_eq!(ended(request).1, "200");
    assert_eq!(ended(post(&world, &proxy, "/repos/o/r")).1, "200");
    assert_eq!(seen(&world, "POST /repos/"), 3);
    let request = post(&world, &proxy, "/repos/o/other");
    let third = held_request(&world);
    let rejected = command(&world, &["reject", third["id"].as_str().unwrap(), "--reason", "not on Fridays"]);
    assert!(rejected.status.success(), "{}", describe(&rejected));
    let (body, status) = ended(request);
    assert!(status == "403" && body.contains("a person rejected it: not on Fridays"), "{body}");
    let repeated = command(&world, &["approve", id]);
    assert_eq!(repeated.status.code(), Some(6));
    assert!(
        stderr(&repeated).contains("no request with the id") && stderr(&repeated).contains("hint: "),
        "{}",
        stderr(&repeated)
    );
    are_counted_and_audited(&world, &proxy, id);
    drop(proxy);
    let stopped = command(&world, &["held"]);
    assert!(
        stopped.status.code() == Some(7) && stderr(&stopped).contains("no proxy with a policy listens"),
        "{}",
        describe(&stopped)
    );
}

fn are_counted_and_audited(world: &World, proxy: &Proxy, id: &str) {
    let figures = stdout(&run(std::process::Command::new("curl").args(["-sS", &proxy.figures])));
    for line in [
        "bulla_intercept_proxy_held 0",
        "bulla_intercept_proxy_holds_total{outcome=\"approved\"} 2",
        "bulla_intercept_proxy_holds_total{outcome=\"rejected\"} 1",
    ] {
        assert!(figures.contains(line), "{line}: {figures}");
    }
    let audit = std::fs::read_to_string(world.fixture.path("audit.jsonl")).unwrap();
    assert!(!audit.contains("in-the-query") && !audit.contains("body-of-the-agent"), "{audit}");
    let events: Vec<Value> = audit.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of_first: Vec<_> = events.iter().filter(|event| event["details"]["hold"] == id).collect();
    assert_eq!(of_first.len(), 2, "{audit}");
    assert_eq!(
        (&of_first[0]["action"], &of_first[1]["action"]),
        (&"proxy.request.hold".into(), &"proxy.request.allow".into())
    );
    let own = format!("uid {}", rustix::process::geteuid().as_raw());
    assert!(of_first[1]["details"]["decided_by"].as_str().unwrap().contains(&own), "{audit}");
    let verified = world.verify();
    assert!(verified.status.success(), "{}", describe(&verified));
    let top = stdout(&command(world, &["top", "--once"]));
    assert_eq!(top.lines().count(), 4, "{top}");
    let first = top.lines().next().unwrap();
    assert!(first.contains("allow") && first.contains("(write, by ") && first.contains(&own), "{top}");
    assert!(top.lines().last().unwrap().contains("deny"), "{top}");
}

#[test]
fn rule_that_holds_needs_the_control_socket() {
    let world = World::new();
    let text = configuration(&world);
    let disabled = text.replacen("[proxy]\n", "[proxy]\ncontrol_socket = \"none\"\n", 1);
    std::fs::write(world.fixture.path("bulla.toml"), disabled).unwrap();
    let refused =
        crate::proxy::proxy_command(&world.fixture).args(["--config", "bulla.toml"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("proxy.control_socket is \"none\""), "{}", stderr(&refused));
    // Only the owner can open the socket. A second proxy needs its own.
    let first = world.start(&text);
    let socket = world.fixture.path("data/proxy.sock");
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&socket).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    let second =
        crate::proxy::proxy_command(&world.fixture).args(["--config", "bulla.toml"]).output().unwrap();
    assert!(!second.status.success() && stderr(&second).contains("proxy.sock"), "{}", describe(&second));
    assert!(stderr(&second).contains("set proxy.control_socket"), "{}", stderr(&second));
    drop(first);
}
