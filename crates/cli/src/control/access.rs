//! Access control: tokens and users.

use api::access::{Grant, IdentityView, NewPassword, NewToken, NewUser, RoleView};
use api::security_keys::SecurityKeyView;
use clap::Subcommand;
use reqwest::Method;

use super::{Run, input, password};
use crate::columns;
use crate::connection::{Client, Columns, Listing, Output, document_of, path_of, show_one};
use crate::exit::{Outcome, Problem};
use crate::units;

const COLUMNS: Columns = columns!(
    IdentityView:
    ("Name", name),
    ("Label", label),
    ("Grants", grants),
    ("Enabled", enabled),
    ("Ends", expires_at),
    ("Last used", last_used_at),
    ("Id", id),
);

/// Commands of `bulla token`.
#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    /// List tokens
    List(Listing),
    /// Show a token
    Show {
        /// Name or id of the token
        #[arg(value_name = "NAME")]
        given: String,
        #[command(flatten)]
        show: Output,
    },
    /// Create a token; its secret is shown only once
    Create {
        /// Name of the token
        name: String,
        /// Role of the token: ROLE or ROLE=SCOPE (any, or bounds separated by commas: profile:, issuer:, team:, name:, target:,
        /// path:); may be repeated
        #[arg(long = "role", value_name = "ROLE[=SCOPE]", required = true)]
        roles: Vec<String>,
        /// Lifetime of the token: 90d
        #[arg(long, value_name = "DURATION", value_parser = units::duration)]
        lifetime: Option<std::time::Duration>,
        #[command(flatten)]
        show: Output,
    },
    /// Give a token a new secret; the old one becomes invalid immediately
    Rotate {
        /// Name or id of the token
        #[arg(value_name = "NAME")]
        given: String,
        #[command(flatten)]
        show: Output,
    },
    /// Delete a token; it becomes invalid immediately
    Delete {
        /// Name or id of the token
        #[arg(value_name = "NAME")]
        given: String,
    },
}

impl Run for TokenCommand {
    async fn run(&self, client: &Client) -> Outcome<()> {
        const PATH: &str = "/api/v1/tokens";
        let path_to = |given| path_of(client, PATH, "token", given);
        match self {
            Self::List(listing) => listing.print(client, PATH, &(), COLUMNS).await,
            Self::Show { given, show } => show_one(&client.get(&path_to(given).await?, &()).await?, show),
            Self::Create { name, roles, lifetime, show } => {
                let ends = lifetime.map(units::from_now);
                let new = NewToken { name: name.clone(), grants: grants(roles)?, expires_at: ends };
                show_one(&client.submit(Method::POST, PATH, &new).await?, show)
            }
            Self::Rotate { given, show } => {
                let path = format!("{}/rotate", path_to(given).await?);
                show_one(&client.send(Method::POST, &path, None).await?, show)
            }
            Self::Delete { given } => {
                client.send(Method::DELETE, &path_to(given).await?, None).await.map(drop)
            }
        }
    }
}

fn grants(roles: &[String]) -> Outcome<Vec<Grant>> {
    let grant = |text: &String| {
        let (role, scope) = text.split_once('=').unwrap_or((text, "any"));
        Ok(Grant { role: role.to_owned(), scope: scope.parse().map_err(Problem::usage)? })
    };
    roles.iter().map(grant).collect()
}

/// Commands of `bulla user`.
#[derive(Debug, Subcommand)]
pub enum UserCommand {
    /// List users
    List(Listing),
    /// Show a user
    Show {
        /// Name or id of the user
        #[arg(value_name = "NAME")]
        given: String,
        #[command(flatten)]
        show: Output,
    },
    /// Create a user who signs in with a password or one-time links, or with the OIDC issuer
    Create {
        /// Name of the user
        name: String,
        /// Role of the user: ROLE or ROLE=SCOPE, as for a token; may be repeated
        #[arg(long = "role", value_name = "ROLE[=SCOPE]", required = true)]
        roles: Vec<String>,
        /// Subject of the user at the OIDC issuer (the claim `sub`); without it the user signs in with a password or one-time links
        #[arg(long, value_name = "TEXT")]
        subject: Option<String>,
        /// E-mail address of the user
        #[arg(long, value_name = "ADDRESS")]
        email: Option<String>,
        #[command(flatten)]
        show: Output,
    },
    /// Set a user's password: prompted at the terminal, or one line on standard input
    ///
    /// At least 12 characters. The user's sessions end.
    Password {
        /// Name or id of the user
        #[arg(value_name = "NAME")]
        given: String,
    },
    /// List or delete the security keys of a user; users add their own in the console
    #[command(subcommand)]
    SecurityKey(SecurityKeyCommand),
    /// End every session of a user
    Logout {
        /// Name or id of the user
        #[arg(value_name = "NAME")]
        given: String,
    },
    /// Delete a user
    Delete {
        /// Name or id of the user
        #[arg(value_name = "NAME")]
        given: String,
    },
    /// List roles and their permissions
    Roles(Listing),
}

/// Commands of `bulla user security-key`.
#[derive(Debug, Subcommand)]
pub enum SecurityKeyCommand {
    /// List the security keys of a user
    List {
        /// Name or id of the user
        #[arg(value_name = "NAME")]
        given: String,
        #[command(flatten)]
        listing: Listing,
    },
    /// Delete a security key of a user. A user without security keys signs in with the password alone
    Delete {
        /// Name or id of the user
        #[arg(value_name = "NAME")]
        given: String,
        /// Id of the security key
        key: String,
    },
}

impl Run for SecurityKeyCommand {
    async fn run(&self, client: &Client) -> Outcome<()> {
        const KEYS: Columns = columns!(
            SecurityKeyView:
            ("Name", name),
            ("Host", host),
            ("Algorithm", algorithm),
            ("Synchronised", backup_eligible),
            ("Registered", created_at),
            ("Last used", last_used_at),
            ("Id", id),
        );
        let (Self::List { given, .. } | Self::Delete { given, .. }) = self;
        let path = format!("{}/security-keys", path_of(client, "/api/v1/users", "user", given).await?);
        match self {
            Self::List { listing, .. } => listing.print(client, &path, &(), KEYS).await,
            Self::Delete { key, .. } => {
                client.send(Method::DELETE, &format!("{path}/{}", input::segment(key)), None).await.map(drop)
            }
        }
    }
}

impl Run for UserCommand {
    async fn run(&self, client: &Client) -> Outcome<()> {
        const PATH: &str = "/api/v1/users";
        const ROLES: Columns =
            columns!(RoleView: ("Role", name), ("May", permissions), ("Built in", built_in));
        let path_to = |given| path_of(client, PATH, "user", given);
        match self {
            Self::List(listing) => listing.print(client, PATH, &(), COLUMNS).await,
            Self::Show { given, show } => show_one(&client.get(&path_to(given).await?, &()).await?, show),
            Self::Create { name, roles, subject, email, show } => {
                let new = NewUser {
                    name: name.clone(),
                    subject: subject.clone(),
                    issuer: None,
                    email: email.clone(),
                    grants: grants(roles)?,
                };
                show_one(&client.submit(Method::POST, PATH, &new).await?, show)
            }
            Self::Password { given } => {
                let path = format!("{}/password", path_to(given).await?);
                let password = password::read()?;
                let body = document_of(&NewPassword { password: password.to_string() })?;
                client.send(Method::PUT, &path, Some(&body)).await.map(drop)
            }
            Self::SecurityKey(command) => command.run(client).await,
            Self::Logout { given } => {
                let path = format!("{}/sessions", path_to(given).await?);
                client.send(Method::DELETE, &path, None).await.map(drop)
            }
            Self::Delete { given } => {
                client.send(Method::DELETE, &path_to(given).await?, None).await.map(drop)
            }
            Self::Roles(listing) => listing.print(client, "/api/v1/roles", &(), ROLES).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::access::Scope;

    #[test]
    fn role_without_scope_applies_to_everything() {
        let all = grants(&["admin".to_owned(), "issuer=profile:web".to_owned()]).unwrap();
        let grant = |role: &str, scope| Grant { role: role.to_owned(), scope };
        assert_eq!(all, [grant("admin", Scope::Any), grant("issuer", Scope::profile("web"))]);
        assert!(grants(&["issuer=galaxy:web".to_owned()]).is_err());
    }
}
