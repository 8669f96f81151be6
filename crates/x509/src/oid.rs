//! Object identifiers of X.509, mostly as the content bytes of their DER.

pub(crate) const AT: &[u8] = &[0x55, 0x04];
pub(crate) const COMMON_NAME: &[u8] = &[0x55, 0x04, 3];
pub(crate) const ORGANIZATION: &[u8] = &[0x55, 0x04, 10];
pub(crate) const EMAIL_ADDRESS: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 1];
pub(crate) const DOMAIN_COMPONENT: &[u8] = &[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 25];
pub(crate) const USER_ID: &[u8] = &[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 1];

pub(crate) const SUBJECT_KEY_ID: &[u8] = &[0x55, 0x1d, 14];
pub(crate) const KEY_USAGE: &[u8] = &[0x55, 0x1d, 15];
pub(crate) const SUBJECT_ALT_NAME: &[u8] = &[0x55, 0x1d, 17];
pub(crate) const ISSUER_ALT_NAME: &[u8] = &[0x55, 0x1d, 18];
pub(crate) const BASIC_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 19];
pub(crate) const NAME_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 30];
pub(crate) const CRL_DISTRIBUTION_POINTS: &[u8] = &[0x55, 0x1d, 31];
pub(crate) const CERTIFICATE_POLICIES: &[u8] = &[0x55, 0x1d, 32];
pub(crate) const POLICY_MAPPINGS: &[u8] = &[0x55, 0x1d, 33];
pub(crate) const AUTHORITY_KEY_ID: &[u8] = &[0x55, 0x1d, 35];
pub(crate) const POLICY_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 36];
pub(crate) const EXTENDED_KEY_USAGE: &[u8] = &[0x55, 0x1d, 37];
pub(crate) const FRESHEST_CRL: &[u8] = &[0x55, 0x1d, 46];
pub(crate) const INHIBIT_ANY_POLICY: &[u8] = &[0x55, 0x1d, 54];
pub(crate) const AUTHORITY_INFO_ACCESS: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 1, 1];
pub(crate) const SUBJECT_INFO_ACCESS: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 1, 11];
pub(crate) const TLS_FEATURE: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 1, 24];
pub(crate) const SCT_LIST: &[u8] = &[0x2b, 6, 1, 4, 1, 0xd6, 0x79, 2, 4, 2];
pub(crate) const CT_POISON: &[u8] = &[0x2b, 6, 1, 4, 1, 0xd6, 0x79, 2, 4, 3];

pub(crate) const ACCESS_OCSP: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 0x30, 1];
pub(crate) const ACCESS_CA_ISSUERS: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 0x30, 2];
pub(crate) const OCSP_BASIC: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 0x30, 1, 1];

/// anyExtendedKeyUsage, as a dotted object identifier
pub(crate) const EKU_ANY: &str = "2.5.29.37.0";
/// id-kp-OCSPSigning
pub(crate) const EKU_OCSP_SIGNING: &str = "1.3.6.1.5.5.7.3.9";
/// id-kp-serverAuth
pub(crate) const EKU_SERVER: &str = "1.3.6.1.5.5.7.3.1";
/// Netscape and Microsoft Server Gated Cryptography, used by old intermediates instead of id-kp-serverAuth.
pub(crate) const EKU_SERVER_GATED: [&str; 2] = ["2.16.840.1.113730.4.1", "1.3.6.1.4.1.311.10.3.3"];

pub(crate) const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 1];
pub(crate) const RSA_PSS: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 10];
pub(crate) const MGF1: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 8];
/// pkcs-1. The last arc identifies the signature algorithm.
pub(crate) const PKCS1: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1];
/// sha1WithRSA and dsaWithSHA1 in the arc of the OIW, used in old certificates.
pub(crate) const OIW_SHA1_RSA: &[u8] = &[0x2b, 0x0e, 3, 2, 29];
pub(crate) const DSA: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x38, 4, 1];
pub(crate) const DSA_SHA1: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x38, 4, 3];
pub(crate) const DSA_SHA256: &[u8] = &[0x60, 0x86, 0x48, 1, 0x65, 3, 4, 3, 2];
pub(crate) const EC_PUBLIC_KEY: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1];
pub(crate) const ECDSA_SHA1: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 1];
/// ecdsa-with-SHA2. The last arc identifies the hash.
pub(crate) const ECDSA_SHA2: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3];
pub(crate) const P256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7];
pub(crate) const P384: &[u8] = &[0x2b, 0x81, 4, 0, 34];
pub(crate) const P521: &[u8] = &[0x2b, 0x81, 4, 0, 35];
pub(crate) const ED25519: &[u8] = &[0x2b, 0x65, 112];
pub(crate) const ED448: &[u8] = &[0x2b, 0x65, 113];
/// NIST's sigAlgs: 17, 18 and 19 are ML-DSA-44, -65 and -87.
pub(crate) const NIST_SIGNATURES: &[u8] = &[0x60, 0x86, 0x48, 1, 0x65, 3, 4, 3];
pub(crate) const SHA1: &[u8] = &[0x2b, 0x0e, 3, 2, 26];
/// NIST's hashAlgs: 1, 2 and 3 are SHA-256, -384 and -512.
pub(crate) const NIST_HASHES: &[u8] = &[0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2];
/// secp256k1, in the dotted form of [`crate::KeyAlgorithm::EcOther`].
pub(crate) const SECP256K1: &str = "1.3.132.0.10";

pub(crate) const CRL_NUMBER: &[u8] = &[0x55, 0x1d, 20];
pub(crate) const CRL_REASON: &[u8] = &[0x55, 0x1d, 21];
pub(crate) const INVALIDITY_DATE: &[u8] = &[0x55, 0x1d, 24];
pub(crate) const DELTA_CRL_INDICATOR: &[u8] = &[0x55, 0x1d, 27];
pub(crate) const ISSUING_DISTRIBUTION_POINT: &[u8] = &[0x55, 0x1d, 28];
/// id-ce-noRevAvail
pub(crate) const NO_REV_AVAIL: &[u8] = &[0x55, 0x1d, 56];
pub(crate) const CERTIFICATE_ISSUER: &[u8] = &[0x55, 0x1d, 29];
pub(crate) const OCSP_NONCE: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 0x30, 1, 2];
pub(crate) const OCSP_NO_CHECK: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 0x30, 1, 5];

/// Attributes of certification requests (RFC 2985 section 5.4).
pub(crate) const CHALLENGE_PASSWORD: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 7];
pub(crate) const EXTENSION_REQUEST: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 14];
/// szOID_CERT_EXTENSIONS, Microsoft's earlier identifier of the extension request.
pub(crate) const MS_EXTENSION_REQUEST: &[u8] = &[0x2b, 6, 1, 4, 1, 0x82, 0x37, 2, 1, 14];
