//! `[oidc]`: login of people with OpenID Connect.

use std::path::Path;

use cli::exit::{Outcome, Problem, chain};
use secrecy::SecretString;
use server::access::Scope;
use server::access::oidc::{GroupGrant, Oidc, OidcOptions};

use super::addresses::Addresses;
use crate::config::OidcSettings;
use crate::files;

/// The path to which the browser is redirected after login, below the server's URL.
const CALLBACK: &str = "/api/v1/auth/callback";

/// Returns the issuer for logins, if one is configured. Sends no request yet.
pub(super) fn oidc(settings: &OidcSettings, addresses: &Addresses) -> Outcome<Option<Oidc>> {
    if settings.issuer.is_empty() {
        return Ok(None);
    }
    if settings.client_id.is_empty() {
        return Err(Problem::usage("oidc.issuer is set, but oidc.client_id is not")
            .hint("register this server with the issuer and set the client ID"));
    }
    let redirect = format!("{}{CALLBACK}", addresses.url());
    let mut options = OidcOptions::new(&settings.issuer, &settings.client_id, redirect);
    options.client_secret = secret(&settings.client_secret_file)?;
    options.scopes.clone_from(&settings.scopes);
    options.groups_claim.clone_from(&settings.groups_claim);
    options.name_claim.clone_from(&settings.name_claim);
    options.groups = settings.groups.iter().map(|text| grant(text)).collect::<Outcome<_>>()?;
    if !settings.ca_file.as_os_str().is_empty() {
        options.roots = files::certificates("oidc.ca_file", &settings.ca_file)?;
    }
    let oidc = Oidc::new(options)
        .map_err(|error| Problem::usage(chain(&error)).hint("correct [oidc] in the configuration"))?;
    Ok(Some(oidc))
}

fn secret(path: &Path) -> Outcome<Option<SecretString>> {
    if path.as_os_str().is_empty() {
        return Ok(None);
    }
    files::secret("oidc.client_secret_file", path).map(Some)
}

/// Parses `GROUP=ROLE` or `GROUP=ROLE=SCOPE`, from the end: names of groups in directories contain equals signs.
fn grant(text: &str) -> Outcome<GroupGrant> {
    let parsed = text.rsplit_once('=').and_then(|(rest, last)| match last.parse::<Scope>() {
        Ok(scope) => rest.rsplit_once('=').map(|(group, role)| (group, role, scope)),
        Err(_) => Some((rest, last, Scope::Any)),
    });
    match parsed {
        Some((group, role, scope)) if !group.is_empty() && !role.is_empty() && !role.contains(':') => {
            Ok(GroupGrant { group: group.to_owned(), role: role.to_owned(), scope })
        }
        _ => Err(Problem::usage(format_args!("oidc.groups: {text:?} does not assign a role to a group"))
            .hint(
                "write GROUP=ROLE or GROUP=ROLE=SCOPE, for example staff=viewer or web=issuer=profile:web",
            )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn group_grants_are_parsed_from_right_to_left() {
        let read = |text: &str| grant(text).map(|one| (one.group, one.role, one.scope.to_string()));
        for (text, group, role, scope) in [
            ("staff=viewer", "staff", "viewer", "any"),
            ("staff=viewer=any", "staff", "viewer", "any"),
            ("web=issuer=profile:web", "web", "issuer", "profile:web"),
            ("CN=pki,OU=it=admin", "CN=pki,OU=it", "admin", "any"),
            ("CN=pki=issuer=team:a", "CN=pki", "issuer", "team:a"),
        ] {
            assert_eq!(read(text).unwrap(), (group.into(), role.into(), scope.into()), "{text}");
        }
        for text in ["", "staff", "=viewer", "staff=", "staff=profile:web", "a=b=planet:x"] {
            assert!(read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn oidc_issuer_requires_client_id_and_https() {
        let addresses = Addresses::of(&crate::config::ServerSettings::default(), "").unwrap();
        let of = |issuer: &str, client_id: &str| {
            let settings = OidcSettings {
                issuer: issuer.into(),
                client_id: client_id.into(),
                ..OidcSettings::default()
            };
            oidc(&settings, &addresses)
        };
        assert!(of("", "").unwrap().is_none());
        assert!(of("https://login.example", "").is_err());
        assert!(of("http://login.example", "bulla").is_err());
        let oidc = of("https://login.example", "bulla").unwrap().unwrap();
        assert_eq!(oidc.options().redirect_url, "https://localhost:8443/api/v1/auth/callback");
    }
}
