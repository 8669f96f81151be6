//! `[[proxy.postgresql]]`: listeners for PostgreSQL clients, each with its server.

use cli::exit::{Outcome, Problem};
use proxy::{DatabaseListenerOptions, UpstreamTlsMode};
use serde::{Deserialize, Serialize};
use x509::HostOrIp;

use crate::listening::socket;

/// Maximum number of `[[proxy.postgresql]]` listeners.
const LISTENERS_MAX: usize = 100;
const PORT: u16 = 5432;

/// Configuration of one entry of `[[proxy.postgresql]]`.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PostgresqlSettings {
    pub(crate) listen: String,
    pub(crate) host: String,
    #[serde(default = "usual_port")]
    pub(crate) port: u16,
    #[serde(default)]
    pub(crate) tls: PostgresqlTls,
}

/// Use of TLS for connections to a PostgreSQL server.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum PostgresqlTls {
    /// TLS with a verified certificate for the host.
    #[default]
    VerifyFull,
    /// No TLS.
    Disable,
}

const fn usual_port() -> u16 {
    PORT
}

impl PostgresqlSettings {
    fn options(&self, index: usize) -> Outcome<DatabaseListenerOptions> {
        let invalid = |why: &str, hint: &str| {
            let number = index + 1;
            Problem::usage(format_args!("proxy.postgresql[{number}] ({}): {why}", self.host)).hint(hint)
        };
        let host = HostOrIp::parse(&self.host).map_err(|_| {
            invalid("host is not a host name or an address", "host = \"db.example.com\", without the port")
        })?;
        if self.port == 0 {
            return Err(invalid("0 is not a port", "leave port out: the default is 5432"));
        }
        let tls = match self.tls {
            PostgresqlTls::VerifyFull => UpstreamTlsMode::VerifyFull,
            PostgresqlTls::Disable => UpstreamTlsMode::Disable,
        };
        Ok(DatabaseListenerOptions {
            listen: socket("proxy.postgresql.listen", &self.listen)?,
            host,
            port: self.port,
            tls,
        })
    }
}

/// Checks the listeners. `has_policy`: whether a policy decides about sessions.
pub(super) fn check(listeners: &[PostgresqlSettings], has_policy: bool) -> Outcome<()> {
    if listeners.len() > LISTENERS_MAX {
        return Err(Problem::usage(format_args!("proxy.postgresql has more than {LISTENERS_MAX} entries"))
            .hint("run another proxy for the other servers"));
    }
    if !listeners.is_empty() && !has_policy {
        return Err(Problem::usage(
            "proxy.postgresql needs a policy: without one, any client gets the databases' credentials",
        )
        .hint("add [[proxy.policy.identities]] and [[proxy.policy.rules]] with `database`"));
    }
    options(listeners).map(drop)
}

/// Returns the options of all listeners.
pub(super) fn options(listeners: &[PostgresqlSettings]) -> Outcome<Vec<DatabaseListenerOptions>> {
    listeners.iter().enumerate().map(|(index, one)| one.options(index)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listener_needs_a_policy_a_host_and_a_port() {
        let one = |host: &str, port| PostgresqlSettings {
            listen: "127.0.0.1:0".into(),
            host: host.into(),
            port,
            tls: PostgresqlTls::default(),
        };
        assert!(check(&[one("db.example.com", 5432)], true).is_ok() && check(&[], false).is_ok());
        let said = |listener, has_policy| {
            let problem = check(&[listener], has_policy).unwrap_err();
            assert!(problem.hint.is_some());
            problem.message
        };
        assert!(said(one("db.example.com", 5432), false).contains("needs a policy"));
        assert!(said(one("db.example.com:5432", 5432), true).contains("host is not"));
        assert!(said(one("db.example.com", 0), true).contains("not a port"));
    }
}
