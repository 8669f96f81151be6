//! Reads response bodies that are not needed, so that their connections can be reused.

use std::time::Duration;

use bytes::Buf;
use http_body_util::BodyExt;

/// Maximum bytes read of an unneeded body before the connection is closed.
const BYTES_MAX: usize = 1 << 20;

/// Reads the rest of a body, up to a mebibyte and for at most `limit`. Dropping an unread body would reset the HTTP/2 stream (RFC
/// 9113 section 8.1) or close the HTTP/1.1 connection. A peer that is still sending may then lose the response.
pub async fn drain_body(mut left: impl BodyExt + Unpin, limit: Duration) {
    let reading = async {
        let mut room = BYTES_MAX;
        while let Some(Ok(frame)) = left.frame().await {
            let length = frame.data_ref().map_or(0, Buf::remaining);
            match room.checked_sub(length) {
                Some(less) => room = less,
                None => return,
            }
        }
    };
    // After the timeout the rest is not read.
    let _ = tokio::time::timeout(limit, reading).await;
}
