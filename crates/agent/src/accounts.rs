//! Users and groups of this host, from `/etc/passwd` and `/etc/group`.

use std::path::PathBuf;

/// The user or group does not exist on this host.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("unknown {what} {name:?} on this host; a numeric ID works too")]
pub struct UnknownAccount {
    /// Kind of the missing account: "user" or "group".
    pub what: &'static str,
    /// User or group name as given by the caller.
    pub name: String,
}

/// A user account under which commands run.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Account {
    pub(crate) name: String,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) home: PathBuf,
}

/// Returns the effective user and group ids of this process.
pub(crate) fn own() -> (u32, u32) {
    (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())
}

/// Returns the user name of this process, or its user id when `/etc/passwd` has no name for it.
pub(crate) fn own_name() -> String {
    let number = own().0.to_string();
    user(&number).map_or(number, |account| account.name)
}

/// Looks up a user by name or number.
pub(crate) fn user(name: &str) -> Result<Account, UnknownAccount> {
    let text = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let found = text.lines().filter_map(account).find(|account| is_named(account, name));
    let (uid, gid) = own();
    // In a container `/etc/passwd` may have no line for the agent's own user.
    let nameless = || Account { name: name.to_owned(), uid, gid, home: PathBuf::from("/") };
    let unknown = || UnknownAccount { what: "user", name: name.to_owned() };
    found.or_else(|| (name.parse() == Ok(uid)).then(nameless)).ok_or_else(unknown)
}

/// Returns the ids of all groups of a user.
pub(crate) fn groups_of(account: &Account) -> Vec<u32> {
    let text = std::fs::read_to_string("/etc/group").unwrap_or_default();
    sandbox::groups_of(&account.name, account.gid, &text)
}

fn is_named(account: &Account, name: &str) -> bool {
    account.name == name || name.parse() == Ok(account.uid)
}

/// Parses a line of passwd(5): name, password, uid, gid, comment, home, shell.
fn account(line: &str) -> Option<Account> {
    let columns: Vec<&str> = line.split(':').collect();
    let [name, _, uid, gid, _, home, ..] = columns.as_slice() else { return None };
    Some(Account {
        name: (*name).to_owned(),
        uid: uid.parse().ok()?,
        gid: gid.parse().ok()?,
        home: PathBuf::from(home),
    })
}

/// Returns the uid of a user, given by name or number.
pub(crate) fn uid_of(name: &str) -> Result<u32, UnknownAccount> {
    number_of("/etc/passwd", "user", name)
}

/// Returns the gid of a group, given by name or number.
pub(crate) fn gid_of(name: &str) -> Result<u32, UnknownAccount> {
    number_of("/etc/group", "group", name)
}

/// Looks up a number in `/etc/passwd` or `/etc/group`. Both have the name in the first and the number in the third column
/// (passwd(5), group(5)).
fn number_of(file: &'static str, what: &'static str, name: &str) -> Result<u32, UnknownAccount> {
    if let Ok(number) = name.parse() {
        return Ok(number);
    }
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let found = text.lines().find_map(|line| {
        let mut columns = line.split(':');
        (columns.next() == Some(name)).then(|| columns.nth(1)?.parse().ok()).flatten()
    });
    found.ok_or_else(|| UnknownAccount { what, name: name.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_and_groups_are_found_by_name_or_id() {
        assert_eq!(uid_of("root").unwrap(), 0);
        assert_eq!(gid_of("root").unwrap(), 0);
        assert_eq!(uid_of("12345").unwrap(), 12_345);
        let error = uid_of("no-such-user").unwrap_err().to_string();
        assert!(error.contains("unknown user \"no-such-user\""), "{error}");
        let root = user("0").unwrap();
        assert_eq!((root.name.as_str(), root.uid, root.home), ("root", 0, PathBuf::from("/root")));
        assert!(user("no-such-user").is_err());
        assert_eq!(user(&own().0.to_string()).unwrap().uid, own().0);
    }
}
