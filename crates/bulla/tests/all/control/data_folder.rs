//! The data folder: access to the master key and the admin token.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::House;
use super::credential_socket::BackgroundProcess;
use crate::world::{run, stderr};

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().permissions().mode() & 0o7777
}

#[test]
fn startup_is_refused_when_keys_or_tokens_are_readable_by_others() {
    let mut house = House::up();
    let folder = house.path("data");
    let (key, token) = (folder.join("master.key"), folder.join("admin.token"));
    assert_eq!((mode(&folder), mode(&key), mode(&token)), (0o700, 0o600, 0o600), "as they are made");
    assert_eq!(house.stop(), Some(0));
    for (path, open, closed) in [
        (&folder, 0o722, 0o700),
        (&folder, 0o770, 0o700),
        (&token, 0o644, 0o600),
        (&token, 0o640, 0o600),
        (&key, 0o644, 0o600),
        (&key, 0o640, 0o600),
    ] {
        set_mode(path, open);
        let refused = run(&mut house.bulla(&["up"]));
        let printed = stderr(&refused);
        assert_eq!(refused.status.code(), Some(5), "{open:o} {printed}");
        assert!(printed.contains(&format!("run: chmod {closed:o} {}", path.display())), "{open:o} {printed}");
        set_mode(path, closed);
    }
    house.start();
}

#[test]
fn second_server_on_a_data_folder_is_refused_and_changes_no_address() {
    let house = House::up();
    let files = ["server.url", "credentials.url"];
    let read = || files.map(|name| std::fs::read_to_string(house.path("data").join(name)).unwrap());
    let before = read();
    let mut second = house.bulla(&["up", "--roles", "server", "--listen", "127.0.0.1:0"]);
    second.args(["--public-listen", "127.0.0.1:0", "--credential-listen", "127.0.0.1:0"]);
    let mut second = BackgroundProcess::start(second);
    let has_printed = |text: &str| second.printed().contains(text);
    house.until("a refusal", || has_printed("hint: ") || has_printed("bulla is up"));
    let printed = second.printed();
    assert!(!printed.contains("bulla is up"), "{printed}");
    assert_eq!(second.ended(), Some(5), "{printed}");
    let folder = house.path("data");
    let expected =
        format!("another bulla (process {}) runs with the data folder {}", house.process(), folder.display());
    assert!(printed.contains(&expected), "{printed}");
    assert_eq!(read(), before);
    house.does(&["cert", "list"]);
}

#[test]
fn first_start_prints_once_how_to_move_the_master_key() {
    let mut house = House::prepared("", None);
    let printed = first_words(&house);
    let key = house.path("data/master.key").display().to_string();
    for expected in
        ["the master key is ", &key, "systemd-creds encrypt", "PKCS#11", "#move-the-master-key-out"]
    {
        assert!(printed.contains(expected), "{expected}: {printed}");
    }
    let page =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/control-plane.md"));
    assert!(page.unwrap().contains("\n### Move the master key out\n"), "the page that it names");
    house.start();
    house.stop();
    assert!(!first_words(&house).contains("systemd-creds"), "once");
}

/// Returns the server's output until it is up.
fn first_words(house: &House) -> String {
    use std::io::{BufRead, BufReader};
    let mut child = house.bulla(&["up"]).stderr(std::process::Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    let mut printed = Vec::new();
    for line in lines {
        let up = line.contains(" is up at ");
        printed.push(line);
        if up {
            break;
        }
    }
    child.kill().unwrap();
    child.wait().unwrap();
    printed.join("\n")
}
