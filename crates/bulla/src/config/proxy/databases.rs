//! `[[proxy.postgresql]]` and `[[proxy.redis]]`: listeners for clients of database servers, each with its server.

use cli::exit::{Outcome, Problem};
use proxy::policy::SessionProtocol;
use proxy::{DatabaseListenerOptions, UpstreamTlsMode};
use serde::{Deserialize, Serialize};
use x509::HostOrIp;

use crate::listening::socket;

/// Maximum number of listeners for each protocol.
const LISTENERS_MAX: usize = 100;

/// Configuration of one entry of `[[proxy.postgresql]]` or `[[proxy.redis]]`.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DatabaseListenerSettings {
    pub(crate) listen: String,
    pub(crate) host: String,
    /// Port of the server; `None` is the default port of the protocol.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) port: Option<u16>,
    #[serde(default)]
    pub(crate) tls: DatabaseTls,
}

/// Use of TLS for connections to a database server.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum DatabaseTls {
    /// TLS with a verified certificate for the host.
    #[default]
    VerifyFull,
    /// No TLS.
    Disable,
}

impl DatabaseListenerSettings {
    /// Returns the address of the server, for messages.
    pub(crate) fn server(&self, protocol: SessionProtocol) -> String {
        format!("{}:{}", self.host, self.port.unwrap_or(protocol.usual_port()))
    }

    fn options(&self, index: usize, protocol: SessionProtocol) -> Outcome<DatabaseListenerOptions> {
        let key = format!("proxy.{}", protocol.name());
        let invalid = |why: &str, hint: String| {
            let number = index + 1;
            Problem::usage(format_args!("{key}[{number}] ({}): {why}", self.host)).hint(hint)
        };
        let host = HostOrIp::parse(&self.host).map_err(|_| {
            let hint = "host = \"db.example.com\", without the port".to_owned();
            invalid("host is not a host name or an address", hint)
        })?;
        if self.port == Some(0) {
            let hint = format!("leave port out: the default is {}", protocol.usual_port());
            return Err(invalid("0 is not a port", hint));
        }
        let tls = match self.tls {
            DatabaseTls::VerifyFull => UpstreamTlsMode::VerifyFull,
            DatabaseTls::Disable => UpstreamTlsMode::Disable,
        };
        Ok(DatabaseListenerOptions {
            listen: socket(&format!("{key}.listen"), &self.listen)?,
            host,
            port: self.port.unwrap_or(protocol.usual_port()),
            tls,
        })
    }
}

/// Checks the listeners. `has_policy`: whether a policy decides about sessions.
pub(super) fn check(
    listeners: &[DatabaseListenerSettings],
    protocol: SessionProtocol,
    has_policy: bool,
) -> Outcome<()> {
    let key = format!("proxy.{}", protocol.name());
    if listeners.len() > LISTENERS_MAX {
        return Err(Problem::usage(format_args!("{key} has more than {LISTENERS_MAX} entries"))
            .hint("run another proxy for the other servers"));
    }
    if !listeners.is_empty() && !has_policy {
        return Err(Problem::usage(format_args!(
            "{key} needs a policy: without one, any client gets the databases' credentials"
        ))
        .hint("add [[proxy.policy.identities]] and [[proxy.policy.rules]] with `database`"));
    }
    options(listeners, protocol).map(drop)
}

/// Returns the options of all listeners.
pub(super) fn options(
    listeners: &[DatabaseListenerSettings],
    protocol: SessionProtocol,
) -> Outcome<Vec<DatabaseListenerOptions>> {
    listeners.iter().enumerate().map(|(index, one)| one.options(index, protocol)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listener_needs_a_policy_a_host_and_a_port() {
        let one = |host: &str, port| DatabaseListenerSettings {
            listen: "127.0.0.1:0".into(),
            host: host.into(),
            port,
            tls: DatabaseTls::default(),
        };
        for (protocol, name, usual_port) in
            [(SessionProtocol::Postgresql, "postgresql", 5432), (SessionProtocol::Redis, "redis", 6379)]
        {
            assert!(check(&[one("db.example.com", Some(1))], protocol, true).is_ok());
            assert!(check(&[], protocol, false).is_ok());
            assert_eq!(options(&[one("db.example.com", None)], protocol).unwrap()[0].port, usual_port);
            let said = |listener, has_policy| {
                let problem = check(&[listener], protocol, has_policy).unwrap_err();
                assert!(problem.hint.is_some() && problem.message.contains(name));
                problem.message
            };
            assert!(said(one("db.example.com", None), false).contains("needs a policy"));
            assert!(said(one("db.example.com:5432", None), true).contains("host is not"));
            assert!(said(one("db.example.com", Some(0)), true).contains("not a port"));
        }
    }
}
