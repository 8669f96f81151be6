//! The WebSocket accept value, by which a server proves that it understands the handshake (RFC 6455 section 4.2.2).

use aws_lc_rs::digest;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// GUID that is appended to a key before hashing (RFC 6455 section 1.3).
pub(crate) const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// Returns the `Sec-WebSocket-Accept` value for `key`.
pub(crate) fn accept_of(key: &[u8]) -> String {
    let mut context = digest::Context::new(&digest::SHA1_FOR_LEGACY_USE_ONLY);
    context.update(key);
    context.update(GUID);
    STANDARD.encode(context.finish())
}
