//! Requests to the permission service, and parsing of its responses.

use std::time::Duration;

use outbound::Deadline;
use outbound::guard::Guard;
use outbound::http::{Client, HttpError};
use outbound::resolve::Resolver;
use zeroize::Zeroizing;

use super::options::{BadPermission, Options, Token};
use super::question::Question;
use crate::setting::is_loopback_host;

/// Maximum bytes of a response's body, whose content is ignored.
const BODY_BYTES_MAX: usize = 16 << 10;

/// Maximum bytes of a user name, a consumer's subject or one of its names in a request.
const WHO_BYTES_MAX: usize = 1_024;
/// Maximum names of a consumer in a request.
const NAMES_MAX: usize = 16;

/// Reason why the permission service made no decision.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum DecisionError {
    /// The service did not respond, or its response contains no decision.
    Silent(String),
    /// The request cannot be sent; this does not mean that the service is unavailable.
    NotPut(String),
}

/// HTTP client of the permission service, with persistent connections.
pub(super) struct PermissionService {
    http: Client,
    url: String,
    authorization: Option<Zeroizing<String>>,
    timeout: Duration,
}

impl PermissionService {
    pub(super) fn new(options: &Options, resolver: &Resolver) -> Result<Self, BadPermission> {
        let url = Guard::default().url(&options.url)?;
        let host = url.host_str().unwrap_or_default();
        if url.scheme() != "https" && !is_loopback_host(host) {
            return Err(BadPermission::InTheClear(host.to_owned()));
        }
        let is_token =
            |token: &Token| !token.0.is_empty() && token.0.bytes().all(|byte| byte.is_ascii_graphic());
        if !options.token.as_ref().is_none_or(is_token) {
            return Err(BadPermission::Token);
        }
        let how = outbound::http::Options { roots: options.roots.clone(), ..Default::default() };
        let http = Client::new(resolver, &how)?;
        let bearer = |token: &Token| Zeroizing::new(format!("Bearer {}", *token.0));
        Ok(Self {
            http,
            url: options.url.clone(),
            authorization: options.token.as_ref().map(bearer),
            timeout: options.timeout,
        })
    }

    pub(super) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Sends a request and returns the decision.
    ///
    /// # Cancellation
    /// Dropping the future cancels the request; with HTTP/1.1 it also closes the connection.
    pub(super) async fn put(&self, question: &Question) -> Result<bool, DecisionError> {
        let url = self.url_of(question).map_err(|error| DecisionError::NotPut(error.to_string()))?;
        let header = self.authorization.as_ref().map(|value| ("authorization", value.as_str()));
        let deadline = Deadline::within(self.timeout);
        let answer = self.http.get(&url, header.as_slice(), BODY_BYTES_MAX, deadline).await;
        match answer {
            Ok(reply) => decision_of(reply.status.as_u16()),
            Err(HttpError::TimedOut { host }) => {
                let limit = self.timeout.as_millis();
                Err(DecisionError::Silent(format!("{host} did not answer within {limit} ms")))
            }
            Err(error @ (HttpError::Refused(_) | HttpError::Header(_))) => {
                Err(DecisionError::NotPut(error.to_string()))
            }
            Err(error) => Err(DecisionError::Silent(error.to_string())),
        }
    }

    /// Returns the URL in Caddy's format (`on_demand_tls`, `ask`): the host name or address is `domain`. Parameters about the
    /// client are truncated. The cache key is the complete [`Question`], so clients with equal truncated parameters do not share
    /// decisions.
    fn url_of(&self, question: &Question) -> Result<String, HttpError> {
        let mut url = Guard::default().url(&self.url)?;
        let client = question.client.map(|client| client.to_string());
        {
            let mut query = url.query_pairs_mut();
            query.append_pair("domain", &question.name.to_string());
            for (key, value) in [("client", client.as_deref()), ("user", question.user.as_deref())] {
                if let Some(value) = value {
                    query.append_pair(key, cut(value));
                }
            }
            if let Some(consumer) = &question.consumer {
                query.append_pair("consumer", cut(&consumer.subject));
                for name in consumer.names.iter().take(NAMES_MAX) {
                    query.append_pair("consumer_name", cut(name));
                }
            }
        }
        Ok(url.into())
    }
}

/// Truncates a text at a character boundary.
fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(WHO_BYTES_MAX)]
}

/// Returns the decision of a status code: permitted, denied, or none. Authentication, rate limit and timeout errors say nothing
/// about the name.
fn decision_of(status: u16) -> Result<bool, DecisionError> {
    match status {
        200 | 204 => Ok(true),
        400..=499 if ![401, 407, 408, 425, 429].contains(&status) => Ok(false),
        _ => Err(DecisionError::Silent(format!("the permission service returned status {status}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_codes_map_to_allowed_denied_or_no_answer() {
        for (status, wanted) in [
            (200, Some(true)),
            (204, Some(true)),
            (400, Some(false)),
            (403, Some(false)),
            (404, Some(false)),
            (410, Some(false)),
            // A login page, a redirect to one, or a server error.
            (201, None),
            (302, None),
            (401, None),
            (429, None),
            (500, None),
            (503, None),
        ] {
            assert_eq!(decision_of(status).ok(), wanted, "{status}");
        }
    }

    #[test]
    fn plain_http_is_allowed_only_to_loopback() {
        let refused = |url: &str| {
            PermissionService::new(&Options::new(url.to_owned()), &Resolver::system().unwrap()).err()
        };
        for url in
            ["https://ask.example/x", "http://127.0.0.1:1/x?a=b", "http://[::1]/", "http://localhost:80"]
        {
            assert!(refused(url).is_none(), "{url}");
        }
        for url in ["http://ask.example/", "http://10.0.0.1/", "http://localhost.example/"] {
            assert!(matches!(refused(url), Some(BadPermission::InTheClear(_))), "{url}");
        }
        for url in ["", "ftp://127.0.0.1/", "https://u:p@ask.example/", "https://169.254.169.254/"] {
            assert!(matches!(refused(url), Some(BadPermission::Url(_))), "{url}");
        }
    }

    #[test]
    fn token_with_invalid_characters_is_rejected() {
        let service = |token: &str| {
            let options = Options {
                token: Some(super::super::Token::new(token.to_owned())),
                ..Options::new("http://127.0.0.1:1/".to_owned())
            };
            PermissionService::new(&options, &Resolver::system().unwrap()).err()
        };
        assert!(service("a-b.c~d+e/f=").is_none());
        for token in ["", "one\ntwo", "sés", "two words", "\u{7f}"] {
            assert!(matches!(service(token), Some(BadPermission::Token)), "{token:?}");
        }
    }

    #[test]
    fn permission_url_encodes_client_user_and_consumer() {
        let mut options = Options::new("http://127.0.0.1:1/ask?for=proxy".to_owned());
        options.token = Some(super::super::Token::new("t".into()));
        let service = PermissionService::new(&options, &Resolver::system().unwrap()).unwrap();
        let question = Question {
            name: x509::HostOrIp::parse("a.example").unwrap(),
            client: Some("2001:db8::1".parse().unwrap()),
            user: Some("al&domain=evil.example".into()),
            consumer: Some(std::sync::Arc::new(crate::permission::Identity {
                whole: "".into(),
                subject: "CN=a b".to_owned(),
                names: vec!["spiffe://x.example/a&b".to_owned(), "b.example".to_owned()],
            })),
        };
        assert_eq!(
            service.url_of(&question).unwrap(),
            "http://127.0.0.1:1/ask?for=proxy&domain=a.example&client=2001%3Adb8%3A%3A1\
             &user=al%26domain%3Devil.example&consumer=CN%3Da+b\
             &consumer_name=spiffe%3A%2F%2Fx.example%2Fa%26b&consumer_name=b.example"
        );
        let long = Question { user: Some("é".repeat(WHO_BYTES_MAX).into()), consumer: None, ..question };
        assert!(service.url_of(&long).unwrap().ends_with(&"%C3%A9".repeat(WHO_BYTES_MAX / 2)));
        assert_eq!(service.authorization.unwrap().as_str(), "Bearer t");
    }
}
