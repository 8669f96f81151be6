//! Names of agents, groups, targets, sites and nodes.

use uuid::Uuid;

/// Maximum bytes of the name of an agent, a group, a target, a site or a node.
pub const NAME_MAX: usize = 128;

/// Derives another name when the requested one is taken. Appends digits of the UUIDv7, whose last digits are random.
#[must_use]
pub fn suffixed_name(name: &str, id: Uuid) -> String {
    let digits = id.simple().to_string();
    format!("{name}-{}", &digits[digits.len() - 8..])
}

/// Checks that a name has 1 to [`NAME_MAX`] bytes, no slash or control character, and no space at its ends.
///
/// # Errors
/// A text that says what a valid name is.
pub fn check_name(name: &str) -> Result<(), String> {
    let fits = !name.is_empty() && name.len() <= NAME_MAX && name.trim() == name;
    if fits && !name.chars().any(|letter| letter.is_control() || letter == '/') {
        return Ok(());
    }
    Err(format!("the name {name:?} must have 1 to {NAME_MAX} bytes, no slash, and no space at its ends"))
}
