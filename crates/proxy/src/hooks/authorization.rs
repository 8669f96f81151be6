//! External authorization (`ext_authz`): one call for each request.

use bytes::Bytes;
use http_relay::clock::now;
use hyper::{HeaderMap, StatusCode};
use tonic::transport::Channel;

use super::envoy::config::core::v3::header_value_option::HeaderAppendAction;
use super::envoy::config::core::v3::{Address, SocketAddress};
use super::envoy::service::auth::v3 as auth;
use super::envoy::service::auth::v3::attribute_context::{HttpRequest, Peer, Request};
use super::envoy::service::auth::v3::authorization_client::AuthorizationClient;
use super::envoy::service::auth::v3::check_response::HttpResponse;
use super::exchange::{Changes, HookFacts, HookReply, RequestHead, Verdict};
use super::fault::HookFault;
use super::fields::{changes, field_map};

/// A field without an action replaces the field of the request.
const PLAIN: HeaderAppendAction = HeaderAppendAction::OverwriteIfExistsOrAdd;
/// gRPC status code by which the service permits a request.
const OK: i32 = 0;

/// Asks the service about a request. `body` is the whole body, if the service gets bodies.
///
/// # Errors
/// [`HookFault`]
pub(super) async fn check(
    channel: Channel,
    bytes_max: usize,
    facts: &HookFacts<'_>,
    (head, headers): (&RequestHead, &HeaderMap),
    body: Option<&Bytes>,
) -> Result<Verdict, HookFault> {
    let mut client = AuthorizationClient::new(channel).max_decoding_message_size(bytes_max);
    let request = auth::CheckRequest { attributes: Some(attributes(facts, head, headers, body)) };
    verdict(client.check(request).await?.into_inner())
}

fn attributes(
    facts: &HookFacts<'_>,
    head: &RequestHead,
    headers: &HeaderMap,
    body: Option<&Bytes>,
) -> auth::AttributeContext {
    let address = |address: String, port: u16| {
        let socket_address = Some(SocketAddress { address, port_value: port.into() });
        Some(Address { socket_address })
    };
    let client = facts.client.address;
    let text = body.and_then(|body| std::str::from_utf8(body).ok());
    let http = HttpRequest {
        id: facts.id.to_string(),
        method: head.method.clone(),
        headers: field_map(&facts.pseudo_fields(head), headers),
        path: head.path.clone(),
        host: facts.authority(),
        scheme: facts.scheme.to_owned(),
        size: body.map_or(-1, |body| i64::try_from(body.len()).unwrap_or(i64::MAX)),
        protocol: head.protocol().to_owned(),
        body: text.unwrap_or_default().to_owned(),
        // The field `body` is a UTF-8 text. Other bytes are sent in `raw_body`.
        raw_body: body.filter(|_| text.is_none()).map(|body| body.to_vec()).unwrap_or_default(),
    };
    let context = [("bulla.identity", facts.identity.as_deref()), ("bulla.rule", facts.rule.as_deref())];
    let context = context.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?.to_owned())));
    auth::AttributeContext {
        source: Some(Peer {
            address: address(client.ip().to_canonical().to_string(), client.port()),
            principal: facts.principal().to_owned(),
        }),
        destination: Some(Peer {
            address: address(facts.host.to_string(), facts.port),
            principal: String::new(),
        }),
        request: Some(Request {
            time: Some(auth::Timestamp { seconds: now().0, nanos: 0 }),
            http: Some(http),
        }),
        context_extensions: context.collect(),
    }
}

fn verdict(answer: auth::CheckResponse) -> Result<Verdict, HookFault> {
    // An empty message must not allow anything.
    let status = answer.status.ok_or(HookFault::Invalid("it has no status"))?;
    match (status.code, answer.http_response) {
        (OK, None) => Ok(Verdict::Continue(Changes::default())),
        (OK, Some(HttpResponse::OkResponse(ok))) => {
            if !ok.query_parameters_to_set.is_empty() || !ok.query_parameters_to_remove.is_empty() {
                return Err(HookFault::Field(":path".to_owned()));
            }
            let fields = changes(&ok.headers, &ok.headers_to_remove, PLAIN)?;
            let response_fields = changes(&ok.response_headers_to_add, &[], PLAIN)?;
            Ok(Verdict::Continue(Changes { fields, response_fields, ..Changes::default() }))
        }
        (OK, Some(HttpResponse::DeniedResponse(_))) => {
            Err(HookFault::Invalid("it allows the request and has a response that denies it"))
        }
        (_, Some(HttpResponse::DeniedResponse(denied))) => Ok(Verdict::Reply(HookReply {
            status: HookReply::status(denied.status.map(|status| status.code), StatusCode::FORBIDDEN)?,
            fields: changes(&denied.headers, &[], PLAIN)?,
            body: denied.body.into(),
        })),
        (_, _) => Ok(Verdict::Reply(HookReply {
            status: StatusCode::FORBIDDEN,
            fields: Vec::new(),
            body: Bytes::new(),
        })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(code: Option<i32>, http_response: Option<HttpResponse>) -> auth::CheckResponse {
        let status = code.map(|code| auth::Status { code, message: String::new() });
        auth::CheckResponse { status, http_response }
    }

    #[test]
    fn only_an_explicit_status_allows_a_request() {
        let ok = || Some(HttpResponse::OkResponse(auth::OkHttpResponse::default()));
        let denied = || Some(HttpResponse::DeniedResponse(auth::DeniedHttpResponse::default()));
        assert!(matches!(verdict(answer(Some(0), None)), Ok(Verdict::Continue(_))));
        assert!(matches!(verdict(answer(Some(0), ok())), Ok(Verdict::Continue(_))));
        for (code, response) in [(None, None), (None, ok()), (None, denied()), (Some(0), denied())] {
            let read = verdict(answer(code, response));
            assert!(matches!(read, Err(HookFault::Invalid(_))), "{code:?}: {read:?}");
        }
        for response in [None, ok(), denied()] {
            let read = verdict(answer(Some(7), response));
            assert!(matches!(read, Ok(Verdict::Reply(reply)) if reply.status == StatusCode::FORBIDDEN));
        }
        let query = auth::OkHttpResponse {
            query_parameters_to_remove: vec!["a".to_owned()],
            ..auth::OkHttpResponse::default()
        };
        let read = verdict(answer(Some(0), Some(HttpResponse::OkResponse(query))));
        assert!(matches!(read, Err(HookFault::Field(_))), "{read:?}");
    }
}
