//! Hosts that join a control plane, as agents or as nodes of the key service.

use std::path::Path;

use cli::exit::{Exit, Outcome, Problem, chain};
use enrollment::client::{ApiError, JoinError};

/// Reads the trust anchors that --ca names.
pub(crate) fn read(path: &Path) -> Outcome<String> {
    std::fs::read_to_string(path).map_err(|error| {
        Problem::usage(format_args!("cannot read {}: {error}", path.display()))
            .hint("give --ca a PEM file of certificates")
    })
}

/// Converts an error of a host that did not join, or that cannot continue, to a problem with exit code and hint. `token` is the
/// command that creates another token.
pub(crate) fn not_joined(error: &JoinError, token: &str) -> Problem {
    let (exit, hint) = match error {
        JoinError::Server(_) => (Exit::Usage, "correct the server's address"),
        JoinError::Trust(_) => (Exit::Usage, "correct --ca or --ca-sha256"),
        JoinError::Identity(_) => (Exit::Machine, "remove the folder and join again with another token"),
        JoinError::State(_) => (Exit::Machine, "run as root, or with --state FOLDER as another user"),
        JoinError::Api(ApiError::Refused { .. }) => {
            let hint = format!("a token can be used once and expires: create another with `{token}`");
            return Problem::new(Exit::Refused, chain(error)).hint(hint);
        }
        JoinError::Api(_) => {
            (Exit::Server, "check the address and the trust anchors of the server: --ca or --ca-sha256")
        }
    };
    Problem::new(exit, chain(error)).hint(hint)
}
