//! Bodies that nobody wants, read so that their connections can be used on.

use std::time::Duration;

use bytes::Buf;
use http_body_util::BodyExt;

/// Bytes of an unwanted body that are read before the connection is closed.
const OCTETS_MAX: usize = 1 << 20;

/// Reads what is left of a body, up to a mebibyte of it and for no longer than `limit`. What is dropped unread resets a
/// stream of HTTP/2 (RFC 9113 section 8.1) or closes a connection of HTTP/1.1, and who still writes it may lose the
/// answer with it.
pub async fn read_away(mut left: impl BodyExt + Unpin, limit: Duration) {
    let reading = async {
        let mut room = OCTETS_MAX;
        while let Some(Ok(frame)) = left.frame().await {
            let octets = frame.data_ref().map_or(0, Buf::remaining);
            match room.checked_sub(octets) {
                Some(less) => room = less,
                None => return,
            }
        }
    };
    // What comes too late is given up.
    let _ = tokio::time::timeout(limit, reading).await;
}
