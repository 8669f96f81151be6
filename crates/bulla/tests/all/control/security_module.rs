//! A CA whose key is in a security module: SoftHSM, as packaged by Debian.

use serde_json::{Value, json};

use super::House;
use super::configured::request;
use crate::world::run;

const INSTALL: &str = "apt-get install -y softhsm2";
const PIN: &str = "1234";

fn module() -> &'static str {
    let paths = ["/usr/lib/softhsm/libsofthsm2.so", "/usr/lib64/softhsm/libsofthsm2.so"];
    let found = paths.into_iter().find(|path| std::path::Path::new(path).exists());
    found.unwrap_or_else(|| panic!("this test needs SoftHSM: {INSTALL}"))
}

/// Creates a token in the test folder, and a server that uses it.
fn house_with_token() -> House {
    let mut house = House::up();
    assert_eq!(house.stop(), Some(0));
    let tokens = house.path("tokens");
    std::fs::create_dir(&tokens).unwrap();
    let settings = format!(
        "directories.tokendir = {}\nobjectstore.backend = file\nlog.level = ERROR\n",
        tokens.display()
    );
    std::fs::write(house.path("softhsm2.conf"), settings).unwrap();
    let conf = house.path("softhsm2.conf").display().to_string();
    house.environment("SOFTHSM2_CONF", &conf);
    let variable = format!("SOFTHSM2_CONF={conf}");
    let init =
        ["softhsm2-util", "--init-token", "--free", "--label", "bulla", "--pin", PIN, "--so-pin", "5678"];
    let made = house.program("env", INSTALL, &[&[variable.as_str()], &init[..]].concat());
    assert!(made.status.success(), "{INSTALL}: {}", String::from_utf8_lossy(&made.stderr));
    std::fs::write(house.path("pin"), PIN).unwrap();
    let pin = house.path("pin").display().to_string();
    house.configure(&format!(
        "[pkcs11]\nmodule = {:?}\ntoken_label = \"bulla\"\npin_file = {pin:?}\n",
        module()
    ));
    house.start();
    house
}

#[test]
fn ca_on_a_pkcs11_token_issues_and_recovers_after_token_absence() {
    let mut house = house_with_token();
    let ca = [
        "ca",
        "create",
        "hsm",
        "--subject",
        "CN=On the token",
        "--parent",
        "root",
        "--key-provider",
        "pkcs11",
    ];
    house.json(&ca);
    let mut profile = house.json(&["profile", "show", "default"]);
    for member in ["created_at", "updated_at", "revision"] {
        profile.as_object_mut().unwrap().remove(member);
    }
    profile["name"] = json!("hsm");
    profile["ca"] = json!("hsm");
    std::fs::write(house.path("profile.json"), profile.to_string()).unwrap();
    house.does(&["profile", "create", "--file", "profile.json"]);
    request(&house, "leaf", "subjectAltName=DNS:leaf.example");
    let issue = ["cert", "issue", "--csr", "leaf.csr", "--profile", "hsm", "--file", "leaf.pem"];
    house.does(&issue);
    let root = house.root().display().to_string();
    house.openssl(&["verify", "-CAfile", &root, "-untrusted", "leaf.pem", "leaf.pem"]);
    assert!(house.openssl(&["x509", "-in", "leaf.pem", "-noout", "-issuer"]).contains("On the token"));

    // Without the token, issuance fails and other requests work. SoftHSM finds a removed token again only after a reload, so the
    // token is used again after the next start. There the key is found by its locator.
    let tokens = house.path("tokens");
    std::fs::rename(&tokens, house.path("away")).unwrap();
    request(&house, "second", "subjectAltName=DNS:second.example");
    let second = ["cert", "issue", "--csr", "second.csr", "--profile", "hsm", "--file", "second.pem"];
    let refused = run(&mut house.bulla(&second));
    assert_ne!(refused.status.code(), Some(0), "the token is away");
    house.does(&["profile", "list"]);
    std::fs::rename(house.path("away"), &tokens).unwrap();
    assert_eq!(house.stop(), Some(0));
    house.start();
    house.does(&second);
    house.openssl(&["verify", "-CAfile", &root, "-untrusted", "second.pem", "second.pem"]);
    let cas: Value = house.json(&["ca", "show", "hsm"]);
    assert_eq!(cas["state"], "active");
}

#[test]
fn master_key_moves_into_the_pkcs11_module_and_back() {
    let mut house = house_with_token();
    let base = std::fs::read_to_string(house.path("bulla.toml")).unwrap();
    let pkcs11 = base[base.find("[pkcs11]").unwrap()..].to_owned();
    let file = house.path("data/master.key").display().to_string();
    let wrapped = house.path("wrapped").display().to_string();
    let module =
        |label: &str| format!("{{ pkcs11 = {{ key_label = {label:?}, wrapped_file = {wrapped:?} }} }}");
    let restarted = |house: &mut House, authority: &str| {
        assert_eq!(house.stop(), Some(0));
        house.configure(&format!("{pkcs11}[authority]\n{authority}"));
        house.start();
    };
    house.does(&["credential", "generate", "/one"]);
    let value = house.json(&["credential", "get", "/one"])["value"].clone();
    let to = format!("master_key = {}\nold_master_key_files = [{file:?}]\n", module("kek"));
    restarted(&mut house, &to);
    assert_eq!(house.json(&["key", "rotate"])["remaining"], 0);
    restarted(&mut house, &format!("master_key = {}\n", module("kek")));
    assert_eq!(house.json(&["credential", "get", "/one"])["value"], value);
    // Another key of the module cannot decrypt the file.
    assert_eq!(house.stop(), Some(0));
    house.configure(&format!("{pkcs11}[authority]\nmaster_key = {}\n", module("another")));
    let message = house.try_start().unwrap_err();
    assert!(message.contains("no AES key \"another\" found") && message.contains("hint:"), "{message}");
    house.configure(&format!("{pkcs11}[authority]\nmaster_key = {}\n", module("kek")));
    house.start();
    let back = format!("master_key_file = {file:?}\nold_master_keys = [{}]\n", module("kek"));
    restarted(&mut house, &back);
    assert_eq!(house.json(&["key", "rotate"])["remaining"], 0);
    restarted(&mut house, &format!("master_key_file = {file:?}\n"));
    assert_eq!(house.json(&["credential", "get", "/one"])["value"], value);
}
