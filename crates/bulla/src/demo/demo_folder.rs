//! The temporary folder of a demo: writes its configuration, and runs `bulla` commands with it.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::Output;

use cli::exit::{Exit, Outcome, Problem};
use fleet::free_port;
use serde_json::Value;
use tokio::process::Command;

/// Path of this program. It stays valid after an upgrade has replaced the file.
const THIS_PROGRAM: &str = "/proc/self/exe";
/// Prefix of this program's environment variables. They are removed for the commands of the demo, because they may name other
/// servers.
const OWN_VARIABLES: &str = "BULLA_";

/// A temporary folder with all files of a demo. It is removed on drop.
pub(super) struct DemoFolder {
    folder: PathBuf,
    pub(super) edge_port: u16,
    pub(super) proxy_port: u16,
}

impl Drop for DemoFolder {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.folder) {
            tracing::warn!(%error, folder = %self.folder.display(), "the folder of the demo cannot be removed");
        }
    }
}

impl DemoFolder {
    pub(super) fn create() -> Outcome<Self> {
        let folder = std::env::temp_dir().join(format!("bulla-demo-{}", uuid::Uuid::new_v4().simple()));
        let created = fs::DirBuilder::new().mode(0o700).create(&folder);
        created.map_err(|error| write_error(&folder, &error))?;
        Ok(Self { folder, edge_port: free_port(), proxy_port: free_port() })
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(super) fn write(&self, name: &str, text: &str) -> Outcome<()> {
        let path = self.path(name);
        fs::write(&path, text).map_err(|error| write_error(&path, &error))
    }

    pub(super) fn read(&self, name: &str) -> Outcome<String> {
        let path = self.path(name);
        fs::read_to_string(&path).map_err(|error| {
            Problem::new(Exit::Machine, format_args!("cannot read {}: {error}", path.display()))
        })
    }

    /// Writes the configuration: every role, on free loopback ports. `dns` is the name server of the simulated estate, `upstream`
    /// the server behind the terminator.
    pub(super) fn configure(&self, dns: SocketAddr, upstream: u16) -> Outcome<()> {
        let [api, public, credentials, nodes] = [(); 4].map(|()| free_port());
        let (edge, proxy) = (self.edge_port, self.proxy_port);
        let (policy, roots, root) =
            (self.path("agent.toml"), self.path("estate-roots.pem"), self.path("data/root.pem"));
        self.write(
            "bulla.toml",
            &format!(
                "[server]\nlisten = \"127.0.0.1:{api}\"\npublic_listen = \"127.0.0.1:{public}\"\nstop_s = 5\n\
                 [credentials]\nlisten = \"127.0.0.1:{credentials}\"\n\
                 [scan]\ndns = [\"{dns}\"]\nca_files = [{roots:?}]\ntimeout_ms = 2000\nretry = false\n\
                 [agent]\npolicy = {policy:?}\n\
                 [keys]\nmetrics_listen = \"\"\nreload_s = 1\n[keys.node]\nlisten = \"127.0.0.1:{nodes}\"\n\
                 [edge]\nlisten = \"127.0.0.1:{edge}\"\nmetrics_listen = \"\"\nupstream = \"127.0.0.1:{upstream}\"\n\
                 inventory = true\nreload_s = 1\nstop_s = 5\n\
                 [proxy]\nlisten = \"127.0.0.1:{proxy}\"\nmetrics_listen = \"\"\nupstream_ca_files = [{root:?}]\nstop_s = 5\n\
                 [[proxy.rules]]\nhost = [\"localhost\"]\npath = [\"/api/*\"]\n\
                 inject = {{ credential = \"/shop/api\", port = [{edge}] }}\n"
            ),
        )
    }

    /// Creates a `bulla` command with the configuration and the data folder of the demo.
    pub(super) fn bulla(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(THIS_PROGRAM);
        for (name, _) in std::env::vars_os() {
            if name.as_encoded_bytes().starts_with(OWN_VARIABLES.as_bytes()) {
                command.env_remove(name);
            }
        }
        command
            .env("BULLA_DATA", self.path("data"))
            .env("BULLA_CONFIG", self.path("bulla.toml"))
            .current_dir(&self.folder)
            .args(arguments)
            .kill_on_drop(true);
        command
    }

    /// Runs a command until it exits.
    pub(super) async fn output(&self, arguments: &[&str]) -> Outcome<Output> {
        self.bulla(arguments).output().await.map_err(|error| {
            Problem::new(Exit::Machine, format_args!("cannot start a process: {error}"))
                .hint("check the limits on processes (ulimit -u)")
        })
    }

    /// Runs a command that must succeed. Returns its standard output.
    pub(super) async fn run_checked(&self, arguments: &[&str]) -> Outcome<String> {
        let output = self.output(arguments).await?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let error_output = String::from_utf8_lossy(&output.stderr);
        Err(Problem::new(
            Exit::Machine,
            format_args!("bulla {}: {}", arguments.join(" "), error_output.trim()),
        ))
    }

    /// Runs a command that must succeed. Returns its output as JSON.
    pub(super) async fn json(&self, arguments: &[&str]) -> Outcome<Value> {
        let text = self.run_checked(&[arguments, &["--output", "json"]].concat()).await?;
        serde_json::from_str(&text).map_err(|error| {
            Problem::new(Exit::Machine, format_args!("bulla {}: {error}", arguments.join(" ")))
        })
    }

    /// Runs a command with `document` as its input file. Returns its output as JSON.
    pub(super) async fn run_with_input(&self, command: &[&str], document: &Value) -> Outcome<Value> {
        self.write("document.json", &document.to_string())?;
        self.json(&[command, &["--file", "document.json"]].concat()).await
    }
}

fn write_error(path: &Path, error: &std::io::Error) -> Problem {
    Problem::new(Exit::Machine, format_args!("cannot write {}: {error}", path.display()))
        .hint("set TMPDIR to a folder that you may write to")
}
