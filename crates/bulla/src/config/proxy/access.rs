//! `[proxy.access]`: who may use the proxy, and by what.

use std::path::PathBuf;

use cli::exit::{Outcome, Problem};
use proxy::{AccessOptions, OwnTls, Token, Users};
use serde::{Deserialize, Serialize};

use crate::files;

/// Tokens of the configuration.
const TOKENS_MAX: usize = 100_000;

/// `[proxy.access]`
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct AccessSettings {
    pub(crate) users_file: PathBuf,
    pub(crate) tokens: Vec<TokenSettings>,
    pub(crate) certificate_file: PathBuf,
    pub(crate) key_file: PathBuf,
    pub(crate) client_ca_files: Vec<PathBuf>,
    pub(crate) client_crl_files: Vec<PathBuf>,
    pub(crate) tls_only: bool,
}

/// One of `proxy.access.tokens`
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TokenSettings {
    pub(crate) name: String,
    pub(crate) sha256: String,
}

impl AccessSettings {
    /// Whether clients must authenticate.
    pub(crate) fn asks(&self) -> bool {
        self.has_users() || !self.tokens.is_empty() || !self.client_ca_files.is_empty()
    }

    /// Whether there are passwords.
    pub(crate) fn has_users(&self) -> bool {
        !self.users_file.as_os_str().is_empty()
    }

    /// Whether what clients show can be read on its way.
    pub(crate) fn is_heard(&self) -> bool {
        !self.tls_only && (self.has_users() || !self.tokens.is_empty())
    }

    /// Whether TLS is spoken with clients.
    pub(crate) fn speaks_tls(&self) -> bool {
        !self.certificate_file.as_os_str().is_empty()
    }

    pub(crate) fn check(&self) -> Outcome<()> {
        if self.certificate_file.as_os_str().is_empty() != self.key_file.as_os_str().is_empty() {
            return Err(Problem::usage(
                "proxy.access.certificate_file and proxy.access.key_file go together",
            )
            .hint("give both to be spoken to by TLS, or neither"));
        }
        if !self.speaks_tls() && (!self.client_ca_files.is_empty() || self.tls_only) {
            return Err(Problem::usage("proxy.access.client_ca_files and proxy.access.tls_only need TLS")
                .hint("give proxy.access.certificate_file and proxy.access.key_file"));
        }
        if self.client_ca_files.is_empty() && !self.client_crl_files.is_empty() {
            return Err(Problem::usage("proxy.access.client_crl_files is for proxy.access.client_ca_files")
                .hint("give the roots of clients' certificates too, or leave the lists out"));
        }
        self.tokens().map(drop)
    }

    fn tokens(&self) -> Outcome<Vec<Token>> {
        if self.tokens.len() > TOKENS_MAX {
            return Err(Problem::usage(format_args!("proxy.access.tokens names more than {TOKENS_MAX}"))
                .hint("give users instead: proxy.access.users_file"));
        }
        self.tokens.iter().map(TokenSettings::read).collect()
    }

    /// The access options of the proxy; reads files.
    pub(crate) fn options(&self) -> Outcome<AccessOptions> {
        let mut options = AccessOptions { tokens: self.tokens()?, ..AccessOptions::default() };
        if self.has_users() {
            let wrong = |why: String| {
                Problem::usage(format_args!("{}: {why}", self.users_file.display())).hint(
                    "proxy.access.users_file has lines NAME:HASH, as `htpasswd -c -5 FILE NAME` makes them",
                )
            };
            let text = std::fs::read_to_string(&self.users_file).map_err(|error| wrong(error.to_string()))?;
            options.users = Users::parse(&text).map_err(|error| wrong(error.to_string()))?;
            if options.users.is_empty() {
                return Err(wrong("there is no user".to_owned()));
            }
        }
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
}

impl TokenSettings {
    fn read(&self) -> Outcome<Token> {
        let digest = self.sha256.parse::<x509::Fingerprint>().ok().filter(|_| !self.name.is_empty());
        let wrong = || {
            Problem::usage(format_args!("the token of {:?} in proxy.access.tokens has no SHA-256", self.name))
                .hint("for example { name = \"ci\", sha256 = \"…\" }, of `printf %s \"$TOKEN\" | sha256sum`")
        };
        Ok(Token { name: self.name.clone(), digest: *digest.ok_or_else(wrong)?.as_bytes() })
    }
}
