//! Commands of a client before it is authenticated.

use aws_lc_rs::digest::{Context, SHA256};
use zeroize::Zeroizing;

use super::command::Head;
use super::handling::{Credentials, Handling, handling};
use super::reply;

/// What the proxy does with a command of a client that is not authenticated.
pub(super) enum Opening {
    /// The client authenticates.
    Authenticate(SentToken),
    /// The client authenticates. The server gets this command after the login.
    Greet(SentToken, Vec<u8>),
    /// The proxy answers with this reply.
    Answer(Vec<u8>),
    Quit,
}

/// The name and the value of a token, as the client sent them.
pub(super) struct SentToken {
    pub(super) name: Vec<u8>,
    pub(super) token: Zeroizing<Vec<u8>>,
}

/// SHA-256 of the name and the value of a token.
#[derive(Clone, Copy, Eq, PartialEq)]
pub(super) struct TokenDigest([u8; 32]);

impl TokenDigest {
    pub(super) fn of(credentials: Credentials<'_>) -> Self {
        let mut context = Context::new(&SHA256);
        context.update(&(credentials.name.len() as u64).to_be_bytes());
        context.update(credentials.name);
        context.update(credentials.token);
        Self(context.finish().as_ref().try_into().unwrap_or_default())
    }
}

impl SentToken {
    fn of(Credentials { name, token }: Credentials<'_>) -> Self {
        Self { name: name.to_vec(), token: Zeroizing::new(token.to_vec()) }
    }

    pub(super) fn digest(&self) -> TokenDigest {
        TokenDigest::of(Credentials { name: &self.name, token: &self.token })
    }
}

/// Returns what the proxy does with a command of a client that is not authenticated.
pub(super) fn opening(head: &Head<'_>) -> Opening {
    let is = |wanted: &[u8]| head.name().is_some_and(|name| name.eq_ignore_ascii_case(wanted));
    match handling(head) {
        Handling::Authenticate(credentials) => Opening::Authenticate(SentToken::of(credentials)),
        Handling::Greet(credentials, hello) => {
            Opening::Greet(SentToken::of(credentials), hello.without_credentials())
        }
        Handling::Refuse(name @ ("AUTH" | "HELLO" | "RESET"), why) => {
            Opening::Answer(reply::error("ERR", &format!("{name} refused by the proxy: {why}")))
        }
        Handling::Forward if is(b"HELLO") => Opening::Answer(reply::error(
            "NOAUTH",
            "HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> option can be \
             used to authenticate the client and select the RESP protocol version at the same time",
        )),
        Handling::Forward if is(b"QUIT") => Opening::Quit,
        _ => Opening::Answer(reply::error("NOAUTH", "Authentication required.")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::command::CommandReader;
    use super::super::handling::reads_whole;
    use super::*;

    fn opened(text: &str) -> Opening {
        let arguments: Vec<&[u8]> = text.split(' ').map(str::as_bytes).collect();
        let mut reader = CommandReader::new(reads_whole);
        assert!(reader.read(&mut &reply::command(&arguments)[..], &mut Vec::new()).unwrap());
        opening(&reader.head())
    }

    #[test]
    fn only_authentication_is_possible() {
        for (text, wanted) in [
            ("GET a", "-NOAUTH Authentication required."),
            ("SELECT 1", "-NOAUTH Authentication required."),
            ("CONFIG GET a", "-NOAUTH Authentication required."),
            ("CLIENT SETNAME x", "-NOAUTH Authentication required."),
            ("AUTH token", "-ERR AUTH refused by the proxy: send AUTH NAME TOKEN"),
            ("AUTH a b c", "-ERR AUTH"),
            ("HELLO 3", "-NOAUTH HELLO must"),
            ("HELLO 3 AUTH ci", "-ERR HELLO"),
            ("RESET", "-ERR RESET"),
        ] {
            let Opening::Answer(answer) = opened(text) else { panic!("{text}") };
            let answer = String::from_utf8(answer).unwrap();
            assert!(answer.starts_with(wanted) && answer.ends_with("\r\n"), "{text}: {answer}");
        }
        assert!(matches!(opened("quit"), Opening::Quit));
        let Opening::Authenticate(sent) = opened("AUTH ci token") else { panic!("AUTH") };
        let Opening::Greet(same, hello) = opened("HELLO 3 AUTH ci token") else { panic!("HELLO") };
        assert!(sent.digest() == same.digest() && hello == reply::command(&[b"HELLO", b"3"]));
        let Opening::Authenticate(other) = opened("AUTH cit oken") else { panic!("AUTH") };
        assert!(sent.digest() != other.digest());
    }
}
