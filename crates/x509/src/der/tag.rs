//! Identifier bytes (X.690 section 8.1.2). Only tags below 31 occur in X.509.

/// BOOLEAN
pub const BOOLEAN: u8 = 0x01;
/// INTEGER
pub const INTEGER: u8 = 0x02;
/// BIT STRING
pub const BIT_STRING: u8 = 0x03;
/// OCTET STRING
pub const OCTET_STRING: u8 = 0x04;
/// NULL
pub const NULL: u8 = 0x05;
/// OBJECT IDENTIFIER
pub const OID: u8 = 0x06;
/// ENUMERATED
pub const ENUMERATED: u8 = 0x0a;
/// UTF8String
pub const UTF8_STRING: u8 = 0x0c;
/// NumericString
pub const NUMERIC_STRING: u8 = 0x12;
/// PrintableString
pub const PRINTABLE_STRING: u8 = 0x13;
/// TeletexString, in practice Latin-1
pub const TELETEX_STRING: u8 = 0x14;
/// IA5String, that is ASCII
pub const IA5_STRING: u8 = 0x16;
/// UTCTime
pub const UTC_TIME: u8 = 0x17;
/// GeneralizedTime
pub const GENERALIZED_TIME: u8 = 0x18;
/// VisibleString
pub const VISIBLE_STRING: u8 = 0x1a;
/// UniversalString, four bytes for each character
pub const UNIVERSAL_STRING: u8 = 0x1c;
/// BMPString, two bytes for each character
pub const BMP_STRING: u8 = 0x1e;
/// SEQUENCE and SEQUENCE OF
pub const SEQUENCE: u8 = 0x30;
/// SET and SET OF
pub const SET: u8 = 0x31;

/// Returns a primitive context tag, as used for IMPLICIT tagging of a primitive type.
#[must_use]
pub const fn context(number: u8) -> u8 {
    0x80 | number
}

/// Returns a constructed context tag, as used for EXPLICIT tagging and IMPLICIT tagging of a SEQUENCE.
#[must_use]
pub const fn context_constructed(number: u8) -> u8 {
    0xa0 | number
}
