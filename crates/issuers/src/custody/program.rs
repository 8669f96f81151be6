//! Encryption of the master key by a program of the operator, for any KMS with a command line.

use std::time::{Duration, Instant};

use futures_util::future::{BoxFuture, FutureExt};
use keys::Wrapper;
use zeroize::Zeroizing;

use crate::command::Command;
use crate::error::IssuerError;
use crate::program_name::ProgramName;
use crate::programs::Programs;

/// Maximum bytes of a program's output. A KMS's ciphertext of 32 bytes has a few hundred.
const OUTPUT_MAX: usize = 8 * 1024;

/// A program that encrypts or decrypts the master key. Its last argument is `wrap` or `unwrap`; it reads the input from standard
/// input and writes exactly the result to standard output.
#[derive(Debug)]
pub struct Program {
    command: Command,
    limit: Duration,
}

impl Program {
    /// Creates a program from its command and the timeout of a run (1 s to 1 h).
    ///
    /// # Errors
    /// [`IssuerError::Misconfigured`] when the command is empty.
    pub fn new(argv: &[String], limit: Duration) -> Result<Self, IssuerError> {
        Ok(Self { command: Command::new(argv, limit)?, limit })
    }

    /// Returns the configured program with this name, with its user, variables and timeout.
    ///
    /// # Errors
    /// [`IssuerError::Misconfigured`] when no such program is configured.
    pub fn named(programs: &Programs, name: &str) -> Result<Self, IssuerError> {
        let command = programs.get(&ProgramName::new(name))?;
        Ok(Self { limit: command.limit(), command })
    }

    async fn run(&self, what: &str, input: &[u8]) -> Result<Zeroizing<Vec<u8>>, String> {
        let program = self.command.program();
        let deadline = Instant::now() + self.limit;
        let ran = self.command.run(&[what], &[], input, deadline).await;
        let ran = ran.map_err(|error| format!("{program} {what}: {error}"))?;
        let output = Zeroizing::new(ran.output);
        if ran.code != 0 {
            return Err(format!("{program} {what} exited with {}: {}", ran.code, ran.errors));
        }
        if output.is_empty() || output.len() > OUTPUT_MAX {
            let many = output.len();
            return Err(format!("{program} {what} wrote {many} bytes; 1 to {OUTPUT_MAX} are expected"));
        }
        Ok(output)
    }
}

impl Wrapper for Program {
    fn name(&self) -> &'static str {
        "program"
    }

    fn wrap<'a>(&'a self, key: &'a [u8]) -> BoxFuture<'a, Result<Vec<u8>, String>> {
        async move { Ok(self.run("wrap", key).await?.to_vec()) }.boxed()
    }

    fn unwrap_key<'a>(&'a self, wrapped: &'a [u8]) -> BoxFuture<'a, Result<Zeroizing<Vec<u8>>, String>> {
        self.run("unwrap", wrapped).boxed()
    }
}
