//! A software TPM 2.0.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use tempfile::TempDir;

use crate::until_blocking;

const INSTALL: &str = "apt-get install -y swtpm swtpm-tools tpm2-tools";

/// A running `swtpm` with its own state.
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
    /// Starts a new TPM.
    ///
    /// # Panics
    /// `swtpm` is missing. The message has the command that installs it.
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

    /// Restarts the TPM, as after a power cycle.
    pub fn restart(&mut self) {
        self.end();
        self.process = start(&self.folder);
    }

    /// Replaces the TPM by another one at the same address.
    pub fn replace(&mut self) {
        self.end();
        fs::remove_dir_all(self.folder.path().join("state")).unwrap();
        self.process = start(&self.folder);
    }

    /// Returns the address, as `unix:PATH`.
    #[must_use]
    pub fn address(&self) -> String {
        format!("unix:{}", self.path("tpm.sock").display())
    }

    /// Returns the path of a file in the TPM's folder.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs a program of `tpm2-tools` in the TPM's folder. `line` is a command line of words. The programs set a locality over the
    /// control socket.
    ///
    /// # Panics
    /// The programs are missing. The message has the command that installs them.
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
    // The file of a socket exists before the socket listens.
    let listens = |path| UnixStream::connect(path).is_ok();
    until_blocking("swtpm to listen", || listens(&socket) && listens(&control));
    process
}
