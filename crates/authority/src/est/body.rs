//! Bodies: base64 whatever the headers say (RFC 8951 section 3.1), in lines of 76 that end with LF alone: `base64 -d` of coreutils
//! refuses CR, and `openssl base64 -d` a line of any length.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use x509::csr::CertificateRequest;

/// A certs-only message.
pub(super) const CERTS_ONLY: &str = "application/pkcs7-mime; smime-type=certs-only";
/// What older clients want to read of a body in base64.
pub(super) const BASE64: &str = "base64";
/// Separates the parts of a multipart body: base64 holds no hyphen, so no part holds it.
const BOUNDARY: &str = "bulla-est-part";

/// Padded or not.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The request in a body: base64 with white space anywhere, or, as some clients send it, PEM or DER.
pub(super) fn request(body: &[u8]) -> Result<CertificateRequest, String> {
    let is_pem = body.windows(11).any(|window| window == b"-----BEGIN ");
    // A key and a signature never fit into ASCII, base64 always does.
    let is_der = body.first() == Some(&0x30) && !body.is_ascii();
    if is_pem || is_der {
        return CertificateRequest::from_pem_or_der(body).map_err(|error| error.to_string());
    }
    let letters: Vec<u8> = body.iter().copied().filter(|b| !b.is_ascii_whitespace()).collect();
    if letters.is_empty() {
        return Err("the body is empty: send a PKCS #10 request in base64".to_owned());
    }
    let der = LENIENT.decode(letters).map_err(|_| "the body is not base64".to_owned())?;
    CertificateRequest::parse(&der).map_err(|error| error.to_string())
}

/// Base64 in lines of 76 letters.
pub(super) fn encoded(octets: &[u8]) -> String {
    const LINE_OCTETS: usize = 57;
    let lines = octets.chunks(LINE_OCTETS).map(|line| STANDARD.encode(line) + "\n");
    lines.collect()
}

/// A 200 with a body in base64.
pub(super) fn base64(content_type: &'static str, octets: &[u8]) -> Response<Bytes> {
    let mut response = ok(content_type, encoded(octets).into());
    response.headers_mut().insert("content-transfer-encoding", HeaderValue::from_static(BASE64));
    response
}

/// A 200 with a private key and its certificate (RFC 7030 section 4.4.2), which nothing in between may keep.
pub(super) fn key_and_certificate(pkcs8: &[u8], certs_only: &[u8]) -> Response<Bytes> {
    let part = |content_type: &str, octets: &[u8]| {
        let octets = zeroize::Zeroizing::new(encoded(octets));
        format!(
            "--{BOUNDARY}\r\nContent-Type: {content_type}\r\nContent-Transfer-Encoding: {BASE64}\r\n\r\n{}\r\n",
            *octets
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

/// A status with its reason.
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
    fn bodies_are_read_in_the_forms_they_come_in() {
        let key = keys::PrivateKey::generate(keys::KeyType::Ed25519).unwrap();
        let spki = keys::Signer::spki(&key).to_vec();
        let tbs = x509::csr::tbs(&x509::DistinguishedName::empty().der, &spki, &[], None);
        let der = x509::build::signed(&tbs, &x509::SignatureAlgorithm::Ed25519, &key.sign_now(&tbs).unwrap());
        let one_line = STANDARD.encode(&der);
        let forms = [
            der.clone(),
            one_line.clone().into_bytes(),
            one_line.trim_end_matches('=').as_bytes().to_vec(),
            encoded(&der).into_bytes(),
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
