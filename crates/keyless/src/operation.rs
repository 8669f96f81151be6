//! Operations by opcode.

use keys::{Hash, Scheme};

use crate::wire::{ErrorCode, opcode};

/// The operation of a request.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Operation {
    /// Its own payload.
    Ping,
    /// A signature.
    Sign(Scheme),
    /// RSA without padding, for TLS's RSA key exchange: by keys of security modules, where the operator has turned it on.
    RsaDecrypt,
    /// To seal the payload.
    Seal,
    /// Opens sealed data.
    Unseal,
}

/// Every opcode that is an operation, with the name that metrics have for it.
pub const OPERATIONS: [(u8, &str, Operation); 20] = [
    (opcode::PING, "ping", Operation::Ping),
    (0x01, "rsa-decrypt", Operation::RsaDecrypt),
    (0x02, "rsa-md5sha1", Operation::Sign(Scheme::RsaPkcs1(Hash::Md5Sha1))),
    (0x03, "rsa-sha1", Operation::Sign(Scheme::RsaPkcs1(Hash::Sha1))),
    (0x04, "rsa-sha224", Operation::Sign(Scheme::RsaPkcs1(Hash::Sha224))),
    (0x05, "rsa-sha256", Operation::Sign(Scheme::RsaPkcs1(Hash::Sha256))),
    (0x06, "rsa-sha384", Operation::Sign(Scheme::RsaPkcs1(Hash::Sha384))),
    (0x07, "rsa-sha512", Operation::Sign(Scheme::RsaPkcs1(Hash::Sha512))),
    (0x12, "ecdsa-md5sha1", Operation::Sign(Scheme::Ecdsa(Hash::Md5Sha1))),
    (0x13, "ecdsa-sha1", Operation::Sign(Scheme::Ecdsa(Hash::Sha1))),
    (0x14, "ecdsa-sha224", Operation::Sign(Scheme::Ecdsa(Hash::Sha224))),
    (0x15, "ecdsa-sha256", Operation::Sign(Scheme::Ecdsa(Hash::Sha256))),
    (0x16, "ecdsa-sha384", Operation::Sign(Scheme::Ecdsa(Hash::Sha384))),
    (0x17, "ecdsa-sha512", Operation::Sign(Scheme::Ecdsa(Hash::Sha512))),
    (0x18, "ed25519", Operation::Sign(Scheme::Ed25519)),
    (0x21, "seal", Operation::Seal),
    (0x22, "unseal", Operation::Unseal),
    (0x35, "pss-sha256", Operation::Sign(Scheme::RsaPss(Hash::Sha256))),
    (0x36, "pss-sha384", Operation::Sign(Scheme::RsaPss(Hash::Sha384))),
    (0x37, "pss-sha512", Operation::Sign(Scheme::RsaPss(Hash::Sha512))),
];

/// Where each opcode stands among [`OPERATIONS`]; [`NOWHERE`] for all others.
const PLACES: [u8; 256] = {
    let mut places = [NOWHERE; 256];
    let mut at = 0;
    while at < OPERATIONS.len() {
        places[OPERATIONS[at].0 as usize] = at as u8;
        at += 1;
    }
    places
};
const NOWHERE: u8 = u8::MAX;

/// The place of a request's opcode among [`OPERATIONS`].
///
/// # Errors
/// [`ErrorCode::UnexpectedOpcode`] for those of replies, [`ErrorCode::BadOpcode`] for what is none.
pub fn place(of: u8) -> Result<usize, ErrorCode> {
    match PLACES[usize::from(of)] {
        NOWHERE => match of {
            opcode::SUCCESS | opcode::PONG | opcode::ERROR => Err(ErrorCode::UnexpectedOpcode),
            _ => Err(ErrorCode::BadOpcode),
        },
        place => Ok(usize::from(place)),
    }
}

/// The place among [`OPERATIONS`] of signing so.
#[must_use]
pub(crate) fn signing(scheme: Scheme) -> Option<usize> {
    OPERATIONS.iter().position(|(_, _, operation)| *operation == Operation::Sign(scheme))
}

/// The opcode that asks for a signature so; `None` where the protocol has none.
#[must_use]
pub fn opcode_of(scheme: Scheme) -> Option<u8> {
    signing(scheme).map(|place| OPERATIONS[place].0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_opcode_is_an_operation_or_refused() {
        let mut found = 0;
        for of in 0..=u8::MAX {
            match place(of) {
                Ok(place) => {
                    assert_eq!(OPERATIONS[place].0, of);
                    found += 1;
                }
                Err(ErrorCode::UnexpectedOpcode) => assert!([0xf0, 0xf2, 0xff].contains(&of), "{of:#x}"),
                Err(code) => assert_eq!(code, ErrorCode::BadOpcode, "{of:#x}"),
            }
        }
        assert_eq!(found, OPERATIONS.len());
        for gone in [0x00, 0x08, 0x20, 0x23, 0x24, 0xf3] {
            assert_eq!(place(gone), Err(ErrorCode::BadOpcode), "{gone:#x}");
        }
    }
}
