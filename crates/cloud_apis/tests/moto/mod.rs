//! moto, which simulates AWS.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails there")]

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// moto spends about a second on Python imports before it listens.
const START_MAX: Duration = Duration::from_secs(60);

/// A running moto process, killed on drop.
pub(crate) struct Moto {
    child: Child,
    pub(crate) endpoint: String,
}

impl Drop for Moto {
    fn drop(&mut self) {
        // The process may have exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Moto {
    /// Starts moto and waits until it listens.
    pub(crate) async fn start() -> Self {
        let port = fleet::free_port();
        let program = std::env::var("MOTO_SERVER").unwrap_or_else(|_| "moto_server".to_owned());
        let child = Command::new(&program)
            .args(["-H", "127.0.0.1", "-p", &port.to_string()])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| {
                panic!("{program}: {error}; run `.ci/interop clouds`, or pip install 'moto[server]'")
            });
        let began = Instant::now();
        while tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_err() {
            assert!(began.elapsed() < START_MAX, "moto does not listen");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Self { child, endpoint: format!("http://127.0.0.1:{port}") }
    }
}
