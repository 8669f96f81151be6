//! A Redis server.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::until_blocking;

const INSTALL: &str = "apt-get install -y redis-server redis-tools";
/// Password of the user `default`, for [`Redis::admin`].
const ADMIN_PASSWORD: &str = "password-of-the-administrator";

/// A running `redis-server` on a free port of 127.0.0.1, without persistence.
pub struct Redis {
    process: Child,
    folder: TempDir,
    port: u16,
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Redis {
    /// Starts a server that has the user `app` with this password.
    ///
    /// # Panics
    /// `redis-server` is missing. The message has the command that installs it.
    #[must_use]
    pub fn start(password: &str) -> Self {
        Self::with_user(password, None)
    }

    /// Starts a server that accepts TLS only: with these files, the certificate and its key.
    ///
    /// # Panics
    /// As for [`Redis::start`].
    #[must_use]
    pub fn start_tls(password: &str, certificate: &Path, key: &Path) -> Self {
        Self::with_user(password, Some((certificate, key)))
    }

    fn with_user(password: &str, tls: Option<(&Path, &Path)>) -> Self {
        let folder = TempDir::new().unwrap();
        // Another program may take the port before the server does.
        let (process, port) =
            std::iter::repeat_with(|| start(&folder, password, tls)).flatten().next().unwrap();
        Self { process, folder, port }
    }

    /// Returns the port of the server.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Runs a command as an administrator, and returns the reply as `redis-cli` shows it.
    ///
    /// # Panics
    /// `redis-cli` is missing, or the command fails.
    #[must_use]
    pub fn admin(&self, command: &[&str]) -> String {
        let mut cli = Command::new("redis-cli");
        cli.arg("-s").arg(self.folder.path().join("redis.sock"));
        cli.args(["--user", "default", "--pass", ADMIN_PASSWORD, "--no-auth-warning", "-e"]).args(command);
        let output = cli.output().unwrap_or_else(|error| panic!("{INSTALL} ({error})"));
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
    }

    /// Changes the password of the user `app`. Open sessions stay logged in.
    ///
    /// # Panics
    /// As for [`Redis::admin`].
    pub fn set_password(&self, password: &str) {
        assert_eq!(self.admin(&["ACL", "SETUSER", "app", "resetpass", &format!(">{password}")]), "OK");
    }

    /// Returns whether the server has ever got a command with this name.
    ///
    /// # Panics
    /// As for [`Redis::admin`].
    #[must_use]
    pub fn has_got(&self, name: &str) -> bool {
        let prefix = format!("cmdstat_{name}");
        let statistics = self.admin(&["INFO", "commandstats"]);
        statistics
            .lines()
            .any(|line| line.strip_prefix(&prefix).is_some_and(|rest| rest.starts_with([':', '|'])))
    }
}

/// Starts a server on a free port; `None` if another program took the port.
fn start(folder: &TempDir, password: &str, tls: Option<(&Path, &Path)>) -> Option<(Child, u16)> {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let socket = folder.path().join("redis.sock");
    let _ = fs::remove_file(&socket);
    let ports = match tls {
        None => format!("port {port}"),
        Some((certificate, key)) => format!(
            "port 0\ntls-port {port}\ntls-cert-file {}\ntls-key-file {}\ntls-auth-clients no",
            certificate.display(),
            key.display()
        ),
    };
    let configuration = format!(
        "bind 127.0.0.1\n{ports}\nunixsocket {}\nsave \"\"\ndir {}\n\
         user default on >{ADMIN_PASSWORD} ~* &* +@all\nuser app on >{password} ~* &* +@all\n",
        socket.display(),
        folder.path().display()
    );
    let file = folder.path().join("redis.conf");
    fs::write(&file, configuration).unwrap();
    let log = fs::File::create(folder.path().join("redis.log")).unwrap();
    let mut process = Command::new("redis-server")
        .arg(&file)
        .stdin(Stdio::null())
        .stdout(log)
        .spawn()
        .unwrap_or_else(|error| panic!("{INSTALL} ({error})"));
    let mut has_ended = false;
    until_blocking("redis-server to listen", || {
        has_ended = process.try_wait().unwrap().is_some();
        has_ended || (socket.exists() && TcpStream::connect(("127.0.0.1", port)).is_ok())
    });
    let log = fs::read_to_string(folder.path().join("redis.log")).unwrap();
    assert!(!has_ended || log.contains("already in use"), "{log}");
    (!has_ended).then_some((process, port))
}
