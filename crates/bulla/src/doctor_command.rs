//! `bulla doctor`: checks this machine, the configuration and the server, and gives advice on each problem.

use std::path::Path;
use std::time::Duration;

use clap::Args;
use cli::GlobalArgs;
use cli::columns;
use cli::connection::{Client, Columns, Output, ServerArgs, document_of, local, print_rows};
use cli::exit::{Exit, Outcome, Problem, chain};
use outbound::resolve::{Families, Resolver};
use serde::Serialize;
use serde_json::Value;
use store::{Store, StoreUrl};

use crate::component::Description;
use crate::config::{Configuration, Role, Settings};
use crate::data_folder;
use crate::listening::socket;
use crate::master_keys;
use crate::role_files::{self, ProcessRoles};

/// Number of file descriptors below which a server or a scan of a large network is slow.
const DESCRIPTORS_WANTED: usize = 8_192;
/// Maximum difference between the clocks of this machine and the server, in seconds. Certificates are valid from one minute before
/// they are issued.
const CLOCK_WITHIN_SECONDS: i64 = 30;
/// Timeout for connecting to one role of a process on this host.
const ROLE_WITHIN: Duration = Duration::from_secs(2);
/// Timeout for resolving one name.
const RESOLVE_WITHIN: Duration = Duration::from_secs(5);

/// Arguments of `bulla doctor`.
#[derive(Args, Debug)]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    show: Output,
}

/// Result of one check of `bulla doctor`.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    Ok,
    Warning,
    Failed,
    /// There was nothing to check.
    Skipped,
}

/// A check as a row of the table.
#[derive(Debug, Serialize)]
struct Check {
    check: &'static str,
    state: State,
    found: String,
    advice: String,
}

const COLUMNS: Columns = columns!(
    Check:
    ("Check", check),
    ("State", state),
    ("Found", found),
    ("What to do", advice),
);

impl Check {
    fn new(check: &'static str, state: State, found: impl Into<String>) -> Self {
        Self { check, state, found: found.into(), advice: String::new() }
    }

    fn with_advice(mut self, advice: impl Into<String>) -> Self {
        self.advice = advice.into();
        self
    }

    /// Creates a failed check. The hint of `problem` is the advice.
    fn failed(check: &'static str, problem: Problem) -> Self {
        Self::new(check, State::Failed, problem.message).with_advice(problem.hint.unwrap_or_default())
    }
}

/// Runs `bulla doctor`. The exit code is 1 if a check failed.
pub(crate) async fn run(args: &DoctorArgs, global: &GlobalArgs) -> Outcome<Exit> {
    let mut checks = vec![descriptors(), roots(), data()];
    match Configuration::load(global.config.as_deref()) {
        Err(problem) => checks.push(Check::failed("configuration", problem)),
        Ok(configuration) => {
            let read = configuration.file().map(|path| path.display().to_string());
            let read = read
                .unwrap_or_else(|| "no configuration file: defaults and the environment apply".to_owned());
            checks.push(Check::new("configuration", State::Ok, read));
            let settings = &configuration.settings;
            checks.extend([master_key(settings), database(settings).await]);
            checks.extend(server(args, settings).await);
        }
    }
    checks.extend(roles().await);
    let failed = checks.iter().any(|check| check.state == State::Failed);
    print(&checks, &args.show)?;
    Ok(if failed { Exit::Findings } else { Exit::Ok })
}

fn print(checks: &[Check], show: &Output) -> Outcome<()> {
    let rows = checks.iter().map(document_of).collect::<Outcome<Vec<_>>>()?;
    print_rows(rows, COLUMNS, show)
}

fn descriptors() -> Check {
    let budget = outbound::limits::descriptor_budget();
    let found = format!("{budget} concurrent sockets");
    if budget >= DESCRIPTORS_WANTED {
        return Check::new("open files", State::Ok, found);
    }
    Check::new("open files", State::Warning, found)
        .with_advice("raise the limit: `ulimit -n 65536`, or LimitNOFILE=65536 in the systemd unit")
}

fn roots() -> Check {
    match outbound::tls::system_roots().len() {
        0 => Check::new("trust store", State::Warning, "this system has no root certificates")
            .with_advice("install the package ca-certificates"),
        count => Check::new("trust store", State::Ok, format!("{count} root certificates")),
    }
}

fn data() -> Check {
    const CHECK: &str = "data folder";
    let folder = match cli::data::folder() {
        Ok(folder) => folder,
        Err(problem) => return Check::failed(CHECK, problem),
    };
    let shown = folder.display().to_string();
    if !folder.exists() {
        return Check::new(CHECK, State::Skipped, format!("{shown} is created by the first start"));
    }
    match data_folder::check() {
        Ok(()) => Check::new(CHECK, State::Ok, shown),
        Err(problem) => Check::failed(CHECK, problem),
    }
}

fn master_key(settings: &Settings) -> Check {
    const CHECK: &str = "master key";
    match master_keys::described(&settings.authority) {
        Ok(lines) if lines.is_empty() => Check::new(CHECK, State::Ok, "in the data folder").with_advice(
            "for production, store it elsewhere: see docs/control-plane.md#move-the-master-key-out",
        ),
        Ok(lines) => Check::new(CHECK, State::Ok, lines.join("; ")),
        Err(problem) => Check::failed(CHECK, problem),
    }
}

async fn database(settings: &Settings) -> Check {
    const CHECK: &str = "database";
    if settings.store.url.is_empty() {
        return match cli::data::folder().map(|folder| folder.join("inventory.db")) {
            Ok(file) => sqlite(&file),
            Err(problem) => Check::failed(CHECK, problem),
        };
    }
    let url: StoreUrl = match settings.store.url.parse() {
        Ok(url) => url,
        Err(error) => return Check::failed(CHECK, discover::database::problem(&error)),
    };
    if let Some(file) = url.sqlite_path() {
        return sqlite(file);
    }
    let connections = match settings.store.options() {
        Ok(options) => Store::connections_at(&url, &options).await,
        Err(problem) => return Check::failed(CHECK, problem),
    };
    match connections {
        Ok(connections) => match discover::database::check_connection_limit(connections) {
            Ok(()) => Check::new(CHECK, State::Ok, format!("{url} answers")),
            Err(problem) => Check::failed(CHECK, problem),
        },
        Err(error) => Check::new(CHECK, State::Failed, format!("{url}: {}", chain(&error)))
            .with_advice("check the address, the password and pg_hba.conf of the database server"),
    }
}

fn sqlite(file: &Path) -> Check {
    const CHECK: &str = "database";
    let shown = file.display();
    match std::fs::OpenOptions::new().read(true).write(true).open(file) {
        Ok(_) => Check::new(CHECK, State::Ok, format!("{shown} can be read and written")),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Check::new(CHECK, State::Skipped, format!("{shown} is created by the first start"))
        }
        Err(error) => Check::new(CHECK, State::Failed, format!("{shown}: {error}"))
            .with_advice("run as the user that owns the file, or correct its owner and mode"),
    }
}

/// Checks the server if one is known. Otherwise checks whether the address of `server.listen` is free.
async fn server(args: &DoctorArgs, settings: &Settings) -> Vec<Check> {
    let Ok(client) = Client::open(&args.server, &settings.client) else {
        return vec![
            Check::new("server", State::Skipped, "no server is configured")
                .with_advice("start one: bulla up"),
            port("server.listen", &settings.server.listen),
        ];
    };
    let base = client.base().to_owned();
    let mut checks = vec![names(&base).await];
    match client.get("/readyz", &()).await {
        Ok(_) => checks.push(Check::new("server", State::Ok, format!("{base} is ready"))),
        Err(problem) => {
            checks.push(unreachable(&base, problem));
            return checks;
        }
    }
    checks.extend([clock(&client).await, version(&client).await]);
    checks
}

fn unreachable(base: &str, problem: Problem) -> Check {
    let own = cli::data::folder().is_ok_and(|folder| {
        std::fs::read_to_string(folder.join(local::URL)).is_ok_and(|url| url.trim() == base)
    });
    let check = Check::failed("server", problem);
    if own { check.with_advice("start the local server: bulla up") } else { check }
}

/// Checks whether the server's host name has addresses.
async fn names(base: &str) -> Check {
    const CHECK: &str = "DNS";
    let host = reqwest::Url::parse(base).ok().and_then(|url| url.host_str().map(str::to_owned));
    let Some(host) = host else { return Check::new(CHECK, State::Skipped, "the server is a Unix socket") };
    let resolver = match Resolver::system() {
        Ok(resolver) => resolver,
        Err(error) => {
            return Check::new(CHECK, State::Failed, chain(&error)).with_advice("correct /etc/resolv.conf");
        }
    };
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    match resolver.resolve(bare, Families::usable(), RESOLVE_WITHIN).await {
        Ok(_) => Check::new(CHECK, State::Ok, format!("{host} has an address")),
        Err(error) => Check::new(CHECK, State::Failed, format!("{host}: {}", chain(&error)))
            .with_advice("check the name, and the DNS servers in /etc/resolv.conf"),
    }
}

async fn clock(client: &Client) -> Check {
    const CHECK: &str = "clock";
    match client.date().await {
        Ok(Some(theirs)) => clock_difference(theirs.as_second() - jiff::Timestamp::now().as_second()),
        Ok(None) => Check::new(CHECK, State::Skipped, "the server's response has no Date header"),
        Err(problem) => Check::failed(CHECK, problem),
    }
}

fn clock_difference(seconds: i64) -> Check {
    const CHECK: &str = "clock";
    let found = match seconds {
        0 => "same time as the server".to_owned(),
        ahead if ahead > 0 => format!("{ahead} s behind the server's"),
        behind => format!("{} s ahead of the server's", -behind),
    };
    if seconds.abs() <= CLOCK_WITHIN_SECONDS {
        return Check::new(CHECK, State::Ok, found);
    }
    Check::new(CHECK, State::Failed, found).with_advice(
        "synchronise both clocks (chrony, systemd-timesyncd): certificates and tokens depend on them",
    )
}

async fn version(client: &Client) -> Check {
    const CHECK: &str = "version";
    let ours = env!("CARGO_PKG_VERSION");
    match client.get("/openapi.json", &()).await {
        Err(problem) => Check::failed(CHECK, problem),
        Ok(document) => match document.pointer("/info/version").and_then(Value::as_str) {
            Some(theirs) if theirs == ours => Check::new(CHECK, State::Ok, format!("{ours}, as the server")),
            theirs => {
                let theirs = theirs.unwrap_or("unknown");
                Check::new(CHECK, State::Warning, format!("this program is {ours}, the server {theirs}"))
                    .with_advice("install the same version on both")
            }
        },
    }
}

/// Checks whether each role of the processes on this host still runs and responds.
async fn roles() -> Vec<Check> {
    let processes = match role_files::all() {
        Ok(processes) => processes,
        Err(problem) => return vec![Check::failed("role", problem)],
    };
    let mut checks = Vec::new();
    for ProcessRoles { process, roles } in &processes {
        let process_exists = process_exists(*process);
        for (role, description) in roles {
            checks.push(check_role(*role, description, process_exists.then_some(*process)).await);
        }
    }
    checks.sort_by_key(|check| check.check);
    checks
}

/// Checks one role. `process` is `None` if the process has ended.
async fn check_role(role: Role, description: &Description, process: Option<u32>) -> Check {
    let check = match role {
        Role::Server => "role server",
        Role::Signer => "role signer",
        Role::Keys => "role keys",
        Role::Edge => "role edge",
        Role::Proxy => "role proxy",
        Role::Agent => "role agent",
    };
    let Some(process) = process else {
        return Check::new(check, State::Failed, "its process ended unexpectedly")
            .with_advice("read its log, then start it again: bulla up");
    };
    let Some(endpoint) = description.places.first() else {
        return Check::new(check, State::Ok, description.notes.join("; "));
    };
    match dial(endpoint).await {
        Ok(()) => Check::new(check, State::Ok, format!("{endpoint} answers")),
        Err(error) => Check::new(check, State::Failed, format!("{endpoint}: {error}"))
            .with_advice(format!("read the log of process {process}, then restart it")),
    }
}

/// Connects to an address of a role, `unix:PATH` or `SCHEME://HOST:PORT`.
async fn dial(endpoint: &str) -> std::io::Result<()> {
    let no_answer = |_| std::io::Error::from(std::io::ErrorKind::TimedOut);
    if let Some(path) = endpoint.strip_prefix("unix:") {
        let dialled = tokio::time::timeout(ROLE_WITHIN, tokio::net::UnixStream::connect(path));
        return dialled.await.map_err(no_answer)?.map(drop);
    }
    let address = endpoint.split_once("://").map_or(endpoint, |(_, address)| address);
    let address = address.split(['/', ' ']).next().unwrap_or_default();
    let dialled = tokio::time::timeout(ROLE_WITHIN, tokio::net::TcpStream::connect(address));
    dialled.await.map_err(no_answer)?.map(drop)
}

/// Returns whether a process with this id exists.
fn process_exists(process: u32) -> bool {
    let process = i32::try_from(process).ok().and_then(rustix::process::Pid::from_raw);
    // A process of another user exists even if this user has no permission to send signals to it.
    process.is_some_and(|process| {
        !matches!(rustix::process::test_kill_process(process), Err(rustix::io::Errno::SRCH))
    })
}

/// Checks whether the address of the setting `key` is free.
fn port(key: &'static str, listen: &str) -> Check {
    let address = match socket(key, listen) {
        Ok(address) => address,
        Err(problem) => return Check::failed("port", problem),
    };
    match std::net::TcpListener::bind(address) {
        Ok(_) => Check::new("port", State::Ok, format!("{address} ({key}) is free")),
        Err(error) => Check::new("port", State::Failed, format!("{address} ({key}): {error}"))
            .with_advice(format!("stop the process that uses it (`ss -ltnp`), or set {key}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_skew_up_to_30_seconds_passes_the_check() {
        assert_eq!(clock_difference(0).state, State::Ok);
        assert_eq!(clock_difference(-30).state, State::Ok);
        assert_eq!(
            (clock_difference(31).state, clock_difference(31).found.as_str()),
            (State::Failed, "31 s behind the server's")
        );
        assert_eq!(clock_difference(-40).found, "40 s ahead of the server's");
    }

    #[tokio::test]
    async fn doctor_fails_a_role_with_a_closed_port_or_ended_process() {
        let bound = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", bound.local_addr().unwrap());
        let description = Description { places: vec![endpoint.clone()], notes: Vec::new() };
        let state = async |process| check_role(Role::Proxy, &description, process).await.state;
        assert!(process_exists(std::process::id()));
        assert_eq!(state(Some(1)).await, State::Ok);
        assert_eq!(state(None).await, State::Failed);
        drop(bound);
        assert_eq!(state(Some(1)).await, State::Failed);
    }

    #[test]
    fn doctor_reports_a_port_in_use_with_its_setting() {
        let bound = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = bound.local_addr().unwrap().to_string();
        let check = port("server.listen", &address);
        assert_eq!(check.state, State::Failed);
        assert!(check.found.contains(&address) && check.advice.contains("server.listen"), "{check:?}");
        drop(bound);
        assert_eq!(port("server.listen", &address).state, State::Ok);
    }
}
