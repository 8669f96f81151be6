//! Cert Spotter: SSLMate's CT Search API v1 (sslmate.com/help/reference/ct_search_api_v1). Each issuance is one object, pages are
//! in the order of discovery, and an empty page is the end.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use outbound::http::percent_encoded;
use serde::Deserialize;
use x509::Fingerprint;

use super::answer::{InvalidResponse, IssuancesFound, time};
use crate::issuance::{Issuance, IssuanceId, NAMES_MAX};
use crate::merkle::{Hash, sha256};

pub(super) fn url(base: &str, domain: &str, after: Option<&str>) -> String {
    let after = after.map(|after| format!("&after={}", percent_encoded(after))).unwrap_or_default();
    format!(
        "{base}/v1/issuances?domain={}&include_subdomains=true&expand=dns_names&expand=issuer&expand=cert_der{after}",
        percent_encoded(domain)
    )
}

#[derive(Deserialize)]
struct IssuanceJson {
    id: String,
    tbs_sha256: Option<String>,
    cert_sha256: Option<String>,
    pubkey_sha256: Option<String>,
    #[serde(default)]
    dns_names: Vec<String>,
    issuer: Option<IssuerJson>,
    not_before: Option<String>,
    not_after: Option<String>,
    /// The certificate, returned with `expand=cert_der`.
    cert_der: Option<String>,
    /// The certificate in the older format of `expand=cert`.
    cert: Option<CertificateJson>,
}

#[derive(Deserialize)]
struct IssuerJson {
    name: Option<String>,
}

#[derive(Deserialize)]
struct CertificateJson {
    data: Option<String>,
}

/// Parses a page.
///
/// # Errors
/// When the body is not a JSON array of objects with an id; then the whole page is rejected. Other missing fields make an issuance
/// unreadable, not the page.
pub fn read(body: &[u8]) -> Result<IssuancesFound, InvalidResponse> {
    let page: Vec<IssuanceJson> = serde_json::from_slice(body)?;
    let after = page.last().map(|last| last.id.clone());
    Ok(IssuancesFound { issuances: page.into_iter().map(issuance).collect(), after })
}

fn issuance(json: IssuanceJson) -> Issuance {
    let tbs = json.tbs_sha256.as_deref().and_then(hash);
    let encoded = json.cert_der.as_deref().or_else(|| json.cert.as_ref()?.data.as_deref());
    let mut issuance = match encoded.and_then(|text| STANDARD.decode(text).ok()) {
        Some(der) => Issuance::from_der(&der),
        None => issuance_from_metadata(&json, tbs),
    };
    issuance.id.tbs = tbs.or(issuance.id.tbs);
    let dns_names = json.dns_names.into_iter().map(|name| name.to_lowercase());
    issuance.names.extend(dns_names);
    issuance.names.sort_unstable();
    issuance.names.dedup();
    issuance.names.truncate(NAMES_MAX);
    issuance
}

/// Creates an issuance from the metadata, for objects without a certificate.
fn issuance_from_metadata(json: &IssuanceJson, tbs: Option<Hash>) -> Issuance {
    let issuer = json.issuer.as_ref().and_then(|issuer| issuer.name.clone()).unwrap_or_default();
    // Without a serial number the issuance is identified by its hash, or else by the service's id.
    let apart = tbs.unwrap_or_else(|| sha256(json.id.as_bytes()));
    let at = |text: &Option<String>| text.as_deref().map(time).unwrap_or_default();
    Issuance {
        id: IssuanceId { issuer_serial: apart, tbs },
        issuer,
        serial: None,
        names: Vec::new(),
        not_before: at(&json.not_before),
        not_after: at(&json.not_after),
        spki_sha256: json.pubkey_sha256.as_deref().and_then(hash),
        certificate_sha256: json.cert_sha256.as_deref().and_then(hash),
        precertificate: false,
        readable: tbs.is_some() && !json.dns_names.is_empty(),
        der: None,
    }
}

fn hash(text: &str) -> Option<Hash> {
    text.parse::<Fingerprint>().ok().map(|hash| *hash.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documented_response_is_parsed() {
        let body = br#"[{"id":"648494876","tbs_sha256":"6c1c8a9de3d1eb0fd2f2b5f9ea2a5f3a8bdf66b5e17ba8a3d6ffa7c5c5d8c2f1",
            "cert_sha256":"9250711c54de546f4370e0c3d3a3ec45bc96092a25a4a71a1afa396af7047eb8",
            "dns_names":["example.com","WWW.example.com"],
            "pubkey_sha256":"8bd1da95272f7fa4ffb24137fc0ed03aae67e5c4d8b3c50734e1050a7920b922",
            "issuer":{"friendly_name":"DigiCert","name":"C=US, O=DigiCert Inc, CN=DigiCert SHA2 Secure Server CA"},
            "not_before":"2018-11-28T00:00:00Z","not_after":"2020-12-02T12:00:00-00:00","revoked":false}]"#;
        let found = read(body).unwrap();
        assert_eq!(found.after.as_deref(), Some("648494876"));
        let one = &found.issuances[0];
        assert_eq!(one.names, ["example.com", "www.example.com"]);
        assert_eq!((one.not_before.0, one.not_after.0), (1_543_363_200, 1_606_910_400));
        assert!(one.readable && one.id.tbs.is_some());
    }

    #[test]
    fn truncated_page_is_rejected_and_bad_object_marked_unreadable() {
        assert!(read(br#"[{"id":"1","dns_names":["a"#).is_err());
        assert!(read(b"").is_err());
        assert!(read(br#"{"code":"rate_limited"}"#).is_err());
        let found =
            read(br#"[{"id":"1","dns_names":["a.example"],"tbs_sha256":"zz","cert_der":"!"}]"#).unwrap();
        assert!(!found.issuances[0].readable);
        assert_eq!(found.issuances[0].names, ["a.example"]);
        assert!(read(b"[]").unwrap().issuances.is_empty());
    }
}
