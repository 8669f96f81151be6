//! A software TPM 2.0.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use tempfile::TempDir;

use crate::until_blocking;

const INSTALL: &str = "apt-get install -y swtpm swtpm-tools tpm2-tools";

/// `swtpm` with a state of its own.
pub struct SoftTpm {
    process: Child,
    folder: TempDir,
}

impl Drop for SoftTpm {
    fn drop(&mut self) {
        self.end();
    }
}

impl SoftTpm {
    /// A new TPM, which runs.
    ///
    /// # Panics
    /// With the command that installs `swtpm`, when it is missing.
    #[must_use]
    pub fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let process = start(&folder);
        Self { process, folder }
    }

    fn end(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }

    /// Turns the power off and on again.
    pub fn restart(&mut self) {
        self.end();
        self.process = start(&self.folder);
    }

    /// Puts another TPM in its place, at the same address.
    pub fn replace(&mut self) {
        self.end();
        fs::remove_dir_all(self.folder.path().join("state")).unwrap();
        self.process = start(&self.folder);
    }

    /// `unix:PATH`.
    #[must_use]
    pub fn address(&self) -> String {
        format!("unix:{}", self.path("tpm.sock").display())
    }

    /// A file in its folder.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs a program of `tpm2-tools` in its folder, by a line of words. The programs ask for a locality over the control socket.
    ///
    /// # Panics
    /// With the command that installs them, when they are missing.
    #[must_use]
    pub fn tool(&self, line: &str) -> Output {
        let words: Vec<&str> = line.split_whitespace().collect();
        Command::new(words[0])
            .args(&words[1..])
            .args(["-T", &format!("swtpm:path={}", self.path("tpm.sock").display())])
            .current_dir(self.folder.path())
            .output()
            .unwrap_or_else(|error| panic!("{INSTALL} ({error})"))
    }
}

impl Default for SoftTpm {
    fn default() -> Self {
        Self::new()
    }
}

fn start(folder: &TempDir) -> Child {
    let (state, socket) = (folder.path().join("state"), folder.path().join("tpm.sock"));
    fs::create_dir_all(&state).unwrap();
    let _ = fs::remove_file(&socket);
    let control = folder.path().join("tpm.sock.ctrl");
    let process = Command::new("swtpm")
        .args(["socket", "--tpm2", "--flags", "not-need-init,startup-clear"])
        .args(["--tpmstate", &format!("dir={}", state.display())])
        .args(["--server", &format!("type=unixio,path={}", socket.display())])
        .args(["--ctrl", &format!("type=unixio,path={}", control.display())])
        .stderr(Stdio::null())
        .spawn()
        .unwrap_or_else(|error| panic!("{INSTALL} ({error})"));
    // A socket's file stands before the socket listens.
    let listens = |path| UnixStream::connect(path).is_ok();
    until_blocking("swtpm to listen", || listens(&socket) && listens(&control));
    process
}
