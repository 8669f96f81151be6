//! Request and response bodies: always base64, independent of the headers (RFC 8951 section 3.1). Responses have lines of 76
//! characters that end with LF. `base64 -d` of coreutils rejects CR, and `openssl base64 -d` rejects long lines.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use x509::csr::CertificateRequest;

/// Media type of a certs-only message.
pub(super) const CERTS_ONLY: &str = "application/pkcs7-mime; smime-type=certs-only";
/// Transfer encoding that older clients expect in the header of a base64 body.
pub(super) const BASE64: &str = "base64";
/// Boundary between the parts of a multipart body. Base64 has no hyphen, so no part can contain the boundary.
const BOUNDARY: &str = "bulla-est-part";

/// Base64 decoder that accepts missing padding.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Parses the CSR in a body: base64 with white space anywhere, or PEM or DER, which some clients send.
pub(super) fn request(body: &[u8]) -> Result<CertificateRequest, String> {
    let is_pem = body.windows(11).any(|window| window == b"-----BEGIN ");
    // Base64 is always ASCII; a DER request never is, because of its key and signature.
    let is_der = body.first() == Some(&0x30) && !body.is_ascii();
    if is_pem || is_der {
        return CertificateRequest::from_pem_or_der(body).map_err(|error| error.to_string());
    }
    let base64_text: Vec<u8> = body.iter().copied().filter(|b| !b.is_ascii_whitespace()).collect();
    if base64_text.is_empty() {
        return Err("the body is empty: send a PKCS #10 request in base64".to_owned());
    }
    let der = LENIENT.decode(base64_text).map_err(|_| "the body is not base64".to_owned())?;
    CertificateRequest::parse(&der).map_err(|error| error.to_string())
}

/// Encodes bytes as base64 in lines of 76 characters.
pub(super) fn encode_base64(bytes: &[u8]) -> String {
    const LINE_BYTES: usize = 57;
    let lines = bytes.chunks(LINE_BYTES).map(|line| STANDARD.encode(line) + "\n");
    lines.collect()
}

/// Returns a response with status 200 and a base64 body.
pub(super) fn base64(content_type: &'static str, bytes: &[u8]) -> Response<Bytes> {
    let mut response = ok(content_type, encode_base64(bytes).into());
    response.headers_mut().insert("content-transfer-encoding", HeaderValue::from_static(BASE64));
    response
}

/// Returns a response with status 200, a private key and its certificate (RFC 7030 section 4.4.2). The response must not be cached.
pub(super) fn key_and_certificate(pkcs8: &[u8], certs_only: &[u8]) -> Response<Bytes> {
    let part = |content_type: &str, bytes: &[u8]| {
        let bytes = zeroize::Zeroizing::new(encode_base64(bytes));
        format!(
            "--{BOUNDARY}\r\nContent-Type: {content_type}\r\nContent-Transfer-Encoding: {BASE64}\r\n\r\n{}\r\n",
            *bytes
        )
    };
    let body = format!(
        "{}{}--{BOUNDARY}--\r\n",
        *zeroize::Zeroizing::new(part("application/pkcs8", pkcs8)),
        part(CERTS_ONLY, certs_only)
    );
    ok("multipart/mixed; boundary=bulla-est-part", body.into())
}

fn ok(content_type: &'static str, body: Bytes) -> Response<Bytes> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Returns a plain-text response with the reason of a failure.
pub(super) fn text(status: StatusCode, reason: &str) -> Response<Bytes> {
    let mut response = Response::new(format!("{reason}\n").into());
    *response.status_mut() = status;
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, plain);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn csr_body_is_accepted_in_der_base64_and_pem() {
        let key = keys::PrivateKey::generate(keys::KeyType::Ed25519).unwrap();
        let spki = keys::Signer::spki(&key).to_vec();
        let tbs = x509::csr::tbs(&x509::DistinguishedName::empty().der, &spki, &[], None);
        let der = x509::build::signed(&tbs, &x509::SignatureAlgorithm::Ed25519, &key.sign_now(&tbs).unwrap());
        let one_line = STANDARD.encode(&der);
        let forms = [
            der.clone(),
            one_line.clone().into_bytes(),
            one_line.trim_end_matches('=').as_bytes().to_vec(),
            encode_base64(&der).into_bytes(),
            format!("\n{}\n\n", one_line.replace('A', "A \t\r\n")).into_bytes(),
            x509::pem::encode("CERTIFICATE REQUEST", &der).into_bytes(),
        ];
        for form in forms {
            let read = request(&form).unwrap_or_else(|error| panic!("{error}: {form:02x?}"));
            assert_eq!(*read.der, *der);
        }
        for bad in [&b""[..], b" \n", b"%%%%", b"aGVsbG8=", b"-----BEGIN X-----", &[0x30, 0x82, 0xff]] {
            assert!(request(bad).is_err(), "{bad:02x?}");
        }
    }
}
