//! Any HTTP service: the message as JSON, with a timestamped signature.
//!
//! `Bulla-Signature: t=SECONDS,v1=HEX`, where HEX is HMAC-SHA256 over `SECONDS.BODY` under the channel's secret. A receiver rejects
//! times more than five minutes away, so that a recorded message cannot be replayed later.

use aws_lc_rs::hmac::{HMAC_SHA256, Key, sign};
use data_encoding::HEXLOWER;

use super::config::Webhook;
use super::error::ChannelError;
use super::outgoing::Outgoing;
use crate::message::Message;

pub(super) fn request(config: &Webhook, message: &Message, now_us: i64) -> Result<Outgoing, ChannelError> {
    let body = serde_json::to_vec(message).map_err(ChannelError::permanent)?;
    let at = now_us.div_euclid(1_000_000);
    let signature = signature(config.secret.expose(), at, &body);
    Ok(Outgoing { url: config.url.clone(), body, headers: Vec::new() }
        .header("bulla-signature", signature)
        .header("bulla-message", message.id.to_string()))
}

fn signature(secret: &str, at: i64, body: &[u8]) -> String {
    let mut signed = format!("{at}.").into_bytes();
    signed.extend_from_slice(body);
    let tag = sign(&Key::new(HMAC_SHA256, secret.as_bytes()), &signed);
    format!("t={at},v1={}", HEXLOWER.encode(tag.as_ref()))
}

#[cfg(test)]
mod tests {
    #[test]
    fn webhook_signature_matches_openssl() {
        // Expected value: printf '1795219200.{}' | openssl dgst -sha256 -hmac 0123456789abcdef
        assert_eq!(
            super::signature("0123456789abcdef", 1_795_219_200, b"{}"),
            "t=1795219200,v1=eb45f439b65585aa71cccd2ac83810801285b623e51d05244e20a054914ee764"
        );
    }
}
