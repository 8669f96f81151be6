//! Roles: the SQL templates of dynamic credentials.

use futures_util::FutureExt;
use keys::Secret;
use serde_json::json;
use store::{Cursor, Page};
use uuid::Uuid;
use zeroize::Zeroizing;

use super::limits::{LEASE_TTL_MAX_S, LEASE_TTL_MIN_S, LEASE_TTL_S};
use super::scram;
use crate::rotation::map_cursor_error;
use crate::tables::{self, ROLES_MAX, Requester, RoleRow, delete_role, lock_connection, put_role};
use crate::{CredentialError, Credentials, Name};

/// Maximum statements of a role.
const STATEMENTS_MAX: usize = 32;
/// Maximum bytes of a statement.
const STATEMENT_MAX: usize = 16_384;
/// Placeholders, and whether their values must be texts in single quotes.
const PLACEHOLDERS: [(&str, bool); 5] = [
    ("name", false),
    ("username", false),
    ("password", true),
    ("password_scram", true),
    ("expiration", true),
];
/// Maximum characters of the role's name in a user name.
const STEM_MAX: usize = 24;

/// Settings of a role: connection, SQL templates and lifetimes.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct RoleSettings {
    /// Name of the connection.
    pub connection: String,
    /// See [`RoleRow::creation`].
    pub creation: Vec<String>,
    /// See [`RoleRow::revocation`].
    pub revocation: Vec<String>,
    /// See [`RoleRow::default_ttl_s`]; `None`: an hour, or the maximum.
    pub default_ttl_s: Option<u32>,
    /// See [`RoleRow::max_ttl_s`]; `None`: a day, or the default lifetime.
    pub max_ttl_s: Option<u32>,
}

/// The values of the placeholders in a role's templates.
pub(super) struct Values<'a> {
    pub(super) username: &'a str,
    pub(super) password: &'a Secret,
    pub(super) expires_at_us: i64,
}

impl RoleSettings {
    /// Checks the templates, and returns the lifetimes.
    fn checked(&self) -> Result<(u32, u32), CredentialError> {
        if self.creation.is_empty() {
            return Err(CredentialError::bad(
                "A role needs a creation statement, as in CREATE ROLE \"{{name}}\" LOGIN PASSWORD '{{password_scram}}' VALID \
                 UNTIL '{{expiration}}'",
            ));
        }
        for (kind, statements) in [("creation", &self.creation), ("revocation", &self.revocation)] {
            if statements.len() > STATEMENTS_MAX {
                return Err(CredentialError::bad(format!(
                    "A role has at most {STATEMENTS_MAX} {kind} statements, not {}.",
                    statements.len()
                )));
            }
            for (at, statement) in statements.iter().enumerate() {
                check_template(statement, kind == "creation")
                    .map_err(|why| CredentialError::bad(format!("The {kind} statement {} {why}.", at + 1)))?;
            }
        }
        let has = |names: &[&str]| {
            let mark = |name: &&str| format!("{{{{{name}}}}}");
            self.creation.iter().any(|text| names.iter().any(|name| text.contains(&mark(name))))
        };
        if !has(&["name", "username"]) || !has(&["password", "password_scram"]) {
            return Err(CredentialError::bad(
                "The creation statements must contain {{name}}, and {{password_scram}} or {{password}}.",
            ));
        }
        self.lifetimes()
    }

    fn lifetimes(&self) -> Result<(u32, u32), CredentialError> {
        for ttl in [self.default_ttl_s, self.max_ttl_s].into_iter().flatten() {
            if !(LEASE_TTL_MIN_S..=LEASE_TTL_MAX_S).contains(&ttl) {
                return Err(CredentialError::bad(format!(
                    "A lifetime of a role must be {LEASE_TTL_MIN_S} to {LEASE_TTL_MAX_S} seconds, not {ttl}."
                )));
            }
        }
        let max = self.max_ttl_s.unwrap_or_else(|| self.default_ttl_s.unwrap_or(LEASE_TTL_S).max(86_400));
        let default = self.default_ttl_s.unwrap_or(LEASE_TTL_S.min(max));
        if default > max {
            return Err(CredentialError::bad(format!(
                "The default lifetime ({default} s) is longer than the maximum ({max} s)."
            )));
        }
        Ok((default, max))
    }
}

/// Checks that a template has only known placeholders, each in quotes, so that no value can end a literal or an identifier.
fn check_template(text: &str, creation: bool) -> Result<(), String> {
    if text.trim().is_empty() {
        return Err("is empty".to_owned());
    }
    if text.len() > STATEMENT_MAX || text.contains('\0') {
        return Err(format!("has more than {STATEMENT_MAX} bytes, or a NUL character"));
    }
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("{{") {
        let Some((name, after)) = after.split_once("}}") else {
            return Err("has {{ without }}".to_owned());
        };
        let Some((_, is_text)) = PLACEHOLDERS.iter().find(|(known, _)| *known == name.trim()) else {
            return Err(format!(
                "has the unknown placeholder {{{{{name}}}}}: use {{{{name}}}}, {{{{password_scram}}}}, {{{{password}}}} or \
                 {{{{expiration}}}}"
            ));
        };
        if name != name.trim() {
            return Err(format!("has spaces in {{{{{name}}}}}: remove them"));
        }
        if *is_text && !creation {
            return Err(format!(
                "has {{{{{name}}}}}: only {{{{name}}}} is known when a credential is revoked"
            ));
        }
        let quoted = |quote: char| before.ends_with(quote) && after.starts_with(quote);
        if !quoted('\'') && (*is_text || !quoted('"')) {
            let mark = if *is_text { '\'' } else { '"' };
            return Err(format!("has {{{{{name}}}}} without quotes: write {mark}{{{{{name}}}}}{mark}"));
        }
        rest = after;
    }
    Ok(())
}

/// Returns a template with its placeholders replaced by values.
fn expand_template(text: &str, values: &[(&str, &str)]) -> String {
    values.iter().fold(text.to_owned(), |text, (name, value)| text.replace(&format!("{{{{{name}}}}}"), value))
}

/// Returns the statements that create a credential.
pub(super) fn creation(
    role: &RoleRow,
    values: &Values<'_>,
) -> Result<Zeroizing<Vec<String>>, CredentialError> {
    let scram = scram::verifier(values.password.expose())?;
    let expiration = time(values.expires_at_us);
    let all = [
        ("name", values.username),
        ("username", values.username),
        ("password", values.password.expose()),
        ("password_scram", &scram),
        ("expiration", &expiration),
    ];
    Ok(Zeroizing::new(role.creation.iter().map(|text| expand_template(text, &all)).collect()))
}

/// Returns the statements that drop a credential. Empty: the default statements.
pub(super) fn revocation(role: &RoleRow, username: &str) -> Vec<String> {
    let all = [("name", username), ("username", username)];
    role.revocation.iter().map(|text| expand_template(text, &all)).collect()
}

/// Formats a time as PostgreSQL reads it.
pub(super) fn time(us: i64) -> String {
    jiff::Timestamp::from_microsecond(us).unwrap_or_default().to_string()
}

/// Returns the name of a new role at the database: letters, digits and underscores, at most 63 bytes, unique by the lease.
pub(super) fn username(role: &Name, lease: Uuid) -> String {
    let last = role.key().rsplit('/').next().unwrap_or_default();
    let stem: String =
        last.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).take(STEM_MAX).collect();
    let random = &lease.simple().to_string()[16..];
    format!("bulla_{stem}_{random}")
}

impl Credentials {
    /// Creates a role, or replaces the role of that name. Existing leases keep the statements with which they were created.
    ///
    /// # Errors
    /// [`CredentialError::Bad`] for invalid templates, lifetimes or an unknown connection; [`CredentialError::Forbidden`].
    #[crate::boxed]
    pub async fn set_role(
        &self,
        requester: &Requester,
        name: &Name,
        settings: RoleSettings,
    ) -> Result<RoleRow, CredentialError> {
        super::connection::require_database_access(requester)?;
        let (default_ttl_s, max_ttl_s) = settings.checked()?;
        let row = RoleRow {
            name: name.as_str().to_owned(),
            connection: settings.connection,
            creation: settings.creation,
            revocation: settings.revocation,
            default_ttl_s,
            max_ttl_s,
            set_at_us: self.now_us(),
            set_by: requester.actor.clone(),
        };
        let details = json!({
            "connection": row.connection, "creation": row.creation, "revocation": row.revocation,
            "default_ttl_s": default_ttl_s, "max_ttl_s": max_ttl_s,
        });
        let (event, stored) = (self.event(requester, "credential.role", name.as_str(), details), row.clone());
        let put = self.store().write("credential_role_put", move |tx| {
            async move {
                if lock_connection(tx, &stored.connection).await?.is_none() {
                    return Ok(None);
                }
                let put = put_role(tx, &stored).await?;
                if put {
                    store::audit(tx, vec![event]).await?;
                }
                Ok(Some(put))
            }
            .boxed()
        });
        match put.await? {
            Some(true) => Ok(row),
            Some(false) => Err(CredentialError::bad(format!(
                "The limit of {ROLES_MAX} roles is reached. Remove one first."
            ))),
            None => Err(CredentialError::bad(format!(
                "There is no connection {:?}. Create it first: `bulla credential database set`.",
                row.connection
            ))),
        }
    }

    /// Deletes a role. Its leases stay until they end.
    ///
    /// # Errors
    /// [`CredentialError::NoRole`]; [`CredentialError::Forbidden`].
    #[crate::boxed]
    pub async fn delete_role(&self, requester: &Requester, name: &Name) -> Result<(), CredentialError> {
        super::connection::require_database_access(requester)?;
        let event = self.event(requester, "credential.role_removed", name.as_str(), json!({}));
        let key = name.key().to_owned();
        let deleted = self.store().write("credential_role_delete", move |tx| {
            async move {
                let deleted = delete_role(tx, &key).await?;
                if deleted {
                    store::audit(tx, vec![event]).await?;
                }
                Ok(deleted)
            }
            .boxed()
        });
        if deleted.await? { Ok(()) } else { Err(CredentialError::NoRole) }
    }

    /// Lists a page of the roles whose credentials the caller may read; of all roles for a caller that configures databases.
    ///
    /// # Errors
    /// [`CredentialError::Bad`] for a cursor of another listing.
    #[crate::boxed]
    pub async fn roles(
        &self,
        requester: &Requester,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<RoleRow>, CredentialError> {
        let all = requester.manages_databases.then(|| requester.with_full_access());
        let rows = tables::Credentials::of(self.store());
        rows.roles(all.as_ref().unwrap_or(requester), after, limit).await.map_err(map_cursor_error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_without_quotes_or_with_unknown_placeholders_are_rejected() {
        for (text, fault) in [
            ("CREATE ROLE \"{{name}}\" LOGIN PASSWORD '{{password}}' VALID UNTIL '{{expiration}}'", None),
            ("SELECT pg_terminate_backend(pid) WHERE usename = '{{name}}'", None),
            ("CREATE ROLE {{name}} LOGIN", Some("write \"{{name}}\"")),
            ("ALTER ROLE \"{{name}}\" PASSWORD {{password}}", Some("write '{{password}}'")),
            ("ALTER ROLE \"{{name}}\" PASSWORD \"{{password}}\"", Some("write '{{password}}'")),
            ("ALTER ROLE \"{{ name }}\"", Some("spaces")),
            ("ALTER ROLE \"{{user}}\"", Some("unknown placeholder")),
            ("ALTER ROLE \"{{name", Some("without }}")),
            (" ", Some("empty")),
        ] {
            let found = check_template(text, true);
            match fault {
                None => assert_eq!(found, Ok(()), "{text}"),
                Some(part) => assert!(found.as_ref().unwrap_err().contains(part), "{text}: {found:?}"),
            }
        }
        assert!(check_template("ALTER ROLE x PASSWORD '{{password}}'", false).is_err());
    }

    #[test]
    fn lifetimes_default_to_an_hour_and_a_day() {
        let of = |default_ttl_s, max_ttl_s| {
            RoleSettings { default_ttl_s, max_ttl_s, ..RoleSettings::default() }.lifetimes().ok()
        };
        assert_eq!(of(None, None), Some((3_600, 86_400)));
        assert_eq!(of(None, Some(60)), Some((60, 60)));
        assert_eq!(of(Some(604_800), None), Some((604_800, 604_800)));
        assert_eq!(of(Some(61), Some(60)), None);
        assert_eq!(of(Some(0), None), None);
    }

    #[test]
    fn user_names_need_no_quotes() {
        let lease = Uuid::from_u128(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef);
        let of = |name: &str| username(&Name::parse(name).unwrap(), lease);
        assert_eq!(of("/team/Read-Only"), "bulla_read_only_0123456789abcdef");
        assert!(of(&format!("/{}", "x".repeat(900))).len() <= 63);
    }
}
