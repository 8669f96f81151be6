//! The routes of the credential store, how it writes choices, and its errors.

use clap::ValueEnum;

use crate::exit::{Exit, Problem};

pub(super) const DATA: &str = "/api/v1/data";
pub(super) const LOOKUP: &str = "/api/v1/lookup";
pub(super) const CERTIFICATES: &str = "/api/v1/certificates";
pub(super) const PERMISSIONS: &str = "/api/v2/permissions";

/// As the API writes a choice.
pub(super) fn name_of<T: ValueEnum>(choice: T) -> String {
    choice.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

/// An error of the store's client as a problem of this program.
pub(super) fn problem(error: &client::Error) -> Problem {
    use client::Error;
    let (exit, hint) = match error {
        Error::NotFound(_) => (Exit::Refused, "`bulla credential find` shows those you may read"),
        Error::Denied(_) => (Exit::Refused, "give --token-file, or BULLA_CLIENT_TOKEN"),
        Error::Refused { .. } => (Exit::Refused, "see docs/credentials.md"),
        Error::Invalid(_) => (Exit::Usage, "see docs/credentials.md"),
        Error::Unavailable(_) => {
            (Exit::Server, "check that the server runs (`bulla up`), --credential-server, and --server-ca")
        }
    };
    Problem::new(exit, error).hint(hint)
}
