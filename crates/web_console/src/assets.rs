//! Styles and scripts, compiled into the binary.

use std::io::Write;
use std::sync::LazyLock;

use aws_lc_rs::digest::{SHA256, digest};
use axum::Router;
use axum::extract::Path;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, VARY};
use http::{HeaderValue, StatusCode};

/// `Cache-Control` of assets, which never expire: their URL contains a hash of their content.
const IMMUTABLE: &str = "public, max-age=31536000, immutable";

/// A style or a script: content, compressed content and URL path.
struct Asset {
    name: &'static str,
    kind: &'static str,
    plain: &'static [u8],
    packed: Bytes,
    path: String,
}

static ASSETS: LazyLock<Vec<Asset>> = LazyLock::new(|| {
    vec![
        asset("console.css", "text/css; charset=utf-8", include_bytes!("../assets/console.css")),
        asset("console.js", "text/javascript; charset=utf-8", include_bytes!("../assets/console.js")),
        asset("mark.svg", "image/svg+xml", include_bytes!("../assets/mark.svg")),
        asset("htmx.js", "text/javascript; charset=utf-8", include_bytes!("../assets/vendor/htmx.min.js")),
        asset("uplot.js", "text/javascript; charset=utf-8", include_bytes!("../assets/vendor/uplot.min.js")),
        asset("uplot.css", "text/css; charset=utf-8", include_bytes!("../assets/vendor/uplot.min.css")),
    ]
});

fn asset(name: &'static str, kind: &'static str, plain: &'static [u8]) -> Asset {
    let hash = digest(&SHA256, plain);
    let hash = data_encoding::HEXLOWER.encode(&hash.as_ref()[..6]);
    let packed = packed(plain).map_or_else(|_| Bytes::from_static(plain), Bytes::from);
    Asset { name, kind, plain, packed, path: format!("/console/assets/{hash}/{name}") }
}

fn packed(plain: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(plain)?;
    encoder.finish()
}

/// Returns the URL path of an asset, with a hash of its content.
pub(crate) fn path(name: &str) -> &'static str {
    ASSETS.iter().find(|asset| asset.name == name).map_or("", |asset| &asset.path)
}

pub(crate) fn routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
    Router::new().route("/console/assets/{hash}/{name}", get(serve))
}

async fn serve(Path((_, name)): Path<(String, String)>, headers: HeaderMap) -> Response {
    let Some(asset) = ASSETS.iter().find(|asset| asset.name == name) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let accepts = headers.get(ACCEPT_ENCODING).and_then(|value| value.to_str().ok());
    let fixed = [
        (CONTENT_TYPE, HeaderValue::from_static(asset.kind)),
        (CACHE_CONTROL, HeaderValue::from_static(IMMUTABLE)),
        (VARY, HeaderValue::from_static("accept-encoding")),
    ];
    if accepts.is_some_and(|accepts| accepts.contains("gzip")) {
        let gzip = [(CONTENT_ENCODING, HeaderValue::from_static("gzip"))];
        return (fixed, gzip, asset.packed.clone()).into_response();
    }
    (fixed, asset.plain).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vendored_browser_libraries_match_their_checksums() {
        let sums = include_str!("../assets/vendor/SHA256SUMS");
        let files: [(&str, &[u8]); 3] = [
            ("htmx.min.js", include_bytes!("../assets/vendor/htmx.min.js")),
            ("uplot.min.js", include_bytes!("../assets/vendor/uplot.min.js")),
            ("uplot.min.css", include_bytes!("../assets/vendor/uplot.min.css")),
        ];
        for (name, bytes) in files {
            let sum = data_encoding::HEXLOWER.encode(digest(&SHA256, bytes).as_ref());
            assert!(sums.contains(&format!("{sum}  {name}")), "{name} has {sum}");
        }
    }

    #[test]
    fn compressed_assets_do_not_exceed_100_kib() {
        let packed: usize = ASSETS.iter().map(|asset| asset.packed.len()).sum();
        assert!(packed <= 100 << 10, "{packed} bytes compressed");
    }
}
