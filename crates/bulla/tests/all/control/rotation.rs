//! Rotation, one-time reads and the list of readers, as users see them.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use serde_json::{Value, json};

use super::House;
use crate::world::{describe, run};

/// A request received by a hook: headers and exact body. The response is sent when it is dropped.
struct Post {
    timestamp: String,
    signature: String,
    body: String,
    _unanswered: Sender<()>,
}

/// Starts a hook service that answers with the statuses in turn, and repeats the last one. It ends with the process.
fn service(statuses: &'static [u16]) -> (String, Receiver<Post>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    let (sender, posts) = channel();
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let mut stream = BufReader::new(stream.unwrap());
            let (mut length, mut timestamp, mut signature) = (0, String::new(), String::new());
            loop {
                let mut line = String::new();
                stream.read_line(&mut line).unwrap();
                let Some((name, value)) = line.trim().split_once(": ") else {
                    if line.trim().is_empty() {
                        break;
                    }
                    continue;
                };
                match name.to_ascii_lowercase().as_str() {
                    "content-length" => length = value.parse().unwrap(),
                    "x-bulla-timestamp" => timestamp = value.to_owned(),
                    "x-bulla-signature" => signature = value.to_owned(),
                    _ => {}
                }
            }
            let mut body = vec![0; length];
            stream.read_exact(&mut body).unwrap();
            let status = statuses[number.min(statuses.len() - 1)];
            let (unanswered, dropped) = channel::<()>();
            let body = String::from_utf8(body).unwrap();
            if sender.send(Post { timestamp, signature, body, _unanswered: unanswered }).is_err() {
                return;
            }
            // Nothing is ever sent on this channel.
            let _ = dropped.recv();
            let answer = format!("HTTP/1.1 {status} x\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
            // The client may have given up.
            let _ = stream.get_mut().write_all(answer.as_bytes());
        }
    });
    (url, posts)
}

const SECRET: &str = "0123456789abcdef-secret";

/// Verifies the signature as the hook service does, with openssl.
fn signed(house: &House, post: &Post) -> bool {
    std::fs::write(house.path("signed"), format!("{}.{}", post.timestamp, post.body)).unwrap();
    let printed = house.openssl(&["dgst", "-sha256", "-hmac", SECRET, "-r", "signed"]);
    post.signature == format!("v1={}", printed.split(' ').next().unwrap())
}

#[test]
fn rotation_calls_the_hook_before_and_after_the_change() {
    let house = House::up();
    let (url, posts) = service(&[500, 200]);
    std::fs::write(house.path("secret"), SECRET).unwrap();
    let hook = ["credential", "rotation", "hook", "set", "ops", "--url", &url, "--secret-file", "secret"];
    house.does(&[&hook[..], &["--before"]].concat());
    let set = ["credential", "rotation", "set", "/team/*", "--every", "30d", "--hook", "ops"];
    assert_eq!(house.json(&set)["every_s"], 30 * 86_400);
    let first = house.json(&["credential", "generate", "/team/db"]);
    let now = house.json(&["credential", "rotation", "now", "/team/db"]);
    assert_eq!(now["due"], 1);
    // The hook is called before the change, with a token for the new value, and rejects it.
    let request = posts.recv_timeout(Duration::from_secs(60)).unwrap();
    assert!(signed(&house, &request));
    let body: Value = serde_json::from_str(&request.body).unwrap();
    assert_eq!((&body["event"], &body["name"]), (&json!("credential.rotation_proposed"), &json!("/team/db")));
    let token = body["token"].as_str().unwrap().to_owned();
    let candidate = house.json(&["credential", "unwrap", &token])["value"].clone();
    drop(request);
    let due = || house.json(&["credential", "rotation", "due", "/team/*"])["rows"][0].clone();
    house.until("the refusal", || due()["failures"] == 1);
    assert!(due()["error"].as_str().unwrap().contains("500"), "{}", due());
    let get = || house.json(&["credential", "get", "/team/db"]);
    assert_eq!(get()["id"], first["id"]);
    assert_ne!(get()["value"], candidate);
    // The second call accepts, and a call after the change follows.
    house.does(&["credential", "rotation", "now", "/team/db"]);
    let request = posts.recv_timeout(Duration::from_secs(60)).unwrap();
    assert!(signed(&house, &request));
    let body: Value = serde_json::from_str(&request.body).unwrap();
    let unread = body["token"].as_str().unwrap().to_owned();
    drop(request);
    let reported = posts.recv_timeout(Duration::from_secs(60)).unwrap();
    assert!(signed(&house, &reported));
    // A value that was not read before the change can no longer be read.
    let late = run(&mut house.bulla(&["credential", "unwrap", &unread]));
    assert_eq!(late.status.code(), Some(6), "{}", describe(&late));
    let body: Value = serde_json::from_str(&reported.body).unwrap();
    assert_eq!(body["event"], "credential.rotated");
    assert_eq!(body["version"], get()["id"]);
    assert!(!reported.body.contains(get()["value"].as_str().unwrap()));
    drop(reported);
    house.until("the plan", || due()["failures"] == 0 && due()["set_by_hand"] == false);
    let used = run(&mut house.bulla(&["credential", "rotation", "hook", "remove", "ops"]));
    assert_eq!(used.status.code(), Some(6), "{}", describe(&used));
    assert_eq!(house.json(&["credential", "rotation", "list"])["rows"][0]["hook"], "ops");
    house.does(&["credential", "rotation", "remove", "/team/*"]);
    house.does(&["credential", "rotation", "hook", "remove", "ops"]);
    let figures = house.does(&["api", "/metrics"]);
    let figures = String::from_utf8(figures.stdout).unwrap();
    for figure in [
        "bulla_credential_rotations_total{outcome=\"rotated\"} 1",
        "bulla_credential_rotations_total{outcome=\"failed\"} 1",
        "bulla_credential_hook_calls_total{outcome=\"acknowledged\"} 1",
    ] {
        assert!(figures.contains(figure), "{figure} is not in {figures}");
    }
}

#[test]
fn wrapped_value_is_read_once_and_readers_are_listed_with_reason() {
    let house = House::up();
    house.does(&["credential", "generate", "/team/db"]);
    let value = house.json(&["credential", "get", "/team/db"])["value"].as_str().unwrap().to_owned();
    let wrapped = house.json(&["credential", "wrap", "/team/db", "--ttl", "5m"]);
    let token = wrapped["token"].as_str().unwrap();
    // The token alone is sufficient.
    let url = std::fs::read_to_string(house.path("data/credentials.url")).unwrap();
    let (url, root) = (format!("{}/api/v1/unwrap", url.trim()), house.root().display().to_string());
    let body = json!({ "token": token }).to_string();
    let curl = || {
        let arguments = ["-s", "--cacert", &root, "-H", "content-type: application/json", "-d", &body, &url];
        let output = house.program("curl", "apt-get install -y curl", &arguments);
        serde_json::from_slice::<Value>(&output.stdout).unwrap()
    };
    let read = curl();
    assert_eq!(
        (read["value"].as_str(), &read["wrapped_by"]),
        (Some(&*value), &json!("uaa-client:first-admin"))
    );
    assert!(curl()["error"].as_str().unwrap().contains("was read at"), "{}", curl());
    let repeated = run(&mut house.bulla(&["credential", "unwrap", token, "--value"]));
    assert_eq!(repeated.status.code(), Some(6), "{}", describe(&repeated));
    let reported = String::from_utf8_lossy(&repeated.stderr).into_owned();
    assert!(reported.contains("was read at") && reported.contains("address:127.0.0.1"), "{reported}");
    // The list shows readers, their permission, and changes since a time.
    house.does(&["token", "create", "ci", "--role", "viewer"]);
    house.does(&["credential", "permission", "grant", "uaa-client:ci", "/team/*", "read"]);
    let who = ["credential", "permission", "who", "/team/db"];
    let rows = house.json(&who)["rows"].as_array().unwrap().clone();
    let reported: Vec<(&str, &str)> = rows
        .iter()
        .map(|row| {
            let why = row["path"].as_str().or(row["role"].as_str());
            (row["actor"].as_str().unwrap(), why.unwrap())
        })
        .collect();
    assert_eq!(reported, [("uaa-client:ci", "/team/*"), ("uaa-client:first-admin", "admin")]);
    assert_eq!(rows[0]["given_by"], "uaa-client:first-admin");
    let rows = house.json(&[&who[..], &["--compared-with", "/other"]].concat())["rows"].clone();
    assert_eq!((rows.as_array().unwrap().len(), &rows[0]["actor"]), (1, &json!("uaa-client:ci")));
    house.does(&["credential", "permission", "revoke", "uaa-client:ci", "/team/*"]);
    let rows = house.json(&[&who[..], &["--since", "1h"]].concat())["rows"].clone();
    assert_eq!((&rows[0]["change"], &rows[1]["change"]), (&json!("gained"), &json!("lost")));
    assert_eq!(rows[1]["by"], "uaa-client:first-admin");
}
