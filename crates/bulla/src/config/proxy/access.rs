//! `[proxy.access]`: authentication of the proxy's clients.

use std::path::PathBuf;

use cli::exit::{Outcome, Problem};
use proxy::{AccessOptions, IssuerKeys, IssuerOptions, OwnTls, Token, Users};
use serde::{Deserialize, Serialize};

use crate::files;

/// Maximum number of tokens in the configuration.
const TOKENS_MAX: usize = 100_000;
/// Maximum number of issuers in the configuration.
const ISSUERS_MAX: usize = 100;

/// Configuration section `[proxy.access]`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct AccessSettings {
    pub(crate) users_file: PathBuf,
    pub(crate) tokens: Vec<TokenSettings>,
    pub(crate) issuers: Vec<IssuerSettings>,
    pub(crate) certificate_file: PathBuf,
    pub(crate) key_file: PathBuf,
    pub(crate) client_ca_files: Vec<PathBuf>,
    pub(crate) client_crl_files: Vec<PathBuf>,
    pub(crate) tls_only: bool,
}

/// Configuration of one entry of `proxy.access.tokens`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TokenSettings {
    pub(crate) name: String,
    pub(crate) sha256: String,
}

/// Configuration of one entry of `proxy.access.issuers`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct IssuerSettings {
    pub(crate) name: String,
    pub(crate) issuer: String,
    pub(crate) audiences: Vec<String>,
    pub(crate) jwks_url: String,
    pub(crate) jwks_file: PathBuf,
    pub(crate) ca_files: Vec<PathBuf>,
}

impl AccessSettings {
    /// Returns whether clients must authenticate.
    pub(crate) fn requires_authentication(&self) -> bool {
        self.has_users()
            || !self.tokens.is_empty()
            || !self.issuers.is_empty()
            || !self.client_ca_files.is_empty()
    }

    /// Returns whether password authentication is configured.
    pub(crate) fn has_users(&self) -> bool {
        !self.users_file.as_os_str().is_empty()
    }

    /// Returns whether clients may send credentials without TLS, so that others on the network can read them.
    pub(crate) fn accepts_cleartext_credentials(&self) -> bool {
        !self.tls_only && (self.has_users() || !self.tokens.is_empty() || !self.issuers.is_empty())
    }

    /// Returns whether the proxy accepts TLS connections from clients.
    pub(crate) fn speaks_tls(&self) -> bool {
        !self.certificate_file.as_os_str().is_empty()
    }

    pub(crate) fn check(&self) -> Outcome<()> {
        if self.certificate_file.as_os_str().is_empty() != self.key_file.as_os_str().is_empty() {
            return Err(Problem::usage(
                "proxy.access.certificate_file and proxy.access.key_file must be set together",
            )
            .hint("set both to listen with TLS, or neither"));
        }
        if !self.speaks_tls() && (!self.client_ca_files.is_empty() || self.tls_only) {
            return Err(Problem::usage("proxy.access.client_ca_files and proxy.access.tls_only need TLS")
                .hint("give proxy.access.certificate_file and proxy.access.key_file"));
        }
        if self.client_ca_files.is_empty() && !self.client_crl_files.is_empty() {
            return Err(Problem::usage("proxy.access.client_crl_files needs proxy.access.client_ca_files")
                .hint("set the trust anchors of the client certificates too, or leave the CRLs out"));
        }
        if self.issuers.len() > ISSUERS_MAX {
            return Err(Problem::usage(format_args!(
                "proxy.access.issuers has more than {ISSUERS_MAX} entries"
            ))
            .hint("one issuer may have several identities"));
        }
        for (index, issuer) in self.issuers.iter().enumerate() {
            issuer.check(index)?;
            if self.issuers.iter().take(index).any(|before| before.name == issuer.name) {
                return Err(issuer.invalid(
                    index,
                    "two issuers have this name",
                    "give each issuer a unique name",
                ));
            }
        }
        self.tokens().map(drop)
    }

    fn tokens(&self) -> Outcome<Vec<Token>> {
        if self.tokens.len() > TOKENS_MAX {
            return Err(Problem::usage(format_args!(
                "proxy.access.tokens has more than {TOKENS_MAX} entries"
            ))
            .hint("give users instead: proxy.access.users_file"));
        }
        self.tokens.iter().map(TokenSettings::read).collect()
    }

    /// Returns the access options of the proxy; reads files.
    pub(crate) fn options(&self) -> Outcome<AccessOptions> {
        let (users, tokens) = self.credentials()?;
        let issuers = self.issuers.iter().map(IssuerSettings::options).collect::<Outcome<_>>()?;
        let mut options = AccessOptions { users, tokens, issuers, ..AccessOptions::default() };
        if self.speaks_tls() {
            let mut client_roots = Vec::new();
            for path in &self.client_ca_files {
                client_roots.extend(files::certificates("proxy.access.client_ca_files", path)?);
            }
            let revoked = files::revocation_lists("proxy.access.client_crl_files", &self.client_crl_files)?;
            let certificate = files::certified_key("proxy.access.", &self.certificate_file, &self.key_file)?;
            options.tls = Some(OwnTls { certificate, client_roots, revoked, only: self.tls_only });
        }
        Ok(options)
    }

    /// Returns the users and tokens, which a reload may change. Reads the file of users.
    pub(crate) fn credentials(&self) -> Outcome<(Users, Vec<Token>)> {
        let mut users = Users::default();
        if self.has_users() {
            let invalid = |why: String| {
                Problem::usage(format_args!("{}: {why}", self.users_file.display())).hint(
                    "proxy.access.users_file must have lines NAME:HASH, as `htpasswd -c -5 FILE NAME` writes them",
                )
            };
            let text =
                std::fs::read_to_string(&self.users_file).map_err(|error| invalid(error.to_string()))?;
            users = Users::parse(&text).map_err(|error| invalid(error.to_string()))?;
            if users.is_empty() {
                return Err(invalid("the file has no users".to_owned()));
            }
        }
        Ok((users, self.tokens()?))
    }
}

impl IssuerSettings {
    fn invalid(&self, index: usize, why: &str, hint: &str) -> Problem {
        let number = index + 1;
        Problem::usage(format_args!("proxy.access.issuers[{number}] ({}): {why}", self.name)).hint(hint)
    }

    fn check(&self, index: usize) -> Outcome<()> {
        let is_empty = |path: &PathBuf| path.as_os_str().is_empty();
        if self.name.is_empty() || self.issuer.is_empty() {
            let hint = "name = \"github\", issuer = \"https://token.actions.githubusercontent.com\"";
            return Err(self.invalid(index, "the issuer has no name or no issuer URL", hint));
        }
        if self.audiences.is_empty() {
            let hint = "audiences = [\"bulla\"], and request the token for that audience";
            return Err(self.invalid(
                index,
                "without audiences, tokens for other services would be accepted",
                hint,
            ));
        }
        if !self.jwks_url.is_empty() && !is_empty(&self.jwks_file) {
            return Err(self.invalid(index, "jwks_url and jwks_file are both set", "leave one of them out"));
        }
        let url = if self.jwks_url.is_empty() { &self.issuer } else { &self.jwks_url };
        if is_empty(&self.jwks_file) && !url.starts_with("https://") {
            let hint = "give an https URL, or the keys in jwks_file";
            return Err(self.invalid(index, "the URL of its keys is not an https URL", hint));
        }
        Ok(())
    }

    fn options(&self) -> Outcome<IssuerOptions> {
        let keys = match (self.jwks_url.is_empty(), self.jwks_file.as_os_str().is_empty()) {
            (_, false) => IssuerKeys::File(self.jwks_file.clone()),
            (false, true) => IssuerKeys::Url(self.jwks_url.clone()),
            (true, true) => IssuerKeys::Discovered,
        };
        let mut roots = Vec::new();
        for path in &self.ca_files {
            roots.extend(files::certificates("proxy.access.issuers.ca_files", path)?);
        }
        let roots = Some(roots).filter(|roots| !roots.is_empty());
        let (name, issuer, audiences) = (self.name.clone(), self.issuer.clone(), self.audiences.clone());
        Ok(IssuerOptions { name, issuer, audiences, keys, roots })
    }
}

impl TokenSettings {
    fn read(&self) -> Outcome<Token> {
        let digest = self.sha256.parse::<x509::Fingerprint>().ok().filter(|_| !self.name.is_empty());
        let invalid = || {
            Problem::usage(format_args!(
                "the token {:?} in proxy.access.tokens has no name or no valid SHA-256",
                self.name
            ))
            .hint("for example { name = \"ci\", sha256 = \"…\" }, of `printf %s \"$TOKEN\" | sha256sum`")
        };
        Ok(Token { name: self.name.clone(), digest: *digest.ok_or_else(invalid)?.as_bytes() })
    }
}
