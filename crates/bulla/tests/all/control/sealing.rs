//! The master key as operators see it: its sources, a wrong key, a missing key, and the state after a crash.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::House;
use crate::world::{describe, run};

const VALUE: &str = "canary-5e1d77";

fn set(house: &House, name: &str) {
    let file = private(house, "value", VALUE.as_bytes());
    house.does(&["credential", "set", name, "--type", "password", "--file", &file]);
}

fn reads(house: &House, name: &str) {
    let output = house.does(&["credential", "get", name, "--value"]);
    assert_eq!(String::from_utf8(output.stdout).unwrap().trim_end(), VALUE, "{name}");
}

/// Creates a file that only its owner can read.
fn private(house: &House, name: &str, content: &[u8]) -> String {
    let path = house.path(name);
    fs::write(&path, content).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    path.display().to_string()
}

fn restarted(house: &mut House, configuration: &str) {
    assert_eq!(house.stop(), Some(0));
    house.configure(configuration);
    house.start();
}

/// Rotates completely. Returns the number of re-wrapped values.
fn rotated(house: &House) -> u64 {
    let done = house.json(&["key", "rotate"]);
    assert_eq!((&done["remaining"], &done["failed"]), (&json!(0), &json!([])), "{done}");
    let columns = done["columns"].as_array().unwrap();
    let sum: u64 = columns.iter().map(|column| column["rewrapped"].as_u64().unwrap()).sum();
    assert_eq!(sum, done["rewrapped"].as_u64().unwrap(), "{done}");
    sum
}

#[test]
fn master_key_moves_from_file_to_passphrase_and_back() {
    let mut house = House::up();
    set(&house, "/one");
    let file = house.path("data/master.key").display().to_string();
    let passphrase = private(&house, "passphrase", b"correct horse battery staple\n");
    let parameters = house.path("parameters").display().to_string();
    let of =
        |path: &str| format!("{{ passphrase = {{ file = {path:?}, parameters_file = {parameters:?} }} }}");
    let to = format!("[authority]\nmaster_key = {}\nold_master_key_files = [{file:?}]\n", of(&passphrase));
    restarted(&mut house, &to);
    let check = house.does(&["config", "check"]);
    let message = String::from_utf8(check.stdout).unwrap();
    assert!(
        message.contains("the master key: a passphrase with") && message.contains("a previous one: the file"),
        "{message}"
    );
    set(&house, "/two");
    reads(&house, "/one");
    let status = house.json(&["key", "status"]);
    let keys = status["keys"].as_array().unwrap();
    assert_eq!(
        (keys.len(), &keys[0]["current"], &keys[1]["configured"]),
        (2, &json!(true), &json!(true)),
        "{status}"
    );
    assert_eq!(status["remaining"], keys[1]["values"], "{status}");
    // The server may create a key meanwhile, such as the key of its OCSP responder.
    let columns = status["keys"][0]["columns"].as_array().unwrap();
    assert!(columns.contains(&json!({ "column": "credential_versions.sealed", "values": 1 })), "{status}");
    assert_eq!(rotated(&house), status["remaining"].as_u64().unwrap());
    assert_eq!(house.json(&["key", "status"])["remaining"], 0);
    // The file is no longer needed, and no longer works.
    restarted(&mut house, &format!("[authority]\nmaster_key = {}\n", of(&passphrase)));
    reads(&house, "/one");
    reads(&house, "/two");
    assert_eq!(house.stop(), Some(0));
    let other = private(&house, "other", b"incorrect horse battery\n");
    house.configure(&format!("[authority]\nmaster_key = {}\n", of(&other)));
    let message = house.try_start().unwrap_err();
    assert!(
        message.contains("was created with another passphrase") && message.contains("hint:"),
        "{message}"
    );
    // Back again, the passphrase now from the environment.
    house.environment("HOUSE_PASSPHRASE", "correct horse battery staple");
    let variable =
        format!("{{ passphrase = {{ variable = \"HOUSE_PASSPHRASE\", parameters_file = {parameters:?} }} }}");
    house.configure(&format!("[authority]\nmaster_key_file = {file:?}\nold_master_keys = [{variable}]\n"));
    house.start();
    reads(&house, "/two");
    assert!(rotated(&house) >= 4);
    restarted(&mut house, &format!("[authority]\nmaster_key_file = {file:?}\n"));
    reads(&house, "/one");
}

#[test]
fn master_key_program_runs_once_per_start() {
    let mut house = House::prepared("", None);
    let kek = private(&house, "kek", b"0123456789abcdef");
    let runs = house.path("runs").display().to_string();
    let script = format!(
        "#!/bin/sh\necho $1 >> {runs}\ncase $1 in wrap) mode=-e;; unwrap) mode=-d;; esac\n\
         exec openssl enc -aes-256-cbc -pbkdf2 $mode -pass file:{kek}\n"
    );
    let program = private(&house, "custody", script.as_bytes());
    fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).unwrap();
    let wrapped = house.path("wrapped").display().to_string();
    let of = |program: &str, seconds: u32| {
        format!(
            "[authority]\nmaster_key = {{ program = {{ command = [{program:?}], wrapped_file = {wrapped:?}, timeout_s = \
             {seconds} }} }}\n"
        )
    };
    house.configure(&of(&program, 60));
    house.start();
    for number in 0..5 {
        set(&house, &format!("/n/{number}"));
        reads(&house, &format!("/n/{number}"));
    }
    let calls = || fs::read_to_string(&runs).unwrap().split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(calls(), "wrap unwrap unwrap", "made, held against what comes back, and opened");
    restarted(&mut house, &of(&program, 60));
    reads(&house, "/n/3");
    assert_eq!(calls(), "wrap unwrap unwrap unwrap");
    assert_eq!(house.stop(), Some(0));
    assert!(!house.path("data/master.key").exists());
    // The program fails, hangs, or returns a wrong key.
    for (script, seconds, expected) in [
        ("echo the vault is shut >&2; exit 3", 60, "unwrap exited with 3: the vault is shut"),
        ("exec sleep 600", 1, "timed out while"),
        ("exec head -c 32 /dev/zero", 60, "returned a master key other than the one for"),
        ("exit 0", 60, "wrote 0 bytes"),
    ] {
        let bad = private(&house, "bad", format!("#!/bin/sh\n{script}\n").as_bytes());
        fs::set_permissions(&bad, fs::Permissions::from_mode(0o700)).unwrap();
        house.configure(&of(&bad, seconds));
        let message = house.try_start().unwrap_err();
        assert!(message.contains(expected) && message.contains("hint:"), "{script}: {message}");
    }
    house.configure(&of(&program, 60));
    house.start();
    reads(&house, "/n/4");
}

/// A rejected start must not change the data.
fn refuses_a_wrong_key(house: &mut House, dump: impl Fn(&House) -> Vec<u8>) {
    set(house, "/one");
    let status = house.json(&["key", "status"]);
    let right = status["current"].as_str().unwrap().to_owned();
    assert_eq!(house.stop(), Some(0));
    let before = dump(house);
    assert!(before.len() > 10_000, "{} octets", before.len());
    let wrong = private(house, "wrong.key", &[7; 32]);
    house.configure(&format!("[authority]\nmaster_key_file = {wrong:?}\n"));
    let message = house.try_start().unwrap_err();
    for part in [&format!("encrypted with the master key {right}, but "), "nothing was written", "hint:"] {
        assert!(message.contains(part), "{part}: {message}");
    }
    assert!(dump(house) == before, "the database was changed");
    house.configure("");
    house.start();
    reads(house, "/one");
}

#[test]
fn wrong_master_key_is_rejected_and_writes_nothing() {
    refuses_a_wrong_key(&mut House::up(), |house| {
        store::testing::rows_of(&house.path("data/inventory.db")).into_bytes()
    });
}

#[test]
fn wrong_master_key_is_rejected_and_writes_nothing_on_postgresql() {
    let cluster = store::testing::Cluster::start();
    let url = cluster.database().to_string();
    let mut house = House::up_with("", Some(url.clone()));
    refuses_a_wrong_key(&mut house, |house| {
        // Dumps every table. psql's session keys are left out, because they differ in each dump.
        let output = house.program("pg_dump", "apt-get install -y postgresql-client", &["--data-only", &url]);
        assert!(output.status.success(), "{}", describe(&output));
        let text = String::from_utf8(output.stdout).unwrap();
        let lines =
            text.lines().filter(|line| !line.starts_with("\\restrict") && !line.starts_with("\\unrestrict"));
        lines.collect::<Vec<_>>().join("\n").into_bytes()
    });
}

/// Starts a server that may dump core, and kills it with SIGABRT. Returns whether there is a core dump.
fn dumps(house: &House, core_dumps: &str) -> bool {
    let folder = house.path("cores");
    fs::create_dir_all(&folder).unwrap();
    let (log, plain) = (house.path("log"), house.bulla(&["up"]));
    let mut shell = Command::new("sh");
    shell.args(["-c", "ulimit -c unlimited && exec \"$0\" up"]).arg(plain.get_program());
    shell.envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
    shell.env("BULLA_SERVER_CORE_DUMPS", core_dumps).current_dir(&folder);
    let mut server = shell.stdout(Stdio::null()).stderr(fs::File::create(&log).unwrap()).spawn().unwrap();
    house.until("the server", || fs::read_to_string(&log).unwrap().contains("bulla is up"));
    reads(house, "/planted");
    let limits = fs::read_to_string(format!("/proc/{}/limits", server.id())).unwrap();
    let cores = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
    let none = cores.split_whitespace().filter(|word| *word == "0").count() == 2;
    assert_eq!(none, core_dumps == "false", "{cores}");
    assert!(Command::new("kill").args(["-ABRT", &server.id().to_string()]).status().unwrap().success());
    let status = server.wait().unwrap();
    assert_eq!(status.signal(), Some(6), "{status}");
    let images: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    for image in &images {
        assert!(status.core_dumped(), "{image:?}");
        fs::remove_file(image).unwrap();
    }
    status.core_dumped()
}

#[test]
fn crash_writes_no_core_dump_unless_configured() {
    let mut house = House::up();
    set(&house, "/planted");
    assert_eq!(house.stop(), Some(0));
    assert!(!dumps(&house, "false"), "an image is there");
    // Checks whether this machine writes core dumps at all.
    let mut plain = Command::new("sh");
    plain.args(["-c", "ulimit -c unlimited && kill -ABRT $$"]).current_dir(house.path("cores"));
    let images = plain.status().unwrap().core_dumped();
    assert_eq!(
        dumps(&house, "true"),
        images,
        "where the machine makes images, there is one when it is asked for"
    );
}

#[test]
fn missing_master_key_is_logged_with_its_value_count() {
    let mut house = House::up();
    let first = house.path("data/master.key").display().to_string();
    let second = private(&house, "second.key", &[9; 32]);
    let keys = |current: &str, older: &[&str]| {
        format!("[authority]\nmaster_key_file = {current:?}\nold_master_key_files = {older:?}\n")
    };
    restarted(&mut house, &keys(&second, &[&first]));
    for number in 0..3 {
        set(&house, &format!("/n/{number}"));
    }
    let of_second = house.json(&["key", "status"])["current"].as_str().unwrap().to_owned();
    assert_eq!(house.stop(), Some(0));
    house.configure(&keys(&first, &[]));
    let log = fs::File::create(house.path("log")).unwrap();
    let mut server = house.bulla(&["up", "--log-json"]).stdout(Stdio::null()).stderr(log).spawn().unwrap();
    let log_text = || fs::read_to_string(house.path("log")).unwrap();
    let message = "with a master key that is not configured";
    house.until("the log", || log_text().contains(message));
    let line = log_text().lines().find(|line| line.contains(message)).unwrap().to_owned();
    let line: Value = serde_json::from_str(&line).unwrap();
    // The three credentials, and keys of OCSP responders if the second start generated them. The third start generates others.
    let counted = |values: &Value| values.as_u64().is_some_and(|values| (3..=5).contains(&values));
    assert!(line["fields"]["master_key"] == of_second && counted(&line["fields"]["values"]), "{line}");
    let status = house.json(&["key", "status"]);
    let missing: Vec<&Value> =
        status["keys"].as_array().unwrap().iter().filter(|key| key["configured"] == false).collect();
    assert_eq!((missing.len(), &missing[0]["id"]), (1, &json!(of_second)), "{status}");
    assert!(counted(&missing[0]["values"]), "{status}");
    let refused = run(&mut house.bulla(&["credential", "get", "/n/1"]));
    assert_eq!(refused.status.code(), Some(7), "{}", describe(&refused));
    assert!(Command::new("kill").arg(server.id().to_string()).status().unwrap().success());
    server.wait().unwrap();
    house.configure(&keys(&first, &[&second]));
    house.start();
    reads(&house, "/n/1");
    assert!(rotated(&house) >= 3);
}
