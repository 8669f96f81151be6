//! Programs other than Rust that building and testing need, and their Debian packages.

use crate::shell::{self, Failure, cargo, command, is_installed, output_of};

/// Programs, and the Debian or Ubuntu packages that contain them.
const PACKAGES: &[(&str, &[&str])] = &[
    ("cc", &["gcc", "libc6-dev"]),
    // libFuzzer's runtime is written in C++.
    ("c++", &["g++"]),
    ("openssl", &["openssl"]),
    ("curl", &["curl", "ca-certificates"]),
    ("pg_dump", &["postgresql-client"]),
    // Clients and servers for the tests.
    ("certbot", &["certbot"]),
    ("nginx", &["nginx-light"]),
    ("haproxy", &["haproxy"]),
    ("apache2", &["apache2"]),
    ("caddy", &["caddy"]),
    ("named", &["bind9"]),
    ("dig", &["bind9-dnsutils"]),
    ("getcert", &["certmonger", "dbus"]),
    ("redis-server", &["redis-server"]),
    ("redis-cli", &["redis-tools"]),
    ("nft", &["nftables"]),
    ("ip", &["iproute2"]),
    ("nsenter", &["util-linux"]),
    ("script", &["bsdutils"]),
    ("softhsm2-util", &["softhsm2"]),
    ("swtpm", &["swtpm", "swtpm-tools"]),
    ("tpm2_unseal", &["tpm2-tools"]),
];

/// Folder of PostgreSQL's server programs in Debian, with one subfolder per version.
const POSTGRES: &str = "/usr/lib/postgresql";

/// Rust components, and the cargo subcommand that shows whether each is installed.
const COMPONENTS: &[(&str, &str)] = &[("rustfmt", "fmt"), ("clippy", "clippy")];

/// Installs missing packages and components. Does nothing if all are installed.
///
/// # Errors
/// A package is missing and cannot be installed: no `apt-get`, not root and no `sudo`, or `apt-get` failed.
pub(crate) fn run() -> Result<(), Failure> {
    install(&missing())?;
    for (component, subcommand) in COMPONENTS {
        if output_of(&mut cargo(&[subcommand, "--version"])).is_none() {
            shell::run(command("rustup").args(["component", "add", component]))?;
        }
    }
    Ok(())
}

fn missing() -> Vec<&'static str> {
    let absent = PACKAGES.iter().filter(|(program, _)| !is_installed(program));
    let mut packages: Vec<&str> = absent.flat_map(|(_, packages)| packages.iter().copied()).collect();
    if !has_postgres() {
        packages.push("postgresql");
    }
    packages
}

fn has_postgres() -> bool {
    let versions = std::fs::read_dir(POSTGRES).into_iter().flatten().flatten();
    is_installed("initdb")
        || versions.map(|version| version.path()).any(|version| version.join("bin/initdb").is_file())
}

fn install(packages: &[&str]) -> Result<(), Failure> {
    if packages.is_empty() {
        return Ok(());
    }
    let by_hand = format!("apt-get install -y {}", packages.join(" "));
    if !is_installed("apt-get") {
        return Err(Failure::Program(format!(
            "this machine has no apt-get; install what these Debian packages bring: {}",
            packages.join(" ")
        )));
    }
    println!("installing {}", packages.join(" "));
    apt_get(&["update", "-q"], &by_hand)?;
    let options = ["install", "-q", "-y", "--no-install-recommends"];
    apt_get(&[&options[..], packages].concat(), &by_hand)
}

/// Runs `apt-get` as root: directly, or with `sudo`.
fn apt_get(arguments: &[&str], by_hand: &str) -> Result<(), Failure> {
    let program = if is_root() { "env" } else { "sudo" };
    let mut command = command(program);
    if program == "sudo" {
        command.arg("env");
    }
    command.args(["DEBIAN_FRONTEND=noninteractive", "apt-get"]).args(arguments);
    shell::run(&mut command).map_err(|failure| Failure::Program(format!("{failure}; as root: {by_hand}")))
}

fn is_root() -> bool {
    output_of(command("id").arg("-u")).is_some_and(|id| id.trim() == "0")
}
