//! Owners and teams of certificates, and their contacts.

use authority::teams::{InvalidOwnedObjects, Owns, Quota};
use serde::{Deserialize, Serialize};

use crate::managed::BadRequest;
pub use crate::tables::people::PeopleKind;

/// Maximum contacts of an owner or team.
pub const CONTACTS_MAX: usize = 16;
/// Maximum length of a contact or description, in bytes.
pub const TEXT_BYTES_MAX: usize = 500;

/// Properties of an owner or a team, stored as JSON.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Person {
    /// Free-text description, for users.
    pub description: String,
    /// Team that an owner belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub team: Option<String>,
    /// Contacts of the owner or team.
    pub contacts: Vec<Contact>,
    /// Patterns of the objects that a team owns.
    #[serde(skip_serializing_if = "Owns::is_empty")]
    pub owns: Owns,
    /// Quota of a team.
    #[serde(skip_serializing_if = "Quota::is_none")]
    pub quota: Quota,
}

/// An address at which an owner or a team can be reached.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Contact {
    /// Kind of contact: `email`, `slack`, `phone`, …
    pub kind: String,
    /// Address in the form of `kind`, such as an email address or a phone number.
    pub address: String,
}

/// Reason why the owner or team is invalid.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum BadPerson {
    /// The name is invalid.
    #[error(transparent)]
    Name(#[from] BadRequest),
    /// There are more than [`CONTACTS_MAX`] contacts.
    #[error("at most {CONTACTS_MAX} contacts are allowed")]
    TooManyContacts,
    /// A contact is empty, too long, or has control characters.
    #[error("a contact must have 1 to {TEXT_BYTES_MAX} bytes and no control characters")]
    Contact,
    /// The contact is not an email address.
    #[error("{0:?} is not an email address")]
    Email(String),
    /// The description is too long.
    #[error("a description must have at most {TEXT_BYTES_MAX} bytes and no null character")]
    Description,
    /// A team cannot belong to a team.
    #[error("a team cannot belong to a team")]
    TeamOfTeam,
    /// An owner cannot have a list of owned objects; only teams own objects.
    #[error("only a team can own objects and have a quota")]
    OwnsAsOwner,
    /// The list of owned objects is invalid.
    #[error(transparent)]
    Owns(#[from] InvalidOwnedObjects),
}

impl Person {
    /// Validates the owner or team with this name.
    ///
    /// # Errors
    /// [`BadPerson`] says what to correct.
    pub fn check(&self, kind: PeopleKind, name: &str) -> Result<(), BadPerson> {
        crate::managed::check_label("the name", name)?;
        if self.description.len() > TEXT_BYTES_MAX || self.description.contains('\0') {
            return Err(BadPerson::Description);
        }
        if let Some(team) = &self.team {
            if kind == PeopleKind::Team {
                return Err(BadPerson::TeamOfTeam);
            }
            crate::managed::check_label("the team", team)?;
        }
        if kind == PeopleKind::Owner && !(self.owns.is_empty() && self.quota.is_none()) {
            return Err(BadPerson::OwnsAsOwner);
        }
        self.owns.check()?;
        self.quota.check()?;
        if self.contacts.len() > CONTACTS_MAX {
            return Err(BadPerson::TooManyContacts);
        }
        for contact in &self.contacts {
            for text in [&contact.kind, &contact.address] {
                if text.trim().is_empty() || text.len() > TEXT_BYTES_MAX || text.chars().any(char::is_control)
                {
                    return Err(BadPerson::Contact);
                }
            }
            let host = contact.address.split_once('@').map(|(_, host)| host);
            if contact.kind == "email" && host.is_none_or(|host| x509::HostName::parse(host).is_err()) {
                return Err(BadPerson::Email(contact.address.clone()));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contacts_are_validated() {
        let with = |kind: &str, address: &str| Person {
            contacts: vec![Contact { kind: kind.to_owned(), address: address.to_owned() }],
            ..Person::default()
        };
        assert!(with("email", "ann@example.org").check(PeopleKind::Owner, "ann").is_ok());
        assert!(with("slack", "#certs").check(PeopleKind::Team, "web").is_ok());
        assert_eq!(
            with("email", "ann").check(PeopleKind::Owner, "ann"),
            Err(BadPerson::Email("ann".to_owned()))
        );
        assert_eq!(with("slack", " ").check(PeopleKind::Owner, "ann"), Err(BadPerson::Contact));
        let owns = Owns { names: vec!["a.example".to_owned()], ..Owns::default() };
        let owning = Person { owns, ..Person::default() };
        assert!(owning.check(PeopleKind::Team, "web").is_ok());
        assert_eq!(owning.check(PeopleKind::Owner, "ann"), Err(BadPerson::OwnsAsOwner));
        let team = Person { team: Some("x".to_owned()), ..Person::default() };
        assert_eq!(team.check(PeopleKind::Team, "web"), Err(BadPerson::TeamOfTeam));
        assert!(team.check(PeopleKind::Owner, "").is_err());
    }
}
