//! Credentials for sessions with databases.

use std::sync::Arc;

use keys::Secret;
use x509::HostOrIp;

use super::compile::Rule;
use super::inject::{CredentialSources, Injected, Injection, Secrets};
use super::unavailable::SecretUnavailable;
use super::{RequestMetrics, RequestRules};
use crate::policy::{DatabaseSession, Grantee, SessionProtocol};

/// A database, and the connection to its server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DatabaseEndpoint<'a> {
    pub(crate) host: &'a HostOrIp,
    pub(crate) port: u16,
    pub(crate) session: DatabaseSession<'a>,
    /// Whether the server's certificate is verified, or the configuration disables TLS to the server.
    pub(crate) is_trusted: bool,
}

/// User and password for a database server. A password of Redis may have no user: it is empty then.
pub(crate) struct Login {
    pub(crate) user: Secret,
    pub(crate) password: Secret,
    pub(crate) injected: Injected,
}

/// Reason why a session gets no credential.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoLogin {
    #[error("no rule with as = \"{}\" grants this identity a credential for the database", .0.name())]
    NotGranted(SessionProtocol),
    #[error("the certificate of the database server is not verified, and the rule {0} does not allow that")]
    Insecure(Arc<str>),
    #[error(transparent)]
    Unavailable(#[from] SecretUnavailable),
}

impl RequestRules {
    /// Returns the credential of a session, by the first rule that matches the database and is granted to the client. `tried`
    /// contains the credentials that the server has rejected for the same session.
    pub(crate) async fn login(
        &self,
        endpoint: DatabaseEndpoint<'_>,
        grantee: &Grantee,
        (sources, tried): (CredentialSources<'_>, &[Injected]),
        metrics: &RequestMetrics,
    ) -> Result<Login, NoLogin> {
        let Some((rule, injection)) =
            self.session_rule(endpoint.host, endpoint.port, endpoint.session, grantee)
        else {
            metrics.injected("refused");
            return Err(NoLogin::NotGranted(endpoint.session.protocol));
        };
        if !endpoint.is_trusted && !injection.insecure {
            metrics.injected("refused");
            return Err(NoLogin::Insecure(Arc::clone(&rule.name)));
        }
        match injection.login(grantee, sources, tried).await {
            Ok((user, password, injected)) => {
                injection.record_missing(false);
                metrics.injected("done");
                Ok(Login { user, password, injected })
            }
            Err(error) => {
                metrics.injected("failed");
                injection.record_missing(true);
                let credential = injection.log_name();
                tracing::warn!(rule = %rule.name, credential, %error, "rejecting a session: its credential is unavailable");
                Err(error.into())
            }
        }
    }

    /// Returns the rule and the name of the credential that a session gets.
    #[must_use]
    pub fn session_credential(
        &self,
        (host, port): (&HostOrIp, u16),
        session: DatabaseSession<'_>,
        grantee: &Grantee,
    ) -> Option<(Arc<str>, String)> {
        let (rule, injection) = self.session_rule(host, port, session, grantee)?;
        Some((Arc::clone(&rule.name), injection.log_name()))
    }

    fn session_rule(
        &self,
        host: &HostOrIp,
        port: u16,
        session: DatabaseSession<'_>,
        grantee: &Grantee,
    ) -> Option<(&Rule, &Arc<Injection>)> {
        let met = self.0.met(host, "/").into_iter().filter_map(|at| self.0.rules.get(at as usize));
        let mut found = met.filter_map(|rule| Some((rule, rule.inject.as_ref()?)));
        found.find(|(_, one)| one.is_for_session(port, session) && grantee.has(one.grants()))
    }
}

impl Login {
    /// Records whether the server accepted the credential. A rejected credential is read from its source again.
    pub(crate) fn record_outcome(&self, is_accepted: bool, secrets: Option<&dyn Secrets>) {
        match is_accepted {
            true => self.injected.accepted(),
            false => self.injected.refused(secrets),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::super::{Form, InjectText, RuleText};
    use super::*;

    async fn login(
        rules: &RequestRules,
        port: u16,
        database: &str,
        is_trusted: bool,
    ) -> Result<String, String> {
        let protocol = if port == 6379 { SessionProtocol::Redis } else { SessionProtocol::Postgresql };
        let host = HostOrIp::parse("db.example").unwrap();
        let endpoint = DatabaseEndpoint {
            host: &host,
            port,
            session: DatabaseSession { protocol, database },
            is_trusted,
        };
        let (grantee, sources) = (Grantee::default(), CredentialSources::default());
        let login = rules.login(endpoint, &grantee, (sources, &[]), &RequestMetrics::default()).await;
        let named = |login: Login| format!("{} {}", login.user.expose(), login.password.expose());
        login.map(named).map_err(|error| error.to_string())
    }

    #[tokio::test]
    async fn session_gets_the_first_credential_for_its_database_and_port() {
        let folder = tempfile::tempdir().unwrap();
        let rule_as = |form, content: &str, user: Option<&str>, databases: &[&str], insecure| {
            let path = folder.path().join(content.replace(':', "-"));
            std::fs::write(&path, content).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
            let inject = InjectText {
                file: Some(path),
                form,
                user: user.map(str::to_owned),
                database: databases.iter().map(ToString::to_string).collect(),
                insecure,
                ..InjectText::default()
            };
            RuleText { host: vec!["db.example".into()], inject: Some(inject), ..RuleText::default() }
        };
        let rule = |content: &str, user: Option<&str>, databases: &[&str], insecure| {
            rule_as(Form::Postgresql, content, user, databases, insecure)
        };
        let redis = |content: &str, user: Option<&str>, database: &str| {
            rule_as(Form::Redis, content, user, &[database], false)
        };
        let http = InjectText { file: Some("/absent".into()), ..InjectText::default() };
        let http = RuleText { host: vec!["db.example".into()], inject: Some(http), ..RuleText::default() };
        let texts = [
            http,
            rule("reader:a:b", None, &["shop", "report_*"], false),
            rule("only-a-password", None, &["broken"], false),
            rule("secret", Some("we:ird"), &[], true),
            redis("worker:c:d", None, "0"),
            redis("no-user", None, "1"),
            redis("without:a:user", Some(""), "2"),
        ];
        let rules = RequestRules::compile(&texts).unwrap();
        assert_eq!(login(&rules, 5432, "shop", true).await.unwrap(), "reader a:b");
        assert_eq!(login(&rules, 5432, "report_1", true).await.unwrap(), "reader a:b");
        assert_eq!(login(&rules, 5432, "other", false).await.unwrap(), "we:ird secret");
        let refused = login(&rules, 5432, "shop", false).await.unwrap_err();
        assert!(refused.contains("not verified") && refused.contains("#2"), "{refused}");
        assert!(login(&rules, 5433, "shop", true).await.unwrap_err().contains("no rule"));
        assert!(login(&rules, 5432, "broken", true).await.unwrap_err().contains("user:password"));
        // A password of Redis may have no user.
        for (database, wanted) in [("0", "worker c:d"), ("1", " no-user"), ("2", " without:a:user")] {
            assert_eq!(login(&rules, 6379, database, true).await.unwrap(), wanted);
        }
        assert!(login(&rules, 6379, "shop", true).await.unwrap_err().contains("as = \"redis\""));
        // A request to the same host gets no credential of a database.
        let host = HostOrIp::parse("db.example").unwrap();
        let of_request = rules.credentials((&host, 443, true), "GET", "/", &Grantee::default());
        assert_eq!(of_request.len(), 1, "{of_request:?}");
        assert_eq!(of_request[0].1, "/absent");
    }
}
