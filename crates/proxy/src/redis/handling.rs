//! What the proxy does with a command of a session that is logged in.

use super::command::Head;

/// Maximum digits of the number of a database. The largest value of `databases` of Redis, 2147483647, has as many.
const DATABASE_DIGITS_MAX: usize = 10;

const PASSWORDS: &str = "it can show or change passwords";
const ELSEWHERE: &str = "it can send the data elsewhere";

/// Commands that are refused with any arguments, and the reason.
const REFUSED: &[(&str, &str)] = &[
    ("CONFIG", PASSWORDS),
    ("SENTINEL", PASSWORDS),
    ("DEBUG", "it reads or stops the server"),
    ("FAILOVER", ELSEWHERE),
    ("MIGRATE", ELSEWHERE),
    ("MODULE", "it loads programs into the server"),
    ("MONITOR", "it shows the commands of other clients"),
    ("PSYNC", ELSEWHERE),
    ("REPLCONF", ELSEWHERE),
    ("REPLICAOF", ELSEWHERE),
    ("RESET", "it logs the session out: open a new connection"),
    ("SHUTDOWN", "it stops the server"),
    ("SLAVEOF", ELSEWHERE),
    ("SYNC", ELSEWHERE),
];

/// Commands of which only these subcommands are forwarded, and the reason.
const LIMITED: &[(&str, &[&str], &str)] = &[
    ("ACL", &["CAT", "WHOAMI"], PASSWORDS),
    ("CLUSTER", &["INFO", "KEYSLOT", "MYID", "NODES", "SHARDS", "SLOTS"], ELSEWHERE),
];

/// More commands whose arguments decide, besides [`LIMITED`].
const READ_WHOLE: &[&str] = &["AUTH", "CLIENT", "COPY", "HELLO", "MOVE", "SELECT", "SWAPDB"];

/// What the proxy does with a command.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum Handling<'a> {
    Forward,
    /// The command is refused: its name, and the reason.
    Refuse(&'static str, &'static str),
    /// The client authenticates.
    Authenticate(Credentials<'a>),
    /// The client authenticates, and changes the version of the protocol.
    Greet(Credentials<'a>, Hello<'a>),
    /// The command uses these databases.
    UseDatabases(&'static str, Vec<&'a str>),
    /// The client switches replies on or off.
    Replies {
        are_on: bool,
    },
}

/// The name and the value of a token, as a client sent them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Credentials<'a> {
    pub(super) name: &'a [u8],
    pub(super) token: &'a [u8],
}

/// The arguments of HELLO.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Hello<'a> {
    pub(super) version: Option<&'a [u8]>,
    pub(super) credentials: Option<Credentials<'a>>,
    /// Name of the connection.
    pub(super) name: Option<&'a [u8]>,
}

impl<'a> Hello<'a> {
    /// Parses the arguments after HELLO; `None` if they are invalid.
    pub(super) fn parse(arguments: &[&'a [u8]]) -> Option<Self> {
        let mut hello = Self { version: arguments.first().copied(), ..Self::default() };
        let mut rest = arguments.get(1..).unwrap_or_default();
        loop {
            rest = match rest {
                [] => return Some(hello),
                [option, name, token, rest @ ..] if option.eq_ignore_ascii_case(b"AUTH") => {
                    hello.credentials = Some(Credentials { name, token });
                    rest
                }
                [option, name, rest @ ..] if option.eq_ignore_ascii_case(b"SETNAME") => {
                    hello.name = Some(name);
                    rest
                }
                _ => return None,
            };
        }
    }

    /// Returns the command without its credentials.
    pub(super) fn without_credentials(&self) -> Vec<u8> {
        let name = self.name.map(|name| [&b"SETNAME"[..], name]);
        let parts = std::iter::once(&b"HELLO"[..]).chain(self.version).chain(name.into_iter().flatten());
        super::reply::command(&parts.collect::<Vec<_>>())
    }
}

fn is(name: &[u8], wanted: &str) -> bool {
    name.eq_ignore_ascii_case(wanted.as_bytes())
}

/// Returns whether the arguments of the command with this name decide.
pub(super) fn reads_whole(name: &[u8]) -> bool {
    READ_WHOLE.iter().any(|one| is(name, one)) || LIMITED.iter().any(|(one, ..)| is(name, one))
}

/// Returns what the proxy does with a command.
pub(super) fn handling<'a>(head: &Head<'a>) -> Handling<'a> {
    let Some(name) = head.name() else {
        return Handling::Refuse("A command", "its name is longer than 64 bytes");
    };
    if let Some((name, why)) = REFUSED.iter().find(|(one, _)| is(name, one)) {
        return Handling::Refuse(name, why);
    }
    if let Some((limited, allowed, why)) = LIMITED.iter().find(|(one, ..)| is(name, one)) {
        let subcommand = head.argument(1).unwrap_or_default();
        return match allowed.iter().any(|one| is(subcommand, one)) {
            true => Handling::Forward,
            false => Handling::Refuse(limited, why),
        };
    }
    let Some(read_whole) = READ_WHOLE.iter().find(|one| is(name, one)) else { return Handling::Forward };
    match head.whole() {
        Some(whole) => with_arguments(read_whole, whole.get(1..).unwrap_or_default()),
        None => Handling::Refuse(read_whole, "it has more than 32 KiB"),
    }
}

fn with_arguments<'a>(name: &'static str, arguments: &[&'a [u8]]) -> Handling<'a> {
    match (name, arguments) {
        ("AUTH", [name, token]) => Handling::Authenticate(Credentials { name, token }),
        ("AUTH", _) => {
            Handling::Refuse(name, "send AUTH NAME TOKEN: the name and the value of the proxy token")
        }
        ("CLIENT", [option, value, ..]) if is(option, "REPLY") => {
            Handling::Replies { are_on: is(value, "ON") }
        }
        ("HELLO", arguments) => match Hello::parse(arguments) {
            Some(hello) => match hello.credentials {
                Some(credentials) => Handling::Greet(credentials, hello),
                None => Handling::Forward,
            },
            None => Handling::Refuse(name, "its arguments are invalid"),
        },
        ("CLIENT", _) => Handling::Forward,
        (_, arguments) => match databases(name, arguments) {
            Some(databases) => Handling::UseDatabases(name, databases),
            None => Handling::Refuse(name, "its arguments are invalid, or a database is not a number"),
        },
    }
}

/// Returns the databases that a command names; `None` if its arguments are invalid.
fn databases<'a>(name: &str, arguments: &[&'a [u8]]) -> Option<Vec<&'a str>> {
    match (name, arguments) {
        ("SELECT", [database]) | ("MOVE", [_, database]) => Some(vec![number(database)?]),
        ("SWAPDB", [one, other]) => Some(vec![number(one)?, number(other)?]),
        ("COPY", [_, _, options @ ..]) => {
            let mut found = Vec::new();
            let mut rest = options;
            loop {
                rest = match rest {
                    [] => return Some(found),
                    [option, database, rest @ ..] if is(option, "DB") => {
                        found.push(number(database)?);
                        rest
                    }
                    [option, rest @ ..] if is(option, "REPLACE") => rest,
                    _ => return None,
                };
            }
        }
        _ => None,
    }
}

/// Returns the number of a database, in the only spelling that servers accept.
fn number(text: &[u8]) -> Option<&str> {
    let is_number = (1..=DATABASE_DIGITS_MAX).contains(&text.len())
        && text.iter().all(u8::is_ascii_digit)
        && (text == b"0" || text[0] != b'0');
    std::str::from_utf8(text).ok().filter(|_| is_number)
}

#[cfg(test)]
mod tests {
    use super::super::command::CommandReader;
    use super::super::reply::command;
    use super::*;

    fn handled(text: &str, check: impl Fn(Handling<'_>) -> bool) -> bool {
        let arguments: Vec<&[u8]> = text.split(' ').map(str::as_bytes).collect();
        let mut reader = CommandReader::new(reads_whole);
        assert!(reader.read(&mut &command(&arguments)[..], &mut Vec::new()).unwrap());
        check(handling(&reader.head()))
    }

    #[test]
    fn commands_that_show_passwords_or_send_data_elsewhere_are_refused() {
        for text in [
            "CONFIG GET requirepass",
            "config get *",
            "ACL",
            "ACL GETUSER app",
            "acl LIST",
            "MIGRATE host 1 key 0 1",
            "REPLICAOF host 1",
            "SLAVEOF host 1",
            "SYNC",
            "PSYNC ? -1",
            "MODULE LOAD x",
            "DEBUG OBJECT a",
            "SHUTDOWN",
            "FAILOVER",
            "CLUSTER MEET host 1",
            "CLUSTER",
            "MONITOR",
            "RESET",
            "AUTH token",
            "AUTH a b c",
            "HELLO 3 AUTH a",
            "HELLO 3 UNKNOWN",
            "SELECT",
            "SELECT 01",
            "SELECT -1",
            "SELECT +1",
            "SELECT 1 2",
            "SELECT 12345678901",
            "MOVE a x",
            "COPY a b DB",
            "COPY a b DB x",
            "COPY a",
            "SWAPDB 0",
        ] {
            assert!(handled(text, |handling| matches!(handling, Handling::Refuse(..))), "{text}");
        }
    }

    #[test]
    fn other_commands_are_forwarded() {
        for text in [
            "GET CONFIG",
            "SET AUTH x",
            "CONFIGURE",
            "acl whoami",
            "ACL CAT read",
            "CLUSTER SLOTS",
            "cluster keyslot a",
            "CLUSTER NODES",
            "HELLO",
            "HELLO 3",
            "HELLO 3 SETNAME auth",
            "CLIENT SETNAME REPLY",
            "CLIENT",
            "QUIT",
            "MULTI",
            "EVAL return 0",
        ] {
            assert!(handled(text, |handling| handling == Handling::Forward), "{text}");
        }
        assert!(handled("CLIENT REPLY off", |handling| handling == Handling::Replies { are_on: false }));
        assert!(handled("client reply ON", |handling| handling == Handling::Replies { are_on: true }));
    }

    #[test]
    fn commands_with_credentials_and_databases_need_a_decision() {
        let credentials = Credentials { name: b"ci", token: b"secret" };
        assert!(handled("auth ci secret", |handling| handling == Handling::Authenticate(credentials)));
        let is_greeting = |handling: Handling<'_>| match handling {
            Handling::Greet(sent, hello) => {
                sent == credentials
                    && hello.without_credentials() == command(&[b"HELLO", b"3", b"SETNAME", b"x"])
            }
            _ => false,
        };
        assert!(handled("HELLO 3 AUTH ci secret SETNAME x", is_greeting));
        assert!(handled("hello 3 setname x auth ci secret", is_greeting));
        for (text, wanted) in [
            ("SELECT 0", &["0"][..]),
            ("select 15", &["15"]),
            ("MOVE key 3", &["3"]),
            ("SWAPDB 0 1", &["0", "1"]),
            ("COPY a b", &[]),
            ("COPY a b REPLACE db 2", &["2"]),
            ("COPY a b DB 1 DB 2", &["1", "2"]),
        ] {
            let is_wanted = |handling: Handling<'_>| matches!(handling, Handling::UseDatabases(_, found) if found == wanted);
            assert!(handled(text, is_wanted), "{text}");
        }
    }

    #[test]
    fn commands_with_arguments_are_read_as_a_whole() {
        let long = vec![b'x'; 40_000];
        for name in ["SELECT", "COPY", "HELLO", "ACL"] {
            let mut reader = CommandReader::new(reads_whole);
            let sent = command(&[name.as_bytes(), &long, b"1"]);
            assert!(reader.read(&mut &sent[..], &mut Vec::new()).unwrap());
            assert!(matches!(handling(&reader.head()), Handling::Refuse(..)), "{name}");
        }
    }
}
